"""reap: running with an expired lease → queued at its old position with stalls + 1, or cancelled if requested."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.job import State
from penstock.storage.base import MAX_BYTES, Reaped
from penstock.storage.sqlite.finish import finish, requeue
from penstock.storage.sqlite.flows import apply_effects
from penstock.storage.sqlite.histories import add_attempt
from penstock.storage.sqlite.ordering import promote
from penstock.storage.sqlite.rows import FAILED, Bucket, read_job, state_of
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["reap"]


def reap(tx: Transaction, queues: Sequence[str], limit: int) -> list[Reaped]:
    """Take back the runs whose workers did not renew them in time, up to `limit` of each queue.

    It stops at the record that reaches `MAX_BYTES`, because each is written again.
    """
    reaped: list[Reaped] = []
    for name in queues:
        queue = tx.queue(name)
        if queue is None:
            continue
        promote(tx, queue)
        room = MAX_BYTES
        for (n,) in tx.all("reap_late", queue.k, tx.now, limit):
            if room <= 0:
                break
            job = read_job(tx.one("find_row", n))
            room -= job.size
            worker, attempt = job.worker or "", job.attempts
            job.stalls += 1
            queue.count_total("stalled")
            if not job.damaged:
                add_attempt(tx, queue, job, "stalled" if job.cancel is None else "cancelled")
            if job.cancel is not None:
                tx.emit("stalled", queue, job.id, job.attempts, worker)
                finish(tx, queue, job, Bucket.CANCELLED, "", job.cancel_ttl)
                apply_effects(tx)
                reaped.append(Reaped(name, job.id, State.CANCELLED, worker, attempt))
            else:
                job.solo = int(job.stalls > 1)
                job = requeue(tx, queue, job, "stalled", tx.now)
                if job.place == FAILED:
                    continue  # its record cannot be read
                reaped.append(Reaped(name, job.id, state_of(job, tx.now), worker, attempt))
    return reaped
