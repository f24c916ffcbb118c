"""Snapshots of jobs with their part in flows."""

from __future__ import annotations

from msgspec import structs

from penstock.model.flow import End, FlowSnapshot, JobRef
from penstock.model.job import Snapshot
from penstock.storage.sqlite.flow_rows import FINAL, PLAN, generation_of
from penstock.storage.sqlite.rows import FOREVER, SUSPENDED, JobRow, snapshot
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["flow_snapshot", "show"]


def show(tx: Transaction, queue: QueueRow, job: JobRow) -> Snapshot:
    """Return the snapshot of a job, with its part in flows."""
    found = snapshot(queue.name, job, tx.now, tx.format)
    part = flow_snapshot(tx, queue, job) if queue.flows else None
    return found if part is None else structs.replace(found, flow=part)


def flow_snapshot(tx: Transaction, queue: QueueRow, job: JobRow) -> FlowSnapshot | None:
    """Return the part of a snapshot that concerns flows, None without one."""
    row = generation_of(tx, queue, job)
    if row is None:
        return None
    suspended = job.place == SUSPENDED
    names = tx.all("dependencies_open_names", row.job, *row.numbers) if suspended else []
    wait = row.wait if suspended else None
    return FlowSnapshot(
        generation=row.generation, parent=row.parent, plan=row.has(PLAN), final=row.has(FINAL),
        needs=row.needs, open=row.open,
        ends={end: count for end, count in zip(End, row.ends, strict=True) if count},
        waits_for=tuple(JobRef(*name) for name in names),
        wakes_at=None if not suspended or job.until in (None, FOREVER) else job.until,
        signals=() if wait is None else wait.signals, unread=tx.one("signal_count", job.n)[0],
    )  # fmt: skip
