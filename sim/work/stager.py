"""A client that plays the scenes, with calls that no fault hits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.model.job import State
from penstock.model.limit import Limit
from penstock.storage.base import Claim, Complete, Request, Resolution, Settlement
from penstock.storage.limiting import Scope
from sim.work.client import Client
from sim.work.scenes import SCENES

__all__ = ["STAGES", "Stager"]

#: The queues of the scenes; the last never has a limit.
STAGES = ("scene", "scene/side", "scene/failures", "quiet")

#: How long (ms) the claims are that end what a scene has left.
BRIEFLY = 500

ENDED = (State.COMPLETED, State.FAILED, State.CANCELLED)


class Stager(Client):
    """Plays each scene once, spread over the time of the faults; then ends what is left."""

    async def run(self) -> None:
        """Play the scenes."""
        self.storage: Any = await self.patient(self.app.opened)
        pause = 0.8 * self.shared.seconds / len(SCENES)
        for scene in SCENES:
            await asyncio.sleep(self.random.random() * pause)
            with contextlib.suppress(PenstockError):
                await scene(self)
            await self._end_jobs()
        while not self.shared.stopping or await self._left():
            await self._end_jobs()
            await asyncio.sleep(4.0)

    # for the scenes -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def ahead(self, seconds: float) -> Generator[None]:
        """Let the storage's clock be ahead while calls of this client are carried out."""
        clocks = self.shared.network.clocks
        clocks[self.node.name] = lambda: seconds
        try:
            yield
        finally:
            del clocks[self.node.name]

    async def claim(self, queue: str, lease: int, most: int = 10) -> list[Claim]:
        """Claim jobs of a queue."""
        token = f"{self.random.getrandbits(64):016x}"
        return (await self.storage.claim([Request(queue, most)], "stager", lease, token)).claims

    async def settle(self, held: Sequence[Claim], ends: Sequence[Resolution]) -> None:
        """Settle runs in one call, each with its resolution."""
        settlements = [Settlement(run.queue, run.id, run.token, end) for run, end in zip(held, ends, strict=False)]
        if settlements:
            await self.storage.settle(settlements)

    async def set_limit(self, scope: Scope, limit: Limit | None) -> None:
        """Set or remove a limit."""
        version = (await self.storage.get_limit(scope)).version
        rule = limit.rule("group" if scope.kind == "groups" else scope.kind, 0) if limit else None
        await self.storage.set_limit(scope, rule, b"", version)

    def check_damage(self, queue: str) -> None:
        """Check that the storage has found nothing damaged in a queue."""
        self.shared.check_damage(queue)

    # between them ---------------------------------------------------------------------------------

    async def _end_jobs(self) -> None:
        """Complete all jobs that can be claimed, once what runs has been taken back."""
        with contextlib.suppress(PenstockError):
            await self.storage.reap(STAGES)
            token = f"{self.random.getrandbits(64):016x}"
            claimed = await self.storage.claim([Request(queue, 10) for queue in STAGES], "stager", BRIEFLY, token)
            await self.settle(claimed.claims, [Complete(b"", 0)] * len(claimed.claims))

    async def _left(self) -> bool:
        counts = [await self.patient(lambda queue=queue: self.storage.counts(queue)) for queue in STAGES]
        return any(count for each in counts for state, count in each.items() if state not in ENDED)
