"""Workers of a simulated run: the real ones, without threads and with children that are nodes."""

from __future__ import annotations

from collections.abc import Callable

from penstock.host import AppHost
from penstock.model.handler import Handler
from penstock.testing.simulation.children import SimulatedSupervisor
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.runtimes import SimulatedRuntime
from penstock.worker import Worker
from penstock.worker.supervisor import ChildConfig, Supervisor

__all__ = ["SimulatedWorker"]


class SimulatedWorker(Worker):
    """A `Worker` for a simulated node; with `processes` it needs `child_app`, which returns the app of a child."""

    warns = False
    _runtime_class = SimulatedRuntime
    #: Where a child finds the app, which its node gets from `child_app` instead.
    source = "simulated:app"
    child_app: Callable[[Node], AppHost]

    def _new_supervisor(self, handlers: dict[str, Handler], config: ChildConfig) -> Supervisor:
        supervisor = SimulatedSupervisor(self._app, handlers, config, self._give_up)
        supervisor.child_app = self.child_app
        return supervisor
