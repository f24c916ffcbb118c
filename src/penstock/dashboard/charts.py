"""Series for charts from samples: differences of totals and histograms, and lines as SVG paths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from penstock.model.stats import Sample, difference
from penstock.storage.observing import Step

__all__ = ["SPANS", "Series", "SpanName", "latency", "line_path", "series_of", "throughput"]

SpanName = Literal["2h", "2d", "14d"]

#: The spans that a viewer may choose, with the distance (minutes) of their samples.
SPANS: dict[SpanName, Step] = {"2h": 1, "2d": 10, "14d": 60}


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of a chart, all of one length; `at` are seconds since 1970, and a gap is a None in every other column.

    `arrived`, `completed` and `failed` are jobs per minute, the others seconds. The last row is the step that is still
    filling.
    """

    at: list[float] = []
    arrived: list[float | None] = []
    completed: list[float | None] = []
    failed: list[float | None] = []
    wait: list[float | None] = []
    run: list[float | None] = []
    oldest: list[float | None] = []
    waiting: list[float | None] = []


class Row(msgspec.Struct, frozen=True):
    """The difference of two samples, or a gap."""

    at: float
    values: tuple[float | None, ...] = (None,) * 7


def series_of(samples: Sequence[Sample], step: Step) -> Series:
    """Return the columns of a chart; two samples that are far apart and differ have a gap between them."""
    rows: list[Row] = []
    for earlier, later in pairwise(samples):
        distance = (later.at - earlier.at) / 60_000
        if distance <= 0:
            continue
        if distance > 2.5 * step and _changed(earlier, later):
            rows.append(Row(earlier.at / 1000 + 1))
        else:
            if distance > 1.5 * step:  # nothing happened in between, and nothing was stored
                rows.append(Row(earlier.at / 1000 + 1, _quiet(earlier)))
                rows.append(Row(later.at / 1000 - 60 * step, _quiet(earlier)))
            rows.append(Row(later.at / 1000, _values(earlier, later, min(distance, step * 1.0))))
    columns = list(zip(*(row.values for row in rows), strict=True)) or [()] * 7
    return Series(
        at=[row.at for row in rows],
        arrived=list(columns[0]),
        completed=list(columns[1]),
        failed=list(columns[2]),
        wait=list(columns[3]),
        run=list(columns[4]),
        oldest=list(columns[5]),
        waiting=list(columns[6]),
    )


def _changed(earlier: Sample, later: Sample) -> bool:
    return earlier.totals != later.totals or earlier.counts != later.counts


def _quiet(sample: Sample) -> tuple[float | None, ...]:
    oldest = None if sample.oldest is None else sample.oldest / 1000
    return 0.0, 0.0, 0.0, None, None, oldest, float(sample.open)


def _values(earlier: Sample, later: Sample, minutes: float) -> tuple[float | None, ...]:
    fell = later.totals.finished < earlier.totals.finished  # the queue was deleted or forgotten, and counts anew
    base = Sample(at=earlier.at) if fell else earlier
    finished = later.totals.finished - base.totals.finished
    return (
        max(later.open - base.open + finished, 0) / minutes,
        max(later.totals.completed - base.totals.completed, 0) / minutes,
        max(later.totals.failed - base.totals.failed, 0) / minutes,
        difference(later.wait, base.wait).percentile(95),
        difference(later.run, base.run).percentile(95),
        None if later.oldest is None else later.oldest / 1000,
        float(later.open),
    )


def throughput(series: Series) -> list[float | None]:
    """Return the ended jobs per minute."""
    return [
        None if done is None or failed is None else done + failed
        for done, failed in zip(series.completed, series.failed, strict=True)
    ]


def latency(earlier: Sample, later: Sample, percent: float) -> tuple[float | None, float | None]:
    """Return a percentile (seconds) of wait and run between two samples."""
    return (
        difference(later.wait, earlier.wait).percentile(percent),
        difference(later.run, earlier.run).percentile(percent),
    )


def line_path(at: Sequence[float], values: Sequence[float | None], width: float, height: float) -> str:
    """Return the `d` of an SVG path for a line; gaps are gaps. Empty without two values."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(at) < 2:
        return ""
    most = max(*known, 1e-9)
    begin, end = at[0], at[-1]
    span = max(end - begin, 1e-9)
    parts: list[str] = []
    pen = "M"
    for moment, value in zip(at, values, strict=True):
        if value is None:
            pen = "M"
            continue
        x = (moment - begin) / span * width
        y = height - 1 - value / most * (height - 2)
        parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return "".join(parts)
