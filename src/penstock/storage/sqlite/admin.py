"""Verbs of operators: pause, resume or delete a queue, and keep a finished job longer."""

from __future__ import annotations

from penstock.storage.sqlite.purge import delete_rows
from penstock.storage.sqlite.reads import counts
from penstock.storage.sqlite.rows import BLOCKED, expiry
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["delete_queue", "set_paused", "set_ttl"]

#: Rows of a queue that its deletion deletes at once; purge deletes the rest step by step.
DELETE_AT_ONCE = 5_000

#: Idle workers that a resume wakes at most; claims that leave jobs behind wake more.
WAKE_AT_ONCE = 100


def set_paused(tx: Transaction, name: str, paused: bool) -> bool:
    """Pause or resume claims from a queue; returns whether that changed anything."""
    queue = tx.ensure_queue(name) if paused else tx.queue(name)
    if queue is None or (queue.paused is not None) == paused:
        return False
    queue.paused, queue.dirty = tx.now if paused else None, True
    if not paused:
        # One worker more than there are jobs: its claim promotes the jobs that became due meanwhile.
        tx.notify_work(queue, tx.one("work_count", queue.k, WAKE_AT_ONCE)[0] + 1)
    return True


def delete_queue(tx: Transaction, name: str) -> int:
    """Delete a queue with all its records; returns how many jobs it had.

    The queue is gone at once whatever its size: its number is never used again, so rows that
    purge has still to delete belong to no queue.
    """
    queue = tx.queue(name)
    if queue is None:
        return 0
    count = sum(counts(tx, name).values())
    tx.run("delete_queue", queue.k)
    tx.run("delete_lanes", queue.k)
    if delete_rows(tx, queue.k, DELETE_AT_ONCE) == DELETE_AT_ONCE:
        tx.run("doomed_add", queue.k)
    tx.forget_queue(queue)
    tx.emit("queue_deleted", queue, "", 0)
    tx.finished_jobs.append((name, None))  # wakes the waiters of all its jobs
    return count


def set_ttl(tx: Transaction, name: str, id: str, ttl: int | None) -> bool:
    """Keep a finished job for `ttl` ms from now; False if it does not exist or is not finished."""
    queue = tx.queue(name)
    job = tx.job(queue, id) if queue else None
    if queue is None or job is None or job.place <= BLOCKED or job.expired(tx.now):
        return False
    if ttl == 0:
        tx.delete(queue, job)
    else:
        tx.run("ttl_set", expiry(ttl, tx.now), job.n)
    return True
