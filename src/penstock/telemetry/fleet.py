"""One look at a storage for metrics: its queues, workers, schedules and limits, read in few calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from penstock._version import __version__
from penstock.aio import drive
from penstock.errors import NotSupported, StorageError
from penstock.host import AppHost, SyncApp, async_app
from penstock.limit_changes import limiting_of
from penstock.model.job import State
from penstock.model.stats import Histogram, Sample, Totals, combine
from penstock.model.storage_info import FileInfo, Inspectable
from penstock.model.worker_info import WorkerInfo, worker_info
from penstock.storage.base import BlockingStorage, Storage
from penstock.storage.observing import QueueStats, observing_of
from penstock.storage.scheduling import Scheduling

__all__ = [
    "MAX_HISTOGRAMS", "MAX_QUEUES", "OTHER", "Fleet", "FleetReader", "QueueFacts", "kind_of", "read_fleet",
    "rest_after",
]  # fmt: skip

T = TypeVar("T")

#: The queues with labels of their own, and those of them with histograms; the others are summed under `OTHER`.
MAX_QUEUES, MAX_HISTOGRAMS, OTHER = 200, 50, "(other)"

#: The storage is read again only after this many times the duration of the last read: a reader takes 1 % of it at most.
REST = 100

#: The longest pause (seconds) between two reads.
MAX_REST = 60.0

#: The schedules of one queue that are read.
MAX_SCHEDULES = 100


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, or the sum of several: its sample, and what is read beside it.

    `totals` is whether the storage keeps totals and latencies; `histograms` whether they are shown for this queue.
    """

    name: str
    sample: Sample
    #: The number of queues that it stands for; 0 if only their histograms are in it.
    count: int = 1
    totals: bool = False
    histograms: bool = False
    paused: int = 0
    workers: int = 0
    error_groups: int | None = None
    #: The running jobs of the queue's own limit, its groups that are closed, and how long (s) its rate is closed.
    limit_running: int | None = None
    closed_groups: int | None = None
    rate_wait: float | None = None


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a storage and of all workers on it, as it was read; `up` False if it did not answer."""

    up: bool
    storage: str
    namespace: str
    version: str = __version__
    at: int = 0
    latency: float = 0.0
    read: float = 0.0
    bytes: int | None = None
    queues: list[QueueFacts] = []
    workers: list[WorkerInfo] = []
    #: The ticks of all schedules by outcome, and how late (s) the latest of those that are due is; None without any.
    ticks: Mapping[str, int] | None = None
    lateness: float | None = None
    error: str = ""


async def read_fleet(storage: Storage, namespace: str) -> Fleet:
    """Read the state of a storage; an error of it is `up` False, and nothing else."""
    began = time.perf_counter()
    kind = kind_of(storage)
    try:
        at = await storage.time()
        latency = time.perf_counter() - began
        workers = [worker_info(each.id, each.seen, each.until, each.info) for each in await storage.workers()]
        names = sorted({*await storage.queues(), *(queue for worker in workers for queue in worker.queues)})
        found = await _queues(storage, names, workers, at)
        ticks, lateness = await _ticks(storage, [each.name for each in found if each.name != OTHER], at)
        size = await _bytes(storage)
    except StorageError as error:
        return Fleet(up=False, storage=kind, namespace=namespace, error=type(error).__name__)
    return Fleet(
        up=True, storage=kind, namespace=namespace, at=at, latency=latency, read=time.perf_counter() - began,
        bytes=size, queues=found, workers=workers, ticks=ticks, lateness=lateness,
    )  # fmt: skip


def kind_of(storage: Storage) -> str:
    """Return the kind of a storage: "memory", "sqlite", "redis", or the name of its class."""
    where = storage.where if isinstance(storage, Inspectable) else ""
    kind = where.partition(":")[0].partition("+")[0]
    return {"": type(storage).__name__, "rediss": "redis", "valkeys": "valkey", "unix": "redis"}.get(kind, kind)


async def _queues(storage: Storage, names: Sequence[str], workers: Iterable[WorkerInfo], at: int) -> list[QueueFacts]:
    """Return the queues that did most, each by itself, and the sum of the others."""
    stats = await _stats(storage, names, at)
    counted = observing_of(storage) is not None
    served = dict.fromkeys(names, 0)
    for worker in workers:
        for queue in worker.queues:
            served[queue] = served.get(queue, 0) + 1
    ranked = sorted(stats, key=lambda each: (each.queue == OTHER, -activity(each.sample), each.queue))
    own = [each for each in ranked[:MAX_QUEUES] if each.queue != OTHER]
    facts = [
        await _facts(storage, each, counted, place < MAX_HISTOGRAMS, served[each.queue], at)
        for place, each in enumerate(own)
    ]
    others = ranked[len(own) :]
    rest = [each.sample for each in ranked[MAX_HISTOGRAMS:]]
    if others or (rest and counted):
        summed = combine((each.sample for each in others), at)
        beyond = combine(rest, at)  # histograms of more queues are in the sum
        sample = msgspec.structs.replace(summed, wait=beyond.wait, run=beyond.run)
        paused = sum(each.pause is not None for each in others)
        serving = sum(served[each.queue] for each in others)
        facts.append(
            QueueFacts(
                name=OTHER,
                count=len(others),
                sample=sample,
                totals=counted,
                histograms=counted,
                paused=paused,
                workers=serving,
            )
        )
    return facts


def activity(sample: Sample) -> int:
    """Return what a queue has done and has to do: the jobs that ended, and those that are open."""
    return sample.totals.finished + sample.open


async def _stats(storage: Storage, names: Sequence[str], at: int) -> list[QueueStats]:
    """Return the statistics of queues; of a storage without them, their counts alone."""
    observing = observing_of(storage)
    if observing is not None:
        await observing.record_stats("", [])  # so that queues without workers have a history, too
        return await observing.stats(names)
    found: list[QueueStats] = []
    for name in names:
        counts = await storage.counts(name)
        head = (await storage.find(name, State.QUEUED, None, 1)).jobs if counts[State.QUEUED] else []
        oldest = max(at - head[0].run_at, 0) if head else None
        sample = Sample(at=at, counts=counts, totals=Totals(), oldest=oldest, wait=Histogram(), run=Histogram())
        found.append(QueueStats(name, sample, await storage.paused(name)))
    return found


async def _facts(
    storage: Storage, stats: QueueStats, counted: bool, histograms: bool, workers: int, at: int
) -> QueueFacts:
    """Return the facts of one queue, with its open error groups and its limits."""
    name = stats.queue
    groups: int | None = None
    observing = observing_of(storage)
    if observing is not None:
        failed = stats.sample.counts.get(State.FAILED, 0)
        groups = sum(each.open > 0 for each in (await observing.error_groups(name, None, 200)).groups) if failed else 0
    running = closed = wait = None
    limits = limiting_of(storage)
    if limits is not None:
        for record in (await limits.limits(name, None, 3)).limits:
            if record.rule is None:
                continue
            if record.scope.kind == "queue":
                running = record.running
            elif record.scope.kind == "groups":
                closed = record.closed
            if record.scope.kind in ("queue", "family"):
                wait = max(wait or 0.0, 0.0 if record.opens is None else (record.opens - at) / 1000)
    return QueueFacts(
        name=name, sample=stats.sample, totals=counted, histograms=histograms and counted,
        paused=int(stats.pause is not None), workers=workers, error_groups=groups, limit_running=running,
        closed_groups=closed, rate_wait=wait,
    )  # fmt: skip


async def _ticks(storage: Storage, names: Sequence[str], at: int) -> tuple[dict[str, int] | None, float | None]:
    """Return the ticks of the schedules of queues by outcome, and how late (s) the first due one is."""
    schedules: Any = storage
    if not hasattr(schedules, "schedules") or not hasattr(schedules, "fire"):
        return None, None
    counts = {"fired": 0, "skipped": 0, "missed": 0, "dropped": 0}
    late = 0
    for name in names:
        for record in (await cast("Scheduling", schedules).schedules(name, None, MAX_SCHEDULES)).schedules:
            for outcome in counts:
                counts[outcome] += getattr(record, outcome)
            if record.next is not None:
                late = max(late, at - record.next)
    return counts, late / 1000


async def _bytes(storage: Storage) -> int | None:
    """Return the bytes that a storage uses: of its file with its log, or of the memory of its servers."""
    if not isinstance(storage, Inspectable):
        return None
    info = await storage.inspect(check=False)
    if isinstance(info, FileInfo):
        return info.size + info.log_size
    return sum(node.used_memory for node in info.nodes)


def rest_after(seconds: float) -> float:
    """Return how long (seconds) a look that took this long is kept before the next one."""
    return min(seconds * REST, MAX_REST)


class FleetReader:
    """Reads the fleet of an app on the calling thread, seldom enough to be no load; any thread may call it."""

    def __init__(self, app: AppHost | SyncApp) -> None:
        self._host = async_app(app)
        self._lock = threading.Lock()
        self._storage: BlockingStorage | None = None
        self._last: Fleet | None = None
        self._next = 0.0

    def read(self) -> Fleet:
        """Return the state of the fleet, at most as old as `REST` times the duration of a read, or a minute."""
        with self._lock:
            if self._last is None or time.monotonic() >= self._next:
                began = time.monotonic()
                self._last = drive(self._read())
                self._next = time.monotonic() + rest_after(time.monotonic() - began)
            return self._last

    def use(self, read: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        """Return what a coroutine reads from the storage; it must not suspend."""

        async def opened() -> T:
            return await read(await self._opened())

        with self._lock:
            return drive(opened())

    async def _read(self) -> Fleet:
        storage = await self._opened()
        return await read_fleet(storage, self._host.namespace)

    async def _opened(self) -> Storage:
        if self._storage is None:
            found = self._host.blocking_storage()
            if found is None:
                raise NotSupported("metrics need an app with a URL: a storage object belongs to one event loop")
            self._storage = found
        with contextlib.suppress(StorageError):  # `read_fleet` reports that
            await self._storage.open()
        return self._storage

    def close(self) -> None:
        """Close its connection. Idempotent; `read` may follow."""
        with self._lock:
            storage, self._storage = self._storage, None
            if storage is not None and not storage.shares_connection:
                drive(storage.close())
