"""Starting, stopping and restarting a worker; storages that are unavailable for a while."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock import Entry, Job, Penstock, State, Worker
from penstock.storage.base import Request
from penstock.testing import Clock, FaultyStorage
from tests.support import eventually


async def shown(app: Penstock, id: str = "a") -> Any:
    status = await app.queue("q").status(id)
    assert status is not None
    return status


async def completed(app: Penstock) -> int:
    return (await app.queue("q").counts())[State.COMPLETED]


async def test_a_running_worker_takes_new_jobs_at_once(app: Penstock) -> None:
    """A job is run as soon as it is there, not at the next poll."""
    ran = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        ran.set()

    idle = asyncio.Event()
    app.on("idle")(lambda event: idle.set())
    async with Worker(app), asyncio.timeout(3):
        await idle.wait()
        await app.queue("q").enqueue(1)
        await ran.wait()


async def test_a_later_job_is_run_when_it_is_due(app: Penstock, clock: Clock) -> None:
    """An idle worker notices that time has passed."""
    app.listen("q", lambda payload: payload)
    async with Worker(app):
        await app.queue("q").enqueue(1, id="a", delay=30)
        clock.advance(30)
        await eventually(lambda: completed(app))


async def test_stop_lets_runs_finish(app: Penstock) -> None:
    """Within the grace a run ends by itself and its value counts; nothing new is claimed meanwhile."""
    started, gate = asyncio.Event(), asyncio.Event()

    @app.handler("q", concurrency=1)
    async def handle(payload: int) -> str:
        started.set()
        await gate.wait()
        return "done"

    await app.queue("q").enqueue_many([Entry(1, id="a"), Entry(2, id="b")])
    worker = Worker(app)
    async with worker:
        await started.wait()
        stopping = asyncio.create_task(worker.stop(grace=20))
        await asyncio.sleep(0)
        gate.set()
        await stopping
    assert ((await shown(app)).state, (await shown(app, "b")).state) == (State.COMPLETED, State.QUEUED)


async def test_stop_gives_the_rest_back_without_a_lost_attempt(app: Penstock) -> None:
    """After the grace runs are cancelled and released, to their places; threads too."""
    started: set[str] = set()
    release = threading.Event()

    @app.handler("q", concurrency=2)
    async def handle(payload: int, job: Job) -> None:
        started.add(job.id)
        await asyncio.Event().wait()

    @app.handler("threads")
    def handle_in_thread(payload: int, job: Job) -> None:
        started.add(job.id)
        release.wait(10)

    await app.queue("q").enqueue_many([Entry(n, id=f"j{n}") for n in range(3)])
    await app.queue("threads").enqueue(1, id="t")
    async with Worker(app) as worker:
        await eventually(lambda: len(started) == 3)
        await worker.stop(grace=0)
    found = await app.queue("q").find("queued")
    assert [(s.id, s.attempts) for s in found] == [("j0", 0), ("j1", 0), ("j2", 0)]
    assert (await app.queue("threads").counts())[State.QUEUED] == 1
    release.set()


async def test_a_second_stop_hurries_the_first(app: Penstock) -> None:
    """stop(grace=0) during a long grace gives the jobs back at once, and both calls return."""
    started = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        started.set()
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a")
    worker = Worker(app)
    async with worker, asyncio.timeout(10):
        await started.wait()
        stopping = asyncio.create_task(worker.stop(grace=60))
        await asyncio.sleep(0)
        await worker.stop(grace=0)
        await stopping
    assert (await shown(app)).state is State.QUEUED


async def test_stop_is_idempotent_and_a_worker_can_start_again(app: Penstock) -> None:
    """A stopped worker may be stopped, started and drained again; it is on the list only while it works."""
    app.listen("q", lambda payload: payload)
    worker = Worker(app, id="w")
    await worker.stop()
    for n in range(3):
        async with worker:
            await app.queue("q").enqueue(n)
            await eventually(lambda n=n: equals(app, n + 1))
            assert [w.id for w in await app.storage.workers()] == ["w"]
        await worker.stop()
        assert await app.storage.workers() == []
    await app.queue("q").enqueue(9)
    await worker.drain()
    assert await completed(app) == 4


async def equals(app: Penstock, n: int) -> bool:
    return await completed(app) == n


async def test_run_works_until_it_is_stopped(app: Penstock) -> None:
    """run() returns when stop() is called."""
    app.listen("q", lambda payload: payload)
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    await app.queue("q").enqueue(1)
    await eventually(lambda: completed(app))
    await worker.stop()
    await asyncio.wait_for(running, 5)


async def test_stop_ends_a_worker_whose_storage_does_not_open(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that comes while the storage is opened ends run(), and the worker may be run again."""
    app.listen("q", lambda payload: payload)
    await app.close()
    opening, worker, open_storage = asyncio.Event(), Worker(app), app.storage.open

    async def hang() -> None:
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(app.storage, "open", hang)
    running = asyncio.create_task(worker.run())
    await opening.wait()
    with pytest.raises(RuntimeError, match="started already"):
        await worker.run()
    await worker.stop()
    await asyncio.wait_for(running, 5)
    assert worker.status().stage == "stopped"
    assert not app.is_open
    monkeypatch.setattr(app.storage, "open", open_storage)
    await app.queue("q").enqueue(1)
    await worker.drain()
    assert await completed(app) == 1


async def test_a_run_that_is_cancelled_while_the_storage_opens_ends(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation is raised by run(), and the opening goes on no longer."""
    app.listen("q", lambda payload: payload)
    await app.close()
    opening, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        opening.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(app.storage, "open", hang)
    running = asyncio.create_task(Worker(app).run())
    await opening.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_cancelling_run_gives_the_jobs_back(app: Penstock) -> None:
    """A cancelled run() or drain() leaves no job running."""
    started = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        started.set()
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a")
    for work in (Worker(app).run, Worker(app).drain):
        started.clear()
        task = asyncio.create_task(work())
        await asyncio.wait_for(started.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        status = await shown(app)
        assert (status.state, status.attempts) == (State.QUEUED, 0)


async def test_stop_ends_a_drain(app: Penstock) -> None:
    """drain() returns when stop() is called."""
    started = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        started.set()
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a")
    worker = Worker(app)
    draining = asyncio.create_task(worker.drain())
    await started.wait()
    await worker.stop(grace=0)
    await asyncio.wait_for(draining, 5)


async def test_release_all_gives_back_and_goes_on(app: Penstock) -> None:
    """Everything that runs here returns to its place at no cost, and is taken again."""
    runs: list[int] = []

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        runs.append(job.attempt)
        if len(runs) <= 3:
            await asyncio.Event().wait()

    await app.queue("q").enqueue_many(range(3))
    async with Worker(app) as worker:
        await eventually(lambda: len(runs) == 3)
        assert await worker.release_all() == 3
        await eventually(lambda: equals(app, 3))
    assert runs == [1] * 6
    assert await worker.release_all() == 0


async def test_a_worker_opens_what_is_closed_and_closes_it_again() -> None:
    """Without `async with app` the worker opens the app for as long as it works."""
    app = Penstock("memory:")
    app.listen("q", lambda payload: payload)
    async with Worker(app):
        assert app.is_open
    assert not app.is_open
    await app.queue("q").enqueue(1)
    await Worker(app).drain()
    assert app.is_open
    await app.close()


async def test_an_idle_worker_is_quiet(app: Penstock, trouble: FaultyStorage) -> None:
    """With nothing to do it asks once and then sleeps in the storage."""
    for name in "abc":
        app.listen(name, lambda payload: None)
    idle = asyncio.Event()
    app.on("idle")(lambda event: idle.set())
    async with Worker(app):
        await idle.wait()
        first = {"wait_work", "purge", "beat", "inspect", "announce"}
        await eventually(lambda: first <= trouble.calls.keys())
        before = trouble.calls.total()
        await asyncio.sleep(1)  # the thing under test is what happens in a second of nothing
        assert trouble.calls.total() - before <= 1


# a storage that is not always there ----------------------------------------------------------------


@pytest.mark.parametrize("verb", ["claim", "settle", "renew", "reap", "purge", "beat"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_failing_call_is_tried_again(app: Penstock, trouble: FaultyStorage, verb: str, after: bool) -> None:
    """Whatever call fails, before or after it was carried out, every job is run and settled once."""
    finished: list[str] = []
    app.on("completed")(lambda event: finished.append(event.id))

    @app.handler("q")
    async def handle(payload: int) -> int:
        if verb == "renew":
            await eventually(lambda: trouble.calls["renew"] > 2)
        return payload

    trouble.fail(verb, times=2, after=after)
    async with Worker(app, lease=1.5):
        answers = await app.queue("q").enqueue_many(range(8))
        if verb == "claim" and after:
            # Claims whose answer was lost belong to no run: their leases expire, and they are reaped.
            await eventually(lambda: trouble.calls["claim"] > 2)
            clock = app.clock
            assert isinstance(clock, Clock)
            clock.advance(2)
        await eventually(lambda: equals(app, 8), within=15)
    assert sorted(finished) == sorted(answer.id for answer in answers)


async def test_outcomes_are_recorded_after_an_outage(app: Penstock, trouble: FaultyStorage) -> None:
    """Outcomes are recorded when the storage is back; the outage is emitted once for each loop at most."""
    disconnected: list[str] = []
    app.on("disconnected")(lambda event: disconnected.append(event.name))
    gate = asyncio.Event()
    started = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> str:
        started.set()
        await gate.wait()
        return "kept"

    await app.queue("q").enqueue(1, id="a")
    async with Worker(app, lease=30):
        await started.wait()
        trouble.down = True
        gate.set()
        await eventually(lambda: trouble.calls["settle"] >= 3)
        trouble.down = False
        await eventually(lambda: completed(app))
    assert await app.queue("q").result("a") == "kept"
    assert 1 <= len(disconnected) <= 5


async def test_a_worker_that_is_cut_off_fences_itself(app: Penstock, trouble: FaultyStorage) -> None:
    """When no renewal is confirmed within the lease, runs are ended and nothing is reported for them."""
    ended, lost = asyncio.Event(), list[str]()
    started = asyncio.Event()
    app.on("lease_lost")(lambda event: lost.append(event.id))

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await app.queue("q").enqueue(1, id="a")
    async with Worker(app, lease=0.3):
        await started.wait()
        trouble.down = True
        await asyncio.wait_for(ended.wait(), 5)
        settles = trouble.calls["settle"]
        trouble.down = False
        await app.queue("q").pause()
    assert lost == ["a"]
    assert trouble.calls["settle"] == settles
    assert (await shown(app)).state is State.RUNNING


async def test_an_outcome_that_the_storage_refuses_fails_its_own_job(app: Penstock, trouble: FaultyStorage) -> None:
    """A settlement that can never be stored fails its job and does not hold up its neighbours."""
    app.listen("q", lambda payload: payload, concurrency=4)
    trouble.fail("settle", times=2, error=ValueError("a follow-up in another family"))
    await app.queue("q").enqueue_many([Entry(n, id=f"j{n}") for n in range(4)])
    await Worker(app).drain()
    counts = await app.queue("q").counts()
    assert (counts[State.COMPLETED], counts[State.FAILED]) == (3, 1)


async def test_a_drain_goes_on_after_an_outage(app: Penstock, trouble: FaultyStorage) -> None:
    """drain() goes on when the storage is back."""
    app.listen("q", lambda payload: payload)
    await app.queue("q").enqueue_many(range(5))
    trouble.fail("claim", times=2)
    trouble.fail("reap", times=1)
    await Worker(app).drain()
    assert await completed(app) == 5


async def test_claims_that_arrive_while_stopping_are_given_back(app: Penstock, trouble: FaultyStorage) -> None:
    """A claim that was under way when the worker was stopped costs the job nothing."""
    app.listen("q", lambda payload: payload)
    await app.queue("q").enqueue(1, id="a")
    worker = Worker(app)
    real, asked, answer = app.storage.claim, asyncio.Event(), asyncio.Event()

    async def slow(requests: list[Request], *args: Any) -> Any:
        asked.set()
        await answer.wait()
        return await real(requests, *args)

    trouble.claim = slow  # type: ignore[attr-defined]
    async with worker:
        await asked.wait()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        answer.set()
        await stopping
    status = await shown(app)
    assert (status.state, status.attempts) == (State.QUEUED, 0)
