"""restore: nothing → the state of the job in another storage, with its counts and times."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.fingerprint import key_of
from penstock.model.job import FINISHED, Snapshot, State
from penstock.model.storage_info import check_restorable
from penstock.storage.sqlite.error_groups import note_error
from penstock.storage.sqlite.ordering import enter_and_save, promote
from penstock.storage.sqlite.rows import FOREVER, LATER, RETRYING, Bucket
from penstock.storage.sqlite.transaction import QueueRow, Transaction
from penstock.storage.sqlite.update import note_start_by
from penstock.storage.sqlite.windows import take_window

__all__ = ["restore"]

FINISHED_BUCKETS = {State.COMPLETED: Bucket.COMPLETED, State.FAILED: Bucket.FAILED, State.CANCELLED: Bucket.CANCELLED}


def restore(tx: Transaction, jobs: Sequence[Snapshot]) -> list[bool]:
    """Insert jobs in order; False for each whose id is taken."""
    for job in jobs:
        check_restorable(job)
    for name in {job.queue for job in jobs}:
        promote(tx, tx.ensure_queue(name))
    return [_restore(tx, tx.ensure_queue(job.queue), job) for job in jobs]


def _restore(tx: Transaction, queue: QueueRow, job: Snapshot) -> bool:
    old = tx.job(queue, job.id)
    if old is not None and not old.expired(tx.now):
        return False
    if old is not None:
        tx.delete(queue, old)
    queue.time = max(queue.time, tx.now)
    tx.run("restore_insert", *_row(tx, queue, job))
    queue.count(RETRYING if job.state is State.RETRYING else FINISHED_BUCKETS.get(job.state, LATER), 1)
    if job.state not in (State.FAILED, State.CANCELLED):
        take_window(tx, queue, job.id, job.window, max(job.created, job.run_at))
    if job.state not in FINISHED:
        note_start_by(queue, job.start_by)
        tx.emit("enqueued", queue, job.id, 0)
        stored = tx.job(queue, job.id)
        assert stored is not None
        enter_and_save(tx, queue, stored, held=False)
    return True


def _row(tx: Transaction, queue: QueueRow, job: Snapshot) -> tuple[object, ...]:
    """Return the row of a job; a waiting one is in `LATER` until `enter_and_save` sets its bucket."""
    due = min(job.run_at, tx.now) if job.state is State.QUEUED else job.run_at
    finish: tuple[object, ...] = (None,) * 6
    started = key = None
    if job.state in FINISHED:
        queue.finished += 1
        expires = FOREVER if job.expires is None else job.expires
        finish = ("", job.worker, expires, queue.finished, job.finished or tx.now, job.result)
        started = job.started
        if job.state is not State.COMPLETED:
            queue.count_total(job.state.value)
        if job.state is State.FAILED:
            key = key_of(job.error)
            note_error(tx, queue, job.id, job.error)
    return (
        queue.k, job.id, FINISHED_BUCKETS.get(job.state, LATER), -job.priority, _stamp(queue, job, due),
        queue.next_seq(), due,
        job.created, job.group, int(job.state is State.RETRYING), tx.format, job.attempts, job.retries, job.stalls,
        job.timeouts, None if job.state in FINISHED else job.start_by, job.cost, job.window, *finish, job.error,
        started, key, job.headers, job.bounds, job.payload,
    )  # fmt: skip


def _stamp(queue: QueueRow, job: Snapshot, due: int) -> int:
    """Return the order stamp: due jobs keep the order of the restore, one in backoff stays first in its group."""
    if job.state is State.RETRYING:
        return min(job.created, queue.time)
    if job.state is State.QUEUED:
        return queue.time
    return due if job.group is None else max(due, queue.time)
