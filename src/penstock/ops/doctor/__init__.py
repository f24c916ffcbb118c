"""Checks behind `penstock doctor`: findings about a storage's settings and its jobs, with remedies.

`examine` reads and checks. The checks are pure functions: they print and change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.aio import gather_each
from penstock.client.app import Penstock
from penstock.client.schedule_info import ScheduleInfo
from penstock.model.storage_info import FileInfo, Inspectable, ServerInfo
from penstock.ops.doctor.findings import Finding, Level, note
from penstock.ops.doctor.limit_checks import check_limits
from penstock.ops.doctor.redis_checks import check_server, startup_warnings
from penstock.ops.doctor.schedule_checks import check_schedules
from penstock.ops.doctor.sqlite_checks import check_file
from penstock.ops.doctor.work_checks import QueueSymptoms, check_work, read_all_symptoms
from penstock.ops.overview import Overview, QueueView, describe_empty, read_limits, read_overview
from penstock.storage.base import Storage
from penstock.ticking import scheduling_of

__all__ = [
    "Finding",
    "Level",
    "QueueSymptoms",
    "Report",
    "check_file",
    "check_limits",
    "check_schedules",
    "check_server",
    "check_work",
    "examine",
    "storage_warnings",
    "warnings_at_start",
]


#: How many limits and how many schedules of a queue are checked.
LIMITS, SCHEDULES = 100, 1_000


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All findings about a storage and its jobs, and sentences about what can be lost with its settings."""

    where: str
    findings: list[Finding]
    lost: list[str]
    #: The facts that the storage reports about itself; None if it reports none.
    info: FileInfo | ServerInfo | None = None

    @property
    def warnings(self) -> list[Finding]:
        """Findings that call for a change."""
        return [finding for finding in self.findings if finding.level is Level.WARNING]


async def examine(app: Penstock, *, check: bool = True, overview: Overview | None = None) -> Report:
    """Check an app's storage and the jobs in it; `check` also searches for damage, which may take a while.

    `overview` is one of all queues that the caller has read already; without it, it is read.
    """
    storage = await app.opened()
    findings: list[Finding] = []
    lost: list[str] = []
    info: FileInfo | ServerInfo | None = None
    if isinstance(storage, Inspectable):
        where, info = storage.where, await storage.inspect(check)
        findings, lost = check_server(info) if isinstance(info, ServerInfo) else check_file(info)
    else:
        where = type(storage).__name__
        findings.append(note("settings", "this storage cannot be inspected; only its jobs were checked"))
    if overview is None:
        overview = await read_overview(app)
    limits = await read_limits(storage, [queue.name for queue in overview.queues], LIMITS)
    overview = msgspec.structs.replace(overview, limits=limits)
    symptoms = await read_all_symptoms(storage, overview.queues)
    findings += check_work(overview, symptoms)
    findings += check_limits(overview, lambda queue: app.options(queue) if queue in app.handlers else None)
    if scheduling_of(storage) is not None:
        findings += check_schedules(*await read_schedules(app, overview.queues), overview.at)
    if not overview.queues:
        findings.append(note("namespace", await describe_empty(app), "choose another with --namespace or --app"))
    return Report(where=where, findings=findings, lost=lost, info=info)


async def read_schedules(app: Penstock, queues: Sequence[QueueView]) -> tuple[list[ScheduleInfo], bool]:
    """Return the first schedules of each queue, by queue and name, and whether there are more."""
    pages = await gather_each(lambda queue: app.queue(queue.name).schedules.list(limit=SCHEDULES), queues)
    return [info for page in pages for info in page], any(page.cursor is not None for page in pages)


async def storage_warnings(storage: Storage) -> list[Finding]:
    """Return the warnings about the settings of a storage, without a search for damage."""
    if not isinstance(storage, Inspectable):
        return []
    info = await storage.inspect(check=False)
    findings, _ = check_server(info) if isinstance(info, ServerInfo) else check_file(info)
    return [finding for finding in findings if finding.level is Level.WARNING]


async def warnings_at_start(storage: Storage) -> list[str]:
    """Return the warnings that a worker logs at its start: a server that may drop jobs, or accepts none."""
    info = await storage.inspect(check=False) if isinstance(storage, Inspectable) else None
    return startup_warnings(info) if isinstance(info, ServerInfo) else []
