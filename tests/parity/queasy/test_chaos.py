"""Queasy's fuzz harness in one process: periodic ids and a cascade, with handlers that fail by chance."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from penstock import Failure, Job, Penstock, PermanentError, State, Worker
from penstock.testing import Clock
from tests.parity.support import FEW, RunTracker, vanish, yield_control

pytestmark = pytest.mark.only(*FEW)

LAST = 8  # how often each periodic job is to come round
DEPTH = 4  # of the cascade
WAITING = (State.SCHEDULED, State.QUEUED, State.BLOCKED, State.RUNNING, State.RETRYING)
QUEUES = ("q", "q/failures", "r", "r/failures")


class RandomHandlers:
    """Handlers that succeed, fail, give up or hang by chance, and check the guarantees at each run."""

    def __init__(self, app: Penstock, clock: Clock, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = clock
        self.tracker = RunTracker()
        self.done, self.failed = Counter[Any](), Counter[Any]()
        self.early = 0
        options: dict[str, Any] = {
            "max_retries": 2, "max_timeouts": 2, "max_stalls": 2, "min_backoff": 1.0, "timeout": 0.02,
            "failure_options": {"max_stalls": None},
        }  # fmt: skip
        app.listen("q", self.tick, on_failure=self.on_tick_failure, **options)
        app.listen("r", self.fan_out, on_failure=self.on_failure, **options)

    async def chance(self, key: Any, job: Job) -> None:
        """Let two of three runs succeed."""
        with self.tracker.enter((job.queue, job.id)):
            self.early += job.run_at.timestamp() > self.clock.time()
            await yield_control(self.random.randrange(4))
            luck = self.random.random()
            if luck > 0.95:
                raise PermanentError("never")
            if luck > 0.80:
                raise ValueError("not now")
            if luck > 0.70:
                await asyncio.Event().wait()
        self.done[key] += 1

    async def tick(self, n: int, job: Job) -> None:
        await self.chance((job.id, n), job)
        self.again(n, job.id, job)

    async def fan_out(self, path: str, job: Job) -> None:
        await self.chance(path, job)
        if len(path) < DEPTH:
            for branch in "ab":
                job.then("r", path + branch)

    async def on_tick_failure(self, failure: Failure, job: Job) -> None:
        self.failed[failure.job.id, failure.payload] += 1
        self.again(failure.payload, failure.job.id, job)

    async def on_failure(self, failure: Failure) -> None:
        self.failed[failure.payload] += 1

    def again(self, n: int, id: str, job: Job) -> None:
        if n + 1 < LAST:
            job.then("q", n + 1, id=id, delay=5)


async def waiting(app: Penstock) -> int:
    counts = [await app.queue(queue).counts() for queue in QUEUES]
    return sum(each[state] for each in counts for state in WAITING)


@pytest.mark.parametrize("seed", range(3))
async def test_random_failures_break_no_guarantee(app: Penstock, clock: Clock, seed: int) -> None:
    """One run per id at a time, none early, none after success, one fail job per exhausted job (QZ-T26, QR-1)."""
    handlers = RandomHandlers(app, clock, seed)
    periodic = [f"p{n}" for n in range(5)]
    for id in periodic:
        await app.queue("q").enqueue(0, id=id)
    await app.queue("r").enqueue("")
    for _ in range(500):
        if handlers.random.random() < 0.3:
            await vanish(app, handlers.random.choice(QUEUES), limit=2)
        await asyncio.gather(Worker(app).drain(), Worker(app).drain())
        if not await waiting(app):
            break
        clock.advance(handlers.random.randrange(1, 12))
    assert await waiting(app) == 0
    assert (handlers.tracker.met, handlers.early) == (set(), 0)
    ends = handlers.done + handlers.failed
    assert {key for key, times in ends.items() if times != 1} == set()
    assert {key for key in ends if isinstance(key, tuple)} == {(id, n) for id in periodic for n in range(LAST)}
    parents = [path for path in handlers.done if isinstance(path, str) and len(path) < DEPTH]
    assert sum(isinstance(key, str) for key in ends) == 1 + 2 * len(parents)
    for queue in QUEUES:
        await app.queue(queue).delete()
