"""Checks of settings at the end of a run: schedules tick, declarations hold, and what is left can be removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.model.limit_settings import LimitSettings
from penstock.model.schedule_settings import ScheduleSettings
from penstock.model.worker_info import Heartbeat
from penstock.storage.limiting import Scope
from penstock.storage.scheduling import Firing
from sim.declared import FAMILY, SCOPES, TICKS, version_of
from sim.drills import DRILLED
from sim.ledger import Ledger
from sim.queues import QUEUES
from sim.work.tenant import GROUPS

__all__ = ["SettingsChecks"]

#: The schedules that one version of the code alone declares.
VERSIONED = ("only0", "only1")

#: How late (seconds) a tick may be after healing.
LATE = 12.0


class SettingsChecks:
    """Reads the settings of the storage by `ask`; `id_of` returns the id of the worker of a node."""

    def __init__(self, seed: int, ledger: Ledger, ask: Callable[..., Any], id_of: Callable[[str], str]) -> None:
        self._seed = seed
        self._ledger = ledger
        self._ask = ask
        self._worker_id = id_of

    def wrong_declarations(self, nodes: Sequence[str]) -> list[str]:
        """Return what does not hold: of all declarations of live workers that of the last started one counts."""
        began = {record.id: Heartbeat.decode(record.info).started for record in self._ask("workers")}
        if any(self._worker_id(node) not in began for node in nodes):
            return ["a live worker sends no heartbeat"]
        live = sorted(nodes, key=lambda node: (began[self._worker_id(node)], self._worker_id(node)))
        versions = [version_of(self._seed, node) for node in live]
        wrong: list[str] = []
        for scope in SCOPES:
            declared = [limit for version in versions if (limit := version.limit_of(scope)) is not None]
            found = LimitSettings.decode(self._ask("get_limit", scope).settings).declared
            if found != (declared[-1] if declared else None):
                wrong.append(f"the declared limit is not that of the last started worker: {found} of {scope}")
        for name in {schedule.name: None for version in versions for schedule in version.schedules}:
            record = self._ask("get_schedule", TICKS, name)
            if record is None or ScheduleSettings.decode(record.spec).retired is not None:
                wrong.append(f"the schedule {name} is declared by a live worker, and is retired")
        both = self._ask("get_schedule", TICKS, "both")
        if both is None or ScheduleSettings.decode(both.spec).by != self._worker_id(live[-1]):
            wrong.append("the declared schedule is not that of the last started worker")
        return wrong

    def check_firer(self, node: str, firings: Sequence[Firing]) -> None:
        """Check that a worker fires no schedule that other code declares."""
        mine = {schedule.name for schedule in version_of(self._seed, node).schedules}
        for firing in firings:
            if node.startswith("w") and firing.name in VERSIONED and firing.name not in mine and not firing.manual:
                self._ledger.fault(f"{node} fires {firing.name}, which its code does not declare")

    def check_ticks(self, nodes: Sequence[str]) -> None:
        """Check that the schedules tick after healing: those made at run time, and those of live workers' code."""
        declared = {schedule.name for node in nodes for schedule in version_of(self._seed, node).schedules}
        for record, settings in self._ledger.schedules.late(LATE):
            if settings.declared is None or record.name in declared:
                seconds = (self._ask("time") - (record.next or 0)) / 1000
                self._ledger.fault(f"a tick of {record.name} is {seconds:.3f} s late after healing")

    def remove(self) -> None:
        """Remove the schedules and limits that code declares: they stay as long as the workers do.

        A pause that arrived after its end was asked for stays too, until it is ended here.
        """
        queues = self._ask("queues")
        for queue in queues:
            for group in GROUPS:
                if self._ask("paused", queue, group) is not None:
                    self._ask("set_pause", queue, False, None, "", group)
            for record in self._ask("schedules", queue).schedules:
                self._ask("drop_schedule", queue, record.name, record.version)
            for record in self._ask("limits", queue).limits:
                self._ask("set_limit", record.scope, None, b"", record.version)
        family = Scope("family", FAMILY)
        self._ask("set_limit", family, None, b"", self._ask("get_limit", family).version)
        for _ in range(2):  # of queues that no worker serves the first purge takes the jobs, the second one the rest
            self._ask("purge", list(dict.fromkeys([*queues, *QUEUES, *DRILLED])))
