"""`app.workers()` for workers with one process and with several."""

from __future__ import annotations

import asyncio
import os

from penstock import Job, Worker, WorkerInfo
from penstock.model.worker_info import MAX_RUNS
from tests.e2e.conftest import Stage, until


async def seen(stage: Stage, running: int) -> WorkerInfo | None:
    """Return the worker that reports `running` runs, or None."""
    return next((info for info in await stage.app.workers() if info.running == running), None)


async def at_rest(stage: Stage) -> bool:
    """Return whether no worker reports a lease."""
    return all(info.lease_age is None for info in await stage.app.workers())


async def test_a_worker_shows_its_runs_memory_and_leases(stage: Stage) -> None:
    """A worker without children shows units in use, its runs, its memory and the age of its leases."""
    gate = asyncio.Event()

    @stage.app.handler("q", size=20, min_backoff=0.01)
    async def handle(payload: int, job: Job) -> None:
        if job.attempt == 1:
            raise RuntimeError("again")
        await gate.wait()

    await stage.app.queue("q").enqueue_many([1, 2])
    async with Worker(stage.app, id="w", lease=3):
        info: WorkerInfo = await until(lambda: seen(stage, 2), seconds=30)
        jobs = {status.id for status in await stage.app.queue("q").find("running")}
        gate.set()
        await until(lambda: at_rest(stage), seconds=30)
        idle = (await stage.app.workers())[0]
    assert (info.id, info.pid, info.processes) == ("w", os.getpid(), [])
    assert (info.capacity, info.allowed, info.busy) == (100, 100, 40)
    assert {(run.queue, run.id, run.attempt) for run in info.runs} == {("q", id, 2) for id in jobs}
    assert all(run.started_at <= info.seen_at for run in info.runs)
    assert info.memory > 1_000_000
    assert info.lease_age is not None
    assert info.lease_age >= 0
    assert (idle.busy, idle.runs) == (0, [])


async def test_only_the_oldest_runs_are_named(stage: Stage) -> None:
    """A worker with more than `MAX_RUNS` runs lists the oldest and counts all."""
    gate = asyncio.Event()

    @stage.app.handler("q", concurrency=MAX_RUNS + 20)
    async def handle(payload: int) -> None:
        await gate.wait()

    await stage.app.queue("q").enqueue_many(range(MAX_RUNS + 20))
    async with Worker(stage.app, lease=3):
        info: WorkerInfo = await until(lambda: seen(stage, MAX_RUNS + 20), seconds=30)
        gate.set()
    assert len(info.runs) == MAX_RUNS
    assert sorted(info.runs, key=lambda run: run.started_at) == info.runs


async def test_a_supervisor_shows_the_runs_of_its_children(stage: Stage) -> None:
    """A supervisor shows the ids of its children, their memory, and all their runs and units."""
    program = stage.worker(processes=2)
    pids = await program.working(2)
    for id in ("a", "b"):
        await stage.enqueue("slow", id)
        await stage.line("begin", id)
    info: WorkerInfo = await until(lambda: seen(stage, 2), seconds=30)
    assert info.pid == program.pid
    assert sorted(info.processes) == sorted(pids)
    assert (info.capacity, info.allowed, info.busy) == (200, 200, 20)
    assert [(run.queue, run.id, run.attempt) for run in info.runs] == [("slow", "a", 1), ("slow", "b", 1)]
    assert all(run.started_at <= info.seen_at for run in info.runs)
    assert info.memory > 2_000_000
    assert info.lease_age is not None
    assert info.lease_age >= 0


async def test_a_replaced_child_is_shown(stage: Stage) -> None:
    """The listed process ids are those of the current children."""
    program = stage.worker(processes=2)
    old = await program.working(2)
    os.kill(old[0], 9)

    async def replaced() -> bool:
        found = [pid for info in await stage.app.workers() for pid in info.processes]
        return len(found) == 2 and old[0] not in found and old[1] in found

    await until(replaced, seconds=30)
