"""`penstock enqueue` and `penstock call`: jobs from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta

import click
import pytest

from penstock import JobStatus, Penstock, PermanentError, Worker
from penstock.cli.values import SpanType
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


def test_a_job_is_enqueued_once_in_its_window(cli: Cli) -> None:
    """--window takes the id, and the second answer has the end of the window; --cost is stored."""

    async def work(app: Penstock) -> None:
        app.listen("mail", "builtins:len", retain="none")
        await Worker(app).drain()

    once = ["enqueue", "mail", '"x"', "--id", "a", "--window", "1h", "--cost", "4"]
    assert cli.ok(*once) == "mail/a: queued\n"
    assert status(cli, "a").cost == 4
    assert re.search(r"^cost +4$", cli.ok("job", "show", "mail", "a"), re.MULTILINE)
    cli.do(work)
    done = cli.run(*once)
    assert done.exit_code == 1
    assert done.stdout.startswith("mail/a: was completed before, and its id is taken until 20")
    assert cli.run(*once, "--json").stdout.count('"until"') == 1


def test_a_job_is_debounced(cli: Cli) -> None:
    """--debounce delays the job, and updates it; wrong combinations are usage errors that name the option."""
    later = ["enqueue", "mail", "--id", "a", "--debounce", "5m", "--max-wait", "1h"]
    assert cli.ok(*later, "1") == "mail/a: scheduled to run in 5m00s\n"
    assert cli.ok(*later, "2") == "mail/a: updated\n"
    assert status(cli, "a").payload == 2
    for options, text in (
        (["--window", "5"], "window needs an id"),
        (["--max-wait", "5"], "max_wait needs debounce"),
        (["--id", "b", "--debounce", "5", "--delay", "5"], "give debounce or delay"),
        (["--cost", "0"], "cost must be at least 1"),
    ):
        assert text in cli.fails("enqueue", "mail", "1", *options, code=2)


def enqueue_at(cli: Cli, time: str, zone: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `enqueue --at` in a process of its own: a process reads TZ once."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", "enqueue", "mail", "1", "--id", "a", "--at", time, *options],
        env={**os.environ, **cli.environment, "TZ": zone}, cwd=cli.directory, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("time", "zone", "text", "expected"),
    [
        ("2030-01-01T09:00", "Europe/Berlin", "2030-01-01 09:00:00 CET (2030-01-01 08:00:00Z)", "2030-01-01T08:00"),
        ("2030-07-01", "America/New_York", "2030-07-01 00:00:00 EDT (2030-07-01 04:00:00Z)", "2030-07-01T04:00"),
        ("2030-01-01T09:00+05:30", "UTC", "2030-01-01 03:30:00 UTC (2030-01-01 03:30:00Z)", "2030-01-01T03:30"),
        ("2030-01-01T09:00Z", "Europe/Berlin", "2030-01-01 10:00:00 CET (2030-01-01 09:00:00Z)", "2030-01-01T09:00"),
        # Clocks are set back at 03:00: there are two, and the first is taken.
        ("2030-10-27T02:30", "Europe/Berlin", "2030-10-27 02:30:00 CEST (2030-10-27 00:30:00Z)", "2030-10-27T00:30"),
    ],
)  # fmt: skip
@on_sqlite
def test_at_is_local_time_unless_it_has_an_offset(cli: Cli, time: str, zone: str, text: str, expected: str) -> None:
    """--at without an offset is local time; the answer has the time in the local zone and in UTC."""
    done = enqueue_at(cli, time, zone)
    assert (done.returncode, done.stdout) == (0, f"mail/a: scheduled for {text}\n"), done.stderr
    assert status(cli, "a").run_at == datetime.fromisoformat(f"{expected}:00+00:00")


@on_sqlite
def test_a_local_time_that_does_not_exist_is_refused(cli: Cli) -> None:
    """A time that is skipped when clocks are set forward is a usage error, and nothing is enqueued."""
    done = enqueue_at(cli, "2030-03-31T02:30", "Europe/Berlin")
    assert done.returncode == 2
    assert "there is no 2030-03-31T02:30 in local time" in done.stderr
    assert cli.do(lambda app: app.queue("mail").status("a")) is None
    assert "--at must be a time such as" in cli.fails("enqueue", "mail", "1", "--at", "soon", code=2)
    assert json.loads(enqueue_at(cli, "2030-03-31T03:30", "Europe/Berlin", "--json").stdout)["status"] == "scheduled"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("250ms", 0.25), ("1d2h3m4s", 93_784)],
)
def test_a_span_is_seconds_or_has_units(text: str, seconds: float) -> None:
    """Spans are seconds, or numbers with the units d, h, m, s and ms; other texts are usage errors."""
    assert SpanType().convert(text, None, None) == pytest.approx(seconds)
    for wrong in ("soon", "", "-1", "5 m", "5x", "m", "1e3", "nan"):
        with pytest.raises(click.BadParameter, match="is not a span of time"):
            SpanType().convert(wrong, None, None)
    with pytest.raises(click.BadParameter, match="is less than"):
        SpanType(0.1).convert("50ms", None, None)


def test_delay_result_ttl_and_timeout_take_units(cli: Cli) -> None:
    """--delay, --result-ttl and --timeout take spans with units, and the answer has the delay."""
    spans = ["--delay", "5m", "--result-ttl", "2h", "--timeout", "1m30s"]
    assert cli.ok("enqueue", "mail", "1", "--id", "a", *spans) == "mail/a: scheduled to run in 5m00s\n"
    job = status(cli, "a")
    assert timedelta(minutes=4) < job.run_at - job.created_at <= timedelta(minutes=5)
    assert "mail: 2 jobs enqueued, scheduled to run in 1h00m" in cli.ok(
        "enqueue", "mail", "--lines", "--delay", "1h", stdin="1\n2\n"
    )


def test_the_timeout_of_a_job_ends_its_run(cli: Cli) -> None:
    """A job enqueued with --run-timeout is timed out by its worker, whatever the handler's timeout."""

    async def work(app: Penstock) -> None:
        @app.handler("slow", timeout=None, max_timeouts=0)
        async def slow(payload: int) -> None:
            await asyncio.Event().wait()

        cli_options = ["--id", "a", "--run-timeout", "10ms"]
        await asyncio.to_thread(cli.ok, "enqueue", "slow", "1", *cli_options)
        async with Worker(app):
            await asyncio.to_thread(cli.fails, "job", "wait", "slow", "a")

    cli.do(work)
    found = status(cli, "a", "slow")
    assert (found.state, found.timeouts) == ("failed", 1)


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


def test_a_bad_line_is_named_by_its_number(cli: Cli) -> None:
    """If a line of --lines is not JSON, the error has its number and nothing is enqueued."""
    line = cli.fails("enqueue", "mail", "--lines", stdin="1\n\n{2\n", code=2)
    assert "line 3: the payload '{2' is not JSON" in line
    assert "nothing was enqueued" in line
    assert cli.do(Penstock.queues) == []


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
        (["mail", "{to: ann}"], "is not JSON"),
        (["mail", ""], "is not JSON"),
        (["", "1"], "must be 1 to 512 bytes"),
        (["mail", "1", "--delay", "-1"], "'-1' is not a span of time"),
        (["mail", "1", "--header", "novalue"], "--header must be NAME=VALUE"),
        (["mail", "1", "--group", "g", "--priority", "1"], "give group or priority, not both"),
        (["mail", "1", "--delay", "1", "--at", "2030-01-01"], "give --at or --delay, not both"),
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
    """Without a worker, `call` warns, exits with 1 after --wait, names the next commands, and the job stays queued."""
    result = cli.run("call", "add", '{"a": 1, "b": 2}', "--wait", "100ms", "--id", "it's")
    assert result.exit_code == 1
    assert "no worker serves add yet; waiting" in result.stderr
    assert "has not ended within 0.1 s and goes on" in result.stderr
    assert "`penstock job wait add 'it'\"'\"'s'` waits for it again" in result.stderr
    assert "`penstock job cancel add 'it'\"'\"'s'` cancels it" in result.stderr
    assert status(cli, "it's", "add").state == "queued"
    misspelled = cli.run("call", "ad", "1", "--wait", "0.1")
    assert "no worker serves 'ad' and it had no jobs before; did you mean 'add'?" in misspelled.stderr
    again = cli.run("call", "add", "1", "--wait", "0.1")
    [id] = [job["id"] for job in cli.json("job", "ls", "add")["jobs"] if job["payload"] == 1]
    assert f"`penstock job wait add {id}`" in again.stderr


def test_job_wait_prints_the_result_or_the_reason(cli: Cli) -> None:
    """`job wait` prints the result of a job; exit code 1 if it failed, is unknown, or does not end in time."""

    async def work(app: Penstock) -> None:
        await serve(app)
        await app.queue("add").enqueue({"a": 1, "b": 2}, id="good")
        await app.queue("add").enqueue({"a": -1, "b": 2}, id="bad")
        line = await asyncio.to_thread(cli.fails, "job", "wait", "add", "good", "--timeout", "50ms")
        assert "job 'good' in queue 'add' has not ended within 0.05 s and goes on" in line
        await Worker(app).drain()

    cli.do(work)
    assert json.loads(cli.ok("job", "wait", "add", "good")) == 3
    assert "PermanentError: only positive numbers" in cli.fails("job", "wait", "add", "bad")
    assert "there is no job 'none' in queue 'add'" in cli.fails("job", "wait", "add", "none", "--timeout", "1m")


def test_an_unknown_queue_is_hinted_at(cli: Cli) -> None:
    """A job for a queue without jobs, worker and handler is enqueued, with a hint on stderr and exit code 0."""
    assert cli.run("enqueue", "thumbnails", "1").stderr == ""  # the first queue of a storage
    result = cli.run("enqueue", "thumnails", "1", "--json")
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (0, "queued")
    assert result.stderr == "no worker serves 'thumnails' and it had no jobs before; did you mean 'thumbnails'?\n"
    assert cli.run("enqueue", "thumnails", "1").stderr == ""
    assert cli.run("enqueue", "x", "1").stderr == "no worker serves 'x' and it had no jobs before\n"


def test_a_queue_with_a_worker_is_not_hinted_at(cli: Cli) -> None:
    """A queue without jobs that a live worker serves is known."""

    async def work(app: Penstock) -> None:
        await serve(app)
        async with Worker(app):
            await wait_for_worker(app)
            assert (await asyncio.to_thread(cli.run, "enqueue", "add", '{"a": 1, "b": 2}')).stderr == ""

    cli.do(work)


def test_a_full_queue_is_one_line_of_error(cli: Cli) -> None:
    """`enqueue`, also with --lines, and `call` exit with 1 if the app that --app names has a bound for the queue."""
    (cli.directory / "bounded_app.py").write_text(
        "import os\nfrom penstock import Penstock\n"
        "app = Penstock(os.environ['PENSTOCK_URL'], namespace=os.environ['PENSTOCK_NAMESPACE'])\n"
        "@app.handler('mail', max_queued=1)\ndef mail(payload): ...\n"
    )
    cli.ok("enqueue", "mail", "1", "--app", "bounded_app:app")
    expected = (
        "Error: queue 'mail' is full, 1 waiting (max_queued is 1), so nothing was stored: enqueue again when workers "
        "have caught up, or raise max_queued"
    )
    assert cli.fails("enqueue", "mail", "1", "--app", "bounded_app:app") == expected
    assert cli.fails("enqueue", "mail", "--lines", "--app", "bounded_app:app", stdin="1\n2\n") == expected
    assert cli.fails("call", "mail", "1", "--app", "bounded_app:app") == expected


@on_sqlite
def test_a_queue_with_a_handler_is_not_hinted_at(cli: Cli) -> None:
    """A queue of the app that --app names is known before any worker started."""
    (cli.directory / "hinted_app.py").write_text(
        "import os\nfrom penstock import Penstock\n"
        "app = Penstock(os.environ['PENSTOCK_URL'], namespace=os.environ['PENSTOCK_NAMESPACE'])\n"
        "@app.handler('mail')\ndef mail(payload): ...\n"
    )
    assert cli.run("enqueue", "mail", "1", "--app", "hinted_app:app").stderr == ""
    assert "did you mean 'mail'?" in cli.run("enqueue", "mial", "1", "--app", "hinted_app:app").stderr
