"""Overview of an app: its queues, workers and latest failures, read together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from penstock.aio import gather_each
from penstock.client.app import Penstock
from penstock.client.history import FailureGroup, HistoryPoint
from penstock.client.limits import LimitInfo, limit_info
from penstock.errors import JobError
from penstock.limit_changes import limiting_of
from penstock.model.clock import as_datetime
from penstock.model.job import FINISHED, Snapshot, State
from penstock.model.storage_info import FileInfo, Inspectable, QueueMeter
from penstock.model.worker_info import WorkerInfo
from penstock.storage.base import Storage
from penstock.storage.limiting import Scope
from penstock.storage.observing import QueueStats, observing_of

__all__ = [
    "FailedJob",
    "Overview",
    "QueueDetail",
    "QueueView",
    "Rate",
    "describe_empty",
    "is_closed",
    "queue_view",
    "rates",
    "read_detail",
    "read_limits",
    "read_overview",
]


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, workers and age of one queue.

    `oldest` is the due time of the next job, None if none is queued. `finished` (jobs that ever ended), `stalled` (runs
    that ever lost their worker), `overdue` (expired leases) and `damaged` (records that could not be read) are None if
    the storage does not count them.
    """

    name: str
    counts: dict[State, int]
    paused_since: datetime | None = None
    paused_until: datetime | None = None
    oldest: datetime | None = None
    workers: list[str] = []
    finished: int | None = None
    stalled: int | None = None
    overdue: int | None = None
    damaged: int | None = None
    #: The next tick of its schedules, None if it has none or the storage does not read it.
    next_tick: datetime | None = None

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
    """Queues, workers, failures and limits at about one time of the storage's clock."""

    at: datetime
    queues: list[QueueView]
    workers: list[WorkerInfo]
    failures: list[FailedJob] = []
    limits: list[LimitInfo] = []

    @property
    def closed(self) -> list[LimitInfo]:
        """The limits that hold jobs back now."""
        return [info for info in self.limits if is_closed(info)]


class QueueDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The failures of one queue: its error groups, those with the most open jobs first, and its newest failed jobs.

    `recent` is the newest point of its history, None if there is none.
    """

    name: str
    groups: list[FailureGroup] = []
    failures: list[FailedJob] = []
    recent: HistoryPoint | None = None


class Rate(msgspec.Struct, frozen=True):
    """Jobs per second between two overviews: enqueued and ended."""

    arriving: float
    ending: float


async def read_overview(
    app: Penstock, names: Iterable[str] | None = None, *, failures: int = 0, limits: int = 0
) -> Overview:
    """Read an overview of these queues, or of all that have jobs, workers or a pause; with the newest `failures`.

    `limits` is the number of limits that are read of each queue.
    """
    storage = await app.opened()
    at = await storage.time()
    workers = await app.workers()
    if names is None:
        names = {*await storage.queues(), *(queue for worker in workers for queue in worker.queues)}
    wanted = sorted(names)
    queues = await _views(storage, wanted, workers)
    return Overview(
        at=as_datetime(at),
        queues=queues,
        workers=workers,
        failures=await newest_failures(storage, queues, failures) if failures else [],
        limits=await read_limits(storage, wanted, limits) if limits else [],
    )


async def read_detail(app: Penstock, queue: str, limit: int) -> QueueDetail:
    """Read the error groups and the newest failed jobs of a queue, `limit` of each, and its newest point of history."""
    storage = await app.opened()
    failures = await failures_of(storage, queue, limit)
    if observing_of(storage) is None:
        return QueueDetail(name=queue, failures=failures)
    groups = [group for group in await app.queue(queue).failures() if group.open]
    groups.sort(key=lambda group: (-group.open, group.key))
    points = await app.history("2h", queue=queue)
    return QueueDetail(name=queue, groups=groups[:limit], failures=failures, recent=points[-1] if points else None)


async def read_limits(storage: Storage, names: Iterable[str], limit: int) -> list[LimitInfo]:
    """Return the first limits that hold for each of these queues; that of a family once."""
    if (limits := limiting_of(storage)) is None:
        return []
    found: dict[Scope, LimitInfo] = {}
    for page in await gather_each(lambda name: limits.limits(name, None, limit), names):
        found.update((record.scope, limit_info(record)) for record in page.limits)
    return list(found.values())


def is_closed(info: LimitInfo) -> bool:
    """Return whether a limit, or the pause of a group, holds jobs back: there are some, and none may start."""
    if info.scope == "groups":
        return info.closed > 0
    most = None if info.limit is None else info.limit.concurrency
    full = most is not None and info.running >= most
    paused = info.scope == "group" and info.paused_since is not None
    return info.waiting > 0 and (full or paused or info.opens_at is not None)


async def describe_empty(app: Penstock) -> str:
    """Return a sentence about a namespace without queues, with the other namespaces if the storage lists them."""
    storage = await app.opened()
    info = await storage.inspect(check=False) if isinstance(storage, Inspectable) else None
    others = [name for name in info.namespaces if name != app.namespace] if isinstance(info, FileInfo) else []
    hint = f"; there are queues in {', '.join(map(repr, others))}" if others else ""
    return f"no queues here: the namespace {app.namespace!r} is empty{hint}"


async def _views(storage: Storage, names: list[str], workers: list[WorkerInfo]) -> list[QueueView]:
    """Return the views of queues: from their statistics, which one call reads, or from several calls for each."""
    meters = {meter.queue: meter for meter in await _meters(storage, names)}
    if (observing := observing_of(storage)) is None:
        return await gather_each(lambda name: _view(storage, name, workers, meters.get(name)), names)
    stats = await observing.stats(names) if names else []
    return [queue_view(each, workers, _tick(meters.get(each.queue))) for each in stats]


def queue_view(stats: QueueStats, workers: list[WorkerInfo], next_tick: datetime | None = None) -> QueueView:
    """Return the view of a queue from its statistics."""
    sample, pause = stats.sample, stats.pause
    return QueueView(
        name=stats.queue,
        counts=dict(sample.counts),
        paused_since=None if pause is None else as_datetime(pause.since),
        paused_until=None if pause is None or pause.until is None else as_datetime(pause.until),
        oldest=None if sample.oldest is None else as_datetime(sample.at - sample.oldest),
        workers=[worker.id for worker in workers if stats.queue in worker.queues],
        finished=sample.totals.finished,
        stalled=sample.totals.stalled,
        overdue=stats.overdue,
        damaged=stats.damaged,
        next_tick=next_tick,
    )


def _tick(meter: QueueMeter | None) -> datetime | None:
    return None if meter is None or meter.tick is None else as_datetime(meter.tick)


async def _meters(storage: Storage, names: list[str]) -> list[QueueMeter]:
    return await storage.meters(names) if isinstance(storage, Inspectable) else []


async def _view(storage: Storage, name: str, workers: list[WorkerInfo], meter: QueueMeter | None) -> QueueView:
    counts = await storage.counts(name)
    pause = await storage.paused(name)
    head = (await storage.find(name, State.QUEUED, None, 1)).jobs if counts[State.QUEUED] else []
    return QueueView(
        name=name,
        counts=counts,
        paused_since=None if pause is None else as_datetime(pause.since),
        paused_until=None if pause is None or pause.until is None else as_datetime(pause.until),
        oldest=as_datetime(head[0].run_at) if head else None,
        workers=[worker.id for worker in workers if name in worker.queues],
        finished=meter and meter.finished,
        overdue=meter and meter.overdue,
        damaged=meter and meter.damaged,
        next_tick=_tick(meter),
    )


async def newest_failures(storage: Storage, queues: Iterable[QueueView], limit: int) -> list[FailedJob]:
    """Return the jobs that failed last, newest first."""
    found: list[FailedJob] = []
    for queue in queues:
        if queue.counts[State.FAILED]:
            found += await failures_of(storage, queue.name, limit)
    found.sort(key=lambda job: job.at.timestamp() if job.at else 0, reverse=True)
    return found[:limit]


async def failures_of(storage: Storage, queue: str, limit: int) -> list[FailedJob]:
    """Return the jobs of one queue that failed last, newest first."""
    if isinstance(storage, Inspectable):
        return [failed_job(job) for job in await storage.latest(queue, State.FAILED, limit)]
    return [failed_job(job) for job in (await storage.find(queue, State.FAILED, None, limit)).jobs]


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
