"""why: the position of a job, and the jobs before it."""

from __future__ import annotations

from penstock.model.job import State
from penstock.model.why import MAX_AHEAD, JobPosition
from penstock.storage.sqlite.closed_gate import closed_gate
from penstock.storage.sqlite.flow_shown import flow_snapshot
from penstock.storage.sqlite.gates import group_rule, lane_of
from penstock.storage.sqlite.reads import promote_all
from penstock.storage.sqlite.rows import LANE, RUNNING, JobRow, read_job, snapshot
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["why"]

_LAST = 1 << 62


def why(tx: Transaction, name: str, id: str) -> tuple[bool, JobPosition | None]:
    """Return the position of a job; True first if more jobs are due than one transaction promotes, so repeat."""
    queue = tx.queue(name)
    if queue is None:
        return False, None
    if promote_all(tx, queue):
        return True, None
    job = tx.job(queue, id)
    if job is None or job.expired(tx.now):
        return False, None
    return False, _position(tx, queue, job, _head(tx, queue, job))


def _position(tx: Transaction, queue: QueueRow, job: JobRow, head: JobRow | None) -> JobPosition:
    found = snapshot(queue.name, job, tx.now, tx.format)
    running = job.place == RUNNING
    known = found.format is None
    return JobPosition(
        id=job.id,
        state=found.state,
        at=tx.now,
        run_at=found.run_at,
        worker=found.worker,
        lease=job.until if running else None,
        finished=found.finished,
        successor=running and tx.job(queue, job.id, twin=1) is not None,
        group=job.grp,
        pause=queue.live_pause(tx.now),
        group_pause=None if job.grp is None else lane_of(tx, queue, job.grp).live_pause(tx.now),
        format=found.format,
        known=None if known else tx.format,
        ahead=_ahead(tx, queue, job) if known and head is None and found.state is State.QUEUED else None,
        head=None if head is None else _position(tx, queue, head, None),
        flow=flow_snapshot(tx, queue, job) if queue.flows and found.state is State.SUSPENDED else None,
        gate=closed_gate(tx, queue, job, head is None) if queue.limited and found.state is State.QUEUED else None,
    )


def _head(tx: Transaction, queue: QueueRow, job: JobRow) -> JobRow | None:
    """Return the job of the same group that must end before this one: running, in backoff, or before it.

    In a group without order only those before it.
    """
    if job.grp is None or job.place != LANE:
        return None
    ordered = not queue.limited or group_rule(tx, queue, job.grp).ordered
    row = (
        (tx.one("why_running", queue.k, job.grp) or tx.one("why_backoff", queue.k, job.grp)) if ordered else None
    ) or tx.one("why_lane", queue.k, job.grp)
    return None if row is None or row[0] == job.n else read_job(row)


def _ahead(tx: Transaction, queue: QueueRow, job: JobRow) -> int | None:
    """Return how many jobs and groups are before a job, which is the first of its group if it has one."""
    rank, time, seq = job.rank, job.time, job.seq
    if job.grp is not None:
        turn = tx.one("why_turn", queue.k, job.grp)
        if turn is None:
            return None
        rank, (time, seq) = 0, turn
    count = tx.one("why_jobs", queue.k, rank, time, seq, MAX_AHEAD)[0]
    if rank >= 0:
        before = (time, seq) if rank == 0 else (_LAST, _LAST)
        count += tx.one("why_turns", queue.k, *before, MAX_AHEAD)[0]
    return min(count, MAX_AHEAD)
