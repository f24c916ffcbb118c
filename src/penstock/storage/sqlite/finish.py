"""The two ways out of a run that settle, reap and cancel share: for good, or back among the waiting."""

from __future__ import annotations

from penstock.storage.sqlite.ordering import change_holds, enter, enter_and_save, save_with_hold, update_turn
from penstock.storage.sqlite.put import apply_update
from penstock.storage.sqlite.rows import RUNNING, STATES, Bucket, JobRow, expiry, flags_of
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["GONE_MS", "finish", "requeue"]

#: How long it is remembered that a token has settled a job that was not kept.
GONE_MS = 60_000

#: How long a job that is not kept stays for those who wait for it.
WAITED_MS = 60_000


def finish(
    tx: Transaction, queue: QueueRow, job: JobRow, place: Bucket, token: str, ttl: int | None,
    result: bytes | None = None, error: bytes | None = None,
) -> None:  # fmt: skip
    """→ completed / failed / cancelled, in one step with the release of the successor."""
    held, running = job.holds_group, job.place == RUNNING
    worker = job.worker if running else None
    successor = tx.job(queue, job.id, twin=1) if running else None
    queue.finished += 1
    queue.dirty = True
    tx.emit(STATES[place].value, queue, job.id, job.attempts, worker, result, error)
    tx.finished_jobs.append((queue.name, job.id))
    if token and (ttl == 0 or successor):
        tx.run_with_rows("settle_gone", [(queue.k, job.id, token, place, tx.now + GONE_MS)])
    if ttl == 0 and tx.has_waiter(queue.name, job.id):
        ttl, job.flags = WAITED_MS, int(place == Bucket.COMPLETED) or None
    if ttl == 0 or successor:
        tx.delete(queue, job)
    else:
        job.place, job.token, job.worker, job.expires = place, token, worker, expiry(ttl, tx.now)
        job.number, job.finished, job.result, job.error = queue.finished, tx.now, result, error
        tx.save(queue, job)
    if held and job.grp is not None:
        change_holds(tx, queue, job.grp, -1)
    if successor:
        successor.twin, successor.flags = 0, None
        enter_and_save(tx, queue, successor, held=False)
    update_turn(tx, queue, job.grp)


def requeue(tx: Transaction, queue: QueueRow, job: JobRow, note: str, due: int) -> JobRow:
    """running → waiting; a blocked successor is folded in by its own flags. Gives the job that waits now."""
    held = job.holds_group
    worker, job.worker = job.worker, None
    job.due, job.retried = due, int(due > tx.now)
    tx.emit(note, queue, job.id, job.attempts, worker, error=job.error if note == "retrying" else None)
    successor = tx.job(queue, job.id, twin=1)
    if successor and max(successor.format, job.format) > tx.format:
        return _replace(tx, queue, job, successor, held)
    if successor:
        apply_update(tx, job, successor, flags_of(successor.flags or 0))
        tx.delete(queue, successor)
        tx.emit("updated", queue, job.id, job.attempts)
    enter(tx, queue, job)
    save_with_hold(tx, queue, job, held)
    update_turn(tx, queue, job.grp)
    return job


def _replace(tx: Transaction, queue: QueueRow, job: JobRow, successor: JobRow, held: bool) -> JobRow:
    """What cannot be read here cannot be folded: the successor stands in for the whole job."""
    tx.delete(queue, job)
    if held and job.grp is not None:
        change_holds(tx, queue, job.grp, -1)
    update_turn(tx, queue, job.grp)
    successor.twin, successor.flags = 0, None
    if successor.format <= tx.format:
        successor.settled = job.settled
    tx.emit("updated", queue, successor.id, successor.attempts)
    enter(tx, queue, successor)
    save_with_hold(tx, queue, successor, False)
    update_turn(tx, queue, successor.grp)
    return successor
