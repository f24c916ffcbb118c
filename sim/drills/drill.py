"""The base of drills: a client that may start workers, move the storage's clock, and expect something."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.errors import PenstockError, StorageUnavailable
from penstock.model.job import NewJob
from penstock.storage.base import ClaimRef, Complete, Request, Settlement
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.workers import SimulatedWorker
from sim.queues import NodeApp
from sim.work.client import Client

__all__ = ["DRILLED", "STEP", "Drill", "DrillWorker"]

#: The queues of all drills.
DRILLED = tuple(
    f"drill/{name}"
    for name in (
        "room", "room2", "cancel", "ahead", "first", "faster", "slower", "edit", "run", "run/pairs", "full", "open",
        "shut", "near", "child", "jump", "code",
    )
)  # fmt: skip

#: How often (virtual seconds) a drill looks whether something has happened.
STEP = 0.1

#: Registers the handlers of an app of a drill; it gets the node on which they run.
Register = Callable[[NodeApp, Node], None]


class DrillWorker:
    """A worker of a drill, on a node of its own with right clocks."""

    def __init__(self, drill: Drill, name: str, register: Register, **options: Any) -> None:
        self._simulation = drill.shared.simulation
        self.node: Node = self._simulation.scheduler.node(name)
        self.app = self._make_app(self.node, register)
        self._worker = SimulatedWorker(self.app, id=name, **options)
        self._worker.child_app = lambda node: self._make_app(node, register)
        self._run = self.node.start(self._worker.run())

    def _make_app(self, node: Node, register: Register) -> NodeApp:
        simulation = self._simulation
        app = NodeApp(storage=simulation.storage(node), clock=simulation.server.clock)
        app.thread_storage = lambda: simulation.storage(node.threads[-1])
        register(app, node)
        return app

    async def stop(self) -> None:
        """Stop the worker, and close its app."""
        self.node.start(self._worker.stop(grace=1))
        while not self._run.done():  # noqa: ASYNC110
            await asyncio.sleep(STEP)  # nodes share no event
        self._run.result()
        closed = self.node.start(self.app.close())
        while not closed.done():  # noqa: ASYNC110
            await asyncio.sleep(STEP)
        self.node.kill()


class Drill(Client):
    """Situations of one kind."""

    async def begin(self) -> None:
        """Open the storage."""
        self.storage: Any = await self.app.opened()

    async def checked(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a part of the drill: no call fails, because all faults are over."""
        try:
            await part
        except PenstockError as error:
            self.expect(False, f"a call fails: {error}")

    def expect(self, holds: bool, text: str, *jobs: tuple[str, str]) -> None:
        """Record a broken promise unless it holds."""
        if not holds:
            self.shared.fault(f"drill: {text}", *jobs)

    async def until(self, happened: Callable[[], Any], seconds: float, step: float = STEP) -> bool:
        """Wait until something has happened, by the answer of a coroutine function; returns whether it has."""
        end = self.node.scheduler.now + seconds
        while not await happened():
            if self.node.scheduler.now >= end:
                return False
            await asyncio.sleep(step)
        return True

    def worker(self, name: str, register: Register, **options: Any) -> DrillWorker:
        """Start a worker with handlers of its own."""
        return DrillWorker(self, name, register, **options)

    # the storage ----------------------------------------------------------------------------------

    def job(self, queue: str, id: str | None = None, payload: bytes = b"null", **options: Any) -> NewJob:
        """Return a job to put."""
        return NewJob(queue=queue, id=id or self.new_id(), payload=payload, **options)

    async def claim(self, queue: str, most: int = 9, lease: int = 60_000) -> list[ClaimRef]:
        """Claim jobs of a queue."""
        token = f"{self.random.getrandbits(64):016x}"
        answer = await self.storage.claim([Request(queue, most)], "driller", lease, token)
        return [ClaimRef(claim.queue, claim.id, claim.token) for claim in answer.claims]

    async def complete(self, refs: Sequence[ClaimRef]) -> None:
        """Complete runs; no result is kept."""
        if refs:
            await self.storage.settle([Settlement(ref.queue, ref.id, ref.token, Complete(b"", 0)) for ref in refs])

    async def complete_all(self, queue: str) -> None:
        """Run all jobs of a queue that are ready."""
        while refs := await self.claim(queue):
            await self.complete(refs)

    def stand_clock_at(self, ms: int | None) -> None:
        """Carry out the next calls of this client while the storage's clock shows this time; None for its own time."""
        clock, clocks = self.shared.simulation.server.clock, self.shared.network.clocks
        clocks.pop(self.node.name, None)
        if ms is not None:
            clocks[self.node.name] = lambda: ms / 1000 - clock.time()

    @contextlib.contextmanager
    def refusing(self, node: str, verb: str) -> Generator[None]:
        """Refuse the calls of a verb by a node."""
        network = self.shared.network
        before = network.refuses

        def refuses(request: Any) -> Exception | None:
            if (request.node.name, request.verb) == (node, verb):
                return StorageUnavailable(f"{verb}: refused by a drill")
            return before(request)

        network.refuses = refuses
        try:
            yield
        finally:
            network.refuses = before

    async def record(self, queue: str, name: str) -> Any:
        """Return the record of a schedule."""
        return await self.storage.get_schedule(queue, name)

    async def remove_schedule(self, queue: str, name: str) -> None:
        """Remove a schedule, also one that code declares."""
        while (record := await self.record(queue, name)) is not None:
            await self.storage.drop_schedule(queue, name, record.version)

    @staticmethod
    def later(job: NewJob, ms: int) -> NewJob:
        """Return a job that is due at this time."""
        return replace(job, run_at=ms)
