"""`penstock job delete`, `penstock queue clear`, and `--expires`."""

from __future__ import annotations

import asyncio

from penstock import Penstock, State
from tests.cli.conftest import Cli, on_sqlite
from tests.cli.terminal import Terminal


async def fill(app: Penstock) -> None:
    """Put a cancelled job and a waiting one."""
    queue = app.queue("mail")
    await queue.enqueue(1, id="cancelled")
    await queue.cancel("cancelled")
    await queue.enqueue(1, id="waiting")


def test_jobs_are_deleted_and_each_answer_printed(cli: Cli) -> None:
    """The exit code is 1 if one of them was not there."""
    cli.do(fill)
    assert "2 jobs" in cli.fails("job", "delete", "mail", "waiting", "unknown", code=2)
    result = cli.run("job", "delete", "mail", "waiting", "unknown", "--yes")
    assert (result.exit_code, result.stdout) == (1, "waiting: deleted\nunknown: not found\n")
    assert cli.json("job", "delete", "mail", "cancelled", "--yes") == [{"id": "cancelled", "status": "discarded"}]
    assert cli.do(Penstock.queues) == []


def test_a_running_job_is_not_deleted(cli: Cli) -> None:
    """The line has the command to use instead, and the job goes on."""

    async def delete_a_running_job(app: Penstock) -> None:
        await app.queue("mail").enqueue(1, id="a")
        [reservation] = await app.queue("mail").reserve()
        result = await asyncio.to_thread(cli.run, "job", "delete", "mail", "a", "--yes")
        assert (result.exit_code, result.stdout) == (1, "a: is running; cancel it instead\n")
        await reservation.complete(None)

    cli.do(delete_a_running_job)


def test_a_queue_is_cleared_by_state_and_age(cli: Cli) -> None:
    """By default finished jobs go; --state and --older-than narrow it, and --yes is needed without a terminal."""
    cli.do(fill)
    assert cli.ok("queue", "clear", "mail", "--older-than", "7d", "--yes") == "mail: 0 jobs deleted\n"
    line = cli.fails("queue", "clear", "mail", "--state", "queued", code=2)
    assert "Delete 1 job of mail (queued)?" in line
    assert cli.ok("queue", "clear", "mail", "--yes") == "mail: 1 job deleted\n"
    assert cli.json("queue", "show", "mail")["counts"]["queued"] == 1
    assert (
        cli.ok("queue", "clear", "mail", "--state", "queued", "--state", "failed", "--yes") == "mail: 1 job deleted\n"
    )
    assert cli.ok("queue", "clear", "mail") == "mail: 0 jobs deleted\n"


@on_sqlite
def test_a_clear_refuses_running_jobs_and_wrong_spans(cli: Cli) -> None:
    """Both are usage errors that name the option."""
    cli.do(fill)
    for arguments, text in ((("--state", "running"), "--state"), (("--older-than", "soon"), "'soon' is not a span")):
        result = cli.run("queue", "clear", "mail", *arguments)
        assert result.exit_code == 2
        assert text in result.stderr


@on_sqlite
def test_clear_and_delete_ask_at_a_terminal(cli: Cli) -> None:
    """Any answer but yes leaves the jobs."""
    cli.do(fill)
    asked = (("queue", "clear", "mail"), "Delete 1 job of mail"), (("job", "delete", "mail", "waiting"), "Delete 1 job")
    for arguments, question in asked:
        for answer, code in (("n\r", 1), ("y\r", 0)):
            with Terminal(*arguments, environment=cli.environment, cwd=cli.directory) as terminal:
                terminal.until(question)
                terminal.type(answer)
                assert terminal.wait_for_exit() == code
    assert cli.do(Penstock.queues) == []


def test_a_job_is_enqueued_with_an_expiry(cli: Cli) -> None:
    """--expires takes a span, and `job show` has the time."""
    cli.ok("enqueue", "mail", "1", "--id", "a", "--expires", "5m")
    status = cli.do(lambda app: app.queue("mail").status("a"))
    assert status is not None
    assert status.start_by is not None
    assert (status.start_by - status.created_at).total_seconds() == 300
    assert "expires" in cli.ok("job", "show", "mail", "a")
    assert status.state is State.QUEUED
    assert "expires must be later than delay" in cli.fails(
        "enqueue", "mail", "1", "--delay", "600", "--expires", "5m", code=2
    )
