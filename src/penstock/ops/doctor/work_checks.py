"""What the state of the work means: who works, what waits for too long, what kills its worker."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.errors import ErrorKind, JobError
from penstock.model.job import Snapshot, State
from penstock.model.storage_info import Inspectable
from penstock.ops.doctor.findings import Finding, fine, format_jobs, note, warning
from penstock.ops.overview import Overview, QueueView
from penstock.storage.base import Storage

__all__ = ["QueueSymptoms", "check_work", "read_symptoms"]

#: A job that is due and not handed out for longer than this (seconds) is worth a word.
LATE_AFTER = 300.0

#: So many jobs of a queue's line are looked at for signs of trouble.
SAMPLE_SIZE = 100


class QueueSymptoms(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of trouble among the first jobs of a queue: when the oldest fell due, and who died of what."""

    #: The earliest due time (ms) among the first of the line.
    oldest: int | None = None
    #: Waiting jobs that lost a worker, and failed ones that a lost worker ended.
    stalled: int = 0
    stall_failures: int = 0


async def read_symptoms(storage: Storage, queue: QueueView) -> QueueSymptoms:
    """Signs of trouble in one queue, from its first jobs of each kind."""
    line: list[Snapshot] = []
    if queue.counts[State.QUEUED]:
        line = (await storage.find(queue.name, State.QUEUED, None, SAMPLE_SIZE)).jobs
    failed: list[Snapshot] = []
    if queue.counts[State.FAILED]:
        failed = await read_newest_failures(storage, queue.name)
    killers = [job for job in failed if JobError.decode(job.error or b"").kind is ErrorKind.STALL]
    return QueueSymptoms(
        oldest=min((job.run_at for job in line), default=None),
        stalled=sum(1 for job in line if job.stalls),
        stall_failures=len(killers),
    )


async def read_newest_failures(storage: Storage, queue: str) -> list[Snapshot]:
    if isinstance(storage, Inspectable):
        return await storage.latest(queue, State.FAILED, SAMPLE_SIZE)
    return (await storage.find(queue, State.FAILED, None, SAMPLE_SIZE)).jobs


def check_work(overview: Overview, symptoms: dict[str, QueueSymptoms]) -> list[Finding]:
    """What the state of the work means."""
    findings: list[Finding] = []
    now = overview.at.timestamp()
    for queue in overview.queues:
        findings += check_queue(queue, symptoms.get(queue.name, QueueSymptoms()), now)
    if not overview.workers:
        level = warning if any(queue.open for queue in overview.queues) else note
        findings.insert(0, level("workers", "none are there", "penstock worker MODULE:APP"))
    else:
        busy, capacity = sum(w.busy for w in overview.workers), sum(w.capacity for w in overview.workers)
        findings.insert(0, fine("workers", f"{len(overview.workers)}, {busy} of {capacity} units in use"))
    waiting = sum(queue.open for queue in overview.queues)
    findings.insert(1, fine("queues", f"{len(overview.queues)}, {format_jobs(waiting, 'open')}"))
    return findings


def check_queue(queue: QueueView, symptoms: QueueSymptoms, now: float) -> Iterable[Finding]:
    about = f"queue {queue.name}"
    due = queue.counts[State.QUEUED]
    if queue.paused_since:
        yield note(about, f"paused since {queue.paused_since:%Y-%m-%d %H:%M:%S}Z, {format_jobs(due)} due",
                   f"penstock queue resume {queue.name}")  # fmt: skip
    elif due and not queue.workers:
        yield warning(about, f"{format_jobs(due)} due, and no worker serves it", "start a worker that has its handler")
    elif symptoms.oldest is not None and now - symptoms.oldest / 1000 > LATE_AFTER:
        minutes = (now - symptoms.oldest / 1000) / 60
        yield warning(about, f"{format_jobs(due)} due, one of them for {minutes:,.0f} minutes",
                      "add workers or processes; `penstock job why` says what one job waits for")  # fmt: skip
    if queue.overdue and queue.workers:
        yield note(about, f"leases that are over: {queue.overdue}; the next sweep takes their jobs back")
    elif queue.overdue:
        yield warning(about, f"leases that are over: {queue.overdue}, and no worker is there to take their jobs back",
                      "start a worker that has its handler")  # fmt: skip
    if failed := queue.counts[State.FAILED]:
        yield note(about, format_jobs(failed, "failed"), f"penstock job ls {queue.name} --state failed")
    if symptoms.stall_failures:
        yield warning(about, f"{symptoms.stall_failures} of the newest failed jobs lost their worker every time: they kill it",
                      f"penstock job ls {queue.name} --state failed")  # fmt: skip
    if symptoms.stalled:
        yield note(about, f"{symptoms.stalled} of the first jobs in line have lost a worker before")
