"""What there is, in one look: queues, workers and failures, for the command line and other faces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from penstock.client.app import Penstock
from penstock.errors import JobError
from penstock.model.clock import as_datetime
from penstock.model.job import FINISHED, Snapshot, State
from penstock.model.storage_info import Inspectable, QueueMeter
from penstock.model.worker_info import WorkerInfo
from penstock.storage.base import Storage

__all__ = ["FailedJob", "Overview", "QueueView", "Rate", "rates", "read_overview"]


#: So many queues are asked about at the same time.
CONCURRENT_READS = 50


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue stands. `oldest` is when the job at the head of its line fell due; None when none is waiting.

    `finished` and `overdue` are None where the storage does not count them.
    """

    name: str
    counts: dict[State, int]
    paused_since: datetime | None = None
    oldest: datetime | None = None
    workers: list[str] = []
    finished: int | None = None
    overdue: int | None = None

    @property
    def open(self) -> int:
        """How many jobs have not ended."""
        return sum(count for state, count in self.counts.items() if state not in FINISHED)


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed for good, and why."""

    queue: str
    id: str
    at: datetime | None
    attempts: int
    error: JobError


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything as of one moment of the storage's clock, near enough."""

    at: datetime
    queues: list[QueueView]
    workers: list[WorkerInfo]
    failures: list[FailedJob] = []


class Rate(msgspec.Struct, frozen=True):
    """Jobs a second, between two looks."""

    arriving: float
    ending: float


async def read_overview(app: Penstock, names: Iterable[str] | None = None, *, failures: int = 0) -> Overview:
    """Look at these queues, or at all that hold jobs, are paused or are served; with the newest `failures`."""
    storage = await app.opened()
    at = await storage.time()
    workers = await app.workers()
    if names is None:
        names = {*await storage.queues(), *(queue for worker in workers for queue in worker.queues)}
    wanted = sorted(names)
    meters = {meter.queue: meter for meter in await _meters(storage, wanted)}
    queues: list[QueueView] = []
    for start in range(0, len(wanted), CONCURRENT_READS):
        some = wanted[start : start + CONCURRENT_READS]
        queues += await asyncio.gather(*(_view(storage, name, workers, meters.get(name)) for name in some))
    return Overview(
        at=as_datetime(at),
        queues=queues,
        workers=workers,
        failures=await newest_failures(storage, queues, failures) if failures else [],
    )


async def _meters(storage: Storage, names: list[str]) -> list[QueueMeter]:
    return await storage.meters(names) if isinstance(storage, Inspectable) else []


async def _view(storage: Storage, name: str, workers: list[WorkerInfo], meter: QueueMeter | None) -> QueueView:
    counts = await storage.counts(name)
    since = await storage.paused(name)
    head = (await storage.find(name, State.QUEUED, None, 1)).jobs if counts[State.QUEUED] else []
    return QueueView(
        name=name,
        counts=counts,
        paused_since=None if since is None else as_datetime(since),
        oldest=as_datetime(head[0].run_at) if head else None,
        workers=[worker.id for worker in workers if name in worker.queues],
        finished=meter and meter.finished,
        overdue=meter and meter.overdue,
    )


async def newest_failures(storage: Storage, queues: Iterable[QueueView], limit: int) -> list[FailedJob]:
    """The jobs that failed last, newest first."""
    found: list[Snapshot] = []
    for queue in queues:
        if not queue.counts[State.FAILED]:
            continue
        if isinstance(storage, Inspectable):
            found += await storage.latest(queue.name, State.FAILED, limit)
        else:
            found += (await storage.find(queue.name, State.FAILED, None, limit)).jobs
    found.sort(key=lambda job: job.finished or 0, reverse=True)
    return [failed_job(job) for job in found[:limit]]


def failed_job(job: Snapshot) -> FailedJob:
    """What is told of a failed job."""
    return FailedJob(
        queue=job.queue,
        id=job.id,
        at=None if job.finished is None else as_datetime(job.finished),
        attempts=job.attempts,
        error=JobError.decode(job.error or b""),
    )


def rates(before: Overview, after: Overview) -> Mapping[str, Rate]:
    """How fast jobs came and ended between two looks; a queue that one of them did not count is left out."""
    seconds = (after.at - before.at).total_seconds()
    known = {queue.name: queue for queue in before.queues}
    found: dict[str, Rate] = {}
    for queue in after.queues:
        old = known.get(queue.name)
        if old is None or seconds <= 0 or queue.finished is None or old.finished is None:
            continue
        # A queue that was empty for long is forgotten and counts from zero again.
        ended = queue.finished - old.finished if queue.finished >= old.finished else queue.finished
        arrived = max(0, queue.open - old.open + ended)
        found[queue.name] = Rate(arrived / seconds, ended / seconds)
    return found
