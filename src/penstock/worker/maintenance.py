"""Maintenance that every worker does for its queues: heartbeat, reap and purge, without a leader."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from penstock.claims import Purger, reap_all
from penstock.errors import escaped
from penstock.host import AppHost
from penstock.model.activity import MAX_RELEASE_NAME, WorkerRequest
from penstock.model.ids import family_of
from penstock.model.printing import count, join_names, quote_name
from penstock.model.source import source
from penstock.model.worker_info import Heartbeat
from penstock.storage.auditing import Auditing
from penstock.storage.base import Reaped
from penstock.storage.flowing import Flowing
from penstock.worker.identity import IdCheck
from penstock.worker.stats import RunStats

__all__ = ["Maintenance"]

log = logging.getLogger("penstock.worker")

#: How often (seconds) an idle worker sends a heartbeat, and how long that counts.
BEAT, PRESENCE = 10.0, 25.0

#: Expired leases are reaped every half lease, but at intervals between these two (seconds).
REAP = (2.0, 5.0)


#: How often (seconds) the families of other workers' queues are listed.
LIST_EVERY = 30.0


class Maintenance:
    """Sends heartbeats, takes back jobs whose lease expired, and purges finished ones whose time is over."""

    def __init__(
        self, host: AppHost, worker: str, lease: float, queues: Sequence[str], status: Callable[[], Heartbeat],
        asked: Callable[[WorkerRequest], None],
        stats: RunStats | None = None,
    ) -> None:  # fmt: skip
        self._others: list[str] = []
        self._list_at = 0.0
        self._host = host
        self._worker = worker
        self._queues = queues
        self._rest = min(max(lease / 2, REAP[0]), REAP[1])
        self._next_beat = 0.0
        self._purger = Purger(host)
        self._reaping = asyncio.Lock()
        #: The number of jobs taken back so far.
        self.reaped = 0
        #: The number of answers of the storage.
        self.rounds = 0
        self._status = status
        self._stats = stats or RunStats(host, worker)
        #: Gets what the worker is asked for, with every heartbeat for a while.
        self._asked = asked
        self._last_heartbeat: Heartbeat = Heartbeat()
        self._started = 0
        self._beating = asyncio.Lock()
        #: The release of the code of this worker.
        self._release = escaped(os.environ.get("PENSTOCK_RELEASE", ""))[:MAX_RELEASE_NAME]
        self._id_check = IdCheck(host, worker)

    async def step(self) -> float | None:
        """Do what is due; returns the seconds until the next step."""
        now = asyncio.get_running_loop().time()
        async with self._beating:
            await self._beat(now)
        await self.reap()
        await self._purger.purge_due(self._queues)
        await self._relay()
        return self._rest

    async def _relay(self) -> None:
        """Apply the messages of the outboxes of the families of its queues, and of another family, each in turn.

        A flow may be in a family that no worker serves: its messages, and its producer that fell silent, are found so.
        """
        storage = self._host.storage
        if isinstance(storage, Flowing) and self._queues:
            families = {family_of(queue) for queue in self._queues}
            other = await self._other_family(families)
            while (await storage.relay(sorted(families | other))).more:
                pass

    async def _other_family(self, own: set[str]) -> set[str]:
        """Return the next family of others; they are listed anew when all had their turn, at most twice a minute."""
        now = asyncio.get_running_loop().time()
        if not self._others and now >= self._list_at:
            self._list_at = now + LIST_EVERY
            self._others = sorted({family_of(queue) for queue in await self._host.storage.queues()} - own)
        return {self._others.pop()} if self._others else set()

    async def started_at(self) -> int:
        """Return when (ms) the worker started, by the storage's clock; sends the first heartbeat if need be."""
        async with self._beating:
            if not self._next_beat:
                await self._beat(asyncio.get_running_loop().time())
            return self._started

    async def reap(self) -> None:
        """Take back every job of the queues whose lease expired."""
        async with self._reaping:
            await reap_all(self._host, self._queues, self._reaped)

    def _reaped(self, jobs: Sequence[Reaped]) -> None:
        self.reaped += len(jobs)
        self.rounds += 1
        for worker in dict.fromkeys(job.worker for job in jobs):
            names = [(job.queue, job.id) for job in jobs if job.worker == worker]
            text = "took back %s of worker %s, which stopped answering: %s"
            log.warning(text, count(len(names), "job"), quote_name(worker), join_names(names))

    async def _beat(self, now: float) -> None:
        """Send a heartbeat if one is due, or if the worker runs jobs, or if it has changed."""
        status = self._status()
        if now < self._next_beat and not status.running and status.shape == self._last_heartbeat.shape:
            return
        if not self._started:
            self._started = await self._host.storage.time()
            self._stats.set_clock(self._started, asyncio.get_running_loop().time())
            if self._release and hasattr(self._host.storage, "add_release"):
                await cast("Auditing", self._host.storage).add_release(self._release)
        await self._id_check.look(now)
        heartbeat = msgspec.structs.replace(
            status, host=source.host(), pid=source.pid(), queues=list(self._queues), started=self._started,
            instance=self._id_check.instance, duplicate=self._id_check.duplicate, release=self._release,
        )  # fmt: skip
        asked = await self._host.storage.beat(self._worker, round(PRESENCE * 1000), heartbeat.encode())
        await self._stats.try_send(now)
        self._last_heartbeat, self._next_beat = status, now + BEAT
        self.rounds += 1
        if asked is not None:
            self._asked(asked)

    def beat_again(self) -> None:
        """Send a heartbeat with the next step: a child has not found the last one, or a request may wait."""
        self._next_beat = 0.0

    async def leave(self) -> None:
        """Remove this worker from the list of workers, and send the last times of its runs."""
        await self._host.storage.beat(self._worker, 0)
        await self._stats.try_send(asyncio.get_running_loop().time())
