"""Batches: Queue Farm's handlers get lists of jobs, of one named queue at a time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import pytest

from penstock import Entry, Job, Penstock, State, Worker
from penstock.testing import Clock
from tests.parity.support import FEW, RunTracker, count, status_of, vanish, yield_control

pytestmark = pytest.mark.only(*FEW)


async def test_a_queue_is_run_in_batches_in_order(app: Penstock) -> None:
    """Ten jobs in batches of two are five calls, in order, of one queue each (QF-17, QF-18, QF-T17)."""
    calls: list[tuple[str | None, list[int]]] = []

    @app.handler("q", batch_size=2)
    async def handle(payloads: list[int], jobs: list[Job]) -> None:
        assert len({job.group for job in jobs}) == 1
        calls.append((jobs[0].group, payloads))

    await app.queue("q").enqueue_many(range(10))
    await Worker(app).drain()
    assert calls == [("q", [n, n + 1]) for n in range(0, 10, 2)]
    calls.clear()
    await app.queue("q").enqueue_many([Entry(n, group=g) for n in range(3) for g in "ab"])
    await Worker(app).drain()
    assert sorted(calls) == [("a", [0, 1]), ("a", [2]), ("b", [0, 1]), ("b", [2])]


@pytest.mark.parametrize(("names", "batch", "workers", "concurrency"), [(20, 10, 1, 10), (10, 5, 10, 5)])
async def test_many_batches_keep_the_order(
    app: Penstock, names: int, batch: int, workers: int, concurrency: int
) -> None:
    """Queues of 100 jobs each in full batches: every job once, each queue in order, one batch at a time (QF-T17)."""
    order: defaultdict[str | None, list[int]] = defaultdict(list)
    tracker, calls = RunTracker(), Counter[int]()

    @app.handler("q", batch_size=batch, concurrency=concurrency)
    async def handle(payloads: list[int], jobs: list[Job]) -> None:
        with tracker.enter(jobs[0].group):
            calls[len(payloads)] += 1
            await yield_control(payloads[0] % 3)
            order[jobs[0].group].extend(payloads)

    await app.queue("q").enqueue_many([Entry(n, group=f"n{name}") for n in range(100) for name in range(names)])
    await asyncio.gather(*(Worker(app).drain() for _ in range(workers)))
    assert order == {f"n{name}": list(range(100)) for name in range(names)}
    assert tracker.met == set()
    assert calls == {batch: names * 100 // batch}


async def test_a_job_that_always_fails_fails_alone(app: Penstock) -> None:
    """A failed batch is retried one by one: the others complete and only the bad job fails (QF-D5, QF-T18)."""
    calls: list[list[int]] = []

    @app.handler("q", batch_size=2)
    async def handle(payloads: list[int]) -> None:
        calls.append(payloads)
        if 0 in payloads:
            raise ValueError("poison")

    await app.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(4)])
    await Worker(app).drain()
    assert calls == [[0, 1], [0], [0], [1], [2, 3]]
    assert [status.id for status in await app.queue("q").find()] == ["0"]
    assert (await status_of(app, "0")).state is State.FAILED


async def test_each_member_of_a_batch_has_its_attempt_counted(app: Penstock) -> None:
    """A failed batch costs each of its jobs one attempt and no more (QF-S4, QF-43)."""
    attempts: list[tuple[int, int]] = []

    @app.handler("q", batch_size=3)
    async def handle(payloads: list[int], jobs: list[Job]) -> None:
        attempts.extend((payload, job.attempt) for payload, job in zip(payloads, jobs, strict=True))
        if len(payloads) == 3:
            raise ValueError("all together")

    await app.queue("q").enqueue_many(range(3))
    await Worker(app).drain()
    assert attempts == [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (2, 2)]
    assert await app.queues() == []


async def test_a_lost_batch_is_delivered_again_in_order(app: Penstock, clock: Clock) -> None:
    """A batch whose worker died comes back whole and in order, before the rest of its queue (QF-D1, QF-42)."""
    calls: list[list[int]] = []
    app.listen("q", calls.append, batch_size=2)
    await app.queue("q").enqueue_many(range(4))
    assert len(await vanish(app, batch=2)) == 2
    clock.advance(30)
    await Worker(app).drain()
    assert calls == [[0, 1], [2, 3]]


async def test_the_timeouts_of_a_batch_add_up(app: Penstock) -> None:
    """A batch may take as long as its jobs together (QF-S3)."""

    @app.handler("q", batch_size=2, timeout=0.02)
    async def handle(payloads: list[int]) -> None:
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a", max_attempts=1)
    await app.queue("q").enqueue(2, id="b", max_attempts=1, timeout=0.03)
    await Worker(app).drain()
    assert await count(app, State.FAILED) == 2
    for id in "ab":
        error = (await status_of(app, id)).error
        assert error is not None
        assert (error.type, "0.05 s" in error.message) == ("RunTimeout", True)
