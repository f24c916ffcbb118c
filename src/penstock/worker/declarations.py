"""Settings that the code of a worker declares: written before its first claim, and looked at again later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from penstock.host import AppHost
from penstock.model.settings import Declarer
from penstock.model.worker_info import Heartbeat

__all__ = ["LOOK", "Declarations", "DeclaredSettings"]

#: How often (seconds) a worker looks whether its declarations hold.
LOOK = 30.0


class DeclaredSettings(Protocol):
    """The settings of one kind, schedules or limits, that the code of a worker declares for the queues it serves."""

    @property
    def active(self) -> bool:
        """Whether there is a setting to declare or to look after; if not, the storage is not asked."""
        ...

    async def look(self, me: Declarer, live: Mapping[str, int]) -> None:
        """Write the declarations that `holder` gives to this worker, and remove those without a live declarer.

        `live` are the live workers, this one included, with the times (ms) at which they started.
        """
        ...


class Declarations:
    """Looks after the declared settings of a worker, without a leader: each worker compares and sets."""

    def __init__(
        self, host: AppHost, worker: str, kinds: Sequence[DeclaredSettings], beat: Callable[[], Awaitable[int]]
    ) -> None:
        self._host = host
        self._worker = worker
        self._kinds = kinds
        #: Sends the first heartbeat if none was sent, and returns when the worker started.
        self._beat = beat
        self._looking = asyncio.Lock()
        #: Whether the first look is over.
        self.declared = False
        #: The number of answers of the storage.
        self.rounds = 0

    async def step(self) -> float | None:
        """Look once; returns the seconds until the next look."""
        await self.look()
        return LOOK

    async def look(self) -> None:
        """Have each kind of settings look after its own, with one list of the live workers."""
        async with self._looking:
            if active := [kind for kind in self._kinds if kind.active]:
                me = Declarer(self._worker, await self._beat())
                records = await self._host.storage.workers()
                live = {record.id: Heartbeat.decode(record.info).started for record in records}
                self.rounds += 1
                for kind in active:
                    await kind.look(me, {**live, me.worker: me.started})
            self.declared = True
