"""Any call of a worker may fail at any time, before or after it was carried out: no job is lost, no loop ends."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Job, JobStatus, Penstock, State, StorageError, StorageUnavailable, Worker
from penstock.testing import Clock, FaultyStorage
from tests.support import eventually

JOBS = 12
LOOPS = {f"penstock {name}" for name in ("claim", "settle", "leases", "watch", "maintenance", "cancels")}

#: Errors that storages raise, with their messages.
ERRORS = (
    StorageUnavailable("cannot take this now: LOADING Redis is loading the dataset in memory"),
    StorageUnavailable("cannot take this now: READONLY You can't write against a read only replica."),
    StorageUnavailable("cannot take this now: OOM command not allowed when used memory > 'maxmemory'."),
    StorageUnavailable("cannot grow: the disk is full"),
    StorageUnavailable("is locked by another process"),
    StorageError("answered with an error: ERR something new"),
    RuntimeError("a bug"),
)

#: The verbs that a worker calls by itself, at which of their calls they fail, and whether after the fact.
CALLS = [
    (verb, skip, after)
    for verb, skips in {
        "claim": (0, 1, 2), "settle": (0, 1, 2), "renew": (0, 1), "reap": (0, 1), "purge": (0,), "beat": (0, 1),
        "time": (0,), "wait_work": (0, 1), "wait_cancel": (0,),
    }.items()
    for skip in skips
    for after in (False, True)
    if not (after and verb.startswith("wait"))
]  # fmt: skip


async def statuses_of(app: Penstock) -> list[JobStatus]:
    return list(await app.queue("q").find(State.COMPLETED))


async def all_done(app: Penstock, jobs: int) -> bool:
    return len(await statuses_of(app)) == jobs


def loops() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()} & LOOPS


async def work_through(app: Penstock, trouble: FaultyStorage, clock: Clock, verb: str, calls: int, lost: bool) -> None:
    """Run jobs, a few at a time, until the verb was called often enough; then one more."""

    @app.handler("q", concurrency=5, min_backoff=0.01)
    async def handle(payload: int, job: Job) -> int:
        if verb in ("renew", "beat", "wait_cancel") and job.attempt == 1 and payload == 0:
            await eventually(lambda: trouble.calls[verb] >= calls, within=30)
        return payload

    async with Worker(app, lease=1.5), asyncio.timeout(50):
        await app.queue("q").enqueue_many(range(JOBS))
        jobs = JOBS
        while trouble.calls[verb] < calls:
            if verb in ("claim", "settle"):  # few calls may do for many jobs: then there is more to do
                await app.queue("q").enqueue(jobs)
                jobs += 1
            await asyncio.sleep(0.02)
        await app.queue("q").enqueue(jobs)
        while not await all_done(app, jobs + 1):
            if lost:  # claims whose answer was lost belong to no run: their leases expire, and they are reaped
                clock.advance(2)
            await asyncio.sleep(0.05)
        assert loops() == LOOPS


@pytest.mark.parametrize(("verb", "skip", "after"), CALLS)
@pytest.mark.timeout(60)
async def test_no_failing_call_loses_a_job_or_ends_a_loop(
    app: Penstock, trouble: FaultyStorage, clock: Clock, verb: str, skip: int, after: bool
) -> None:
    """Two failures in a row at that call: every job completes, none is charged a retry, and all loops go on."""
    completed: list[str] = []
    app.on("completed")(lambda event: completed.append(event.id))
    trouble.fail(verb, times=2, after=after, skip=skip)
    lost = verb == "claim" and after
    await work_through(app, trouble, clock, verb, skip + 3, lost)
    statuses = await statuses_of(app)
    assert sorted(completed) == sorted(status.id for status in statuses)
    assert {(s.retries, s.timeouts) for s in statuses} == {(0, 0)}
    if not lost:
        assert {(s.attempts, s.stalls) for s in statuses} == {(1, 0)}


@pytest.mark.parametrize("verb", ["claim", "settle", "renew", "beat", "wait_work"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error).split()[-1])
async def test_work_goes_on_after_any_error_of_the_storage(
    app: Penstock, trouble: FaultyStorage, clock: Clock, verb: str, error: Exception
) -> None:
    """After an outage, an unknown error or a bug in a storage every job completes; each change is emitted once."""
    emitted: list[str] = []
    app.on("disconnected")(lambda event: emitted.append(event.name))
    app.on("error")(lambda event: emitted.append(event.name))
    trouble.fail(verb, times=2, error=error)
    await work_through(app, trouble, clock, verb, 3, lost=False)
    assert {(s.attempts, s.retries, s.stalls, s.timeouts) for s in await statuses_of(app)} == {(1, 0, 0, 0)}
    assert emitted == ["disconnected" if isinstance(error, StorageUnavailable) else "error"]


async def test_progress_that_cannot_be_stored_fails_no_run(app: Penstock, trouble: FaultyStorage) -> None:
    """A handler that reports progress while the storage is unavailable goes on, and no retry is counted."""

    @app.handler("q")
    async def handle(payload: int, job: Job) -> bool:
        return await job.progress(0.5)

    trouble.fail("report", times=1)
    await app.queue("q").enqueue(0)
    await Worker(app).drain()
    [status] = await statuses_of(app)
    assert (status.result, status.attempts, status.retries) == (True, 1, 0)
