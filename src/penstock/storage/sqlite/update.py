"""The changes that an update makes to a job that is there already, also when a successor is merged into it."""

from __future__ import annotations

from penstock.model.job import MoveWhen, NewJob, Update
from penstock.storage.sqlite.rows import JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["apply_update", "merge_flags", "moved_due", "note_start_by", "requested_due", "start_by_of"]


def requested_due(tx: Transaction, new: NewJob, created: int) -> int | None:
    """Return the due time that a put asks for, bounded by its longest wait; None for at once."""
    due = new.run_at if new.delay is None else tx.now + new.delay
    return due if due is None or new.max_wait is None else min(due, created + new.max_wait)


def start_by_of(tx: Transaction, new: NewJob | JobRow) -> int | None:
    """Return when a job expires, or None."""
    within = new.start_within if isinstance(new, NewJob) else None
    return new.start_by if within is None else tx.now + within


def note_start_by(queue: QueueRow, start_by: int | None) -> None:
    """Record that a job with this start-by time was stored."""
    if start_by is not None and (queue.expiry is None or start_by < queue.expiry):
        queue.expiry, queue.marked = start_by, True


def apply_update(tx: Transaction, queue: QueueRow, job: JobRow, new: NewJob | JobRow, flags: Update) -> None:
    """Change a waiting or blocked job in memory, as the flags of the new one ask.

    A job that changes its group is accepted there now: it joins the end, and a backoff does not hold the group.
    """
    if flags.payload:
        job.payload, job.headers, job.cost = new.payload, new.headers, new.cost
    if flags.bounds:
        job.bounds = new.bounds
    if isinstance(new, NewJob):
        requested, rank, group = requested_due(tx, new, job.created), -new.priority, new.group
    else:
        requested, rank, group = new.due if new.due > tx.now else None, new.rank, new.grp
    due = moved_due(flags.run_at, requested, tx.now, job.due)
    if due is not None and job.earliest is not None:
        due = max(due, job.earliest)
    if due is not None and due != job.due:
        job.due, job.retried = due, 0
        job.time = due if job.grp is None else max(due, tx.now)
    if flags.resets:
        job.attempts = job.retries = job.stalls = job.timeouts = 0
        job.solo, job.error = 0, None
    if flags.priority:
        job.rank = rank
    if flags.group and group is not None and group != job.grp:
        queue.time = max(queue.time, tx.now)
        job.grp, job.seq, job.retried = group, queue.next_seq(), 0
        job.time = max(job.due, queue.time)
    start_by = start_by_of(tx, new)
    if start_by is not None and job.attempts == 0:
        job.start_by = start_by


def moved_due(flag: MoveWhen, requested: int | None, now: int, due: int) -> int | None:
    """Return the due time that an update gives, or None for no change; no run_at means as soon as possible."""
    if flag is False:
        return None
    if requested is None:
        return now if flag in (True, "if_earlier") and due > now else None
    if flag == "if_later":
        return requested if requested > due else None
    if flag == "if_earlier":
        return requested if requested < due else None
    return requested if requested != due else None


def merge_flags(first: Update, later: Update) -> Update:
    """Return the flags of a successor that was put twice: each part that either put wanted updated."""
    run_at = first.run_at
    if later.run_at is not False and first.run_at is not True:
        run_at = later.run_at
    return Update(
        payload=first.payload or later.payload,
        run_at=run_at,
        reset_counts=first.resets or later.resets,
        bounds=first.bounds or later.bounds,
        priority=first.priority or later.priority,
        group=first.group or later.group,
    )
