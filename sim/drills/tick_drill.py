"""Drills of tickers: workers that are full, near ticks, child processes that report ticks, and clocks that jump."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import Every
from penstock.testing.simulation.loop import Node
from sim.drills.drill import Drill, DrillWorker
from sim.queues import NodeApp

__all__ = ["ChildTickDrill", "FullDrill", "JumpDrill", "NearDrill"]

#: How soon (seconds) a worker that claims nothing looks at its schedules, two rests of its ticker after its last claim,
#: and how long its run goes on.
BY_ITSELF, LONG = 61.0, 64.0

#: How late (seconds) a tick may be, and the span of a schedule whose next tick is beyond the longest rest of a ticker.
LATE, SPAN = 1.0, 8

#: Within how many seconds a child process that was killed must have been replaced.
REPLACED = 10.0


async def sleep_for(payload: Any) -> None:
    """Sleep for as many seconds as the payload has."""
    await asyncio.sleep(payload or 0)


class TickDrill(Drill):
    """The base of the drills of ticks."""

    async def _check_next_tick(self, queue: str, name: str) -> None:
        """Wait for the next tick of a schedule, and check that it is not late."""
        due = (await self.record(queue, name)).next
        await asyncio.sleep(max(due - await self.storage.time(), 0) / 1000 + LATE)
        found = (await self.record(queue, name)).next
        self.expect(found != due, f"a tick is {LATE:g} s late: {name} of {queue}")

    async def _make(self, queue: str, name: str, every: float) -> None:
        await self.app.queue(queue).schedules.put(name, Every(every), overlap="skip", result_ttl=0)

    async def _start_long(self, queue: str) -> None:
        """Put a job that runs for long, and wait until it does."""
        put = await self.app.queue(queue).enqueue(LONG, result_ttl=0, timeout=2 * LONG)

        async def running() -> bool:
            return (queue, put.id) in self.shared.running()

        self.expect(await self.until(running, 5.0), f"no job of {queue} starts")


class FullDrill(TickDrill):
    """Workers without room in a queue: they claim nothing from it, and fire its ticks nevertheless."""

    async def run(self) -> None:
        """Fill a worker, and one queue of another, then make schedules."""
        await self.begin()
        full = self.worker("drill.full", self._register_full, capacity=10)
        shut = self.worker("drill.shut", self._register_shut)
        queues = ("drill/full", "drill/shut")
        for queue in queues:
            await self._start_long(queue)
        await asyncio.sleep(1.0)  # answers of claims of before have arrived
        for queue in queues:
            await self._make(queue, "unasked", 5)
        await asyncio.sleep(BY_ITSELF)
        for queue in queues:
            fired = (await self.record(queue, "unasked")).fired
            self.expect(fired > 0, f"no tick of {queue} has fired within {BY_ITSELF:g} s while it has no room")
            await self.remove_schedule(queue, "unasked")
        await asyncio.sleep(LONG - BY_ITSELF)
        await full.stop()
        await shut.stop()

    @staticmethod
    def _register_full(app: NodeApp, node: Node) -> None:
        app.listen("drill/full", sleep_for, size=10)

    @staticmethod
    def _register_shut(app: NodeApp, node: Node) -> None:
        app.listen("drill/open", sleep_for)
        app.listen("drill/shut", sleep_for, concurrency=1)


class NearDrill(TickDrill):
    """A worker without work: claims name the next tick, which comes between two of its looks."""

    async def run(self) -> None:
        """Check some ticks."""
        await self.begin()
        worker = self.worker("drill.near", lambda app, node: app.listen("drill/near", sleep_for))
        await asyncio.sleep(1.0)  # it waits by now: a schedule that is made before that is noticed at its next claim
        await self._make("drill/near", "near", SPAN)
        for _ in range(3):
            await self._check_next_tick("drill/near", "near")
        await self.remove_schedule("drill/near", "near")
        await worker.stop()


class ChildTickDrill(TickDrill):
    """A worker with a child process, which claims and reports the ticks that the answers name."""

    async def run(self) -> None:
        """Check some ticks, then one that is earlier than what the child has reported."""
        await self.begin()
        queue = "drill/child"
        worker = self.worker("drill.child", lambda app, node: app.listen(queue, sleep_for), processes=1)
        await asyncio.sleep(3.0)  # the child has started, and waits
        await self._make(queue, "near", SPAN)
        for _ in range(3):
            await self._check_next_tick(queue, "near")
        for _ in range(5):  # at one of these the child reports the next tick, and not again for a while
            await self.app.queue(queue).enqueue(0, result_ttl=0)
            await asyncio.sleep(0.2)
        await self._make(queue, "soon", 1)
        await self.app.queue(queue).enqueue(0, result_ttl=0)
        await asyncio.sleep(1.0 + LATE)
        fired = (await self.record(queue, "soon")).fired
        self.expect(fired > 0, "a child process has not reported a tick that is earlier than the one before")
        for name in ("near", "soon"):
            await self.remove_schedule(queue, name)
        await self._replace_child(worker)
        await worker.stop()

    async def _replace_child(self, worker: DrillWorker) -> None:
        """Kill the child process: its parent starts another one."""
        worker.node.children[-1].kill()

        async def replaced() -> bool:
            return any(not child.dead for child in worker.node.children)

        self.expect(await self.until(replaced, REPLACED), "a child process that was killed is not replaced")
        await asyncio.sleep(1.0)


class JumpDrill(TickDrill):
    """A worker whose next tick is far away, until the storage's clock is set forward."""

    async def run(self) -> None:
        """Set the clock to the next tick, several times: an answer to a claim shows it."""
        await self.begin()
        queue = "drill/jump"
        await self._make(queue, "far", 3600)  # before the worker: its first look compares the clocks
        worker = self.worker("drill.jump", lambda app, node: app.listen(queue, sleep_for))
        for pause in (7.0, 1.0, 2.5):
            await asyncio.sleep(pause)
            due = (await self.record(queue, "far")).next
            self.shared.network.move_clock((due - await self.storage.time()) / 1000 + 0.1)
            await self.app.queue(queue).enqueue(0, result_ttl=0)
            await asyncio.sleep(LATE)
            found = (await self.record(queue, "far")).next
            self.expect(found != due, f"a tick is {LATE:g} s late after the clock was set forward")
        await self.remove_schedule(queue, "far")
        await worker.stop()
