"""Queasy's handlers: their options, the job they see, retries and fail handlers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Entry, Event, Failure, HandlerOptions, Job, Penstock, PermanentError, State, Worker
from penstock.testing import Clock
from tests.parity.conftest import NewApp
from tests.parity.support import FEW, count, status_of, vanish

pytestmark = pytest.mark.only(*FEW)


def options_of(app: Penstock, queue: str, *names: str) -> list[Any]:
    options: HandlerOptions = app.handlers[queue].options
    return [getattr(options, name) for name in names]


@pytest.mark.only("memory")  # no call reaches a storage
async def test_the_defaults_are_the_documented_ones(app: Penstock) -> None:
    """Without options a handler has Queasy's bounds, backoff, size, timeout and priority (QE-16…19, QR-25, QR-S12)."""
    app.listen("q", ignore, on_failure=ignore)
    names = ("max_retries", "max_stalls", "min_backoff", "max_backoff", "size", "timeout", "priority")
    assert options_of(app, "q", *names, "max_timeouts") == [10, 3, 2, 300, 10, 60, 100, 3]
    assert options_of(app, "q/failures", *names) == [100, 3, 10, 900, 2, 60, 100]


def ignore(data: Any) -> None: ...


async def test_eleven_runs_with_doubling_delays(app: Penstock, clock: Clock) -> None:
    """Ten retries are eleven runs, first 2 s and never more than 300 s apart (QR-S16, QE-2, QZ-T16)."""
    retries: list[int] = []
    delays: list[float] = []

    @app.handler("q")
    async def handle(data: int, job: Job) -> None:
        retries.append(job.retries)
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    while (status := await status_of(app)).state is State.RETRYING:
        delays.append(status.run_at.timestamp() - clock.time())
        clock.advance(delays[-1])
        await Worker(app).drain()
    assert retries == list(range(11))
    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert status.state is State.FAILED


async def test_a_retried_job_goes_where_its_backoff_ends(app: Penstock, clock: Clock) -> None:
    """A retried job runs at its new run-at, behind jobs due before that (QE-42, QZ-T11, QZ-T26)."""
    order: list[str] = []

    @app.handler("q", size=100)
    async def handle(data: str, job: Job) -> None:
        order.append(data)
        if data == "bad" and not job.retries:
            raise ValueError("no")

    await app.queue("q").enqueue("bad")
    await Worker(app).drain()
    clock.advance(1)
    await app.queue("q").enqueue("good")
    clock.advance(1)
    await Worker(app).drain()
    assert order == ["bad", "good", "bad"]


async def test_a_new_policy_holds_for_jobs_that_wait_already(app: Penstock, new_app: NewApp, clock: Clock) -> None:
    """Limits and backoff are those of the handler at the run, not those of the time of dispatch (QR-3)."""
    app.listen("q", fail_with(ValueError("no")))
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    clock.advance(2)
    changed = new_app("queasy")
    await changed.open()
    changed.listen("q", fail_with(ValueError("no")), max_retries=2, min_backoff=7)
    await Worker(changed).drain()
    assert (await status_of(app)).run_at == datetime.fromtimestamp(clock.time() + 14, UTC)
    clock.advance(14)
    await Worker(changed).drain()
    status = await status_of(app)
    assert (status.state, status.attempts) == (State.FAILED, 3)


def fail_with(error: Exception) -> Any:
    async def handle(data: Any) -> None:
        raise error

    return handle


class Later(Exception):
    """An error of the user's own, with a time for the next run."""

    def __init__(self, retry_at: float) -> None:
        super().__init__("later")
        self.retry_at = retry_at


@pytest.mark.parametrize("seconds", [0.5, 1000])
async def test_retry_at_of_an_error_is_the_next_run_at(app: Penstock, clock: Clock, seconds: float) -> None:
    """retry_at of any error is when the job runs again, earlier or later than its backoff (QE-28, QR-27, QR-S9)."""
    app.listen("q", fail_with(Later(clock.time() + seconds)))
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    status = await status_of(app)
    assert (status.state, status.retries) == (State.RETRYING, 1)
    assert status.run_at == datetime.fromtimestamp(clock.time(), UTC) + timedelta(seconds=seconds)


async def test_any_error_may_be_permanent(app: Penstock) -> None:
    """An error of any class whose kind is "permanent" fails the job after one run (QR-27, QR-S8, QE-27)."""
    error = ValueError("never")
    error.kind = "permanent"  # type: ignore[attr-defined]
    app.listen("q", fail_with(error))
    app.listen("r", fail_with(PermanentError("never")))
    for queue in ("q", "r"):
        await app.queue(queue).enqueue(1, id="a")
    await Worker(app).drain()
    for queue in ("q", "r"):
        status = await status_of(app, queue=queue)
        assert (status.state, status.attempts) == (State.FAILED, 1)


async def test_a_run_sees_the_counts_before_it(app: Penstock, clock: Clock) -> None:
    """The job shows its id, run-at and its retries, timeouts and stalls so far (QE-26, QR-10, QR-26)."""
    seen: list[tuple[str, int, int, int]] = []

    @app.handler("q", timeout=0.02)
    async def handle(data: str, job: Job) -> None:
        seen.append((job.id, job.retries, job.timeouts, job.stalls))
        if len(seen) == 1:
            raise ValueError("no")
        if len(seen) == 2:
            await asyncio.Event().wait()

    await app.queue("q").enqueue("x", id="a")
    for _ in range(2):
        await Worker(app).drain()
        clock.advance(2)
    assert len(await vanish(app)) == 1
    clock.advance(10)
    await Worker(app).drain()
    assert seen == [("a", 0, 0, 0), ("a", 1, 0, 0), ("a", 1, 1, 1)]


async def test_a_fail_handler_gets_payload_job_and_error(app: Penstock, clock: Clock) -> None:
    """Original data, job and error reach the fail handler, for each kind of error (QR-28, QE-30, QR-S7, QZ-T12)."""
    failures: dict[str, Failure] = {}

    async def on_failure(failure: Failure, job: Job) -> None:
        assert job.queue == "q/failures"
        failures[failure.job.id] = failure

    @app.handler("q", on_failure=on_failure, max_retries=0, max_timeouts=1, max_stalls=1, timeout=0.02)
    async def handle(data: dict[str, str]) -> None:
        if data["do"] == "permanent":
            raise PermanentError("never")
        if data["do"] == "retriable":
            raise KeyError("once")
        await asyncio.Event().wait()

    queue = app.queue("q")
    await queue.enqueue({"do": "stall"}, id="stall")
    assert len(await vanish(app)) == 1
    await queue.enqueue_many([Entry({"do": kind}, id=kind) for kind in ("permanent", "retriable", "timeout")])
    clock.advance(10)
    await Worker(app).drain()
    assert {id: (f.payload["do"], f.error.kind, f.error.type) for id, f in failures.items()} == {
        "permanent": ("permanent", "permanent", "PermanentError"),
        "retriable": ("retriable", "retriable", "KeyError"),
        "timeout": ("timeout", "timeout", "RunTimeout"),
        "stall": ("stall", "stall", "StallError"),
    }
    assert (failures["permanent"].error.message, failures["stall"].job.stalls) == ("never", 1)


async def test_a_fail_job_is_retried_by_its_own_options(app: Penstock, clock: Clock) -> None:
    """Fail jobs are retried with their own backoff and options until one run completes (QE-31, QE-12, QR-25, QR-28)."""
    runs: list[tuple[Any, int]] = []
    delays: list[float] = []

    async def on_failure(failure: Failure, job: Job) -> None:
        runs.append((failure.payload, job.retries))
        if job.retries < 3:
            raise OSError("not now")

    options = {"min_backoff": 100}
    app.listen("q", fail_with(PermanentError("no")), on_failure=on_failure, failure_options=options)
    await app.queue("q").enqueue("data", id="a")
    await Worker(app).drain()
    while found := await app.queue("q/failures").find("retrying"):
        delays.append(found[0].run_at.timestamp() - clock.time())
        clock.advance(delays[-1])
        await Worker(app).drain()
    assert runs == [("data", 0), ("data", 1), ("data", 2), ("data", 3)]
    assert delays == [100, 200, 400]


async def test_an_exhausted_job_is_kept_as_failed(app: Penstock) -> None:
    """An exhausted job is kept as failed, with a fail handler or without, and so is a fail job (QZ-D16, QR-S18)."""
    app.listen("q", fail_with(PermanentError("no")))
    app.listen("r", fail_with(PermanentError("no")), on_failure=fail_with(PermanentError("nor I")))
    await app.queue("q").enqueue(1, id="a")
    await app.queue("r").enqueue(1, id="a")
    await Worker(app).drain()
    for queue in ("q", "r", "r/failures"):
        assert await count(app, State.FAILED, queue) == 1
    await app.queue("r/failures").delete()


async def test_too_many_stalls_end_a_job_without_a_fail_handler_too(app: Penstock, clock: Clock) -> None:
    """After its third stall a job has failed, with a StallError, and its handler is not called (QR-18, QZ-T17)."""
    ran: list[int] = []
    app.listen("q", ran.append)
    await app.queue("q").enqueue(1, id="a")
    for _ in range(3):
        assert len(await vanish(app)) == 1
        clock.advance(10)
        await app.storage.reap(["q"])
    await Worker(app).drain()
    status = await status_of(app)
    assert status.error is not None
    assert (ran, status.state, status.error.type) == ([], State.FAILED, "StallError")


async def test_a_periodic_job_needs_no_scheduler(app: Penstock, clock: Clock) -> None:
    """A job that dispatches its own id again, and a fail handler that does so too, never stop (QR-2, QZ-T26)."""
    ran: list[int] = []

    async def again(n: int) -> None:
        await app.queue("tick").enqueue(n + 1, id="tick", delay=60)

    async def on_failure(failure: Failure) -> None:
        await again(failure.payload)

    @app.handler("tick", on_failure=on_failure)
    async def handle(n: int) -> None:
        ran.append(n)
        if n % 3 == 2:
            raise PermanentError("every third one breaks")
        await again(n)

    await app.queue("tick").enqueue(0, id="tick")
    for _ in range(8):
        await Worker(app).drain()
        clock.advance(60)
    assert ran == list(range(8))
    assert await count(app, State.SCHEDULED, "tick") + await count(app, State.QUEUED, "tick") == 1


async def test_the_events_have_counterparts(app: Penstock) -> None:
    """Dispatch, dequeue, finish, retry, fail and cancel each emit an event with queue and id (QR-S5, QR-21)."""
    received: list[Event] = []
    app.on("*")(received.append)

    @app.handler("q", max_retries=1, min_backoff=0)
    async def handle(data: str) -> None:
        if data == "bad":
            raise ValueError("no")

    queue = app.queue("q")
    await queue.enqueue("good", id="good")
    await Worker(app).drain()
    await queue.enqueue("bad", id="bad")
    await Worker(app).drain(scheduled=True)
    await queue.enqueue("x", id="x")
    await queue.cancel("x")
    emitted = [(event.name, event.id) for event in received if event.id]
    assert emitted == [
        ("enqueued", "good"), ("started", "good"), ("completed", "good"),
        ("enqueued", "bad"), ("started", "bad"), ("retrying", "bad"), ("started", "bad"), ("failed", "bad"),
        ("enqueued", "x"), ("cancelled", "x"),
    ]  # fmt: skip
    assert {event.queue for event in received if event.id} == {"q"}
