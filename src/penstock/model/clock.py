"""Clocks, which tests can replace, and the conversion of times and durations to milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from penstock._times import MAX_MS, Moment, Span, milliseconds, span_ms
from penstock.model.source import source

__all__ = ["MAX_MS", "Clock", "Moment", "Span", "SystemClock", "as_datetime", "milliseconds", "span_ms"]


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
