"""Runs that are interrupted: by a timeout, a cancel, a lost lease."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from penstock import Entry, Event, Failure, Job, Penstock, State, Worker
from penstock.model.job import Claim
from penstock.model.outcome import Stopped
from penstock.storage.base import Renewal, Request
from penstock.testing import Clock, FaultyStorage
from penstock.worker.executor import interrupted
from penstock.worker.leases import Leases
from penstock.worker.run import Interruption, Run, RunJob
from penstock.worker.supervisor.crash_recovery import ClosedServices
from tests.support import eventually


async def shown(app: Penstock, id: str = "a") -> Any:
    status = await app.queue("q").status(id)
    assert status is not None
    return status


async def claim_elsewhere(app: Penstock, lease: int = 10_000) -> list[Claim]:
    """Claim all jobs for another worker, which never settles them."""
    return (await app.storage.claim([Request("q", 10)], "gone", lease, "gone-token")).claims


async def test_an_async_run_is_ended_by_its_timeout(app: Penstock) -> None:
    """It is cancelled, counted as a timeout, and the last one is final, of kind timeout."""
    runs: list[int] = []

    @app.handler("q", timeout=0.02, max_timeouts=2, min_backoff=0)
    async def handle(payload: int, job: Job) -> None:
        runs.append(job.timeouts)
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain(scheduled=True)
    status = await shown(app)
    assert (runs, status.state, status.timeouts, status.retries) == ([0, 1], State.FAILED, 2, 0)
    assert (status.error.type, status.error.kind) == ("RunTimeout", "timeout")


async def test_a_thread_is_ignored_after_its_timeout(app: Penstock) -> None:
    """A sync handler cannot be stopped, but its job is decided in time and its value ignored."""
    release, ended = threading.Event(), threading.Event()

    @app.handler("q", max_timeouts=1)
    def handle(payload: int) -> str:
        release.wait(10)
        ended.set()
        return "too late"

    await app.queue("q").enqueue(1, id="a", timeout=0.02)
    await Worker(app).drain()
    assert (await shown(app)).state is State.FAILED
    release.set()
    await eventually(ended.is_set)
    assert (await shown(app)).result is None


async def test_a_run_that_ignores_its_timeout_is_abandoned(app: Penstock) -> None:
    """An async handler that swallows its cancellation is abandoned after a grace period."""
    release = asyncio.Event()

    @app.handler("q", timeout=0.02, max_timeouts=1)
    async def handle(payload: int) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert (await shown(app)).state is State.FAILED
    release.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_value_counts_even_if_it_comes_late(app: Penstock) -> None:
    """A handler that finishes its work when it is cancelled has done it."""

    @app.handler("q", timeout=0.02)
    async def handle(payload: int) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"
        return "never"

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == "saved"


async def test_no_timeout_is_a_persistent_task(app: Penstock) -> None:
    """timeout=None bounds nothing, for the handler or for one job."""
    gate = asyncio.Event()

    @app.handler("q", timeout=0.02, max_timeouts=1)
    async def handle(payload: int, job: Job) -> None:
        if job.id == "a":
            await gate.wait()
        else:
            await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a", timeout=None)
    await app.queue("q").enqueue(1, id="b")
    async with Worker(app):
        await eventually(lambda: state_is(app, "b", State.FAILED))
        assert (await shown(app)).state is State.RUNNING
        gate.set()
        await eventually(lambda: state_is(app, "a", State.COMPLETED))


async def state_is(app: Penstock, id: str, state: State) -> bool:
    return (await shown(app, id)).state is state


async def test_a_job_whose_worker_is_gone_is_run_again(app: Penstock, clock: Clock) -> None:
    """After its lease the job is reaped and run again, with one stall."""
    app.listen("q", lambda payload, job: [job.attempt, job.stalls])
    await app.queue("q").enqueue(1, id="a")
    assert len(await claim_elsewhere(app)) == 1
    await Worker(app).drain()
    assert (await shown(app)).state is State.RUNNING
    clock.advance(11)
    await Worker(app).drain()
    assert await app.queue("q").result("a") == [2, 1]


async def test_too_many_stalls_fail_without_a_run(app: Penstock, clock: Clock) -> None:
    """The handler is not called; the error is a StallError of kind stall, and the fail handler gets it."""
    failures: list[Failure] = []

    @app.handler("q", max_stalls=2, on_failure=failures.append)
    async def handle(payload: int) -> None:
        raise AssertionError("must not be called")

    await app.queue("q").enqueue(1, id="a")
    for _ in range(2):
        assert len(await claim_elsewhere(app)) == 1
        clock.advance(11)
        await app.storage.reap(["q"])
    await Worker(app).drain()
    status = await shown(app)
    assert (status.state, status.stalls, status.attempts) == (State.FAILED, 2, 2)
    assert (status.error.type, status.error.kind) == ("StallError", "stall")
    assert [(failure.error.kind, failure.job.attempt) for failure in failures] == [("stall", 2)]


async def test_at_most_once_is_not_run_after_a_stall(app: Penstock, clock: Clock) -> None:
    """A job that must not run twice has failed when its worker is gone; the claim that fails it is no attempt."""
    ended: list[Event] = []
    app.on("failed")(ended.append)
    app.listen("q", lambda payload: None, at_most_once=True)
    await app.queue("q").enqueue(1, id="a")
    await claim_elsewhere(app)
    clock.advance(11)
    await Worker(app).drain()
    status = await shown(app)
    assert (status.state, status.error.kind, status.attempts) == (State.FAILED, "stall", 1)
    assert [(event.id, event.attempt) for event in ended] == [("a", 1)]


@pytest.mark.parametrize("began", [0.0, 12.5])
def test_a_run_that_is_killed_before_it_began_is_no_attempt(app: Penstock, began: float) -> None:
    """A killed run ends as cancelled, and counts only if its handler was called."""
    app.listen("q", lambda payload: None)
    handler = app.handlers["q"]
    job = RunJob(Claim(queue="q", id="a", token="t", payload=b"1"), handler.options, ClosedServices())
    run = Run(handler, [job], 1)
    run.began, run.interruption, job.kill_requested = began, Interruption.KILL, True
    assert interrupted(run, job) == Stopped(ran=began > 0)


async def test_a_cancel_signal_reaches_the_run(app: Penstock) -> None:
    """job.cancelled is set; what the handler raises then ends as cancelled, a returned value completes."""
    started: set[str] = set()

    @app.handler("q")
    async def handle(payload: str, job: Job) -> str:
        started.add(job.id)
        await job.cancelled
        if payload == "raise":
            raise ValueError("stopping")
        return "finished anyway"

    await app.queue("q").enqueue_many([Entry("raise", id="a"), Entry("return", id="b")])
    async with Worker(app, lease=1):
        await eventually(lambda: len(started) == 2)
        for id in "ab":
            answer = await app.queue("q").cancel(id, running="signal")
            assert (answer.status, bool(answer), answer.running) == ("cancel_requested", False, True)
        await eventually(lambda: state_is(app, "a", State.CANCELLED))
        await eventually(lambda: state_is(app, "b", State.COMPLETED))
    assert await app.queue("q").result("b") == "finished anyway"


async def test_a_kill_ends_the_run(app: Penstock) -> None:
    """The task is cancelled and the job is cancelled; the value of a thread is ignored."""
    started: list[str] = []
    release = threading.Event()

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        started.append(job.id)
        await asyncio.Event().wait()

    @app.handler("threads")
    def handle_in_thread(payload: int, job: Job) -> None:
        started.append(job.id)
        release.wait(10)

    await app.queue("q").enqueue(1, id="a")
    await app.queue("threads").enqueue(1, id="t")
    async with Worker(app, lease=1):
        await eventually(lambda: len(started) == 2)
        await app.queue("q").cancel("a", running="kill")
        await app.queue("threads").cancel("t", running="kill")
        await eventually(lambda: state_is(app, "a", State.CANCELLED))
        await eventually(lambda: threads_cancelled(app))
    release.set()


async def threads_cancelled(app: Penstock) -> bool:
    return (await app.queue("threads").counts())[State.CANCELLED] == 1


async def test_a_kill_releases_the_other_jobs_of_a_batch(app: Penstock) -> None:
    """The other jobs of a killed batch are released, and run without having lost an attempt."""
    batches: list[list[int]] = []
    attempts: list[int] = []

    @app.handler("q", batch_size=3)
    async def handle(payloads: list[int], jobs: list[Job]) -> None:
        batches.append(payloads)
        attempts.extend(job.attempt for job in jobs)
        if len(batches) == 1:
            await asyncio.Event().wait()

    await app.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(3)])
    async with Worker(app, lease=1):
        await eventually(lambda: batches)
        await app.queue("q").cancel("1", running="kill")
        await eventually(lambda: len(batches) == 2)
    assert batches == [[0, 1, 2], [0, 2]]
    assert set(attempts) == {1}
    assert (await shown(app, "1")).state is State.CANCELLED


async def test_forget_makes_this_run_the_last(app: Penstock) -> None:
    """The run is not disturbed, but when it fails the job is cancelled instead of retried."""
    started, gate = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        started.set()
        await gate.wait()
        assert not job.cancelled
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    async with Worker(app):
        await started.wait()
        assert (await app.queue("q").cancel("a", running="forget")).status == "running"
        gate.set()
        await eventually(lambda: state_is(app, "a", State.CANCELLED))


async def test_a_lost_lease_ends_the_run_and_its_outcome_is_not_recorded(app: Penstock, clock: Clock) -> None:
    """When another worker has the job, this run is cancelled and its outcome is not recorded."""
    started, cancelled, lost = asyncio.Event(), asyncio.Event(), list[str]()
    app.on("lease_lost")(lambda event: lost.append(event.id))

    @app.handler("q", max_stalls=None)
    async def handle(payload: int, job: Job) -> int:
        if job.attempt > 1:
            return job.attempt
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 0

    await app.queue("q").enqueue(1, id="a")
    async with Worker(app, lease=1):
        await started.wait()
        clock.advance(5)
        await app.storage.reap(["q"])
        await asyncio.wait_for(cancelled.wait(), 5)
        await eventually(lambda: state_is(app, "a", State.COMPLETED))
    assert await app.queue("q").result("a") == 2
    assert lost == ["a"]


async def test_no_run_begins_after_its_lease(app: Penstock, trouble: FaultyStorage) -> None:
    """A handler holds up its process past the lease: the other claimed jobs are given up, and not begun."""
    begun, lost = list[int](), list[str]()
    app.on("lease_lost")(lambda event: lost.append(event.id))

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        begun.append(payload)
        hold_up(trouble, 0.5)

    await app.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(10)])
    async with Worker(app, lease=0.3):
        await eventually(lambda: len(lost) == 10)
        trouble.down = False
    assert begun == [0]


async def test_no_batch_begins_after_its_lease(app: Penstock, trouble: FaultyStorage) -> None:
    """Batches that wait in line are given up as single jobs are."""
    begun, lost = list[list[int]](), list[str]()
    app.on("lease_lost")(lambda event: lost.append(event.id))

    @app.handler("q", batch_size=2)
    async def handle(payloads: list[int]) -> None:
        begun.append(payloads)
        hold_up(trouble, 0.5)

    await app.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(10)])
    async with Worker(app, lease=0.3):
        await eventually(lambda: len(lost) == 10)
        trouble.down = False
    assert begun == [[0, 1]]


async def test_a_batch_with_a_lost_job_is_not_begun(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage answers that one of two jobs is lost while their batch waits: the other one is released, and runs."""
    begun: list[list[int]] = []

    @app.handler("q", batch_size=2)
    async def handle(payloads: list[int]) -> None:
        begun.append(payloads)

    hold = Leases.hold

    def hold_and_lose(leases: Leases, runs: list[Run], asked: float) -> None:
        hold(leases, runs, asked)
        if len(runs[0].jobs) == 2:
            leases.renewed(runs[0].jobs, [Renewal(kept=True), Renewal(kept=False)], asked)

    monkeypatch.setattr(Leases, "hold", hold_and_lose)
    await app.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(2)])
    await Worker(app).drain()
    assert begun == [[0]]
    assert (await shown(app, "0")).attempts == 1


def hold_up(trouble: FaultyStorage, seconds: float) -> None:
    """Block the event loop, as a frozen process does; the storage is not reached meanwhile, nor afterwards."""
    trouble.down = True
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def test_a_deleted_queue_ends_its_runs(app: Penstock) -> None:
    """Claims of a deleted queue are lost, and nothing comes back into it."""
    started, ended = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await app.queue("q").enqueue(1, id="a")
    async with Worker(app, lease=1):
        await started.wait()
        assert await app.queue("q").delete() == 1
        await asyncio.wait_for(ended.wait(), 5)
    assert await app.queues() == []
