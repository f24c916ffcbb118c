"""Checks behind `penstock doctor`: findings about a storage's settings and its jobs, with remedies.

`examine` reads and checks. The checks are pure functions: they print and change nothing.
"""

from __future__ import annotations

import msgspec

from penstock.client.app import Penstock
from penstock.model.storage_info import Inspectable, ServerInfo
from penstock.ops.doctor.findings import Finding, Level, note
from penstock.ops.doctor.redis_checks import check_server, startup_warnings
from penstock.ops.doctor.sqlite_checks import check_file
from penstock.ops.doctor.work_checks import QueueSymptoms, check_work, read_symptoms
from penstock.ops.overview import describe_empty, read_overview
from penstock.storage.base import Storage

__all__ = [
    "Finding",
    "Level",
    "QueueSymptoms",
    "Report",
    "check_file",
    "check_server",
    "check_work",
    "examine",
    "warnings_at_start",
]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All findings about a storage and its jobs, and sentences about what can be lost with its settings."""

    where: str
    findings: list[Finding]
    lost: list[str]

    @property
    def warnings(self) -> list[Finding]:
        """Findings that call for a change."""
        return [finding for finding in self.findings if finding.level is Level.WARNING]


async def examine(app: Penstock, *, check: bool = True) -> Report:
    """Check an app's storage and the jobs in it; `check` also searches for damage, which may take a while."""
    storage = await app.opened()
    findings: list[Finding] = []
    lost: list[str] = []
    if isinstance(storage, Inspectable):
        where, info = storage.where, await storage.inspect(check)
        findings, lost = check_server(info) if isinstance(info, ServerInfo) else check_file(info)
    else:
        where = type(storage).__name__
        findings.append(note("settings", "this storage cannot be inspected; only its jobs were checked"))
    overview = await read_overview(app)
    symptoms = {queue.name: await read_symptoms(storage, queue) for queue in overview.queues}
    findings += check_work(overview, symptoms)
    if not overview.queues:
        findings.append(note("namespace", await describe_empty(app), "choose another with --namespace or --app"))
    return Report(where=where, findings=findings, lost=lost)


async def warnings_at_start(storage: Storage) -> list[str]:
    """Return the warnings that a worker logs at its start: a server that may drop jobs, or accepts none."""
    info = await storage.inspect(check=False) if isinstance(storage, Inspectable) else None
    return startup_warnings(info) if isinstance(info, ServerInfo) else []
