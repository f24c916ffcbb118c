"""Interval schedules: `Every`, the times that follow from a span and a first one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.model.clock import EPOCH, MAX_MS, Span, floor_ms, milliseconds, span_ms

__all__ = ["Every"]


@dataclass(frozen=True, init=False)
class Every:
    """Times that are `span` seconds apart, at least 1, counted from 1970 UTC plus `phase`.

    So a restart never shifts them. A schedule with a `start` counts from its `start` instead.
    """

    span: int
    phase: int

    def __init__(
        self,
        span: Span | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        phase: Span = 0,
    ) -> None:
        units = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        used = [name for name, value in units.items() if value]
        if span is not None and used:
            raise ValueError(f"give span or {' and '.join(used)}, not both")
        if span is None and not used:
            raise ValueError("span must be given, or seconds, minutes, hours or days")
        if span is None:
            for name in used:
                span_ms(units[name], name)
            try:
                span = timedelta(**units)
            except OverflowError:
                raise ValueError(f"{' + '.join(used)} must not be beyond the year 9999") from None
        named = "span" if not used else " + ".join(used)
        whole = _whole_seconds(span, named)
        if whole < 1:
            raise ValueError(f"{named} must be at least 1 second, not {whole}")
        offset = _whole_seconds(phase, "phase")
        if offset >= whole:
            raise ValueError(f"phase must be less than the span of {whole} s, not {offset}")
        object.__setattr__(self, "span", whole)
        object.__setattr__(self, "phase", offset)

    def __repr__(self) -> str:
        return f"Every({self.span}, phase={self.phase})" if self.phase else f"Every({self.span})"

    def after(self, moment: datetime, start: datetime | None = None) -> datetime | None:
        """Return the first time strictly after a moment, as aware UTC; None beyond the year 9999.

        With `start` the first of all is `start`, rounded up to a second.
        """
        first = None if start is None else milliseconds(start, "start")
        found = next(self.following_ms(floor_ms(moment, "moment"), first), None)
        return None if found is None else EPOCH + timedelta(milliseconds=found)

    def between(self, a: datetime, b: datetime, start: datetime | None = None) -> Iterator[datetime]:
        """Yield the times after `a` up to and including `b`."""
        last = floor_ms(b, "b")
        first = None if start is None else milliseconds(start, "start")
        for found in self.following_ms(floor_ms(a, "a"), first):
            if found > last:
                return
            yield EPOCH + timedelta(milliseconds=found)

    def following_ms(self, ms: int, start: int | None = None) -> Iterator[int]:
        """Yield the times strictly after `ms`, in milliseconds."""
        step = self.span * 1000
        first = self.phase * 1000 if start is None else -(-start // 1000) * 1000
        found = first + ((ms - first) // step + 1) * step
        if start is not None:
            found = max(found, first)
        return iter(range(found, MAX_MS + 1, step))


def _whole_seconds(value: Span, name: str) -> int:
    ms = span_ms(value, name)
    if ms % 1000 or (isinstance(value, timedelta) and value.microseconds) or (isinstance(value, float) and value % 1):
        raise ValueError(f"{name} must be whole seconds, not {ms / 1000:g}")
    return ms // 1000
