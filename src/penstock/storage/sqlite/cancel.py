"""cancel: waiting or blocked → cancelled; a running job as the cancel mode asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from penstock.storage.base import CANCEL_MODES, CancelAnswer, CancelMode
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.finish import finish
from penstock.storage.sqlite.ordering import promote
from penstock.storage.sqlite.rows import RUNNING, Bucket, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["cancel"]

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
    return [_cancel(tx, queue, id, running, ttl) for id in ids]


def _cancel(tx: Transaction, queue: QueueRow, id: str, running: CancelMode, ttl: int | None) -> CancelAnswer:
    job = tx.job(queue, id)
    if job is None or job.expired(tx.now):
        return _NOT_FOUND
    if job.ended:
        return _FINISHED[Bucket(job.place)]
    if job.place != RUNNING:
        finish(tx, queue, job, Bucket.CANCELLED, "", ttl)
        return CancelAnswer("cancelled")
    already = running != "refuse" and _request_cancel(tx, queue, job, running, ttl)
    successor = tx.job(queue, id, twin=1)
    if successor:
        tx.delete(queue, successor)
        tx.emit("cancelled", queue, id, successor.attempts)
        return CancelAnswer("cancelled", running=True)
    if running in ("refuse", "forget"):
        return CancelAnswer("running", running=True)
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
