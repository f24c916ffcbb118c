"""Damaged records: rows with values that Penstock never writes.

Other software, a disk or a hostile user may write anything into the file. `rows.read_job` and `queue_row` replace
unreadable values in memory, so that no verb raises for the record of another job. The functions here set the
unreadable jobs aside and repair rows of groups. Each is counted in `queues.damaged`, which `meters` returns.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorKind, JobError
from penstock.model.flow import End
from penstock.storage.sqlite.flow_rows import note_end
from penstock.storage.sqlite.ordering import change_holds, enter_and_save, update_turn
from penstock.storage.sqlite.rows import FAILED, QUARANTINE_MS, RUNNING, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction
from penstock.storage.sqlite.windows import free_window, release_window

__all__ = ["fail_record", "release_successor", "set_aside"]

_ERROR = JobError("CorruptRecord", "the record cannot be read", ErrorKind.PERMANENT).encode()


def fail_record(tx: Transaction, queue: QueueRow, n: int, id: Any, slot: int) -> str:
    """Fail the record of this number, which is counted in `slot`, and keep its columns; returns its id as text."""
    name = id if isinstance(id, str) else bytes(id).decode("utf-8", "replace")
    queue.finished += 1
    queue.count_total("failed")
    queue.count(slot, -1)
    queue.count(FAILED, 1)
    queue.note_damage()
    tx.run("set_aside", tx.now + QUARANTINE_MS, queue.finished, tx.now, _ERROR, n)
    tx.emit("invalid_data", queue, name, 0, error=_ERROR)
    tx.emit("failed", queue, name, 0, error=_ERROR)
    tx.finished_jobs.append((queue.name, name))
    return name


def set_aside(tx: Transaction, queue: QueueRow, job: JobRow) -> None:
    """End a damaged job as failed, free its group and release its successor."""
    held = job.holds_group
    if queue.flows:
        note_end(tx, queue, job, End.FAILED, error=_ERROR)
    successor = tx.job(queue, job.id, twin=1) if job.place == RUNNING and not job.twin else None
    if successor:
        tx.delete(queue, job)
    else:
        _fail(tx, queue, job)
    if not job.twin:
        free_window(tx, queue, job)
    if held and job.grp is not None:
        change_holds(tx, queue, job.grp, -1)
    if successor:
        release_successor(tx, queue, successor)
    update_turn(tx, queue, job.grp)


def release_successor(tx: Transaction, queue: QueueRow, successor: JobRow) -> None:
    """Queue a blocked successor whose predecessor was deleted; a damaged one fails."""
    if successor.damaged:
        _fail(tx, queue, successor)
    else:
        successor.twin, successor.flags = 0, None
        release_window(tx, queue, successor)
        enter_and_save(tx, queue, successor, held=False)


def _fail(tx: Transaction, queue: QueueRow, job: JobRow) -> None:
    queue.recount |= job.uncounted
    job.repaired = False
    tx.count_backoff(queue, job, None)
    fail_record(tx, queue, job.n, job.id, job.counted_slot)
