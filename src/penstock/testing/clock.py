"""A clock that a test moves."""

from __future__ import annotations

from datetime import timedelta

from penstock.model.clock import Moment, milliseconds

__all__ = ["Clock"]


class Clock:
    """A clock that stands still until it is moved: `Penstock("memory:", clock=clock)`."""

    def __init__(self, start: Moment = 1_700_000_000) -> None:
        self._now = milliseconds(start, "start") / 1000

    def __repr__(self) -> str:
        return f"Clock({self._now})"

    def time(self) -> float:
        """Return the time as a Unix timestamp."""
        return self._now

    def advance(
        self, seconds: float = 0, *, milliseconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> float:
        """Move the clock forward and return the new time."""
        step = timedelta(seconds=seconds, milliseconds=milliseconds, minutes=minutes, hours=hours, days=days)
        if step < timedelta(0):
            raise ValueError(f"a clock cannot be advanced by {step.total_seconds()} s: time only moves forward")
        self._now = round(self._now + step.total_seconds(), 6)
        return self._now
