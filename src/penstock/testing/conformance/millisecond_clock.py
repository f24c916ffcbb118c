"""The clock of the random walk."""

from __future__ import annotations

__all__ = ["MillisecondClock"]


class MillisecondClock:
    """A clock that counts milliseconds and can also be set back."""

    def __init__(self, ms: int = 1_800_000_000_000) -> None:
        self.ms = ms

    def time(self) -> float:
        """Return the time as a Unix timestamp."""
        return self.ms / 1000
