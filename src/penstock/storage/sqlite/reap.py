"""reap: running with its lease over → queued at its place with stalls + 1, or cancelled if asked to."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.job import State
from penstock.storage.base import Reaped
from penstock.storage.sqlite.finish import finish, give_back
from penstock.storage.sqlite.ordering import promote
from penstock.storage.sqlite.rows import Job, Place, state_of
from penstock.storage.sqlite.transaction import Tx

__all__ = ["reap"]


def reap(tx: Tx, queues: Sequence[str], limit: int) -> list[Reaped]:
    """Take back the runs whose workers were not heard of in time, up to `limit` of each queue."""
    reaped: list[Reaped] = []
    for name in queues:
        queue = tx.queue(name)
        if queue is None:
            continue
        promote(tx, queue)
        for row in tx.all("reap_late", queue.k, tx.now, limit):
            job = Job(*row)
            worker, attempt = job.worker or "", job.attempts
            job.stalls += 1
            if job.cancel is not None:
                tx.note("stalled", queue, job.id, job.attempts, worker)
                finish(tx, queue, job, Place.CANCELLED, "", job.cancel_ttl)
                reaped.append(Reaped(name, job.id, State.CANCELLED, worker, attempt))
            else:
                job.solo = int(job.stalls > 1)
                job = give_back(tx, queue, job, "stalled", tx.now)
                reaped.append(Reaped(name, job.id, state_of(job, tx.now), worker, attempt))
    return reaped
