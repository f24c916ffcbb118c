"""The two transitions that settle, reap and cancel share: a job ends, or a run goes back to its queue."""

from __future__ import annotations

from penstock.model.fingerprint import key_of
from penstock.model.flow import End
from penstock.storage.base import CancelMode
from penstock.storage.sqlite.damage import release_successor, set_aside
from penstock.storage.sqlite.error_groups import note_error
from penstock.storage.sqlite.flow_rows import is_durable, note_end
from penstock.storage.sqlite.ordering import (
    change_holds,
    enter,
    leave_group,
    save_with_hold,
    update_turn,
)
from penstock.storage.sqlite.rows import FAILED, RUNNING, STATES, Bucket, JobRow, expiry, flags_of
from penstock.storage.sqlite.transaction import QueueRow, Transaction
from penstock.storage.sqlite.update import apply_update, note_start_by
from penstock.storage.sqlite.windows import free_window, release_window

__all__ = ["GONE_MS", "finish", "requeue"]

#: How long (ms) the table `gone` remembers that a token has settled a job that was not kept.
GONE_MS = 60_000

#: How long (ms) a job with a TTL of 0 is kept for a caller that waits for its result.
WAITED_MS = 60_000


#: How a job ends, unless `end` is given.
ENDS = {Bucket.COMPLETED: End.COMPLETED, Bucket.FAILED: End.FAILED, Bucket.CANCELLED: End.CANCELLED}


def finish(
    tx: Transaction, queue: QueueRow, job: JobRow, bucket: Bucket, token: str, ttl: int | None,
    result: bytes | None = None, error: bytes | None = None, end: End | None = None, mode: CancelMode = "refuse",
) -> None:  # fmt: skip
    """End a job as completed, failed or cancelled, and release its successor.

    `end` is how its dependents see that, and `mode` how its running children are cancelled.
    """
    held, running = job.holds_group, job.place == RUNNING
    worker = job.worker if running else None
    successor = tx.job(queue, job.id, twin=1) if running or (queue.flows and queue.has_blocked) else None
    queue.finished += 1
    queue.dirty = True
    if bucket != Bucket.COMPLETED:
        queue.count_total("failed" if bucket == Bucket.FAILED else "cancelled")
    if bucket == Bucket.FAILED:
        note_error(tx, queue, job.id, error)
    tx.emit(STATES[bucket].value, queue, job.id, job.attempts, worker, result, error)
    tx.finished_jobs.append((queue.name, job.id))
    if queue.flows:
        note_end(tx, queue, job, end or ENDS[bucket], mode, result, error)
    if token and (ttl == 0 or successor):
        tx.run_with_rows("settle_gone", [(queue.k, job.id, token, bucket, tx.now + GONE_MS)])
    if ttl == 0 and tx.has_waiter(queue.name, job.id):
        ttl, job.flags = WAITED_MS, int(bucket == Bucket.COMPLETED) or None
    if ttl == 0 or successor:
        tx.delete(queue, job)
    else:
        job.place, job.token, job.worker, job.expires = bucket, token, worker, expiry(ttl, tx.now)
        job.number, job.finished, job.result, job.error = queue.finished, tx.now, result, error
        job.start_by = None
        job.error_key = key_of(error) if bucket == Bucket.FAILED else None
        if not running:
            job.begun = None
        tx.save(queue, job)
    if held and job.grp is not None:
        change_holds(tx, queue, job.grp, -1)
    if bucket != Bucket.COMPLETED:
        free_window(tx, queue, job)
    if successor:
        release_successor(tx, queue, successor)
    update_turn(tx, queue, job.grp)


def requeue(tx: Transaction, queue: QueueRow, job: JobRow, event: str, due: int) -> JobRow:
    """Send a run back: running → waiting. Returns the waiting job.

    A blocked successor is merged into it, as the successor's own update flags ask. A job whose record cannot be
    read fails instead.
    """
    if job.damaged:
        set_aside(tx, queue, job)
        job.place = FAILED
        return job
    held = job.holds_group
    worker, job.worker = job.worker, None
    job.due, job.retried = due, int(due > tx.now)
    tx.emit(event, queue, job.id, job.attempts, worker, error=job.error if event == "retrying" else None)
    successor = None if is_durable(tx, queue, job) else tx.job(queue, job.id, twin=1)
    if successor and queue.flows:
        tx.run("notices_move", successor.n, job.n)
    if successor and successor.damaged:
        tx.delete(queue, successor)
        successor = None
    if successor and max(successor.format, job.format) > tx.format:
        return _replace(tx, queue, job, successor, held)
    group = job.grp
    if successor:
        apply_update(tx, queue, job, successor, flags_of(successor.flags or 0))
        note_start_by(queue, job.start_by)
        tx.delete(queue, successor)
        tx.emit("updated", queue, job.id, job.attempts)
    enter(tx, queue, job)
    if job.grp == group:
        save_with_hold(tx, queue, job, held)
    else:
        save_with_hold(tx, queue, job, held=False)
        leave_group(tx, queue, group, held, None)
    update_turn(tx, queue, job.grp)
    return job


def _replace(tx: Transaction, queue: QueueRow, job: JobRow, successor: JobRow, held: bool) -> JobRow:
    """Replace a job by its successor and return that: a record of a newer format cannot be merged."""
    if queue.flows:
        tx.run("notices_move", job.n, successor.n)
    tx.delete(queue, job)
    if held and job.grp is not None:
        change_holds(tx, queue, job.grp, -1)
    update_turn(tx, queue, job.grp)
    successor.twin, successor.flags = 0, None
    free_window(tx, queue, job)
    release_window(tx, queue, successor)
    if successor.format <= tx.format:
        successor.settled = job.settled
    tx.emit("updated", queue, successor.id, successor.attempts)
    enter(tx, queue, successor)
    save_with_hold(tx, queue, successor, False)
    update_turn(tx, queue, successor.grp)
    return successor
