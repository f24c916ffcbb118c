"""Outcomes that the storage refuses: their own jobs fail or are given up, and nothing beside them is held up."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import Entry, InvalidPayload, Job, Penstock, State, StorageError, StorageUnavailable, Worker, sync
from penstock.errors import AccessDenied, VersionMismatch
from penstock.model.outcome import Complete, Fail
from penstock.storage.base import Settled, Settlement
from penstock.storage.sqlite import SqliteStorage
from penstock.testing import Clock, FaultyStorage, drain
from tests.servers import Server, redis_program, start_or_skip
from tests.support import eventually


def broken() -> StorageUnavailable:
    """Return the error of a connection that broke under a settle."""
    error = StorageUnavailable("the connection broke")
    error.uncertain = True
    return error


class Refusals:
    """A `settle` that raises an error for chosen settlements, whatever else is in the call."""

    def __init__(self, storage: FaultyStorage, refused: Callable[[Settlement], bool], error: StorageError) -> None:
        self._real = storage.settle
        self._refused = refused
        self._error = error
        #: The number of calls that were refused.
        self.times = 0
        vars(storage)["settle"] = self.settle

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if any(map(self._refused, settlements)):
            self.times += 1
            raise self._error
        return await self._real(settlements)


def errors(caplog: pytest.LogCaptureFixture, about: str = "") -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    return [line for line in found if about in line]


async def state(app: Penstock, id: str, queue: str = "q") -> State:
    status = await app.queue(queue).status(id)
    assert status is not None
    return status.state


async def enqueue_all(app: Penstock) -> None:
    """Enqueue "bad" between two jobs of its queue, and one of another queue."""
    for queue in ("q", "other"):
        app.listen(queue, lambda payload: payload, on_failure=print if queue == "q" else None)
    await app.queue("q").enqueue_many([Entry("x", id=id) for id in ("before", "bad", "after")])
    await app.queue("other").enqueue("x", id="other")


async def others_completed(app: Penstock) -> bool:
    states = [await state(app, id) for id in ("before", "after")]
    return {*states, await state(app, "other", "other")} == {State.COMPLETED}


@pytest.mark.parametrize("error", [StorageError("too large"), broken()], ids=["refused", "connection breaks"])
async def test_a_refused_outcome_fails_its_own_job_alone(
    app: Penstock, trouble: FaultyStorage, error: StorageError
) -> None:
    """The job fails for good and names the reason and the size; neighbours and other queues complete, stop() ends."""
    await enqueue_all(app)
    Refusals(trouble, lambda s: s.id == "bad" and isinstance(s.resolution, Complete), error)
    async with asyncio.timeout(20):
        async with Worker(app, lease=3):
            await eventually(lambda: others_completed(app), within=6)
            await eventually(lambda: is_failed(app))
    status = await app.queue("q").status("bad")
    assert status is not None
    assert status.error is not None
    assert status.error.kind == "permanent"
    assert status.error.message == (
        f"the outcome of the run cannot be recorded: {type(error).__name__}: {error}; its result has 3 bytes"
    )


async def is_failed(app: Penstock) -> bool:
    return await state(app, "bad") is State.FAILED


async def test_a_refused_fail_job_is_left_out(app: Penstock, trouble: FaultyStorage) -> None:
    """If the failure with its fail job is refused too, the failure alone is recorded."""
    await enqueue_all(app)
    Refusals(
        trouble,
        lambda s: s.id == "bad" and bool(getattr(s.resolution, "then", ()) or isinstance(s.resolution, Complete)),
        StorageError("too large"),
    )
    async with asyncio.timeout(20):
        await Worker(app).drain()
    assert await others_completed(app)
    assert await is_failed(app)
    assert sum((await app.queue("q.fail").counts()).values()) == 0


@pytest.mark.parametrize("error", [StorageError("damaged"), broken()], ids=["refused", "connection breaks"])
async def test_a_claim_whose_failure_is_refused_too_is_given_up(
    app: Penstock, trouble: FaultyStorage, clock: Clock, caplog: pytest.LogCaptureFixture, error: StorageError
) -> None:
    """One ERROR names it, its lease expires and it is reaped; neighbours complete, and stop() ends."""
    await enqueue_all(app)
    refusals = Refusals(trouble, lambda s: s.id == "bad", error)
    async with asyncio.timeout(20):
        async with Worker(app, lease=3):
            await eventually(lambda: others_completed(app), within=6)
            await eventually(lambda: bool(errors(caplog, "'bad'")))
    assert errors(caplog, "'bad'") == [
        f"the storage refused the outcome of job 'bad' and also its failure, so its lease expires: {error}"
    ]
    assert await state(app, "bad") is State.RUNNING
    seen = refusals.times
    clock.advance(seconds=11)
    assert [reaped.id for reaped in await app.storage.reap(["q"])] == ["bad"]
    assert refusals.times == seen


OUTAGES = [StorageUnavailable("the disk is full"), AccessDenied("no"), VersionMismatch("newer")]


@pytest.mark.parametrize("error", OUTAGES, ids=lambda error: type(error).__name__)
async def test_outcomes_wait_for_a_storage_that_records_none(
    app: Penstock, trouble: FaultyStorage, error: StorageError
) -> None:
    """No outcome is changed or given up while the storage refuses them all; then all complete."""
    await enqueue_all(app)
    changed: list[Settlement] = []

    def refused(settlement: Settlement) -> bool:
        if isinstance(settlement.resolution, Fail):
            changed.append(settlement)
        return isinstance(settlement.resolution, Complete | Fail)

    asked = Refusals(trouble, refused, error)
    async with asyncio.timeout(30):
        async with Worker(app, lease=3):
            await eventually(lambda: asked.times >= 5, within=15)
            del vars(trouble)["settle"]
            await eventually(lambda: others_completed(app), within=10)
            assert await state(app, "bad") is State.COMPLETED
    assert changed == []
    statuses = [await app.queue("q").status(id) for id in ("before", "bad", "after")]
    assert [status and status.attempts for status in statuses] == [1, 1, 1]


async def test_a_queue_that_refuses_every_settle_holds_up_no_other(
    app: Penstock, trouble: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """Its outcomes wait, those of other queues are recorded; stop() gives them up after one lease and logs them."""
    await enqueue_all(app)
    Refusals(trouble, lambda s: s.queue == "q", StorageError("the queue is damaged"))
    async with asyncio.timeout(15):
        worker = Worker(app, lease=2)
        async with worker:
            await eventually(lambda: other_completed(app))
            await app.queue("other").enqueue("x", id="late")
            await eventually(lambda: other_completed(app, "late"))
    assert {await state(app, id) for id in ("before", "bad", "after")} == {State.RUNNING}
    assert errors(caplog)[-1].startswith("the storage did not record the outcomes of 3 jobs: they run again when")


async def other_completed(app: Penstock, id: str = "other") -> bool:
    return await state(app, id, "other") is State.COMPLETED


async def test_a_refused_outcome_of_a_reservation_fails_its_job(app: Penstock, trouble: FaultyStorage) -> None:
    """`complete` returns `failed`; if the failure is refused too, it raises `LeaseLost`."""
    await app.queue("q").enqueue("x", id="bad")
    [reservation] = await app.queue("q").reserve()
    Refusals(trouble, lambda s: isinstance(s.resolution, Complete), StorageError("too large"))
    assert await reservation.complete("x") is State.FAILED


# the bound of results ----------------------------------------------------------------------------

TOO_LARGE = (
    "result is 12 bytes, more than max_result (11): store it elsewhere and return its name, or raise "
    "Penstock(max_result=…)"
)


@pytest.mark.parametrize("style", ["async", "plain", "batch", "subclass"])
async def test_a_result_above_max_result_fails_its_job_for_good(app: Penstock, style: str) -> None:
    """A result of as many bytes as the bound completes; one byte more is a permanent failure that names both."""
    small = Penstock(storage=app.storage, max_result=11)

    async def run(size: int) -> Any:
        return Text("x" * size) if style == "subclass" else "x" * size

    def run_plain(size: int) -> str:
        return "x" * size

    async def run_batch(sizes: list[int]) -> list[str]:
        return ["x" * size for size in sizes]

    if style == "batch":
        small.listen("q", run_batch, batch_size=2)
    else:
        small.listen("q", run_plain if style == "plain" else run)
    await small.queue("q").enqueue_many([Entry(9, id="fits"), Entry(10, id="bad")])
    await Worker(small).drain()
    assert await small.queue("q").result("fits") == "x" * 9
    status = await small.queue("q").status("bad")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.kind, status.attempts) == (State.FAILED, "permanent", 1)
    assert (status.error.type, status.error.message) == ("InvalidPayload", TOO_LARGE)


class Text(str):
    """A value that the fast encoder does not take."""


async def test_a_reservation_refuses_a_result_above_max_result(app: Penstock) -> None:
    """`complete` raises, and the job is still held."""
    small = Penstock(storage=app.storage, max_result=11)
    await small.queue("q").enqueue(1, id="a")
    [reservation] = await small.queue("q").reserve()
    with pytest.raises(InvalidPayload, match=re.escape(TOO_LARGE)):
        await reservation.complete("x" * 10)
    assert not reservation.settled
    assert await reservation.complete("x" * 9) is State.COMPLETED
    await small.reservations.close()


def test_a_sync_app_has_the_same_bound() -> None:
    """`penstock.sync` passes `max_result` to its workers and reservations."""
    with sync.Penstock("memory:", max_result=11) as app:
        app.listen("q", lambda size: "x" * size)
        app.queue("q").enqueue(10, id="bad")
        [event] = drain(app)
        assert event.error is not None
        assert event.error.message == TOO_LARGE
        app.queue("q").enqueue(1)
        [reservation] = app.queue("q").reserve()
        with pytest.raises(InvalidPayload, match="max_result"):
            reservation.complete("x" * 10)
        reservation.release()


# storages with lowered bounds --------------------------------------------------------------------


async def run_beside_a_large_result(app: Penstock, size: int) -> Any:
    """Run a job with a result of this size beside others, stop the worker, and return the error of that job."""

    @app.handler("q")
    async def handle(payload: int) -> str:
        return "x" * payload

    app.listen("other", lambda payload: payload)
    await app.queue("q").enqueue_many([Entry(n, id=id) for id, n in (("before", 1), ("bad", size), ("after", 1))])
    await app.queue("other").enqueue("x", id="other")
    async with asyncio.timeout(60):
        async with Worker(app, lease=3):
            await eventually(lambda: others_completed(app), within=30)
            await eventually(lambda: is_failed(app), within=30)
            await app.queue("q").enqueue(1, id="late")
            assert await app.queue("q").wait("late", 10) == "x"
    status = await app.queue("q").status("bad")
    assert status is not None
    return status.error


async def test_a_result_above_the_limit_of_sqlite_fails_its_own_job(tmp_path: Path) -> None:
    """With a blob limit of 100 kB a result of 200 kB fails its job; other jobs complete, and stop() ends."""
    async with Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        assert isinstance(app.storage, SqliteStorage)
        with app.storage.engine.lock:
            app.storage.engine.connection().setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        error = await run_beside_a_large_result(app, 200_000)
    assert error.kind == "permanent"
    assert "too big" in error.message
    assert error.message.endswith("its result has 200002 bytes")


async def test_a_result_above_the_limit_of_redis_fails_its_own_job() -> None:
    """A server that takes 1 MB in one argument closes the connection on a result of 3 MB; only its job fails."""
    server = start_or_skip(lambda: Server(redis_program(), "--proto-max-bulk-len", "1mb").start())
    try:
        async with Penstock(f"redis://{server.address}", max_result=4_000_000) as app:
            error = await run_beside_a_large_result(app, 3_000_000)
    finally:
        server.remove()
    assert error.kind == "permanent"
    assert error.message.endswith("its result has 3000002 bytes")


async def test_a_run_record_that_was_damaged_holds_up_no_other_run() -> None:
    """A byte is appended to the record of a run; its neighbour completes, and stop() ends."""
    server = start_or_skip(lambda: Server(redis_program()).start())
    try:
        async with Penstock(f"redis://{server.address}") as app:
            damaged = asyncio.Event()

            @app.handler("q")
            async def handle(payload: int, job: Job) -> None:
                if job.id == "bad":
                    with server.client() as client:
                        [key] = client.keys("*runs*")
                        record = cast("bytes", client.hget(key, "bad"))
                        client.hset(key, "bad", record + b"x")
                    damaged.set()
                await damaged.wait()

            await app.queue("q").enqueue_many([Entry(1, id=id) for id in ("before", "bad", "after")])
            async with asyncio.timeout(60):
                async with Worker(app, lease=10):
                    await eventually(lambda: completed(app, "before", "after"), within=30)
    finally:
        server.remove()


async def completed(app: Penstock, *ids: str) -> bool:
    return {await state(app, id) for id in ids} == {State.COMPLETED}
