"""All drills of a run."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from penstock.errors import PenstockError
from sim.drills.deploy_drill import DeployDrill
from sim.drills.drill import Drill
from sim.drills.storage_drill import StorageDrill
from sim.drills.tick_drill import ChildTickDrill, FullDrill, JumpDrill, NearDrill
from sim.drills.worker_drill import WorkerDrill
from sim.work.client import Client

__all__ = ["Driller"]

#: The drills that are made at the same time: none of them moves the clock.
TOGETHER: tuple[type[Drill], ...] = (StorageDrill, WorkerDrill, FullDrill, NearDrill, ChildTickDrill)


class Driller(Client):
    """Makes all drills: those that set the storage's clock forward come first and last."""

    async def run(self) -> None:
        """Make all of them: no call fails, because all faults are over."""
        try:
            await self._make_all()
        except PenstockError as error:
            self.shared.fault(f"drill: a call fails: {error}")

    async def _make_all(self) -> None:
        deploy = self._drill(DeployDrill)
        await deploy.deploy_late()
        await self._together(deploy.retire(), *(self._drill(each).run() for each in TOGETHER))
        await self._drill(JumpDrill).run()

    def _drill(self, kind: type[Any]) -> Any:
        return kind(self.shared, self.app, self.node)

    async def _together(self, *drills: Coroutine[Any, Any, None]) -> None:
        for task in [self.node.create_task(drill) for drill in drills]:
            await task
