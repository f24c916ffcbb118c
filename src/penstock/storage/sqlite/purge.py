"""purge: finished with its TTL over → gone, bounded; and what dead processes left behind."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.sqlite.rows import Place
from penstock.storage.sqlite.transaction import Tx

__all__ = ["purge", "take_away"]

#: The feed forgets its lines after this long.
EVENT_MS = 60_000


def purge(tx: Tx, queues: Sequence[str], limit: int) -> int:
    """Forget what is over; answers how many records that were, at most `limit` of each queue."""
    count = 0
    for name in queues:
        queue = tx.queue(name)
        if queue is None:
            continue
        left = limit
        for place in (Place.COMPLETED, Place.FAILED, Place.CANCELLED):
            gone = tx.do("purge_ended", queue.k, place, tx.now, left)
            queue.count(place, -gone)
            left -= gone
        left -= tx.do("purge_gone", queue.k, tx.now, left)
        count += limit - left
        if queue.paused is None and tx.do(
            "purge_queue", queue.k
        ):  # a pause of this very transaction is not written yet
            tx.forget(queue)
    tx.do("purge_workers", tx.now)
    for statement in ("purge_idle", "purge_waits", "purge_listeners"):
        tx.do(statement, tx.wall)
    tx.do("purge_events", tx.wall - EVENT_MS, limit)
    for (k,) in tx.all("doomed_all"):
        count += take_away(tx, k, limit)
    return count


def take_away(tx: Tx, k: int, limit: int) -> int:
    """Delete a bounded part of a deleted queue; answers how many jobs. With the last ones the queue is gone."""
    taken = tx.do("doomed_jobs", k, limit)
    if taken < limit:
        tx.do("delete_lanes", k)
        tx.do("delete_gone", k)
        tx.do("doomed_drop", k)
    return taken
