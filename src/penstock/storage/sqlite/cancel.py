"""cancel: waiting or blocked → cancelled; a running job as the cancel mode asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from penstock.model.flow import End
from penstock.storage.base import CANCEL_MODES, CancelAnswer, CancelMode
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.finish import finish
from penstock.storage.sqlite.flow_rows import CANCELLED_RUN, ensure_generation, is_durable, note_gone
from penstock.storage.sqlite.flows import apply_effects
from penstock.storage.sqlite.ordering import promote, resume
from penstock.storage.sqlite.rows import RUNNING, SUSPENDED, Bucket, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["cancel", "cancel_job"]

_NOT_FOUND = CancelAnswer("not_found")
_FINISHED = {
    Bucket.COMPLETED: CancelAnswer("completed"),
    Bucket.FAILED: CancelAnswer("failed"),
    Bucket.CANCELLED: CancelAnswer("cancelled", already=True),
}


def cancel(tx: Transaction, name: str, ids: Sequence[str], running: CancelMode, ttl: int | None) -> list[CancelAnswer]:
    """Cancel jobs, each depending on its state."""
    queue = tx.queue(name)
    if queue is None:
        return [_NOT_FOUND for _ in ids]
    promote(tx, queue)
    expire(tx, queue)
    answers: list[CancelAnswer] = []
    for id in ids:
        answers.append(_cancel(tx, queue, id, running, ttl))
        if tx.effects:
            apply_effects(tx)
    return answers


def _cancel(tx: Transaction, queue: QueueRow, id: str, running: CancelMode, ttl: int | None) -> CancelAnswer:
    job = tx.job(queue, id)
    if job is None or job.expired(tx.now):
        return _NOT_FOUND
    if job.ended:
        return _FINISHED[Bucket(job.place)]
    return cancel_job(tx, queue, job, running, ttl)


def cancel_job(
    tx: Transaction, queue: QueueRow, job: JobRow, running: CancelMode, ttl: int | None,
    error: bytes | None = None, end: End | None = None,
) -> CancelAnswer:  # fmt: skip
    """Cancel an unfinished job. The mode `signal` resumes a suspended one that has begun instead."""
    id = job.id
    if job.place != RUNNING:
        successor = tx.job(queue, id, twin=1) if queue.flows and queue.has_blocked else None
        if successor:
            _cancel_successor(tx, queue, successor)
        if running == "signal" and is_durable(tx, queue, job):
            return _resume_cancelled(tx, queue, job, ttl)
        finish(tx, queue, job, Bucket.CANCELLED, "", ttl, error=error, end=end, mode=running)
        return CancelAnswer("cancelled")
    already = running != "refuse" and _request_cancel(tx, queue, job, running, ttl)
    successor = tx.job(queue, id, twin=1)
    if successor:
        _cancel_successor(tx, queue, successor)
        return CancelAnswer("cancelled", running=True)
    if running in ("refuse", "forget"):
        return CancelAnswer("running", running=True)
    return CancelAnswer("cancel_requested", running=True, already=already)


def _cancel_successor(tx: Transaction, queue: QueueRow, successor: JobRow) -> None:
    note_gone(tx, queue, successor)
    tx.delete(queue, successor)
    tx.emit("cancelled", queue, successor.id, successor.attempts)


def _resume_cancelled(tx: Transaction, queue: QueueRow, job: JobRow, ttl: int | None) -> CancelAnswer:
    """Let the next run of a job know that it was cancelled, and resume the job if it is suspended."""
    row = ensure_generation(tx, queue, job)
    already = row.has(CANCELLED_RUN)
    row.set(CANCELLED_RUN)
    row.cancel_ttl = -1 if ttl is None else ttl
    if not already:
        tx.emit("cancel_requested", queue, job.id, job.attempts)
    if job.place == SUSPENDED:
        resume(tx, queue, job, row)
    return CancelAnswer("cancel_requested", running=True, already=already)


def _request_cancel(tx: Transaction, queue: QueueRow, job: JobRow, running: CancelMode, ttl: int | None) -> bool:
    """Store the cancel request of a running job, and wake its worker unless the mode is "forget".

    A later, weaker mode never replaces a stronger one. Returns whether the same mode or a stronger one was
    requested before; then no event is emitted.
    """
    stored = cast(CancelMode, job.cancel or "refuse")
    job.cancel, job.cancel_ttl = max(running, stored, key=CANCEL_MODES.index), ttl
    tx.save(queue, job)
    already = CANCEL_MODES.index(stored) >= CANCEL_MODES.index(running)
    if running != "forget":
        tx.notify_cancel(job.worker)
    if running != "forget" and not already:
        tx.emit("cancel_requested", queue, job.id, job.attempts, job.worker)
    return already
