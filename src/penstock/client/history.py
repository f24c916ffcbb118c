"""Statistics of queues as users read them: what a queue is doing now, and what it did in the last hours and days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

import msgspec

from penstock.model.clock import as_datetime
from penstock.model.job import State
from penstock.model.stats import Histogram, Sample, Totals, changes_since
from penstock.storage.observing import ErrorGroup, Observing, QueueStats, Step

__all__ = [
    "FailureGroup",
    "HistoryPoint",
    "HistorySpan",
    "Latency",
    "QueueInfo",
    "failure_group",
    "queue_info",
    "read_points",
]

#: The spans of history: two hours by minutes, two days by ten minutes, two weeks by hours.
HistorySpan = Literal["2h", "2d", "14d"]

#: The distance of samples (minutes) and the length (minutes) of each span.
SPANS: dict[str, tuple[Step, int]] = {"2h": (1, 120), "2d": (10, 2880), "14d": (60, 20160)}


class Latency(msgspec.Struct, frozen=True):
    """Durations in seconds: how many were measured, their mean and percentiles, which are off by at most 19 %."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, times: Histogram) -> Latency:
        """Return the latency of counted durations."""
        percentiles = (times.percentile(percent) for percent in (50, 95, 99))
        return cls(times.count, times.mean, *percentiles)


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at the time `at`: the number of its jobs by state, and totals and latencies since it was created.

    `oldest` is how long (seconds) the next job has been due, None if none waits. `wait` has the times from due to begin
    of runs, `run` the times that they took. `overdue` leases have expired, `damaged` records could not be read.
    """

    name: str
    at: datetime
    counts: dict[State, int]
    totals: Totals
    oldest: float | None = None
    wait: Latency = Latency()
    run: Latency = Latency()
    paused_since: datetime | None = None
    paused_until: datetime | None = None
    overdue: int = 0
    damaged: int = 0


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The events in a queue, or in all of them, from `since` to `until`, and its state then.

    A `gap` is a time in which no worker and no reader looked: its numbers are right, but when within it they grew is
    not known. `oldest` is how long (seconds) the next job had been due, None if none waited.
    """

    since: datetime
    until: datetime
    arrived: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    stalled: int = 0
    timed_out: int = 0
    counts: dict[State, int] = {}
    oldest: float | None = None
    wait: Latency = Latency()
    run: Latency = Latency()
    gap: bool = False

    @property
    def minutes(self) -> float:
        """Its length, for rates per minute."""
        return (self.until - self.since).total_seconds() / 60


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a queue that failed alike; `key` is that of their `JobError`.

    `count` of them failed between `first_at` and `last_at`, and `open` are failed now. Type, message and kind are those
    of the first error, and `sample` is the id of the job that failed last.
    """

    queue: str
    key: str
    type: str
    message: str
    kind: str
    first_at: datetime
    last_at: datetime
    count: int
    open: int
    sample: str


def queue_info(stats: QueueStats) -> QueueInfo:
    """Return the statistics of a queue for the user."""
    sample, pause = stats.sample, stats.pause
    return QueueInfo(
        name=stats.queue, at=as_datetime(sample.at), counts=dict(sample.counts), totals=sample.totals,
        oldest=_seconds(sample.oldest), wait=Latency.of(sample.wait), run=Latency.of(sample.run),
        paused_since=None if pause is None else as_datetime(pause.since),
        paused_until=None if pause is None or pause.until is None else as_datetime(pause.until),
        overdue=stats.overdue, damaged=stats.damaged,
    )  # fmt: skip


def failure_group(queue: str, group: ErrorGroup) -> FailureGroup:
    """Return an error group for the user."""
    return FailureGroup(
        queue=queue, key=group.key, type=group.type, message=group.message, kind=group.kind.value,
        first_at=as_datetime(group.first), last_at=as_datetime(group.last), count=group.count, open=group.open,
        sample=group.sample,
    )  # fmt: skip


async def read_points(storage: Observing, queue: str | None, span: object, now: int) -> list[HistoryPoint]:
    """Return the points of a span that ends now, oldest first; the last one may be shorter than the others."""
    step, minutes = check_span(span)
    samples = await storage.history(queue, step)
    return points_of(samples, step, now - minutes * 60_000)


def check_span(span: object) -> tuple[Step, int]:
    """Return the step and the length of a span (minutes); raises `ValueError` for another one."""
    if not isinstance(span, str) or span not in SPANS:
        raise ValueError(f"span must be one of {', '.join(map(repr, SPANS))}, not {span!r}")
    return SPANS[span]


def points_of(samples: Sequence[Sample], step: Step, since: int) -> list[HistoryPoint]:
    """Return what happened between each two samples that follow each other, of those that end after a time."""
    return [_point(earlier, later, step) for earlier, later in pairwise(samples) if later.at > since]


def _point(earlier: Sample, later: Sample, step: Step) -> HistoryPoint:
    change = changes_since(later, earlier)
    totals = change.totals
    arrived = later.open - earlier.open + totals.finished
    alike = not any(msgspec.structs.astuple(totals)) and later.counts == earlier.counts
    return HistoryPoint(
        since=as_datetime(earlier.at), until=as_datetime(later.at), arrived=max(arrived, 0),
        completed=totals.completed, failed=totals.failed, cancelled=totals.cancelled, retried=totals.retried,
        stalled=totals.stalled, timed_out=totals.timed_out, counts=dict(later.counts), oldest=_seconds(later.oldest),
        wait=Latency.of(change.wait), run=Latency.of(change.run),
        gap=not alike and later.at - earlier.at > 2 * step * 60_000,
    )  # fmt: skip


def _seconds(ms: Any) -> float | None:
    return None if ms is None else ms / 1000
