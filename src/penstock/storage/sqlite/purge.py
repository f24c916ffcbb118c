"""purge: finished with its TTL over → gone, bounded; and the rows that dead processes left behind."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.observing import STATS_MS
from penstock.storage.sqlite.activity import purge_operators
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.gate_purge import purge_family, purge_gates
from penstock.storage.sqlite.rows import Bucket
from penstock.storage.sqlite.schedule_row import set_tick
from penstock.storage.sqlite.stats import keep_totals
from penstock.storage.sqlite.sweep import sweep
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["delete_rows", "purge"]

#: Events are kept this long (ms).
EVENT_MS = 60_000


def purge(tx: Transaction, queues: Sequence[str], limit: int) -> int:
    """Delete expired records and return how many there were, at most `limit` of each queue."""
    count = 0
    for name in queues:
        purge_family(tx, name)
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
        for statement in ("purge_gone", "purge_windows"):
            left -= tx.run(statement, queue.k, tx.now, left)
        if over := tx.run("purge_schedules", queue.k, tx.now, left):
            left -= over
            set_tick(tx, queue)
        count += limit - left
        purge_gates(tx, queue, limit)
        # A pause in this transaction is not in the table yet, so the statement cannot check it.
        if queue.paused is None and tx.one("purge_unused", queue.k) is not None:
            keep_totals(tx, queue)
            tx.run("delete_queue", queue.k)
            tx.forget_queue(queue)
    tx.run("error_groups_old", tx.now - STATS_MS)
    for namespace, name in tx.all("stats_old", tx.now - STATS_MS):
        tx.run("stats_drop", namespace, name)
        tx.run("history_drop", namespace, name)
    tx.run("purge_workers", tx.now)
    purge_operators(tx, limit)
    for statement in ("purge_idle", "purge_waits", "purge_listeners"):
        tx.run(statement, tx.wall)
    tx.run("purge_events", tx.wall - EVENT_MS, limit)
    for (k,) in tx.all("deleted_queues"):
        count += delete_rows(tx, k, limit)
    return count


def delete_rows(tx: Transaction, k: int, limit: int) -> int:
    """Delete up to `limit` jobs and entries of histories of a deleted queue, and return how many.

    With the last ones all its other rows go.
    """
    taken = tx.run("histories_drop", k, limit)
    taken += tx.run("delete_jobs_of_deleted_queue", k, limit - taken)
    if taken < limit:
        tx.run("delete_lanes", k)
        tx.run("delete_gone", k)
        tx.run("delete_schedules", k)
        tx.run("delete_windows", k)
        tx.run("forget_deleted_queue", k)
    return taken
