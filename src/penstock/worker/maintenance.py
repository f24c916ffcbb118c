"""Housekeeping that every worker does for its queues: no reaper to run, no leader to lose."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

import msgspec

from penstock.claims import reap_all
from penstock.host import AppHost
from penstock.model.worker_info import Heartbeat
from penstock.storage.base import MAX_BATCH

__all__ = ["Maintenance"]

#: How often (seconds) presence is renewed and how long it lasts; how often old jobs are forgotten.
BEAT, PRESENCE, PURGE = 10.0, 25.0, 30.0

#: Expired leases are looked for every half lease, but not more often than this, nor less (seconds).
REAP = (2.0, 5.0)


class Maintenance:
    """Takes back jobs whose lease is over, forgets old ones, and says that this worker is there."""

    def __init__(
        self, host: AppHost, worker: str, lease: float, queues: Sequence[str], status: Callable[[], Heartbeat]
    ) -> None:
        self._host = host
        self._worker = worker
        self._queues = queues
        self._rest = min(max(lease / 2, REAP[0]), REAP[1])
        self._next_beat = self._next_purge = 0.0
        self._reaping = asyncio.Lock()
        #: How many jobs were taken back so far.
        self.reaped = 0
        #: Grows with every answer that was heard.
        self.rounds = 0
        self._status = status
        self._said: Heartbeat = Heartbeat()
        self._started = 0

    async def step(self) -> float | None:
        now = asyncio.get_running_loop().time()
        await self._beat(now)
        await self.reap()
        if self._queues and now >= self._next_purge:
            while await self._host.storage.purge(self._queues) >= MAX_BATCH:
                pass
            self._next_purge = now + PURGE
        return self._rest

    async def reap(self) -> None:
        """Take back what other workers have lost, all of it."""
        async with self._reaping:
            await reap_all(self._host, self._queues, self._count)

    def _count(self, reaped: int) -> None:
        self.reaped += reaped
        self.rounds += 1

    async def _beat(self, now: float) -> None:
        """Say that this worker is there: while it runs something or has changed with each step, else now and then."""
        said = self._status()
        if now < self._next_beat and not said.running and said.shape == self._said.shape:
            return
        self._started = self._started or await self._host.storage.time()
        words = msgspec.structs.replace(
            said, host=socket.gethostname(), pid=os.getpid(), queues=list(self._queues), started=self._started
        )
        await self._host.storage.beat(self._worker, round(PRESENCE * 1000), words.encode())
        self._said, self._next_beat = said, now + BEAT
        self.rounds += 1

    def beat_again(self) -> None:
        """Say with the next step that this worker is there: somebody has not heard it."""
        self._next_beat = 0.0

    async def leave(self) -> None:
        """Take this worker off the list."""
        await self._host.storage.beat(self._worker, 0)
