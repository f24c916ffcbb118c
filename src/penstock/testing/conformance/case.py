"""Fixture of the suite's tests: an open storage, its clock, and short calls of its verbs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.model.clock import Clock as AnyClock
from penstock.model.ids import family_of
from penstock.model.job import Claim, NewJob, Snapshot, State
from penstock.storage.base import ClaimRef, Complete, Put, Request, Resolution, Settled, Settlement, Storage
from penstock.storage.flowing import Flowing
from penstock.storage.limiting import Limiting, Scope
from penstock.storage.observing import need_observing
from penstock.testing.clock import Clock

__all__ = ["HOUR", "LEASE", "SECOND", "Case", "StorageMaker", "clear_storage", "find_all", "scenario"]

SECOND = 1_000
LEASE = 10_000
HOUR = 3_600_000
QUEUES = ("q", "q/side", "q/failures", "other")


class StorageMaker(Protocol):
    """A class of tests with a method that makes storages."""

    def make(self, clock: AnyClock) -> Storage: ...


M = TypeVar("M", bound=StorageMaker)


class Case:
    """The storage of one test. By default jobs are in the queue `q`, and the worker `w` claims them."""

    def __init__(self, storage: Storage, clock: Clock, peer: Callable[[], Storage]) -> None:
        self.storage = storage
        self.clock = clock
        #: Makes another storage object on the same clock.
        self.peer = peer
        self._tokens = iter(range(1, 1 << 62))

    @property
    def now(self) -> int:
        """Time of the clock in milliseconds."""
        return round(self.clock.time() * 1000)

    def pass_ms(self, ms: int) -> None:
        """Advance the clock."""
        self.clock.advance(milliseconds=ms)

    async def put(self, id: str, payload: bytes = b"x", queue: str = "q", **options: Any) -> Put:
        """Put one job and return the answer."""
        [answer] = await self.storage.put([NewJob(queue=queue, id=id, payload=payload, **options)])
        return answer

    async def claim(
        self, limit: int = 100, queue: str = "q", batch: int = 1, worker: str = "w", lease: int = LEASE
    ) -> list[Claim]:
        """Claim jobs of one queue and return the claims."""
        token = f"token-{next(self._tokens)}"
        return (await self.storage.claim([Request(queue, limit, batch)], worker, lease, token)).claims

    async def claim_one(self, queue: str = "q", worker: str = "w") -> Claim:
        """Claim the next job; the test fails if there is none."""
        claims = await self.claim(1, queue, worker=worker)
        assert len(claims) == 1, f"expected one claim from {queue!r}, got {claims}"
        return claims[0]

    async def settle(self, claim: Claim, resolution: Resolution | None = None) -> Settled:
        """Settle a claim and return the answer; by default the job is completed."""
        recorded = Complete(b"r", HOUR) if resolution is None else resolution
        [answer] = await self.storage.settle([Settlement(claim.queue, claim.id, claim.token, recorded)])
        return answer

    async def job(self, id: str, queue: str = "q") -> Snapshot:
        """Return a job; the test fails if it does not exist."""
        [found] = await self.storage.get(queue, [id])
        assert found is not None, f"no job {id!r} in {queue!r}"
        return found

    async def state(self, id: str, queue: str = "q") -> State | None:
        """Return the state of a job, None if it does not exist."""
        [found] = await self.storage.get(queue, [id])
        return None if found is None else found.state

    async def order(self, queue: str = "q") -> list[str]:
        """Claim and complete jobs one at a time until none is left; returns their ids in that order."""
        order: list[str] = []
        while claims := await self.claim(1, queue):
            order.append(claims[0].id)
            await self.settle(claims[0], Complete(b"r", 0))
        return order


def claim_ref(claim: Claim) -> ClaimRef:
    """Return the reference by which a worker names its claim."""
    return ClaimRef(claim.queue, claim.id, claim.token)


def ids(jobs: Iterable[Claim | Snapshot]) -> list[str]:
    """Return the ids of jobs or claims."""
    return [job.id for job in jobs]


def scenario(test: Callable[[M, Case], Awaitable[None]]) -> Callable[[M], None]:
    """Make a coroutine a plain test: it gets an open storage, which is cleared and closed after it."""

    async def run_case(suite: M) -> None:
        clock = Clock(1_800_000_000)
        storage = suite.make(clock)
        await storage.open()
        try:
            await test(suite, Case(storage, clock, lambda: suite.make(clock)))
        finally:
            await clear_storage(storage)
            await storage.close()

    @functools.wraps(test)
    def run(suite: M) -> None:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(run_case(suite))

    del run.__wrapped__  # pytest would follow it and take the argument `case` for a fixture
    return run


async def find_all(
    storage: Storage, queue: str = "q", state: State | None = None, limit: int = 3, newest: bool = False
) -> list[Snapshot]:
    """Return every job of a queue, read in pages of `limit`; with `newest` in the order of `Observing.find`."""
    jobs: list[Snapshot] = []
    cursor: str | None = None
    while True:
        if newest:
            page = await need_observing(storage).find(queue, state, cursor, limit, newest=True)
        else:
            page = await storage.find(queue, state, cursor, limit)
        assert len(page.jobs) <= limit
        jobs += page.jobs
        if page.cursor is None:
            return jobs
        assert page.jobs, "an empty page must be the last one"
        cursor = page.cursor


async def clear_storage(storage: Storage, queues: Sequence[str] = QUEUES) -> None:
    """Delete every queue and every worker."""
    names = sorted({*await storage.queues(), *queues})
    for queue in names:
        await storage.delete_queue(queue, True)
    if isinstance(storage, Limiting):
        for scope in [Scope("family", family) for family in sorted({family_of(queue) for queue in names})]:
            await storage.set_limit(scope, None, b"", (await storage.get_limit(scope)).version)
    while await storage.purge(names):
        pass
    if isinstance(storage, Flowing):
        while (await storage.relay(sorted({family_of(queue) for queue in names}))).more:
            pass
    for worker in await storage.workers():
        await storage.beat(worker.id, 0)
