"""The timeline of a job: its attempts as bars on a logarithmic axis of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from penstock.dashboard.formatting import coarse, duration
from penstock.model.history import Attempt

__all__ = ["Bar", "Mark", "Timeline", "timeline_of"]

#: Places and widths are in percent of the width of the axis, so that it fits every screen.
WIDTH = 100.0

#: The least width of a run.
THIN = 0.4

BarKind = Literal["wait", "backoff", "run"]

#: The times of the axis, seconds after the acceptance of the job.
MARKS = (1.0, 10.0, 60.0, 600.0, 3_600.0, 6 * 3_600.0, 86_400.0, 7 * 86_400.0)


class Mark(msgspec.Struct, frozen=True):
    """A line of the axis with its text."""

    x: float
    text: str


class Bar(msgspec.Struct, frozen=True):
    """A part of an attempt: waiting, in backoff, or running."""

    kind: BarKind
    x: float
    width: float
    text: str


class TimelineRow(msgspec.Struct, frozen=True):
    """An attempt: its number, its bars and how it ended."""

    number: int
    bars: list[Bar]
    outcome: str


class Timeline(msgspec.Struct, frozen=True):
    """The rows and the axis."""

    rows: list[TimelineRow]
    marks: list[Mark]


class Run(msgspec.Struct, frozen=True):
    """A run with its times; the end is None while it goes on."""

    number: int
    begin: datetime | None
    end: datetime | None
    outcome: str


def timeline_of(created: datetime, attempts: Sequence[Attempt], last: Run | None, now: datetime) -> Timeline | None:
    """Return the timeline of a job; None without any run whose times are known."""
    runs = [Run(each.number, each.started_at, each.ended_at, each.outcome) for each in attempts]
    if last is not None:
        runs.append(last)
    if not runs or runs[0].begin is None:
        return None
    whole = max((max(run.end or now, run.begin or created) - created).total_seconds() for run in runs)
    scale = math.log1p(max(whole, 1.0) * 10)

    def x_of(moment: datetime) -> float:
        return math.log1p(max((moment - created).total_seconds(), 0.0) * 10) / scale * WIDTH

    rows: list[TimelineRow] = []
    before = created
    for run in runs:
        begin, end = run.begin or before, run.end or now
        waited = _bar("wait" if before is created else "backoff", before, begin, x_of)
        rows.append(TimelineRow(run.number, [waited, _bar("run", begin, end, x_of)], run.outcome))
        before = end
    marks = [Mark(round(math.log1p(at * 10) / scale * WIDTH, 2), coarse(at)) for at in MARKS if at < whole * 0.97]
    return Timeline(rows, [Mark(0.0, "0 s"), *marks])


def _bar(
    kind: Literal["wait", "backoff", "run"], begin: datetime, end: datetime, x_of: Callable[[datetime], float]
) -> Bar:
    x, right = x_of(begin), x_of(end)
    text = f"{kind} {duration(max((end - begin).total_seconds(), 0.0))}"
    return Bar(kind, round(x, 2), round(max(right - x, THIN if kind == "run" else 0.0), 2), text)
