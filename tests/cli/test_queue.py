"""`penstock queue`: looking, pausing, deleting."""

from __future__ import annotations

import asyncio

from penstock import Penstock, Worker
from tests.cli.conftest import Cli, on_sqlite, workers_there


async def fill(app: Penstock) -> None:
    """Two queues; one has jobs in several states."""
    await app.queue("mail").enqueue_many([{"n": n} for n in range(3)])
    await app.queue("mail").enqueue({"n": 3}, delay=60)
    await app.queue("other/queue").enqueue(1)


def test_the_queues_are_listed(cli: Cli) -> None:
    """Each queue has a line with its counts, and the heading names them."""
    cli.do(fill)
    heading, mail, other = cli.ok("queue", "ls").splitlines()
    assert heading.split()[:4] == ["queue", "queued", "running", "scheduled"]
    assert mail.split()[:4] == ["mail", "3", "0", "1"]
    assert other.split()[:2] == ["other/queue", "1"]


def test_the_list_for_programs(cli: Cli) -> None:
    """As JSON each queue has its counts by state, how long its first job waits, and its workers."""
    cli.do(fill)
    mail, other = cli.json("queue", "ls")
    assert (mail["name"], mail["counts"]["queued"], mail["counts"]["scheduled"]) == ("mail", 3, 1)
    assert mail["oldest_seconds"] >= 0
    assert (mail["workers"], mail["paused_since"], mail["finished"]) == ([], None, 0)
    assert other["name"] == "other/queue"


def test_no_queues(cli: Cli) -> None:
    """An empty storage is said to be so on stderr, and programs get an empty list."""
    cli.do(Penstock.queues)
    result = cli.run("queue", "ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no queues here" in result.stderr
    assert cli.json("queue", "ls") == []


def test_one_queue_is_shown(cli: Cli) -> None:
    """A queue is shown with the job that comes next and that nobody serves it."""
    cli.do(fill)
    cli.do(lambda app: app.queue("mail").enqueue("first", id="urgent", priority=5))
    text = cli.ok("queue", "show", "mail")
    assert "urgent" in text
    assert "no worker serves this queue" in text
    assert cli.json("queue", "show", "mail")["next"] == {"id": "urgent", "state": "queued"}


def test_a_worker_is_seen_in_the_list(cli: Cli) -> None:
    """A queue that a worker serves is listed with it, jobs or not."""

    async def look(app: Penstock) -> None:
        @app.handler("served")
        async def served(payload: int) -> None: ...

        async with Worker(app, id="w1"):
            await workers_there(app)
            [view] = await asyncio.to_thread(cli.json, "queue", "ls")
            assert (view["name"], view["workers"]) == ("served", ["w1"])
            [worker] = await asyncio.to_thread(cli.json, "worker", "ls")
            assert (worker["id"], worker["queues"], worker["capacity"]) == ("w1", ["served"], 100)
            line = (await asyncio.to_thread(cli.ok, "worker", "ls")).splitlines()[1]
            assert line.split()[0] == "w1"
            assert "0/100" in line

    cli.do(look)


def test_no_workers(cli: Cli) -> None:
    """Without workers the list says how to start one."""
    cli.do(Penstock.queues)
    assert "penstock worker MODULE:APP" in cli.run("worker", "ls").stderr
    assert cli.json("worker", "ls") == []


def test_pause_and_resume(cli: Cli) -> None:
    """Several queues are paused and resumed in one call, and what changed nothing is said."""
    cli.do(fill)
    assert cli.ok("queue", "pause", "mail", "other/queue") == "mail: paused\nother/queue: paused\n"
    assert cli.ok("queue", "pause", "mail") == "mail: was paused already\n"
    assert "paused" in cli.ok("queue", "ls")
    assert cli.do(lambda app: app.queue("mail").peek()) is None
    assert cli.ok("queue", "resume", "mail") == "mail: resumed\n"
    assert cli.ok("queue", "resume", "mail") == "mail: was not paused\n"


def test_deleting_asks_first(cli: Cli) -> None:
    """Where nobody can answer, a queue is deleted only with --yes, and the question says how many jobs go."""
    cli.do(fill)
    line = cli.fails("queue", "delete", "mail", code=2)
    assert "4 jobs" in line
    assert "--yes" in line
    assert cli.json("queue", "show", "mail")["counts"]["queued"] == 3
    assert cli.ok("queue", "delete", "mail", "--yes") == "mail: deleted, 4 jobs\n"
    assert cli.do(Penstock.queues) == ["other/queue"]


@on_sqlite
def test_names_do_not_command_the_terminal(cli: Cli) -> None:
    """Control characters in a queue's name are shown, not obeyed."""
    cli.do(lambda app: app.queue("evil\x1b[2J\nqueue").enqueue(1))
    heading, line = cli.ok("queue", "ls").splitlines()
    assert line.startswith(r"evil\x1b[2J\nqueue")
    assert cli.json("queue", "ls")[0]["name"] == "evil\x1b[2J\nqueue"
    assert heading
