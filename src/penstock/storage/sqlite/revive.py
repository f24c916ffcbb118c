"""revive: failed or cancelled (or completed, if asked) → queued, last in the order, all counts zero."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.flow import End
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.flow_rows import (
    BEGUN,
    DURABLE,
    FINAL,
    PLAN,
    GenerationRow,
    ensure_generation,
    generation_of,
)
from penstock.storage.sqlite.flows import (
    apply_effects,
    evaluate,
    open_dependency,
    recount,
    reopen,
    revive_children,
    verdict,
)
from penstock.storage.sqlite.ordering import enter_and_save, promote
from penstock.storage.sqlite.rows import FOREVER, SUSPENDED, Bucket, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction
from penstock.storage.sqlite.windows import take_window

__all__ = ["revive", "revive_one"]


def revive(tx: Transaction, name: str, ids: Sequence[str], completed: bool, fresh: bool = False) -> list[bool]:
    """Queue finished jobs again; False for those that do not exist, are not finished, or (unless asked) completed."""
    queue = tx.queue(name)
    if queue is None:
        return [False for _ in ids]
    promote(tx, queue)
    expire(tx, queue)
    answers: list[bool] = []
    for id in ids:
        answers.append(revive_one(tx, queue, id, completed, fresh))
        if tx.effects:
            apply_effects(tx)
    return answers


def revive_one(tx: Transaction, queue: QueueRow, id: str, completed: bool = False, fresh: bool = False) -> bool:
    """Queue a finished job again, or suspend it if it must wait; False if that is not possible."""
    job = tx.job(queue, id)
    if job is None or not job.ended or job.expired(tx.now):
        return False
    was_completed = job.place == Bucket.COMPLETED
    if was_completed and not completed:
        return False
    row = generation_of(tx, queue, job)
    if row is not None and row.has(PLAN) and (was_completed or fresh):
        return False
    if row is not None and row.end in (End.UPSTREAM, End.SKIPPED) and verdict(tx, row) is not None:
        return False
    queue.time = max(queue.time, tx.now)
    job.time, job.seq, job.due = queue.time, queue.next_seq(), tx.now
    job.attempts = job.retries = job.stalls = job.timeouts = job.retried = job.solo = 0
    job.settled = job.token = job.worker = job.cancel = job.flags = None
    job.expires = job.number = job.finished = job.until = None
    job.error = job.result = job.progress = job.earliest = job.error_key = job.begun = None
    take_window(tx, queue, id, job.window_ms, max(job.created, job.due))
    tx.emit("enqueued", queue, id, 0)
    if queue.flows or fresh:
        row = _revive_flow(tx, queue, job, was_completed, fresh)
    if row is not None and job.place == SUSPENDED:
        job.until = FOREVER
        recount(tx, row)
        tx.save(queue, job)
        evaluate(tx, queue, job, row)
    else:
        enter_and_save(tx, queue, job, held=False)
    return True


def _revive_flow(tx: Transaction, queue: QueueRow, job: JobRow, completed: bool, fresh: bool) -> GenerationRow | None:
    """Open again what a revived job had closed, and suspend it if its own dependencies are open or not met."""
    if completed:
        tx.run("notices_drop", job.n)
    else:
        reopen(tx, queue, job)
    row = ensure_generation(tx, queue, job) if fresh else generation_of(tx, queue, job)
    if row is None:
        return None
    row.ended = None
    row.opening += 1
    row.dirty = True
    if not row.has(FINAL) and row.extended_at is None:
        row.extended_at = 0  # its producer is still silent
    if fresh:
        _forget_journal(tx, row)
    if row.has(PLAN):
        job.place = SUSPENDED
        revive_children(tx, queue, job, row)
    elif not row.has(DURABLE):
        row.set(BEGUN, False)
        waits = verdict(tx, row) is not None or not row.has(FINAL)
        if not completed and (waits or tx.one("dependencies_open", job.n, 0, row.needs)[0]):
            job.place = SUSPENDED
    culprits = tx.all("dependencies_culprits", job.n)
    for (number,) in culprits:
        found = tx.one("dependency_get", job.n, number)
        if found[3] is not None:
            open_dependency(tx, row, found)
    if culprits:
        revive_children(tx, queue, job, row)
    return row


def _forget_journal(tx: Transaction, row: GenerationRow) -> None:
    """Forget what the runs of a job have recorded, and the children that they made."""
    tx.run("journal_forget", row.job)
    for number, _, _, ended, _ in tx.all("dependencies_read", row.job, row.needs - 1, -1):
        if ended is None:
            row.open -= 1
        else:
            tx.run("dependency_open", row.job, number)
            row.count_end(End(ended), -1)
            row.open -= 1
    tx.run("dependencies_forget", row.job, row.needs)
    row.fresh += 1
    row.set(DURABLE, False)
