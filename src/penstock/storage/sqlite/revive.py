"""revive: failed or cancelled (or completed, if asked) → queued, last in the order, all counts zero."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.ordering import enter_and_save, promote
from penstock.storage.sqlite.rows import Bucket
from penstock.storage.sqlite.transaction import QueueRow, Transaction
from penstock.storage.sqlite.windows import take_window

__all__ = ["revive"]


def revive(tx: Transaction, name: str, ids: Sequence[str], completed: bool) -> list[bool]:
    """Queue finished jobs again; False for those that do not exist, are not finished, or (unless asked) completed."""
    queue = tx.queue(name)
    if queue is None:
        return [False for _ in ids]
    promote(tx, queue)
    expire(tx, queue)
    return [_revive(tx, queue, id, completed) for id in ids]


def _revive(tx: Transaction, queue: QueueRow, id: str, completed: bool) -> bool:
    job = tx.job(queue, id)
    if job is None or not job.ended or job.expired(tx.now):
        return False
    if job.place == Bucket.COMPLETED and not completed:
        return False
    queue.time = max(queue.time, tx.now)
    job.time, job.seq, job.due = queue.time, queue.next_seq(), tx.now
    job.attempts = job.retries = job.stalls = job.timeouts = job.retried = job.solo = 0
    job.settled = job.token = job.worker = job.cancel = job.flags = None
    job.expires = job.number = job.finished = job.until = None
    job.error = job.result = job.progress = job.earliest = job.error_key = job.begun = None
    take_window(tx, queue, id, job.window_ms, max(job.created, job.due))
    enter_and_save(tx, queue, job, held=False)
    tx.emit("enqueued", queue, id, 0)
    return True
