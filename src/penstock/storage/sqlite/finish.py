"""The two ways out of a run that settle, reap and cancel share: for good, or back among the waiting."""

from __future__ import annotations

from penstock.storage.sqlite.ordering import enter, enter_if_due, hold, regroup, save
from penstock.storage.sqlite.put import apply
from penstock.storage.sqlite.rows import RUNNING, STATES, Job, Place, expiry, flags_of
from penstock.storage.sqlite.transaction import Queue, Tx

__all__ = ["GONE_MS", "finish", "give_back"]

#: How long it is remembered that a token has settled a job that was not kept.
GONE_MS = 60_000

#: How long a job that is not kept stays for those who wait for it.
WAITED_MS = 60_000


def finish(
    tx: Tx, queue: Queue, job: Job, place: Place, token: str, ttl: int | None,
    result: bytes | None = None, error: bytes | None = None,
) -> None:  # fmt: skip
    """→ completed / failed / cancelled, in one step with the release of the successor."""
    held, running = job.holds, job.place == RUNNING
    worker = job.worker if running else None
    successor = tx.job(queue, job.id, twin=1) if running else None
    queue.finished += 1
    queue.dirty = True
    tx.note(STATES[place].value, queue, job.id, job.attempts, worker, result, error)
    tx.ended.append((queue.name, job.id))
    if token and (ttl == 0 or successor):
        tx.rows("settle_gone", [(queue.k, job.id, token, place, tx.now + GONE_MS)])
    if ttl == 0 and tx.waited(queue.name, job.id):
        ttl, job.flags = WAITED_MS, int(place == Place.COMPLETED) or None
    if ttl == 0 or successor:
        tx.drop(queue, job)
    else:
        job.place, job.token, job.worker, job.expires = place, token, worker, expiry(ttl, tx.now)
        job.number, job.finished, job.result, job.error = queue.finished, tx.now, result, error
        tx.save(queue, job)
    if held and job.grp is not None:
        hold(tx, queue, job.grp, -1)
    if successor:
        successor.twin, successor.flags = 0, None
        enter_if_due(tx, queue, successor, held=False)
    regroup(tx, queue, job.grp)


def give_back(tx: Tx, queue: Queue, job: Job, note: str, due: int) -> Job:
    """running → waiting; a blocked successor is folded in by its own flags. Gives the job that waits now."""
    held = job.holds
    worker, job.worker = job.worker, None
    job.due, job.retried = due, int(due > tx.now)
    tx.note(note, queue, job.id, job.attempts, worker, error=job.error if note == "retrying" else None)
    successor = tx.job(queue, job.id, twin=1)
    if successor and max(successor.format, job.format) > tx.format:
        return _replace(tx, queue, job, successor, held)
    if successor:
        apply(tx, job, successor, flags_of(successor.flags or 0))
        tx.drop(queue, successor)
        tx.note("updated", queue, job.id, job.attempts)
    enter(tx, queue, job)
    save(tx, queue, job, held)
    regroup(tx, queue, job.grp)
    return job


def _replace(tx: Tx, queue: Queue, job: Job, successor: Job, held: bool) -> Job:
    """What cannot be read here cannot be folded: the successor stands in for the whole job."""
    tx.drop(queue, job)
    if held and job.grp is not None:
        hold(tx, queue, job.grp, -1)
    regroup(tx, queue, job.grp)
    successor.twin, successor.flags = 0, None
    if successor.format <= tx.format:
        successor.settled = job.settled
    tx.note("updated", queue, successor.id, successor.attempts)
    enter(tx, queue, successor)
    save(tx, queue, successor, False)
    regroup(tx, queue, successor.grp)
    return successor
