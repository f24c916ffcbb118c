"""`penstock queue`: list, show, pause, resume, delete."""

from __future__ import annotations

from penstock import Penstock
from tests.cli.conftest import Cli, on_sqlite
from tests.cli.terminal import Terminal


async def fill(app: Penstock) -> None:
    """Put jobs into two queues, in several states."""
    await app.queue("mail").enqueue_many([{"n": n} for n in range(3)])
    await app.queue("mail").enqueue({"n": 3}, delay=60)
    await app.queue("other/queue").enqueue(1)


def test_the_queues_are_listed(cli: Cli) -> None:
    """`queue ls` has a heading, and a line per queue with its counts."""
    cli.do(fill)
    heading, mail, other = cli.ok("queue", "ls").splitlines()
    assert heading.split()[:4] == ["queue", "queued", "running", "scheduled"]
    assert mail.split()[:4] == ["mail", "3", "0", "1"]
    assert other.split()[:2] == ["other/queue", "1"]


def test_queue_ls_as_json(cli: Cli) -> None:
    """`queue ls --json` has counts by state, the age of the oldest job, and workers."""
    cli.do(fill)
    mail, other = cli.json("queue", "ls")
    assert (mail["name"], mail["counts"]["queued"], mail["counts"]["scheduled"]) == ("mail", 3, 1)
    assert mail["oldest_seconds"] >= 0
    assert (mail["workers"], mail["paused_since"], mail["finished"]) == ([], None, 0)
    assert other["name"] == "other/queue"


def test_queue_ls_of_an_empty_storage(cli: Cli) -> None:
    """Without queues, `queue ls` prints a note on stderr, and --json an empty list."""
    cli.do(Penstock.queues)
    result = cli.run("queue", "ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"no queues here: the namespace {cli.namespace!r} is empty" in result.stderr
    assert cli.json("queue", "ls") == []


def test_one_queue_is_shown(cli: Cli) -> None:
    """`queue show` has the next job, and the note that no worker serves the queue."""
    cli.do(fill)
    cli.do(lambda app: app.queue("mail").enqueue("first", id="urgent", priority=5))
    text = cli.ok("queue", "show", "mail")
    assert "urgent" in text
    assert "no worker serves this queue" in text
    assert cli.json("queue", "show", "mail")["next"] == {"id": "urgent", "state": "queued"}


def test_pause_and_resume(cli: Cli) -> None:
    """`queue pause` and `resume` take several queues, and report those that did not change."""
    cli.do(fill)
    assert cli.ok("queue", "pause", "mail", "other/queue") == "mail: paused\nother/queue: paused\n"
    assert cli.ok("queue", "pause", "mail") == "mail: was paused already\n"
    assert "paused" in cli.ok("queue", "ls")
    assert cli.do(lambda app: app.queue("mail").peek()) is None
    assert cli.ok("queue", "resume", "mail") == "mail: resumed\n"
    assert cli.ok("queue", "resume", "mail") == "mail: was not paused\n"


def test_an_unknown_queue_is_hinted_at(cli: Cli) -> None:
    """`pause`, `resume`, `show` and `delete` of an unknown queue work, with a hint on stderr and exit code 0."""
    cli.do(fill)
    result = cli.run("queue", "pause", "mial", "mail")
    assert (result.exit_code, result.stdout) == (0, "mial: paused\nmail: paused\n")
    assert result.stderr == "no worker serves 'mial' and it had no jobs before; did you mean 'mail'?\n"
    assert cli.run("queue", "resume", "mial").stderr == ""
    for verb in (["show"], ["delete", "--yes"]):
        result = cli.run("queue", *verb, "mial")
        assert (result.exit_code, "there is no queue 'mial' at" in result.stderr) == (0, True)
        assert "did you mean 'mail'?" in result.stderr


def test_delete_without_a_terminal_needs_yes(cli: Cli) -> None:
    """Without a terminal a queue is deleted only with --yes; the error has the number of jobs."""
    cli.do(fill)
    line = cli.fails("queue", "delete", "mail", code=2)
    assert "4 jobs" in line
    assert "--yes" in line
    assert cli.json("queue", "show", "mail")["counts"]["queued"] == 3
    assert cli.ok("queue", "delete", "mail", "--yes") == "mail: deleted, 4 jobs\n"
    assert cli.do(Penstock.queues) == ["other/queue"]


@on_sqlite
def test_control_characters_in_names_are_escaped(cli: Cli) -> None:
    """Control characters in a queue's name are printed escaped."""
    cli.do(lambda app: app.queue("evil\x1b[2J\nqueue").enqueue(1))
    heading, line = cli.ok("queue", "ls").splitlines()
    assert line.startswith(r"evil\x1b[2J\nqueue")
    assert cli.json("queue", "ls")[0]["name"] == "evil\x1b[2J\nqueue"
    assert heading


@on_sqlite
def test_delete_asks_at_a_terminal(cli: Cli) -> None:
    """At a terminal `queue delete` asks; any answer but yes leaves the queue."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    for answer, code, left in (("n\r", 1, ["mail"]), ("y\r", 0, [])):
        with Terminal("queue", "delete", "mail", environment=cli.environment, cwd=cli.directory) as terminal:
            terminal.until("Delete mail with 1 job?")
            terminal.type(answer)
            assert terminal.wait_for_exit() == code
        assert cli.do(Penstock.queues) == left


@on_sqlite
def test_an_empty_namespace_names_the_others(cli: Cli) -> None:
    """`queue ls` and `doctor` on a namespace without queues name the namespaces of the file that have some."""
    cli.ok("enqueue", "mail", "1", PENSTOCK_NAMESPACE="shop")
    cli.ok("enqueue", "mail", "1", PENSTOCK_NAMESPACE="blog")
    expected = f"the namespace {cli.namespace!r} is empty; there are queues in 'blog', 'shop'"
    assert expected in cli.run("queue", "ls").stderr
    assert expected in cli.ok("doctor")
    assert "is empty" not in cli.run("doctor", PENSTOCK_NAMESPACE="shop").stdout
    for name in ("shop", "blog"):
        cli.ok("queue", "delete", "mail", "--yes", PENSTOCK_NAMESPACE=name)
