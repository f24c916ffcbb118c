"""Recovery of jobs whose worker is gone, without a separate reaper."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Job, Penstock, State, Worker
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import AppFactory, status_of, vanish
from tests.support import eventually

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


async def test_any_worker_recovers_a_stalled_job(factory: AppFactory, app: Penstock, clock: Clock) -> None:
    """Any worker reaps the jobs of a dead one, old stalls too, and emits stalled once (PJ-46, PJ-S12, PJ-T22)."""
    other = await factory.app()
    stalled: list[tuple[str, str | None]] = []
    other.on("stalled")(lambda event: stalled.append((event.id, event.worker)))
    other.listen("q", lambda payload, job: [job.attempt, job.stalls])
    await app.queue("q").enqueue(1, id="a")
    assert len(await vanish(app, lease=30)) == 1
    clock.advance(29)
    await Worker(other).drain()
    assert (await status_of(app)).state is State.RUNNING
    clock.advance(1)
    await Worker(other).drain()
    assert await app.queue("q").result("a") == [2, 1]
    assert stalled == [("a", "gone")]


async def test_a_settled_job_is_not_reaped(app: Penstock, clock: Clock) -> None:
    """A completed or failed run leaves nothing to recover (PJ-T22)."""
    runs: list[str] = []

    @app.handler("q", max_attempts=1)
    async def handle(payload: str) -> None:
        runs.append(payload)
        if payload == "bad":
            raise ValueError("no")

    await app.queue("q").enqueue_many(["good", "bad"])
    await Worker(app).drain()
    clock.advance(minutes=5)
    await Worker(app).drain()
    assert runs == ["good", "bad"]


async def test_a_job_with_too_many_stalls_fails(app: Penstock, clock: Clock) -> None:
    """Stalls are counted and bounded: the job fails without another run (PJ-D6)."""
    runs: list[str] = []
    app.listen("q", lambda payload, job: runs.append(job.id))
    await app.queue("q").enqueue("deadly", id="a", max_attempts=9)
    for _ in range(3):
        assert [claim.id for claim in await vanish(app)] == ["a"]
        clock.advance(10)
        await app.storage.reap(["q"])
    await app.queue("q").enqueue("harmless", id="b")
    await Worker(app).drain()
    status = await status_of(app)
    assert (status.state, status.stalls, status.error.type, status.error.kind) == (
        State.FAILED, 3, "StallError", "stall",
    )  # fmt: skip
    assert runs == ["b"]


async def test_a_worker_that_lost_its_job_cannot_overwrite_the_result(
    factory: AppFactory, app: Penstock, clock: Clock
) -> None:
    """A worker that lost its job cannot overwrite the result, and completed is emitted once (PJ-D8)."""
    other = await factory.app()
    started, gate, ends = asyncio.Event(), asyncio.Event(), list[tuple[str, object]]()
    for each in (app, other):
        each.on("completed")(lambda event: ends.append((event.name, event.result)))
        each.on("lease_lost")(lambda event: ends.append((event.name, event.id)))

    @app.handler("q")
    async def slow(payload: int) -> str:
        started.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "stale"

    other.listen("q", lambda payload: "fresh")
    await app.queue("q").enqueue(1, id="a")
    async with Worker(app, lease=600):
        await started.wait()
        while ("completed", "fresh") not in ends:  # the first worker may renew just after the clock has moved
            clock.advance(700)
            await Worker(other).drain()
        gate.set()
        await eventually(lambda: ("lease_lost", "a") in ends)
    assert [end for end in ends if end[0] == "completed"] == [("completed", "fresh")]
    assert await app.queue("q").result("a") == "fresh"


async def test_an_idle_worker_runs_a_dead_ones_job_after_its_lease(
    factory: AppFactory, app: Penstock, clock: Clock
) -> None:
    """An idle worker runs a dead one's job after its lease, though nothing else happens (PJ-D5, PJ-D4)."""
    survivor = await factory.app()
    idle = asyncio.Event()
    survivor.on("idle")(lambda event: idle.set())
    survivor.listen("q", lambda payload: "recovered")
    await app.queue("q").enqueue(1, id="a")
    await vanish(app, lease=2)
    async with Worker(survivor, lease=2):
        await idle.wait()
        clock.advance(2)
        await eventually(lambda: done(app), within=10)
    assert await app.queue("q").result("a") == "recovered"


async def done(app: Penstock) -> bool:
    return (await status_of(app)).state is State.COMPLETED


async def test_a_healthy_run_outlives_its_lease(
    factory: AppFactory, app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its worker renews, no other worker claims a job that takes longer than its lease (PJ-D7, PJ-29)."""
    other = await factory.app()
    runs: list[str] = []
    renewals = 0
    started, gate = asyncio.Event(), asyncio.Event()
    renew = app.storage.renew

    async def counted(*args: Any) -> Any:
        nonlocal renewals
        answer = await renew(*args)
        renewals += 1
        return answer

    monkeypatch.setattr(app.storage, "renew", counted)

    @app.handler("q")
    async def handle(payload: int, job: Job) -> str:
        runs.append("first")
        started.set()
        await gate.wait()
        return "one run"

    other.listen("q", lambda payload: runs.append("second"))
    await app.queue("q").enqueue(1, id="a")
    async with Worker(app, lease=2):
        await started.wait()
        clock.advance(1.5)
        before = renewals
        await eventually(lambda: renewals > before + 1)  # the second one began after the clock had moved
        clock.advance(1.5)
        await Worker(other).drain()
        assert (await status_of(app)).state is State.RUNNING
        gate.set()
        await eventually(lambda: done(app))
    assert runs == ["first"]
    assert await app.queue("q").result("a") == "one run"
