"""What the state of the work means: who works, what waits for too long, what kills its worker."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.errors import ErrorKind, JobError
from penstock.model.job import Snapshot, State
from penstock.model.storage_info import Inspectable
from penstock.ops.doctor.findings import Finding, fine, jobs, note, warning
from penstock.ops.overview import Overview, QueueView
from penstock.storage.base import Storage

__all__ = ["Troubled", "judge_health", "look_closer"]

#: A job that is due and not handed out for longer than this (seconds) is worth a word.
LATE = 300.0

#: So many jobs of a queue's line are looked at for signs of trouble.
LOOK_AT = 100


class Troubled(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of trouble among the first jobs of a queue: when the oldest fell due, and who died of what."""

    #: The earliest due time (ms) among the first of the line.
    oldest: int | None = None
    #: Waiting jobs that lost a worker, and failed ones that a lost worker ended.
    stalled: int = 0
    killers: int = 0


async def look_closer(storage: Storage, queue: QueueView) -> Troubled:
    """Signs of trouble in one queue, from its first jobs of each kind."""
    line: list[Snapshot] = []
    if queue.counts[State.QUEUED]:
        line = (await storage.find(queue.name, State.QUEUED, None, LOOK_AT)).jobs
    failed: list[Snapshot] = []
    if queue.counts[State.FAILED]:
        failed = await newest(storage, queue.name)
    killers = [job for job in failed if JobError.decode(job.error or b"").kind is ErrorKind.STALL]
    return Troubled(
        oldest=min((job.run_at for job in line), default=None),
        stalled=sum(1 for job in line if job.stalls),
        killers=len(killers),
    )


async def newest(storage: Storage, queue: str) -> list[Snapshot]:
    if isinstance(storage, Inspectable):
        return await storage.latest(queue, State.FAILED, LOOK_AT)
    return (await storage.find(queue, State.FAILED, None, LOOK_AT)).jobs


def judge_health(seen: Overview, troubled: dict[str, Troubled]) -> list[Finding]:
    """What the state of the work means."""
    findings: list[Finding] = []
    now = seen.at.timestamp()
    for queue in seen.queues:
        findings += judge_queue(queue, troubled.get(queue.name, Troubled()), now)
    if not seen.workers:
        level = warning if any(queue.open for queue in seen.queues) else note
        findings.insert(0, level("workers", "none are there", "penstock worker MODULE:APP"))
    else:
        busy, capacity = sum(w.busy for w in seen.workers), sum(w.capacity for w in seen.workers)
        findings.insert(0, fine("workers", f"{len(seen.workers)}, {busy} of {capacity} units in use"))
    waiting = sum(queue.open for queue in seen.queues)
    findings.insert(1, fine("queues", f"{len(seen.queues)}, {jobs(waiting, 'open')}"))
    return findings


def judge_queue(queue: QueueView, troubled: Troubled, now: float) -> Iterable[Finding]:
    about = f"queue {queue.name}"
    due = queue.counts[State.QUEUED]
    if queue.paused_since:
        yield note(about, f"paused since {queue.paused_since:%Y-%m-%d %H:%M:%S}Z, {jobs(due)} due",
                   f"penstock queue resume {queue.name}")  # fmt: skip
    elif due and not queue.workers:
        yield warning(about, f"{jobs(due)} due, and no worker serves it", "start a worker that has its handler")
    elif troubled.oldest is not None and now - troubled.oldest / 1000 > LATE:
        minutes = (now - troubled.oldest / 1000) / 60
        yield warning(about, f"{jobs(due)} due, one of them for {minutes:,.0f} minutes",
                      "add workers or processes; `penstock job why` says what one job waits for")  # fmt: skip
    if queue.overdue and queue.workers:
        yield note(about, f"leases that are over: {queue.overdue}; the next sweep takes their jobs back")
    elif queue.overdue:
        yield warning(about, f"leases that are over: {queue.overdue}, and no worker is there to take their jobs back",
                      "start a worker that has its handler")  # fmt: skip
    if failed := queue.counts[State.FAILED]:
        yield note(about, jobs(failed, "failed"), f"penstock job ls {queue.name} --state failed")
    if troubled.killers:
        yield warning(about, f"{troubled.killers} of the newest failed jobs lost their worker every time: they kill it",
                      f"penstock job ls {queue.name} --state failed")  # fmt: skip
    if troubled.stalled:
        yield note(about, f"{troubled.stalled} of the first jobs in line have lost a worker before")
