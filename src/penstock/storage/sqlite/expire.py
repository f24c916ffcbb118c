"""expire: waiting or blocked → cancelled, if the first run of a job has not begun by its start-by time.

No verb of its own: each verb that reads or claims waiting jobs begins with it. `queues.expiry` is the first
start-by time of the queue or an earlier time, so a queue without such jobs costs one comparison.
"""

from __future__ import annotations

from penstock.model.flow import End
from penstock.storage.base import EXPIRED, EXPIRED_MS
from penstock.storage.sqlite.damage import set_aside
from penstock.storage.sqlite.flow_rows import note_end, note_gone
from penstock.storage.sqlite.flows import apply_effects
from penstock.storage.sqlite.ordering import change_holds, promote, update_turn
from penstock.storage.sqlite.rows import BLOCKED, CANCELLED, RUNNING, JobRow, read_job
from penstock.storage.sqlite.transaction import NeedsWriteLock, QueueRow, Transaction
from penstock.storage.sqlite.windows import free_window

__all__ = ["expire"]

#: How many jobs one call ends at most.
EXPIRE_MAX = 1_000


def expire(tx: Transaction, queue: QueueRow) -> bool:
    """End the jobs whose start-by time has passed; True if there are more, so no job may be claimed yet.

    A read that finds one asks for the write lock.
    """
    if queue.expiry is None or queue.expiry > tx.now:
        return False
    if not tx.write:
        raise NeedsWriteLock
    if tx.one("expire_first", queue.k, tx.now) is not None:
        if promote(tx, queue):
            return True
        for row in tx.all("expire_due", queue.k, tx.now, EXPIRE_MAX):
            _expire(tx, queue, read_job(row))
        if tx.effects:
            apply_effects(tx)
    queue.expiry, queue.marked = tx.one("expire_next", queue.k)[0], True
    return queue.expiry is not None and queue.expiry <= tx.now


def _expire(tx: Transaction, queue: QueueRow, job: JobRow) -> None:
    if job.place == RUNNING or job.ended:
        tx.run("clear_start_by", job.n)  # Penstock deletes it when the first run begins
        queue.note_damage()
        return
    if job.damaged and not job.twin:
        set_aside(tx, queue, job)
        return
    tx.emit("cancelled", queue, job.id, job.attempts, error=EXPIRED)
    if job.place == BLOCKED or job.twin:
        note_gone(tx, queue, job)
        tx.delete(queue, job)
        return
    held = job.holds_group
    queue.finished += 1
    queue.count_total("cancelled")
    job.begun = None
    job.place, job.start_by, job.token, job.worker = CANCELLED, None, "", None
    job.expires, job.number, job.finished = tx.now + EXPIRED_MS, queue.finished, tx.now
    job.result, job.error = None, EXPIRED
    tx.save(queue, job)
    free_window(tx, queue, job)
    tx.finished_jobs.append((queue.name, job.id))
    if queue.flows:
        note_end(tx, queue, job, End.CANCELLED, error=EXPIRED)
    if held and job.grp is not None:
        change_holds(tx, queue, job.grp, -1)
    update_turn(tx, queue, job.grp)
