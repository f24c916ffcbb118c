"""`penstock enqueue` and `penstock call`: jobs from the command line."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from penstock import JobStatus, Penstock, PermanentError, Worker
from tests.cli.conftest import Cli, on_sqlite, wait_for_worker


def status(cli: Cli, id: str, queue: str = "mail") -> JobStatus:
    found = cli.do(lambda app: app.queue(queue).status(id))
    assert found is not None
    return found


def test_a_job_is_enqueued(cli: Cli) -> None:
    """`enqueue` takes a JSON payload and the options of a job, and prints the new state."""
    options = ["--id", "a", "--priority", "3", "--header", "who=me", "--header", "x=y=z", "--max-retries", "2"]
    assert cli.ok("enqueue", "mail", '{"to": "ann"}', *options) == "mail/a: queued\n"
    job = status(cli, "a")
    assert (job.payload, job.priority, job.headers) == ({"to": "ann"}, 3, {"who": "me", "x": "y=z"})
    answer = cli.json("enqueue", "mail", "[1, 2]", "--delay", "60", "--group", "g")
    assert answer["status"] == "scheduled"
    assert (status(cli, answer["id"]).payload, status(cli, answer["id"]).group) == ([1, 2], "g")


def test_at_takes_a_time_in_utc_or_with_a_zone(cli: Cli) -> None:
    """--at is a time, in UTC unless it has a zone; other text is a usage error."""
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    cli.ok("enqueue", "mail", "1", "--id", "a", "--at", moment.replace(tzinfo=None).isoformat())
    cli.ok("enqueue", "mail", "1", "--id", "b", "--at", moment.astimezone().isoformat())
    assert status(cli, "a").run_at == status(cli, "b").run_at == moment
    assert "--at is a time such as" in cli.fails("enqueue", "mail", "1", "--at", "soon", code=2)


def test_an_id_that_is_taken(cli: Cli) -> None:
    """A duplicate changes nothing and exits with 1; --on-conflict update changes the job."""
    cli.ok("enqueue", "mail", "1", "--id", "a")
    result = cli.run("enqueue", "mail", "2", "--id", "a")
    assert (result.exit_code, "nothing was changed" in result.stdout) == (1, True)
    assert status(cli, "a").payload == 1
    assert cli.ok("enqueue", "mail", "2", "--id", "a", "--on-conflict", "update") == "mail/a: updated\n"
    assert status(cli, "a").payload == 2
    assert "'a'" in cli.fails("enqueue", "mail", "3", "--id", "a", "--on-conflict", "raise")


@pytest.mark.parametrize("given", [[], ["-"]])
def test_a_payload_from_stdin(cli: Cli, given: list[str]) -> None:
    """Without a payload, or with -, it is read from stdin."""
    cli.ok("enqueue", "mail", *given, "--id", "a", stdin='{"to": "ann"}\n')
    assert status(cli, "a").payload == {"to": "ann"}


def test_many_payloads_from_stdin(cli: Cli) -> None:
    """--lines makes a job of each line that is not empty."""
    assert cli.ok("enqueue", "mail", "--lines", stdin="1\n\n[2]\n") == "mail: 2 jobs enqueued\n"
    assert cli.json("queue", "show", "mail")["counts"]["queued"] == 2
    assert "no --id" in cli.fails("enqueue", "mail", "--lines", "--id", "a", stdin="1\n", code=2)


@on_sqlite
def test_plain_texts_and_bytes(cli: Cli) -> None:
    """--text takes the payload as text; a raw queue gets its bytes."""
    cli.ok("enqueue", "mail", "hello {", "--text", "--id", "a")
    assert status(cli, "a").payload == "hello {"
    cli.ok("enqueue", "mail", "hello", "--serde", "raw", "--id", "b")
    assert cli.do(lambda app: app.queue("mail", serde="raw").status("b")).payload == b"hello"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mail", "{to: ann}"], "is no JSON"),
        (["mail", ""], "is no JSON"),
        (["", "1"], "must be 1 to 512 bytes"),
        (["mail", "1", "--delay", "-1"], "delay must not be negative"),
        (["mail", "1", "--header", "novalue"], "--header is NAME=VALUE"),
        (["mail", "1", "--group", "g", "--priority", "1"], "give group or priority, not both"),
        (["mail", "1", "--delay", "1", "--at", "2030-01-01"], "give run_at or delay, not both"),
    ],
)
@on_sqlite
def test_invalid_values_are_usage_errors(cli: Cli, arguments: list[str], expected: str) -> None:
    """A value that cannot be used is an error with the reason and exit code 2."""
    assert expected in cli.fails("enqueue", *arguments, code=2)


async def serve(app: Penstock) -> None:
    @app.task(queue="add")
    async def add(a: int, b: int) -> int:
        if a < 0:
            raise PermanentError("only positive numbers")
        return a + b


def test_a_call_prints_the_result(cli: Cli) -> None:
    """`call` prints the result of a task; a failed job is an error of one line with exit code 1."""

    async def work(app: Penstock) -> None:
        await serve(app)
        async with Worker(app):
            await wait_for_worker(app)
            answer = await asyncio.to_thread(cli.run, "call", "add", '{"a": 1, "b": 2}')
            assert (answer.exit_code, json.loads(answer.stdout), answer.stderr) == (0, 3, "")
            line = await asyncio.to_thread(cli.fails, "call", "add", '{"a": -1, "b": 2}')
            assert "PermanentError: only positive numbers" in line

    cli.do(work)


def test_a_call_without_a_worker_times_out(cli: Cli) -> None:
    """Without a worker, `call` warns, exits with 1 after --wait, and the job stays queued."""
    result = cli.run("call", "add", '{"a": 1, "b": 2}', "--wait", "0.1", "--id", "a")
    assert result.exit_code == 1
    assert "no worker serves add yet" in result.stderr
    assert "has not ended within 0.1 s" in result.stderr
    assert status(cli, "a", "add").state == "queued"
