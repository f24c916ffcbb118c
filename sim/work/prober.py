"""A client of the time after all faults: it measures how soon waiting processes take what has become ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock import Every
from penstock.model.job import NewJob, State, Update
from penstock.storage.base import Complete, Release, Request, Settlement
from sim.declared import TICKS
from sim.queues import WITH_CHILDREN
from sim.work.client import Client

__all__ = ["Prober"]

#: The queue in which the prober itself waits.
PROBED = "walk/rare"

#: How soon (seconds) a waiting process is awake, and looks by itself; how far a tick is away for which it is woken.
AWAKE, BY_ITSELF, NEAR = 1.5, 8.0, 1.0


class Prober(Client):
    """Makes jobs ready in several ways while processes wait for them."""

    async def run(self) -> None:
        """Measure each way once; two of them are about the workers."""
        self.storage: Any = await self.app.opened()
        for make_ready in (self._put, self._update, self._release, self._free_successor):
            await self._measure(make_ready)
        await self._measure_ticks()
        await self._measure_workers()  # the last: a worker whose wake-up was lost gets no other one until it looks

    async def _measure(self, make_ready: Callable[[str], Awaitable[Callable[[], Awaitable[object]]]]) -> None:
        """Prepare a job, wait for work, make the job ready, and check that the wait ends soon."""
        id = self.new_id()
        finish = await make_ready(id)
        waiting = self.node.create_task(self.storage.wait_work([PROBED], 10.0))
        await asyncio.sleep(0.5)  # wake-ups of before are taken by now
        if waiting.done():
            waiting = self.node.create_task(self.storage.wait_work([PROBED], 10.0))
            await asyncio.sleep(0.5)
        await finish()
        began = self.node.scheduler.now
        await waiting
        took = self.node.scheduler.now - began
        if took > AWAKE:
            self.shared.fault(f"a wait for work took {took:.3f} s after a job became ready: {make_ready.__name__}")
        await self._complete_all()

    async def _claim(self) -> list[Settlement]:
        token = f"{self.random.getrandbits(64):016x}"
        claimed = await self.storage.claim([Request(PROBED, 10)], "prober", 60_000, token)
        return [Settlement(claim.queue, claim.id, claim.token, Complete(b"", 0)) for claim in claimed.claims]

    async def _complete_all(self) -> None:
        while ended := await self._claim():
            await self.storage.settle(ended)

    def _job(self, id: str, **options: Any) -> NewJob:
        return NewJob(queue=PROBED, id=id, payload=b"p", **options)

    async def _put(self, id: str) -> Callable[[], Awaitable[object]]:
        return lambda: self.storage.put([self._job(id)])

    async def _update(self, id: str) -> Callable[[], Awaitable[object]]:
        await self.storage.put([self._job(id, delay=600_000)])
        return lambda: self.storage.put([self._job(id, update=Update(run_at=True), delay=0)])

    async def _release(self, id: str) -> Callable[[], Awaitable[object]]:
        await self.storage.put([self._job(id)])
        held = [Settlement(each.queue, each.id, each.token, Release()) for each in await self._claim()]
        return lambda: self.storage.settle(held)

    async def _free_successor(self, id: str) -> Callable[[], Awaitable[object]]:
        await self.storage.put([self._job(id)])
        held = await self._claim()
        await self.storage.put([self._job(id, update=Update())])
        return lambda: self.storage.settle(held)

    async def _measure_workers(self) -> None:
        """Put a job while all hints are lost: a worker looks by itself."""
        network = self.shared.network
        network.loses_hints = True
        began = self.node.scheduler.now
        put = await self.app.queue("mail").enqueue({}, result_ttl=1)
        while self.node.scheduler.now < began + 30:
            [job] = await self.storage.get("mail", [put.id])
            if job is None or job.state is not State.QUEUED:
                break
            await asyncio.sleep(0.5)
        network.loses_hints = False
        took = self.node.scheduler.now - began
        if took > BY_ITSELF:
            self.shared.fault(f"no worker looked by itself for {took:.3f} s", ("mail", put.id))

    async def _measure_ticks(self) -> None:
        """Make a schedule whose first tick is near: a worker is woken for it."""
        schedules = self.app.queue(TICKS).schedules
        await schedules.put("probe", Every(NEAR), result_ttl=1)
        limit = (
            NEAR + AWAKE + (BY_ITSELF if self.shared.seed % WITH_CHILDREN == 1 else 0.0)
        )  # children report it to their parent
        await asyncio.sleep(limit)
        info = await schedules.get("probe")
        if info is not None and not info.fired:
            self.shared.fault(f"a new schedule has not ticked within {limit:g} s")
        await schedules.remove("probe")
