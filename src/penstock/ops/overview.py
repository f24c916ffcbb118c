"""Overview of an app: its queues, workers and latest failures, read together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from penstock.client.app import Penstock
from penstock.errors import JobError
from penstock.model.clock import as_datetime
from penstock.model.job import FINISHED, Snapshot, State
from penstock.model.storage_info import FileInfo, Inspectable, QueueMeter
from penstock.model.worker_info import WorkerInfo
from penstock.storage.base import Storage

__all__ = ["FailedJob", "Overview", "QueueView", "Rate", "describe_empty", "rates", "read_overview"]


#: How many queues are read at the same time.
CONCURRENT_READS = 50


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, workers and age of one queue.

    `oldest` is the due time of the next job, None if none is queued. `finished` (jobs that ever ended), `overdue`
    (expired leases) and `damaged` (records that could not be read) are None if the storage does not count them.
    """

    name: str
    counts: dict[State, int]
    paused_since: datetime | None = None
    oldest: datetime | None = None
    workers: list[str] = []
    finished: int | None = None
    overdue: int | None = None
    damaged: int | None = None

    @property
    def open(self) -> int:
        """Number of jobs that have not ended."""
        return sum(count for state, count in self.counts.items() if state not in FINISHED)


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed for good, and its error."""

    queue: str
    id: str
    at: datetime | None
    attempts: int
    error: JobError


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, workers and failures at about one time of the storage's clock."""

    at: datetime
    queues: list[QueueView]
    workers: list[WorkerInfo]
    failures: list[FailedJob] = []


class Rate(msgspec.Struct, frozen=True):
    """Jobs per second between two overviews: enqueued and ended."""

    arriving: float
    ending: float


async def read_overview(app: Penstock, names: Iterable[str] | None = None, *, failures: int = 0) -> Overview:
    """Read an overview of these queues, or of all that have jobs, workers or a pause; with the newest `failures`."""
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


async def describe_empty(app: Penstock) -> str:
    """Return a sentence about a namespace without queues, with the other namespaces if the storage lists them."""
    storage = await app.opened()
    info = await storage.inspect(check=False) if isinstance(storage, Inspectable) else None
    others = [name for name in info.namespaces if name != app.namespace] if isinstance(info, FileInfo) else []
    hint = f"; there are queues in {', '.join(map(repr, others))}" if others else ""
    return f"no queues here: the namespace {app.namespace!r} is empty{hint}"


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
        damaged=meter and meter.damaged,
    )


async def newest_failures(storage: Storage, queues: Iterable[QueueView], limit: int) -> list[FailedJob]:
    """Return the jobs that failed last, newest first."""
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
    """Return the `FailedJob` of a failed job's snapshot."""
    return FailedJob(
        queue=job.queue,
        id=job.id,
        at=None if job.finished is None else as_datetime(job.finished),
        attempts=job.attempts,
        error=JobError.decode(job.error or b""),
    )


def rates(before: Overview, after: Overview) -> Mapping[str, Rate]:
    """Return the rates by queue between two overviews; queues without counts in both are left out."""
    seconds = (after.at - before.at).total_seconds()
    known = {queue.name: queue for queue in before.queues}
    found: dict[str, Rate] = {}
    for queue in after.queues:
        old = known.get(queue.name)
        if old is None or seconds <= 0 or queue.finished is None or old.finished is None:
            continue
        # The storage drops the counter of a queue that was empty for long; it restarts from zero.
        ended = queue.finished - old.finished if queue.finished >= old.finished else queue.finished
        arrived = max(0, queue.open - old.open + ended)
        found[queue.name] = Rate(arrived / seconds, ended / seconds)
    return found
