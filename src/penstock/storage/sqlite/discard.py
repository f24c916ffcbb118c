"""discard: waiting, blocked or finished → gone; a running job is refused."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.job import State
from penstock.storage.base import DiscardAnswer
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.finish import finish
from penstock.storage.sqlite.flow_rows import note_gone
from penstock.storage.sqlite.flows import apply_effects
from penstock.storage.sqlite.ordering import promote
from penstock.storage.sqlite.rows import BLOCKED, RUNNING, Bucket, state_of
from penstock.storage.sqlite.transaction import QueueRow, Transaction
from penstock.storage.sqlite.windows import free_window

__all__ = ["discard"]


def discard(
    tx: Transaction, name: str, ids: Sequence[str], state: State | None, before: int | None
) -> list[DiscardAnswer]:
    """Discard jobs, each only if its state and age fit."""
    queue = tx.queue(name)
    if queue is None:
        return ["not_found" for _ in ids]
    promote(tx, queue)
    expire(tx, queue)
    answers: list[DiscardAnswer] = []
    for id in ids:
        answers.append(_discard(tx, queue, id, state, before))
        if tx.effects:
            apply_effects(tx)
    return answers


def _discard(tx: Transaction, queue: QueueRow, id: str, state: State | None, before: int | None) -> DiscardAnswer:
    job = tx.job(queue, id)
    if job is None or job.expired(tx.now):
        return "not_found"
    if job.place == RUNNING or (queue.flows and queue.has_blocked):
        successor = tx.job(queue, id, twin=1)
        if successor is None and job.place == RUNNING:
            return "running"
        job = successor or job
    since = job.created if not job.ended or job.finished is None else job.finished
    if (state is not None and state_of(job, tx.now) is not state) or (before is not None and since > before):
        return "kept"
    if job.ended:
        tx.delete(queue, job)
        free_window(tx, queue, job)
        return "discarded"
    if job.place == BLOCKED:
        note_gone(tx, queue, job)
        tx.delete(queue, job)
        tx.emit("cancelled", queue, id, job.attempts)
    else:
        finish(tx, queue, job, Bucket.CANCELLED, "", 0)
    return "cancelled"
