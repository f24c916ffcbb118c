"""Queue OrderRecorder's guarantee: jobs of a named queue run in order, those of different ones in any order.

A named queue of Queue Farm is a group here: one handler serves them all, and `job.group` is the name.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from penstock import Entry, Event, Job, Penstock, State, Worker
from penstock.testing import Clock
from tests.parity.support import FEW, RunTracker, count, vanish, yield_control
from tests.support import eventually

pytestmark = pytest.mark.only(*FEW)


class OrderRecorder:
    """A handler that records the order in each group, and the groups that ever had two runs at once."""

    def __init__(self, seed: int = 7) -> None:
        self.order: defaultdict[str, list[int]] = defaultdict(list)
        self.tracker = RunTracker()
        self._random = random.Random(seed)

    @property
    def runs(self) -> int:
        return sum(map(len, self.order.values()))

    async def __call__(self, payload: int, job: Job) -> None:
        assert job.group is not None
        with self.tracker.enter(job.group):
            await yield_control(self._random.randrange(5))
            self.order[job.group].append(payload)


async def push(app: Penstock, names: int, jobs: int) -> dict[str, list[int]]:
    """Push `count` jobs to each of the named queues, in turn; return the expected order of each."""
    await app.queue("q").enqueue_many([Entry(n, group=f"n{name}") for n in range(jobs) for name in range(names)])
    return {f"n{name}": list(range(jobs)) for name in range(names)}


async def test_each_named_queue_runs_in_order(app: Penstock) -> None:
    """Two named queues both run, each in the order of its pushes, for any durations (QF-1, QF-T5, QF-T6)."""
    recorder = OrderRecorder()
    app.listen("q", recorder, concurrency=2)
    wanted = await push(app, names=2, jobs=10)
    await Worker(app).drain()
    assert (recorder.order, recorder.tracker.met) == (wanted, set())
    assert await app.queues() == []


async def test_a_job_without_a_group_is_in_that_of_its_queue(app: Penstock) -> None:
    """A job without a group is in the one named like its queue, so every queue runs in order (QF-1, QF-41)."""
    recorder = OrderRecorder()
    for name in ("q", "r"):
        app.listen(name, recorder, concurrency=5)
        await app.queue(name).enqueue_many(range(20))
    await Worker(app).drain()
    assert recorder.order == {"q": list(range(20)), "r": list(range(20))}
    assert recorder.tracker.met == set()


async def test_many_queues_with_concurrency(app: Penstock) -> None:
    """20 queues of 100 jobs with ten at once: exactly 2000 runs, each queue in order, never eleven (QF-T7, QF-16)."""
    recorder = OrderRecorder()
    app.listen("q", recorder, concurrency=10)
    wanted = await push(app, names=20, jobs=100)
    await Worker(app).drain()
    assert (recorder.order, recorder.tracker.met, recorder.runs) == (wanted, set(), 2000)
    assert 1 < recorder.tracker.most <= 10


async def test_many_workers_keep_the_order(app: Penstock) -> None:
    """Ten workers with five at once over 10 queues of 100 jobs: exactly 1000 runs, each queue in order (QF-T8)."""
    recorder = OrderRecorder()
    app.listen("q", recorder, concurrency=5)
    wanted = await push(app, names=10, jobs=100)
    await asyncio.gather(*(Worker(app).drain() for _ in range(10)))
    assert (recorder.order, recorder.tracker.met, recorder.runs) == (wanted, set(), 1000)


async def test_a_failed_job_is_retried_before_the_next(app: Penstock) -> None:
    """Each of two jobs fails once: four runs, two errors, the second job only after the first (QF-T9, QF-44)."""
    runs: list[tuple[int, int]] = []
    errors: list[Event] = []
    app.on("retrying")(errors.append)

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        runs.append((payload, job.attempt))
        if job.attempt == 1:
            raise ValueError("once")

    await app.queue("q").enqueue_many([1, 2])
    await Worker(app).drain()
    assert runs == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [event.error.message for event in errors if event.error] == ["once", "once"]


async def test_three_attempts_and_no_more(app: Penstock) -> None:
    """A job that always fails runs three times, and failed is emitted once (QF-T10, QF-7, QF-18, QF-23)."""
    attempts: list[int] = []
    received: list[str] = []
    app.on("*")(lambda event: received.append(event.name))

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        attempts.append(job.attempt)
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert attempts == [1, 2, 3]
    assert (received.count("retrying"), received.count("failed"), received.count("completed")) == (2, 1, 0)
    assert await count(app, State.FAILED) == 1


async def test_a_job_has_its_own_attempts_and_timeout(app: Penstock) -> None:
    """The attempts and timeout of a push win over those of the handler (QF-11, QF-6, QF-S12)."""
    runs: list[str] = []

    @app.handler("q")
    async def handle(payload: str, job: Job) -> None:
        runs.append(payload)
        if payload == "slow":
            await asyncio.Event().wait()
        raise ValueError("no")

    await app.queue("q").enqueue("often", max_attempts=5)
    await app.queue("q").enqueue("once", max_attempts=1)
    await app.queue("q").enqueue("slow", max_attempts=2, timeout=0.02)
    await Worker(app).drain()
    assert runs == ["often"] * 5 + ["once"] + ["slow"] * 2


async def test_a_failing_queue_delays_no_other(app: Penstock, clock: Clock) -> None:
    """A head that fails holds its own queue, even while it waits, and no other (QF-S2, QF-44)."""
    order: list[str] = []

    @app.handler("q", min_backoff=60)
    async def handle(payload: str, job: Job) -> None:
        order.append(payload)
        if payload == "bad 1" and job.attempt == 1:
            raise ValueError("no")

    await app.queue("q").enqueue_many([Entry(f"{g} {n}", group=g) for n in (1, 2) for g in ("bad", "good")])
    await Worker(app).drain()
    assert order == ["bad 1", "good 1", "good 2"]
    clock.advance(60)
    await Worker(app).drain()
    assert order[3:] == ["bad 1", "bad 2"]


async def test_one_slow_job_leaves_the_other_slot_free(app: Penstock) -> None:
    """With two slots and one slow job, every other queue is served through the second slot (QF-D4, QF-T19)."""
    gate = asyncio.Event()
    done: list[str] = []

    @app.handler("q", concurrency=2)
    async def handle(payload: int, job: Job) -> None:
        assert job.group is not None
        if job.group == "slow":
            await gate.wait()
        done.append(job.group)
        if len(done) == 12:
            gate.set()

    await app.queue("q").enqueue(1, group="slow")
    await app.queue("q").enqueue_many([Entry(n, group=g) for n in range(3) for g in ("a", "b", "c", "d")])
    async with asyncio.timeout(20):
        await Worker(app).drain()
    assert done[-1] == "slow"


async def test_a_stalled_job_is_run_by_another_worker(app: Penstock, clock: Clock) -> None:
    """A running job of a worker that is gone is run by another, and holds its queue till then (QF-T11, QF-42)."""
    ran: list[int] = []
    app.listen("q", ran.append)
    await app.queue("q").enqueue_many([1, 2])
    assert len(await vanish(app)) == 1
    await Worker(app).drain()
    assert ran == []
    clock.advance(30)
    await Worker(app).drain()
    assert ran == [1, 2]


async def test_a_job_that_kills_its_workers_is_bounded(app: Penstock, clock: Clock) -> None:
    """Every start counts: after three vanished workers the job has failed, and the next one runs (QF-S1, QF-43)."""
    ran: list[int] = []
    app.listen("q", ran.append)
    await app.queue("q").enqueue(1, id="killer")
    await app.queue("q").enqueue(2)
    for _ in range(3):
        assert [claim.id for claim in await vanish(app)] == ["killer"]
        clock.advance(30)
        await app.storage.reap(["q"])
    await Worker(app).drain()
    assert ran == [2]
    assert [status.id for status in await app.queue("q").find("failed")] == ["killer"]


async def test_stop_takes_no_more_jobs(app: Penstock) -> None:
    """A worker that is stopped inside its first handler lets it finish and claims no second job (QF-T16, QF-28)."""
    ran: list[int] = []
    stopping: list[asyncio.Task[None]] = []
    worker = Worker(app)

    @app.handler("q")
    async def handle(payload: int) -> None:
        stopping.append(asyncio.create_task(worker.stop()))
        await yield_control(10)
        ran.append(payload)

    await app.queue("q").enqueue_many([1, 2])
    await worker.run()
    await asyncio.gather(*stopping)
    assert ran == [1]
    assert await count(app, State.QUEUED) == 1


async def test_a_drain_without_handlers_returns(app: Penstock) -> None:
    """With no queue in use drain() emits no_queues once and returns, leaving nothing behind (QF-T12, QF-29, QF-2)."""
    received: list[str] = []
    app.on("*")(lambda event: received.append(event.name))
    await Worker(app).drain()
    assert received == ["no_queues"]
    app.listen("q", received.append)
    await Worker(app).drain()
    assert await app.queues() == []


async def test_a_slow_healthy_job_is_not_run_twice(
    app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that takes longer than a lease is renewed: others wait for it, and its queue stays in order (QF-D2)."""
    gate, started = asyncio.Event(), asyncio.Event()
    recorder, renew, renewals = OrderRecorder(), app.storage.renew, list[object]()

    async def counted(*args: Any) -> Any:
        renewals.append(args)
        return await renew(*args)

    monkeypatch.setattr(app.storage, "renew", counted)

    @app.handler("q", timeout=None)
    async def handle(payload: int, job: Job) -> None:
        started.set()
        await gate.wait()
        await recorder(payload, job)

    await app.queue("q").enqueue_many([Entry(n, group="lane") for n in range(3)])
    working = asyncio.create_task(Worker(app, lease=0.6).drain())
    await started.wait()
    for _ in range(3):
        before = len(renewals)
        clock.advance(0.4)
        await eventually(lambda before=before: len(renewals) > before + 1)
        await Worker(app).drain()
    assert recorder.runs == 0
    gate.set()
    await working
    assert (recorder.order["lane"], recorder.tracker.met) == ([0, 1, 2], set())
