"""The lines of `penstock.worker.run_log`: one for each run, with the reason if it failed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from penstock import Job, Penstock, PermanentError, Retry, Worker
from penstock.storage.base import Request
from penstock.testing import Clock
from tests.support import eventually

RUNS = "penstock.worker.run_log"


@pytest.fixture(autouse=True)
def _level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the level and the first line of each record of a run."""
    found = [record for record in caplog.records if record.name == RUNS]
    return [(record.levelname, record.getMessage().splitlines()[0]) for record in found]


async def run_to_end(app: Penstock, clock: Clock, queue: str, **options: Any) -> None:
    """Run one job until it has ended; the clock moves only while no run holds a lease."""
    await app.queue(queue).enqueue(1, id="a", **options)
    for _ in range(20):
        await Worker(app).drain()
        status = await app.queue(queue).status("a")
        if status is None or status.state in ("completed", "failed", "cancelled"):
            return
        clock.advance(1000)
    raise AssertionError("the job has not ended")


async def test_a_completed_run_is_one_line_with_its_time(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """A run that ended well is an INFO line with its attempt and how long it took."""
    app.listen("emails", lambda payload: None)
    await app.queue("emails").enqueue({"secret": 1}, id="order-2")
    await Worker(app).drain()
    [(level, text)] = lines(caplog)
    assert level == "INFO"
    assert text.startswith("emails/order-2: attempt 1 completed, took ")
    assert text.endswith(" ms")
    assert "secret" not in caplog.text


async def test_each_failure_names_error_place_and_next_try(
    app: Penstock, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure but the last is a WARNING; the last is an ERROR with the number of runs and the traceback."""

    @app.handler("q", max_retries=2, min_backoff=4)
    def handle(payload: int) -> None:
        raise ConnectionError("refused")

    await run_to_end(app, clock, "q")
    place = f"(tests/worker/test_run_log.py:{handle.__code__.co_firstlineno + 2})"
    assert lines(caplog) == [
        ("WARNING", f"q/a: attempt 1 of 3 raised ConnectionError: refused {place}; next try in 4 s"),
        ("WARNING", f"q/a: attempt 2 of 3 raised ConnectionError: refused {place}; next try in 8 s"),
        ("ERROR", f"q/a: failed for good after 3 runs: ConnectionError: refused {place}"),
    ]
    records = [record for record in caplog.records if record.name == RUNS]
    assert [record.getMessage().count("Traceback") for record in records] == [0, 0, 1]
    assert records[-1].getMessage().splitlines()[-1] == "  ConnectionError: refused"
    names = ("queue", "job_id", "attempt", "outcome", "error_type")
    fields = [tuple(vars(record)[name] for name in names) for record in records]
    assert fields[0] == ("q", "a", 1, "retrying", "ConnectionError")
    assert fields[-1] == ("q", "a", 3, "failed", "ConnectionError")


async def test_tracebacks_of_every_failure_can_be_switched_on_and_off(
    app: Penstock, clock: Clock, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    """The logger `penstock.worker.run_log.tracebacks` at DEBUG adds them to retried runs, above ERROR to none."""

    @app.handler("q", max_retries=1)
    async def handle(payload: int) -> None:
        raise ValueError("no")

    def tracebacks() -> list[bool]:
        found = ["Traceback" in record.getMessage() for record in caplog.records if record.name == RUNS]
        caplog.clear()
        return found

    logger = logging.getLogger("penstock.worker.run_log.tracebacks")
    for level, expected in ((logging.DEBUG, [True, True]), (logging.CRITICAL, [False, False])):
        logger.setLevel(level)
        request.addfinalizer(lambda: logger.setLevel(logging.NOTSET))
        await run_to_end(app, clock, "q")
        assert tracebacks() == expected


async def test_a_timeout_is_named_as_one_with_the_place_of_the_run(
    app: Penstock, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that took too long is a timeout in words; its error has the line that was awaited."""

    @app.handler("q", timeout=0.01, max_timeouts=2, min_backoff=1)
    async def handle(payload: int) -> None:
        await asyncio.sleep(60)

    await run_to_end(app, clock, "q")
    place = f"(tests/worker/test_run_log.py:{handle.__code__.co_firstlineno + 2})"
    assert lines(caplog) == [
        ("WARNING", f"q/a: attempt 1 of 2 took longer than its timeout of 0.01 s {place}; next try in 1 s"),
        ("ERROR", f"q/a: failed for good after 2 runs: the run took longer than its timeout of 0.01 s {place}"),
    ]
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.error is not None
    assert "await asyncio.sleep(60)" in status.error.traceback


async def test_a_handler_that_asks_for_a_retry_has_not_failed(
    app: Penstock, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """`Retry` is an INFO line: with a delay, and with a time."""

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        if job.attempt == 1:
            raise Retry("not there yet", delay=300, count=False)
        if job.attempt == 2:
            raise Retry(at=4_000_000_000, count=False)

    await app.queue("q").enqueue(1, id="a")
    async with Worker(app):
        await eventually(lambda: len(lines(caplog)) == 1)
        clock.advance(300)
        await eventually(lambda: len(lines(caplog)) == 2)
    assert lines(caplog) == [
        ("INFO", "q/a: attempt 1 asked for a retry: not there yet; next try in 5 min"),
        ("INFO", "q/a: attempt 2 asked for a retry: the handler asked for a retry; next try at 2096-10-02 07:06:40Z"),
    ]


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({"max_retries": None}, "1"),
        ({"max_retries": None, "max_attempts": 4}, "1 of 4"),
        ({"max_retries": 10, "max_attempts": 4}, "1 of 4"),
        ({"max_retries": 10}, "1 of 11"),
    ],
)
async def test_the_number_of_runs_is_that_of_the_limit(
    app: Penstock, caplog: pytest.LogCaptureFixture, options: dict[str, Any], number: str
) -> None:
    """The line names the last possible run, or none if there is no limit."""

    @app.handler("q", **options)
    async def handle(payload: int) -> None:
        raise ValueError

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert lines(caplog)[0][1].startswith(f"q/a: attempt {number} raised ValueError (")


async def test_names_and_messages_of_users_stay_on_their_line(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """Control characters are escaped, long texts are cut, and the lines of a traceback are indented."""

    @app.handler("q\x1b[31m")
    async def handle(payload: int) -> None:
        raise PermanentError("\x1b]0;title\x07 first\n2026-01-01 ERROR 1 penstock: forged " + "x" * 5000)

    await app.queue("q\x1b[31m").enqueue(1, id="a\nb")
    await Worker(app).drain()
    [(level, first)] = lines(caplog)
    assert (level, len(first) < 500) == ("ERROR", True)
    assert first.startswith(
        r"'q\x1b[31m'/'a\nb': failed for good after 1 run: PermanentError: \x1b]0;title\x07 first\n2026"
    )
    text = caplog.records[-1].getMessage()
    assert len(text) < 20_000
    assert all(line.startswith("  ") for line in text.splitlines()[1:])
    assert text.replace("\n", "").isprintable()


async def test_a_stalled_job_that_fails_for_good_names_the_runs_that_it_had(
    app: Penstock, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim that finds the job over `max_stalls` is no run."""
    app.listen("q", lambda payload: None, max_stalls=1)
    await app.queue("q").enqueue(1, id="a")
    await app.storage.claim([Request("q", 1)], "dead", 1000, "dead-token")
    clock.advance(10)
    await Worker(app).drain()
    [(level, text)] = lines(caplog)
    assert (level, text) == (
        "ERROR",
        "q/a: failed for good after 1 run: its worker stopped answering 1 time (max_stalls=1)",
    )
