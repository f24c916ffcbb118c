"""purge: finished with its TTL over → gone, bounded; and the rows that dead processes left behind."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.rows import Bucket
from penstock.storage.sqlite.sweep import sweep
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["delete_rows", "purge"]

#: Events are kept this long (ms).
EVENT_MS = 60_000


def purge(tx: Transaction, queues: Sequence[str], limit: int) -> int:
    """Delete expired records and return how many there were, at most `limit` of each queue."""
    count = 0
    for name in queues:
        queue = tx.queue(name)
        if queue is None:
            continue
        sweep(tx, queue)
        expire(tx, queue)
        left = limit
        for bucket in (Bucket.COMPLETED, Bucket.FAILED, Bucket.CANCELLED):
            deleted = tx.run("purge_ended", queue.k, bucket, tx.now, left)
            queue.count(bucket, -deleted)
            left -= deleted
        left -= tx.run("purge_gone", queue.k, tx.now, left)
        count += limit - left
        # A pause in this transaction is not in the table yet, so the statement cannot check it.
        if queue.paused is None and tx.run("purge_queue", queue.k):
            tx.forget_queue(queue)
    tx.run("purge_workers", tx.now)
    for statement in ("purge_idle", "purge_waits", "purge_listeners"):
        tx.run(statement, tx.wall)
    tx.run("purge_events", tx.wall - EVENT_MS, limit)
    for (k,) in tx.all("doomed_all"):
        count += delete_rows(tx, k, limit)
    return count


def delete_rows(tx: Transaction, k: int, limit: int) -> int:
    """Delete up to `limit` jobs of a deleted queue and return how many; with the last ones all its other rows."""
    taken = tx.run("doomed_jobs", k, limit)
    if taken < limit:
        tx.run("delete_lanes", k)
        tx.run("delete_gone", k)
        tx.run("doomed_drop", k)
    return taken
