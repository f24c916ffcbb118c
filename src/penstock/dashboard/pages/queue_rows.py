"""Rows of queues, for the overview and the list of queues."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.dashboard.charts import latency, line_path, series_of, throughput
from penstock.dashboard.reader import NO_RATES, Reading
from penstock.model.job import State
from penstock.model.stats import Sample
from penstock.ops.overview import QueueView

__all__ = ["LINE_HEIGHT", "LINE_WIDTH", "QueueRow", "capacity_of", "queue_row", "queue_rows"]

LINE_WIDTH, LINE_HEIGHT = 120, 22

#: Percentiles of a row are those of the last ten minutes (ms).
LATENCY_SPAN = 600_000


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in a table: counts, jobs per minute, and seconds. `line` is the path of its last two hours."""

    name: str
    counts: Mapping[State, int]
    waiting: int
    running: int
    capacity: int | None
    retrying: int
    scheduled: int
    blocked: int
    failed: int
    paused: bool
    workers: list[str]
    arrived: float | None
    ended: float | None
    failing: float | None
    wait_p50: float | None
    wait_p95: float | None
    run_p50: float | None
    run_p95: float | None
    oldest: float | None
    line: str = ""


def queue_rows(reading: Reading) -> list[QueueRow]:
    """Return the rows of all queues, by name."""
    return [queue_row(reading, queue) for queue in reading.overview.queues]


def queue_row(reading: Reading, queue: QueueView) -> QueueRow:
    """Return the row of a queue."""
    counts, rates = queue.counts, reading.rates.get(queue.name, NO_RATES)
    samples = reading.lines.get(queue.name, [])
    stats = reading.stats.get(queue.name)
    base = base_sample(samples, stats.sample) if stats else None
    median = latency(base, stats.sample, 50) if base and stats else (None, None)
    high = latency(base, stats.sample, 95) if base and stats else (None, None)
    oldest = None if queue.oldest is None else max(0.0, (reading.overview.at - queue.oldest).total_seconds())
    return QueueRow(
        name=queue.name,
        counts=counts,
        waiting=counts[State.QUEUED],
        running=counts[State.RUNNING],
        capacity=capacity_of(reading, queue),
        retrying=counts[State.RETRYING],
        scheduled=counts[State.SCHEDULED],
        blocked=counts[State.BLOCKED],
        failed=counts[State.FAILED],
        paused=queue.paused_since is not None,
        workers=queue.workers,
        arrived=rates.arrived,
        ended=rates.ended,
        failing=rates.failed,
        wait_p50=median[0],
        wait_p95=high[0],
        run_p50=median[1],
        run_p95=high[1],
        oldest=oldest,
        line=line_of(samples),
    )


def base_sample(samples: list[Sample], now: Sample) -> Sample | None:
    """Return the sample from which percentiles count: the newest of those older than ten minutes, or the oldest."""
    old = [each for each in samples if now.at - each.at >= LATENCY_SPAN]
    return old[-1] if old else samples[0] if samples else None


def line_of(samples: list[Sample]) -> str:
    """Return the path of the ended jobs of the last two hours."""
    series = series_of(samples, 1)
    return line_path(series.at, throughput(series), LINE_WIDTH, LINE_HEIGHT)


def capacity_of(reading: Reading, queue: QueueView) -> int | None:
    """Return the units of the workers that serve a queue; None without one."""
    units = [worker.allowed for worker in reading.overview.workers if queue.name in worker.queues]
    return sum(units) if units else None
