"""Journals: the checkpoints of a job and its unread signals, and the part of a claim that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.model.flow import (
    JOURNAL_BYTES,
    JOURNAL_ENTRIES,
    Checkpoint,
    CheckpointKind,
    ClaimFlow,
    DependencyEntry,
    DependencyPage,
    End,
    JournalPage,
    NewCheckpoint,
    signal_value,
)
from penstock.storage.base import MAX_BYTES
from penstock.storage.sqlite.flow_rows import (
    BEGUN,
    CANCELLED_RUN,
    DURABLE,
    GenerationRow,
    ensure_generation,
    generations_of,
)
from penstock.storage.sqlite.rows import JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["add_checkpoint", "claim_flows", "read_dependencies", "read_journal", "write_checkpoint"]


def add_checkpoint(tx: Transaction, queue: QueueRow, job: JobRow, new: NewCheckpoint) -> Checkpoint | None:
    """Store a checkpoint unless there is one of its name, and return the stored one; None for a signal not come."""
    ensure_generation(tx, queue, job)
    row = tx.one("journal_get", job.n, new.name)
    if row is not None and not (row[2] == new.kind == "cursor"):
        return Checkpoint(*row)
    value = new.value
    if new.kind == "signal":
        read = next((signal for signal in tx.all("signal_next", job.n) if signal[1] in new.signals), None)
        if read is None:
            return None
        tx.run("signal_drop", job.n, read[0])
        value = signal_value(read[1], read[2])
    return write_checkpoint(tx, queue, job, new.name, new.kind, value)


def write_checkpoint(
    tx: Transaction, queue: QueueRow, job: JobRow, name: str, kind: CheckpointKind, value: bytes
) -> Checkpoint:
    """Store a checkpoint; it sets the counts of failed runs of its job back, in memory and in its row."""
    ensure_generation(tx, queue, job).set(DURABLE)
    [(n,)] = tx.all("journal_add", job.n, name, kind, value)
    if job.retries or job.stalls or job.timeouts:
        job.retries = job.stalls = job.timeouts = 0
        tx.run("forgive", job.n)
    return Checkpoint(n, name, kind, value)


def claim_flows(tx: Transaction, queue: QueueRow, jobs: Sequence[int]) -> dict[int, ClaimFlow]:
    """Return the parts of claims that concern flows, by the rows of their jobs, and note that these have begun."""
    found: dict[int, ClaimFlow] = {}
    for n, row in generations_of(tx, queue, jobs).items():
        row.set(BEGUN)
        cancel = None
        if row.has(CANCELLED_RUN):
            cancel = "signal"
            tx.run("claim_cancelled", None if row.cancel_ttl == -1 else row.cancel_ttl, n)
            row.set(CANCELLED_RUN, False)
        found[n] = _claim_flow(tx, row, cancel)
    return found


def _claim_flow(tx: Transaction, row: GenerationRow, cancel: str | None) -> ClaimFlow:
    checkpoints = tuple(Checkpoint(*each) for each in tx.all("journal_read", row.job, 0, JOURNAL_ENTRIES + 1))
    left = JOURNAL_ENTRIES + 1 - len(checkpoints)
    entries = tuple(_entry(each) for each in tx.all("dependencies_read", row.job, -1, left))
    size = sum(len(each.name.encode()) + len(each.value) for each in checkpoints)
    size += sum(len(each.queue.encode()) + len(each.id.encode()) + len(each.value or b"") for each in entries)
    whole = size <= JOURNAL_BYTES and len(checkpoints) + len(entries) <= JOURNAL_ENTRIES
    return ClaimFlow(
        row.generation, tx.now, row.parent, row.binds or b"", row.needs, row.total, row.fresh,
        checkpoints if whole else (), entries if whole else (), whole, cancel,
    )  # fmt: skip


def _entry(row: Sequence[Any]) -> DependencyEntry:
    number, queue, id, ended, value = row
    return DependencyEntry(number, queue, id, None if ended is None else End(ended), value)


def read_journal(tx: Transaction, name: str, id: str, after: int, limit: int) -> JournalPage | None:
    """Return a page of the checkpoints of a job; None if there is no such job."""
    job = _job(tx, name, id)
    if job is None:
        return None
    found: list[Checkpoint] = []
    room = MAX_BYTES
    for row in tx.all("journal_read", job.n, after, limit + 1):
        if len(found) == limit or room <= 0:
            return JournalPage(found, True)
        found.append(Checkpoint(*row))
        room -= len(row[1]) + len(row[3])
    return JournalPage(found)


def read_dependencies(tx: Transaction, name: str, id: str, after: int, limit: int) -> DependencyPage | None:
    """Return a page of the dependencies of a job; None if there is no such job."""
    job = _job(tx, name, id)
    if job is None:
        return None
    found: list[DependencyEntry] = []
    room = MAX_BYTES
    for row in tx.all("dependencies_read", job.n, after, limit + 1):
        if len(found) == limit or room <= 0:
            return DependencyPage(found, True)
        found.append(_entry(row))
        room -= len(row[1]) + len(row[2]) + len(row[4] or b"")
    return DependencyPage(found)


def _job(tx: Transaction, name: str, id: str) -> JobRow | None:
    queue = tx.queue(name)
    job = tx.job(queue, id) if queue else None
    return None if job is None or job.expired(tx.now) else job
