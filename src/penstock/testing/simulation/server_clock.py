"""The clock of a simulated storage."""

from __future__ import annotations

from penstock.testing.simulation.loop import START, Scheduler

__all__ = ["ServerClock"]


class ServerClock:
    """The clock of the storage: virtual time, plus the jumps it has made."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: The sum of its jumps (seconds).
        self.offset = 0.0

    def time(self) -> float:
        """Return the time as a Unix timestamp."""
        return START + self._scheduler.now + self.offset

    @property
    def ms(self) -> int:
        """The time as storages count it."""
        return round(self.time() * 1000)
