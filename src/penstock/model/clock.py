"""Clocks, which tests can replace, and the conversion of times and durations to milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

from penstock._times import MAX_MS, Moment, Span, milliseconds, span_ms
from penstock.model.source import source

__all__ = [
    "EPOCH",
    "MAX_MS",
    "Clock",
    "Moment",
    "Span",
    "SystemClock",
    "as_datetime",
    "floor_ms",
    "milliseconds",
    "span_ms",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Source of the time as a Unix timestamp."""

    def time(self) -> float: ...


class SystemClock:
    """The machine's own clock."""

    def time(self) -> float:
        return source.wall()


def as_datetime(ms: int) -> datetime:
    """Convert milliseconds since 1970 to an aware UTC datetime; values out of range give the nearest one in range."""
    return datetime.fromtimestamp(min(max(ms, 0), MAX_MS) / 1000, UTC)


def floor_ms(moment: datetime, name: str) -> int:
    """Convert an aware datetime to milliseconds since 1970, rounded down; errors name the argument `name`.

    A time in whole milliseconds is after the moment exactly if it is after the result.
    """
    if not isinstance(moment, datetime):
        raise TypeError(f"{name} must be an aware datetime, not {type(moment).__name__}")
    if moment.tzinfo is None:
        raise ValueError(f"{name} must be an aware datetime (it has no tzinfo); use datetime.now(UTC)")
    return (moment - EPOCH) // timedelta(milliseconds=1)
