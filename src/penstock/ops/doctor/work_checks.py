"""Checks of the jobs and workers: unserved queues, late jobs, expired leases, jobs that kill their worker."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import msgspec

from penstock.aio import gather_each
from penstock.errors import ErrorKind, JobError
from penstock.model.job import Snapshot, State
from penstock.model.storage_info import Inspectable
from penstock.ops.doctor.findings import Finding, fine, format_jobs, note, warning
from penstock.ops.overview import Overview, QueueView
from penstock.storage.base import Storage

__all__ = ["QueueSymptoms", "check_work", "read_all_symptoms", "read_symptoms"]

#: A job that has been due for longer than this (seconds) gives a warning.
LATE_AFTER = 300.0

#: How many jobs of a queue are read, of each state.
SAMPLE_SIZE = 100


class QueueSymptoms(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of trouble among the first queued and the newest failed jobs of a queue."""

    #: The earliest due time (ms) among the first queued jobs.
    oldest: int | None = None
    #: Queued jobs with at least one stall.
    stalled: int = 0
    #: Failed jobs whose last error is a stall.
    stall_failures: int = 0


async def read_symptoms(storage: Storage, queue: QueueView) -> QueueSymptoms:
    """Read the first queued and the newest failed jobs of a queue for signs of trouble.

    If no run was ever lost with its worker, the due time of the next job is all there is to know.
    """
    if queue.stalled == 0:
        return QueueSymptoms(oldest=None if queue.oldest is None else round(queue.oldest.timestamp() * 1000))
    queued: list[Snapshot] = []
    if queue.counts[State.QUEUED]:
        queued = (await storage.find(queue.name, State.QUEUED, None, SAMPLE_SIZE)).jobs
    failed: list[Snapshot] = []
    if queue.counts[State.FAILED]:
        failed = await read_newest_failures(storage, queue.name)
    stall_failures = [job for job in failed if JobError.decode(job.error or b"").kind is ErrorKind.STALL]
    return QueueSymptoms(
        oldest=min((job.run_at for job in queued), default=None),
        stalled=sum(1 for job in queued if job.stalls),
        stall_failures=len(stall_failures),
    )


async def read_all_symptoms(storage: Storage, queues: Sequence[QueueView]) -> dict[str, QueueSymptoms]:
    """Read the signs of trouble of queues, by their names."""
    read = await gather_each(lambda queue: read_symptoms(storage, queue), queues)
    return dict(zip((queue.name for queue in queues), read, strict=True))


async def read_newest_failures(storage: Storage, queue: str) -> list[Snapshot]:
    if isinstance(storage, Inspectable):
        return await storage.latest(queue, State.FAILED, SAMPLE_SIZE)
    return (await storage.find(queue, State.FAILED, None, SAMPLE_SIZE)).jobs


def check_work(overview: Overview, symptoms: dict[str, QueueSymptoms]) -> list[Finding]:
    """Return the findings about workers and queues."""
    findings: list[Finding] = []
    now = overview.at.timestamp()
    for queue in overview.queues:
        findings += check_queue(queue, symptoms.get(queue.name, QueueSymptoms()), now)
    if not overview.workers:
        level = warning if any(queue.open for queue in overview.queues) else note
        findings.insert(0, level("workers", "none", "penstock worker MODULE:APP"))
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
                   f"penstock queue resume {shlex.quote(queue.name)}")  # fmt: skip
    elif due and not queue.workers:
        yield warning(about, f"{format_jobs(due)} due, and no worker serves it", "start a worker that has its handler")
    elif symptoms.oldest is not None and now - symptoms.oldest / 1000 > LATE_AFTER:
        minutes = (now - symptoms.oldest / 1000) / 60
        yield warning(about, f"{format_jobs(due)} due, one of them for {minutes:,.0f} minutes",
                      "add workers or processes; `penstock job why` says what one job waits for")  # fmt: skip
    if queue.overdue and queue.workers:
        yield note(about, f"expired leases: {queue.overdue}; workers reap their jobs shortly")
    elif queue.overdue:
        yield warning(about, f"expired leases: {queue.overdue}, and no worker serves the queue to reap their jobs",
                      "start a worker that has its handler")  # fmt: skip
    if queue.damaged:
        yield warning(about, f"damaged records found: {queue.damaged:,}; they were set aside, and the other jobs go on",
                      "find out which software or disk changed them; `penstock job ls` shows failed jobs whose records "
                      "cannot be read (CorruptRecord)")  # fmt: skip
    if failed := queue.counts[State.FAILED]:
        yield note(about, format_jobs(failed, "failed"), f"penstock job ls {shlex.quote(queue.name)} --state failed")
    if symptoms.stall_failures:
        number = symptoms.stall_failures
        yield warning(about, f"{number} of the newest failed jobs lost their worker every time: they kill it",
                      f"penstock job ls {shlex.quote(queue.name)} --state failed")  # fmt: skip
    if symptoms.stalled:
        yield note(about, f"{symptoms.stalled} of the first queued jobs have lost a worker before")
