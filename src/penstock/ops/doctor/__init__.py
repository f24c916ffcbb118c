"""The doctor: what a storage's settings and health mean, in plain words, and what to change.

`examine` looks and judges; the judging is pure. Nothing is printed and nothing is changed.
"""

from __future__ import annotations

import msgspec

from penstock.client.app import Penstock
from penstock.model.storage_info import Inspectable, ServerInfo
from penstock.ops.doctor.findings import Finding, Level, note
from penstock.ops.doctor.redis_checks import check_server, startup_warnings
from penstock.ops.doctor.sqlite_checks import check_file
from penstock.ops.doctor.work_checks import QueueSymptoms, check_work, read_symptoms
from penstock.ops.overview import read_overview
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
    """What the doctor found: about the place, about the work, and what can be lost with these settings."""

    where: str
    findings: list[Finding]
    lost: list[str]

    @property
    def warnings(self) -> list[Finding]:
        """What wants to be changed."""
        return [finding for finding in self.findings if finding.level is Level.WARNING]


async def examine(app: Penstock, *, check: bool = True) -> Report:
    """Look at an app's storage and at the work in it; `check` also looks for damage, which may take a while."""
    storage = await app.opened()
    findings: list[Finding] = []
    lost: list[str] = []
    if isinstance(storage, Inspectable):
        where, vitals = storage.where, await storage.inspect(check)
        judge = check_server(vitals) if isinstance(vitals, ServerInfo) else check_file(vitals)
        findings, lost = judge
    else:
        where = type(storage).__name__
        findings.append(note("settings", "this storage cannot be looked into; only the work in it is shown"))
    seen = await read_overview(app)
    troubled = {queue.name: await read_symptoms(storage, queue) for queue in seen.queues}
    return Report(where=where, findings=findings + check_work(seen, troubled), lost=lost)


async def warnings_at_start(storage: Storage) -> list[str]:
    """What a worker should say loudly before it begins: that its server may drop jobs, or takes none."""
    vitals = await storage.inspect(check=False) if isinstance(storage, Inspectable) else None
    return startup_warnings(vitals) if isinstance(vitals, ServerInfo) else []
