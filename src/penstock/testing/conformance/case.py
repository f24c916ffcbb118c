"""What the tests of the suite have in hand: an open storage, its clock, and short words for its verbs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.model.clock import Clock as AnyClock
from penstock.model.job import Claim, NewJob, Snapshot, State
from penstock.storage.base import ClaimRef, Complete, Put, Request, Resolution, Settled, Settlement, Storage
from penstock.testing.clock import Clock

__all__ = ["HOUR", "LEASE", "SECOND", "Case", "StorageMaker", "clear_storage", "find_all", "scenario"]

SECOND = 1_000
LEASE = 10_000
HOUR = 3_600_000
QUEUES = ("q", "q/side", "q/failures", "other")


class StorageMaker(Protocol):
    """What a class of tests must have."""

    def make(self, clock: AnyClock) -> Storage: ...


M = TypeVar("M", bound=StorageMaker)


class Case:
    """One test's storage. Jobs are in the queue `q` and claims those of the worker `w` unless told otherwise."""

    def __init__(self, storage: Storage, clock: Clock, peer: Callable[[], Storage]) -> None:
        self.storage = storage
        self.clock = clock
        #: Another storage object, as `make` gives it.
        self.peer = peer
        self._tokens = iter(range(1, 1 << 62))

    @property
    def now(self) -> int:
        """The time in milliseconds."""
        return round(self.clock.time() * 1000)

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(milliseconds=ms)

    async def put(self, id: str, payload: bytes = b"x", queue: str = "q", **options: Any) -> Put:
        """Put one job."""
        [answer] = await self.storage.put([NewJob(queue=queue, id=id, payload=payload, **options)])
        return answer

    async def claim(
        self, limit: int = 100, queue: str = "q", batch: int = 1, worker: str = "w", lease: int = LEASE
    ) -> list[Claim]:
        """What a worker gets."""
        token = f"token-{next(self._tokens)}"
        return (await self.storage.claim([Request(queue, limit, batch)], worker, lease, token)).claims

    async def claim_one(self, queue: str = "q", worker: str = "w") -> Claim:
        """The next job; there must be one."""
        claims = await self.claim(1, queue, worker=worker)
        assert len(claims) == 1, f"expected one claim from {queue!r}, got {claims}"
        return claims[0]

    async def settle(self, claim: Claim, resolution: Resolution | None = None) -> Settled:
        """End a run; completed unless told otherwise."""
        how = Complete(b"r", HOUR) if resolution is None else resolution
        [answer] = await self.storage.settle([Settlement(claim.queue, claim.id, claim.token, how)])
        return answer

    async def job(self, id: str, queue: str = "q") -> Snapshot:
        """A job; it must be there."""
        [found] = await self.storage.get(queue, [id])
        assert found is not None, f"no job {id!r} in {queue!r}"
        return found

    async def state(self, id: str, queue: str = "q") -> State | None:
        """How a job stands, None when it is not there."""
        [found] = await self.storage.get(queue, [id])
        return None if found is None else found.state

    async def order(self, queue: str = "q") -> list[str]:
        """Ids in the order in which one worker, taking one at a time, completes them."""
        order: list[str] = []
        while claims := await self.claim(1, queue):
            order.append(claims[0].id)
            await self.settle(claims[0], Complete(b"r", 0))
        return order


def claim_ref(claim: Claim) -> ClaimRef:
    """A claim as its holder names it."""
    return ClaimRef(claim.queue, claim.id, claim.token)


def ids(jobs: Iterable[Claim | Snapshot]) -> list[str]:
    """The ids of jobs or claims."""
    return [job.id for job in jobs]


def scenario(test: Callable[[M, Case], Awaitable[None]]) -> Callable[[M], None]:
    """A coroutine as a test of any test runner: it gets an open storage, which is emptied and closed after it."""

    async def play(suite: M) -> None:
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
            runner.run(play(suite))

    del run.__wrapped__  # the test has one argument more than what is called
    return run


async def find_all(storage: Storage, queue: str = "q", state: State | None = None, limit: int = 3) -> list[Snapshot]:
    """Every job of a queue, page by page."""
    jobs: list[Snapshot] = []
    cursor: str | None = None
    while True:
        page = await storage.find(queue, state, cursor, limit)
        assert len(page.jobs) <= limit
        jobs += page.jobs
        if page.cursor is None:
            return jobs
        assert page.jobs, "an empty page must be the last one"
        cursor = page.cursor


async def clear_storage(storage: Storage, queues: Sequence[str] = QUEUES) -> None:
    """Delete every queue and take every worker off the list."""
    names = sorted({*await storage.queues(), *queues})
    for queue in names:
        await storage.delete_queue(queue)
    while await storage.purge(names):
        pass
    for worker in await storage.workers():
        await storage.beat(worker.id, 0)
