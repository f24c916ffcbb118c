"""All drills of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sim.drills.deploy_drill import DeployDrill
from sim.drills.drill import STEP, Drill
from sim.drills.storage_drill import StorageDrill
from sim.drills.tick_drill import ChildTickDrill, FullDrill, JumpDrill, NearDrill
from sim.drills.worker_drill import WorkerDrill
from sim.queues import make_app
from sim.work.client import Client

__all__ = ["Driller"]

#: The drills that are made at the same time: none of them sets the clock forward for others.
TOGETHER: tuple[type[Drill], ...] = (StorageDrill, WorkerDrill, FullDrill, NearDrill, ChildTickDrill)


class Driller(Client):
    """Makes all drills, each on a node of its own: those that set the storage's clock forward come first and last."""

    async def run(self) -> None:
        """Make all of them."""
        deploy = self._new(DeployDrill)
        others = [self._new(each) for each in TOGETHER]
        jump = self._new(JumpDrill)
        await self._made((deploy, deploy.deploy_late()))
        await self._made((deploy, deploy.retire()), *((each, each.run()) for each in others))
        await self._made((jump, jump.run()))
        await self._made(*((each, each.app.close()) for each in (deploy, *others, jump)))

    def _new(self, kind: type[Any]) -> Any:
        simulation = self.shared.simulation
        node = simulation.scheduler.node(f"drill.{kind.__name__}")
        return kind(self.shared, make_app(simulation, node), node)

    async def _made(self, *parts: tuple[Drill, Coroutine[Any, Any, None]]) -> None:
        """Run parts of drills at the same time, until all have ended."""
        tasks = [drill.node.start(drill.checked(part)) for drill, part in parts]
        while not all(task.done() for task in tasks):  # noqa: ASYNC110
            await asyncio.sleep(STEP)  # nodes share no event
        for task in tasks:
            task.result()
