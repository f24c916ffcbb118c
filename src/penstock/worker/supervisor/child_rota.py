"""A child's part in the rota of idle children, see `rota`: the times at which it waits for work."""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.source import source
from penstock.worker.claimer import SLOW_POLL
from penstock.worker.supervisor.channel import FromChild

__all__ = ["IDLE_FOR", "ChildRota"]

#: How long (seconds) no child has had a job when the rota begins.
IDLE_FOR = 5.0
#: How long (seconds) a child goes on waiting when the turn of the next one has begun, which may be a bit late.
OVERLAP = 0.05


class ChildRota:
    """A child's part: the times at which it waits for work."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._position = self._size = 0
        self._worked = source.monotonic()

    def begin(self, turns: str, *, busy: bool) -> None:
        """Wait in turn with the other children, or answer `busy` if this one has had a job since."""
        if busy or source.monotonic() - self._worked < IDLE_FOR:
            self._send(FromChild.BUSY)
        else:
            self._position, self._size = map(int, turns.split())

    def end(self) -> None:
        """Wait for work at all times."""
        self._size = 0

    def work(self) -> None:
        """Take note of a job; the supervisor ends the rota, since this child may have no room for the next one."""
        self._worked = source.monotonic()
        if self._size:
            self._size = 0
            self._send(FromChild.BUSY)

    def off(self) -> float:
        """Return the seconds until the turn of this child begins; 0 if it is to wait for work now."""
        if not self._size:
            return 0.0
        now = source.monotonic() % (self._size * SLOW_POLL)
        begin = self._position * SLOW_POLL
        if begin <= now < begin + SLOW_POLL:
            return 0.0
        return (begin - now) % (self._size * SLOW_POLL)

    def left(self) -> float:
        """Return how many seconds to wait for work at most."""
        return SLOW_POLL - source.monotonic() % SLOW_POLL + OVERLAP if self._size else SLOW_POLL

    def answer_age(self, age: float) -> float:
        """Return for how long an answer has been awaited, at most this long: not before its turn began."""
        if not self._size:
            return age
        return 0.0 if self.off() else min(age, source.monotonic() % SLOW_POLL)
