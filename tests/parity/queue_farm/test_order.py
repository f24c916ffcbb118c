"""In order within a named queue, in any order between them: Queue Farm's promise.

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
from tests.parity.support import FEW, Floor, count, dawdle, vanish
from tests.support import eventually

pytestmark = pytest.mark.only(*FEW)


class Farm:
    """A handler that notes the order in each lane, and which lanes ever had two runs at once."""

    def __init__(self, seed: int = 7) -> None:
        self.order: defaultdict[str, list[int]] = defaultdict(list)
        self.floor = Floor()
        self._random = random.Random(seed)

    @property
    def runs(self) -> int:
        return sum(map(len, self.order.values()))

    async def __call__(self, payload: int, job: Job) -> None:
        assert job.group is not None
        with self.floor.enter(job.group):
            await dawdle(self._random.randrange(5))
            self.order[job.group].append(payload)


async def push(app: Penstock, names: int, jobs: int) -> dict[str, list[int]]:
    """Push that many jobs to each of so many named queues, in turn; gives the order that must come out."""
    await app.queue("q").enqueue_many([Entry(n, group=f"n{name}") for n in range(jobs) for name in range(names)])
    return {f"n{name}": list(range(jobs)) for name in range(names)}


async def test_each_named_queue_runs_in_order(app: Penstock) -> None:
    """Two named queues both run, each in the order of its pushes, however long each job takes (QF-1, QF-T5, QF-T6)."""
    farm = Farm()
    app.listen("q", farm, concurrency=2)
    wanted = await push(app, names=2, jobs=10)
    await Worker(app).drain()
    assert (farm.order, farm.floor.met) == (wanted, set())
    assert await app.queues() == []


async def test_a_queue_of_its_own_is_a_lane_too(app: Penstock) -> None:
    """A job without a group is in the one named like its queue, so that every queue runs in order (QF-1, QF-41)."""
    farm = Farm()
    for name in ("q", "r"):
        app.listen(name, farm, concurrency=5)
        await app.queue(name).enqueue_many(range(20))
    await Worker(app).drain()
    assert farm.order == {"q": list(range(20)), "r": list(range(20))}
    assert farm.floor.met == set()


async def test_many_queues_with_concurrency(app: Penstock) -> None:
    """20 queues of 100 jobs with ten at once: exactly 2000 runs, each queue in order, never eleven (QF-T7, QF-16)."""
    farm = Farm()
    app.listen("q", farm, concurrency=10)
    wanted = await push(app, names=20, jobs=100)
    await Worker(app).drain()
    assert (farm.order, farm.floor.met, farm.runs) == (wanted, set(), 2000)
    assert 1 < farm.floor.most <= 10


async def test_many_workers_keep_the_order(app: Penstock) -> None:
    """Ten workers with five at once over 10 queues of 100 jobs: exactly 1000 runs, each queue in order (QF-T8)."""
    farm = Farm()
    app.listen("q", farm, concurrency=5)
    wanted = await push(app, names=10, jobs=100)
    await asyncio.gather(*(Worker(app).drain() for _ in range(10)))
    assert (farm.order, farm.floor.met, farm.runs) == (wanted, set(), 1000)


async def test_a_failed_job_is_retried_before_the_next(app: Penstock) -> None:
    """Each of two jobs fails once: four runs, two errors told, the second only after the first (QF-T9, QF-44)."""
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
    """A job that always fails runs three times and is then told as failed, once (QF-T10, QF-7, QF-18, QF-23)."""
    attempts: list[int] = []
    heard: list[str] = []
    app.on("*")(lambda event: heard.append(event.name))

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        attempts.append(job.attempt)
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert attempts == [1, 2, 3]
    assert (heard.count("retrying"), heard.count("failed"), heard.count("completed")) == (2, 1, 0)
    assert await count(app, State.FAILED) == 1


async def test_a_job_has_its_own_attempts_and_timeout(app: Penstock) -> None:
    """What a push says about attempts and timeout wins over the worker's own (QF-11, QF-6, QF-S12)."""
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


async def test_one_slow_job_leaves_the_other_slots_to_others(app: Penstock) -> None:
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


async def test_a_stalled_job_is_taken_over(app: Penstock, clock: Clock) -> None:
    """A job in flight with a worker that is gone is run by another, and holds its queue till then (QF-T11, QF-42)."""
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
    """A worker that is stopped from inside its first handler lets it finish and takes no second job (QF-T16, QF-28)."""
    ran: list[int] = []
    stopping: list[asyncio.Task[None]] = []
    worker = Worker(app)

    @app.handler("q")
    async def handle(payload: int) -> None:
        stopping.append(asyncio.create_task(worker.stop()))
        await dawdle(10)
        ran.append(payload)

    await app.queue("q").enqueue_many([1, 2])
    await worker.run()
    await asyncio.gather(*stopping)
    assert ran == [1]
    assert await count(app, State.QUEUED) == 1


async def test_a_drain_of_nothing_returns(app: Penstock) -> None:
    """With no queue in use drain() says so once and returns, leaving nothing behind (QF-T12, QF-29, QF-2)."""
    heard: list[str] = []
    app.on("*")(lambda event: heard.append(event.name))
    await Worker(app).drain()
    assert heard == ["no_queues"]
    app.listen("q", heard.append)
    await Worker(app).drain()
    assert await app.queues() == []


async def test_a_slow_healthy_job_is_not_run_twice(
    app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that takes longer than a lease is renewed: others wait for it, and its queue stays in order (QF-D2)."""
    gate, started = asyncio.Event(), asyncio.Event()
    farm, renew, renewals = Farm(), app.storage.renew, list[object]()

    async def counted(*args: Any) -> Any:
        renewals.append(args)
        return await renew(*args)

    monkeypatch.setattr(app.storage, "renew", counted)

    @app.handler("q", timeout=None)
    async def handle(payload: int, job: Job) -> None:
        started.set()
        await gate.wait()
        await farm(payload, job)

    await app.queue("q").enqueue_many([Entry(n, group="lane") for n in range(3)])
    working = asyncio.create_task(Worker(app, lease=0.6).drain())
    await started.wait()
    for _ in range(3):
        before = len(renewals)
        clock.advance(0.4)
        await eventually(lambda before=before: len(renewals) > before + 1)
        await Worker(app).drain()
    assert farm.runs == 0
    gate.set()
    await working
    assert (farm.order["lane"], farm.floor.met) == ([0, 1, 2], set())
