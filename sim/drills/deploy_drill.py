"""A drill of deploys: code that declares other times, is gone for long, and comes back."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import Every, Schedule
from penstock.model.schedule_settings import ScheduleSettings
from penstock.testing.simulation.loop import Node
from sim.drills.drill import Drill
from sim.queues import NodeApp

__all__ = ["DeployDrill"]

QUEUE, NAME = "drill/code", "code"

#: How long (seconds) no code runs: more ticks are due then than one step decides.
AWAY = 620

#: Within how many seconds code is declared, and a schedule without a declarer is retired.
DECLARED, RETIRED = 20.0, 100.0


async def do_nothing(payload: Any) -> None:
    """Return at once."""


class DeployDrill(Drill):
    """One schedule that two versions of the code declare in turn, and a third does not."""

    async def run(self) -> None:
        """Deploy the versions."""
        await self.deploy_late()
        await self.retire()

    async def deploy_late(self) -> None:
        """Stop the code for longer than one step decides ticks, then start code with other times."""
        await self.begin()
        first = self.worker("drill.code0", self._version(1))
        await self._declared("drill.code0")
        await first.stop()
        self.shared.network.move_clock(AWAY)
        with self.refusing("drill.code1", "due"):  # so that the change decides the ticks, not the ticker
            self._second = self.worker("drill.code1", self._version(7))
            await self._declared("drill.code1")

    async def retire(self) -> None:
        """Leave a worker alone whose code does not declare the schedule, until it is retired; then declare it again."""
        other = self.worker("drill.code2", self._version(None))
        await self._second.stop()

        async def retired() -> bool:
            return (await self._settings()).retired is not None

        self.expect(await self.until(retired, RETIRED, 1.0), "a schedule that no code declares is not retired")
        third = self.worker("drill.code3", self._version(7))
        await self._declared("drill.code3")
        self.expect(not await retired(), "a schedule that is declared again stays retired")
        await other.stop()
        await third.stop()
        await self.remove_schedule(QUEUE, NAME)
        await self.complete_all(QUEUE)

    async def _settings(self) -> ScheduleSettings:
        return ScheduleSettings.decode((await self.record(QUEUE, NAME)).spec)

    async def _declared(self, worker: str) -> None:
        """Wait until this worker has declared the schedule."""

        async def declared() -> bool:
            return await self.record(QUEUE, NAME) is not None and (await self._settings()).by == worker

        self.expect(await self.until(declared, DECLARED), f"{worker} does not declare its schedule")
        await asyncio.sleep(0.5)

    def _version(self, every: float | None) -> Any:
        """Return code that declares the schedule with this span, or does not."""
        options: Any = {"overlap": "skip", "catch_up": "all", "grace": 2 * AWAY, "result_ttl": 0}

        def register(app: NodeApp, node: Node) -> None:
            schedule = None if every is None else Schedule(Every(every), name=NAME, **options)
            app.listen(QUEUE, do_nothing, schedule=schedule)

        return register
