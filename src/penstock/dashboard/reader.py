"""The reader: one task that reads all queues for all viewers of this process, at most 1 % of the time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from penstock.aio import gather_each
from penstock.client.app import Penstock
from penstock.dashboard.protocols import auditing_of, observing_of
from penstock.errors import PenstockError
from penstock.model.activity import Release
from penstock.model.clock import as_datetime
from penstock.model.job import State
from penstock.model.stats import Sample, Totals
from penstock.model.worker_info import WorkerInfo
from penstock.ops.doctor import Finding, storage_warnings
from penstock.ops.overview import Overview, QueueView, Rate, queue_view, rates, read_overview
from penstock.storage.observing import ErrorGroup, QueueStats

__all__ = ["NO_RATES", "GoneWorker", "QueueRates", "Reader", "Reading"]

log = logging.getLogger("penstock.dashboard")

#: Seconds between two reads, at least; and the pause in durations of the last read, so that reading takes 1 % at most.
INTERVAL, SHARE = 1.0, 100.0

#: The longest pause (seconds) that a slow read causes.
MAX_PAUSE = 60.0

#: Rates are averages over this many seconds. A sample of the storage is the base until this reader has run for half of
#: them; nothing changed between such a sample and two minutes ago.
RATE_WINDOW, MAX_BASE_AGE = 60.0, 120.0

#: Seconds without a request after which the task ends.
IDLE = 30.0

#: Seconds by which a reading may be late before a request reads by itself: there was none for a while.
MAX_LATE = 5.0

#: Seconds for which a worker that is gone is still listed.
GONE = 600.0

#: How many queues with failed jobs are read for their error groups, and how many groups of each.
MAX_FAILING, MAX_GROUPS = 50, 50

#: How many queues have a line of the last two hours, read again after this many seconds.
MAX_LINES, LINES_AGE = 50, 60.0


class GoneWorker(msgspec.Struct, frozen=True):
    """A worker that no longer sends heartbeats, as it was when it was last read, and when it was missed."""

    info: WorkerInfo
    missed_at: float


class QueueRates(msgspec.Struct, frozen=True):
    """Jobs per minute that were enqueued, ended, and failed for good; None where the storage does not count them."""

    arrived: float | None = None
    ended: float | None = None
    failed: float | None = None


NO_RATES = QueueRates()


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """All queues and workers, read at about one time.

    `version` counts the readings. `rates` are by queue, averages over the last minute. `stats`, `lines`, the samples
    of the last two hours, and `failures`, the error groups of queues with failed jobs, are by queue too, empty if the
    storage keeps none. `warnings` are those of the doctor about the storage. `error` is why the storage could not be
    read since.
    """

    version: int
    overview: Overview
    rates: Mapping[str, QueueRates]
    stats: Mapping[str, QueueStats] = {}
    lines: Mapping[str, list[Sample]] = {}
    failures: Mapping[str, list[ErrorGroup]] = {}
    releases: Sequence[Release] = ()
    warnings: Sequence[Finding] = ()
    gone: tuple[GoneWorker, ...] = ()
    error: str = ""

    def queue(self, name: str) -> QueueView | None:
        """Return one queue, or None."""
        return next((queue for queue in self.overview.queues if queue.name == name), None)


class Reader:
    """Repeated readings of an app while there are viewers.

    A reading is never older than a second plus a hundred times its own duration while the task runs.
    """

    def __init__(self, app: Penstock) -> None:
        self._app = app
        #: Whether streams end now, because the server does.
        self.ending = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed, self._reading = asyncio.Condition(), asyncio.Lock()
        self._read_at = 0.0
        self._history: deque[tuple[Overview, dict[str, QueueStats]]] = deque()
        self._last: Reading | None = None
        self._asked = 0.0
        self._error = ""
        self._gone: dict[str, GoneWorker] = {}
        self._lines: dict[str, list[Sample]] = {}
        self._lines_read = 0.0
        self._failures: dict[str, tuple[tuple[int, int], list[ErrorGroup]]] = {}
        self._releases: Sequence[Release] = ()
        self._warnings: Sequence[Finding] = ()
        #: How long (seconds) the last reads took; the shortest is what a read costs, the rest is a busy machine.
        self._took: deque[float] = deque(maxlen=5)

    async def latest(self) -> Reading:
        """Return the last reading; a request after a while without any waits for a new one.

        The first one raises the error of the storage.
        """
        self._start()
        self._asked = time.monotonic()
        async with self._reading:
            if self._last is None or time.monotonic() - self._read_at > self.pause + MAX_LATE:
                await self._read()
        assert self._last is not None
        return self._last

    async def next(self, after: int, timeout: float) -> Reading | None:
        """Wait for a reading with a higher version than `after`; None after `timeout` seconds, or if streams end."""
        self._start()
        self._asked = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(
                    lambda: self.ending or (self._last is not None and self._last.version > after)
                )
        return self._last if self._last is not None and self._last.version > after else None

    async def refresh(self) -> Reading:
        """Read now, after an action of this dashboard: its viewer expects to see the effect."""
        self._start()
        async with self._reading:
            await self._read()
        assert self._last is not None
        return self._last

    async def end_streams(self) -> None:
        """End every stream of this reader, and those to come."""
        self.ending = True
        async with self._changed:
            self._changed.notify_all()

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    @property
    def pause(self) -> float:
        """The seconds until the next read: a hundred times what one takes, so that reading has 1 % at most.

        A storage that did not answer is asked again after a second: the page recovers when it does.
        """
        return INTERVAL if self._error else min(max(INTERVAL, SHARE * min(self._took, default=0.0)), MAX_PAUSE)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the host started a new event loop
            self._loop, self._task = loop, None
            self._changed, self._reading = asyncio.Condition(), asyncio.Lock()
        if self._task is None or self._task.done():
            self._asked = time.monotonic()
            self._task = loop.create_task(self._run(), name="penstock dashboard reader")

    async def _run(self) -> None:
        while time.monotonic() - self._asked < IDLE:
            await asyncio.sleep(max(0.0, self._read_at + self.pause - time.monotonic()))
            try:
                async with self._reading:
                    if time.monotonic() >= self._read_at + self.pause:  # a request may have read meanwhile
                        await self._read()
            except PenstockError as error:
                log.debug("the storage could not be read: %s", error)
            except Exception:
                log.exception("reading the storage for the dashboard failed")

    async def _read(self) -> None:
        self._read_at, began = time.monotonic(), time.perf_counter()
        try:
            overview, stats = await self._read_queues()
            await self._read_failures(stats)
        except (PenstockError, OSError) as error:
            self._error = str(error) or type(error).__name__
            if self._last is None:
                raise
            self._last = msgspec.structs.replace(self._last, version=self._last.version + 1, error=self._error)
        else:
            if self._last is not None:  # the first read opens the storage
                self._took.append(time.perf_counter() - began)
            self._error = ""
            await self._read_lines(stats)
            self._keep(overview, stats)
        async with self._changed:
            self._changed.notify_all()

    async def _read_queues(self) -> tuple[Overview, dict[str, QueueStats]]:
        storage = observing_of(await self._app.opened())
        if storage is None:
            return await read_overview(self._app), {}
        workers = await self._app.workers()
        names = sorted({*await self._app.queues(), *(name for worker in workers for name in worker.queues)})
        at = await storage.record_stats("", [])
        stats = {each.queue: each for each in await storage.stats(names)} if names else {}
        views = [queue_view(each, workers) for each in stats.values()]
        return Overview(at=as_datetime(at), queues=views, workers=workers), stats

    async def _read_lines(self, stats: Mapping[str, QueueStats]) -> None:
        """Read, once a minute, warnings, and the samples of two hours of the queues with the most ended jobs."""
        now, opened = time.monotonic(), await self._app.opened()
        is_new = self._lines_read > 0 and now - self._lines_read < LINES_AGE
        if not is_new:
            self._warnings, self._lines_read = await storage_warnings(opened), now
        if (storage := observing_of(opened)) is None or (is_new and self._lines):
            return
        busiest = sorted(stats.values(), key=lambda each: -each.sample.totals.finished)[:MAX_LINES]
        names = [each.queue for each in busiest]
        self._lines = dict(zip(names, await gather_each(storage.history, names), strict=True))

    async def _read_failures(self, stats: Mapping[str, QueueStats]) -> None:
        """Read the releases, and the error groups of the queues with most failed jobs; not those that are the same."""
        storage = await self._app.opened()
        observing, records = observing_of(storage), auditing_of(storage)
        if observing is None:
            return
        self._releases = [] if records is None else await records.releases()
        failing = {name: counts for name, each in stats.items() if (counts := failed_counts(each))[0]}
        chosen = sorted(failing, key=lambda name: -failing[name][0])[:MAX_FAILING]
        kept = {name: self._failures[name] for name in chosen if name in self._failures}
        changed = [name for name in chosen if name not in kept or kept[name][0] != failing[name]]
        pages = await gather_each(lambda name: observing.error_groups(name, None, MAX_GROUPS), changed)
        fresh = {name: (failing[name], page.groups) for name, page in zip(changed, pages, strict=True)}
        self._failures = {**kept, **fresh}

    def _keep(self, overview: Overview, stats: dict[str, QueueStats]) -> None:
        self._history.append((overview, stats))
        while len(self._history) > 2 and (overview.at - self._history[1][0].at).total_seconds() >= RATE_WINDOW:
            self._history.popleft()
        self._notice_gone(overview)
        version = 1 if self._last is None else self._last.version + 1
        self._last = Reading(
            version=version, overview=overview, rates=self._rates(overview, stats), stats=stats, lines=self._lines,
            failures={name: groups for name, (_, groups) in self._failures.items()}, releases=self._releases,
            warnings=self._warnings, gone=tuple(self._gone.values()),
        )  # fmt: skip

    def _rates(self, overview: Overview, stats: dict[str, QueueStats]) -> dict[str, QueueRates]:
        first, before = self._history[0]
        if not stats:
            return {name: per_minute(rate) for name, rate in rates(first, overview).items()}
        age = (overview.at - first.at).total_seconds()
        found: dict[str, QueueRates] = {}
        for name, now in stats.items():
            base = before[name].sample if name in before and age >= RATE_WINDOW / 2 else None
            base = base or self._line_sample(name, now.sample.at) or (before[name].sample if name in before else None)
            found[name] = rates_between(base, now.sample) if base else NO_RATES
        return found

    def _line_sample(self, name: str, now: int) -> Sample | None:
        """Return the newest sample that is at least half a minute old."""
        old = [each for each in self._lines.get(name, ()) if now - each.at >= RATE_WINDOW * 500]
        return old[-1] if old else None

    def _notice_gone(self, overview: Overview) -> None:
        """Keep workers that are missing since the last reading for ten minutes."""
        now, live = time.time(), {worker.id for worker in overview.workers}
        before = [] if self._last is None else self._last.overview.workers
        for worker in before:
            if worker.id not in live:
                self._gone[worker.id] = GoneWorker(worker, now)
        self._gone = {id: gone for id, gone in self._gone.items() if id not in live and now - gone.missed_at < GONE}


def failed_counts(stats: QueueStats) -> tuple[int, int]:
    """Return the failed jobs of a queue, and those that ever failed: error groups change with one of these."""
    return stats.sample.counts.get(State.FAILED, 0), stats.sample.totals.failed


def per_minute(rate: Rate) -> QueueRates:
    """Return the rates of a storage without statistics."""
    return QueueRates(rate.arriving * 60, rate.ending * 60)


def rates_between(earlier: Sample, later: Sample) -> QueueRates:
    """Return the rates between two samples of a queue; no time between them gives none."""
    minutes = min((later.at - earlier.at) / 60_000, MAX_BASE_AGE / 60)
    if minutes <= 0:
        return NO_RATES
    totals = earlier.totals if later.totals.finished >= earlier.totals.finished else Totals()
    ended = later.totals.finished - totals.finished
    arrived = max(0, later.open - earlier.open + ended)
    failed = max(0, later.totals.failed - totals.failed)
    return QueueRates(arrived / minutes, ended / minutes, failed / minutes)
