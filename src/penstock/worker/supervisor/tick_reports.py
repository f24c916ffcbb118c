"""Reports of children about ticks: their claims name the next one, so that the supervisor need not ask for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from penstock.model.source import source
from penstock.worker.supervisor.channel import FromChild

__all__ = ["TickReporter", "TickReports"]

#: How often (seconds) a child reports while its claims name no earlier tick: more often than the supervisor looks.
REPORT = 4.0


class TickReporter:
    """Sends what the answers to the claims of a child name, `REPORT` seconds apart, and an earlier tick at once."""

    def __init__(self, take_asked: Callable[[], Collection[str]], send: Callable[[str], None]) -> None:
        self._take_asked = take_asked
        self._send = send
        self._due = 0.0
        #: The tick (ms) that was reported last.
        self._reported = 0

    def report(self, tick_at: int, now: int | None) -> None:
        """Report the next tick (ms) of a claim's queues, and how far the storage's clock is ahead of this one."""
        here = source.monotonic()
        if here < self._due and tick_at >= self._reported:
            return
        self._due, self._reported = here + REPORT, tick_at
        ahead = None if now is None else now - here * 1000
        self._send(FromChild.TICKS + json.dumps([tick_at, ahead, sorted(self._take_asked())]))


class TickReports:
    """The reports of all children of a supervisor."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def take_asked(self) -> set[str]:
        """Return the queues for which children have claimed since the last call."""
        asked, self._asked = self._asked, set()
        return asked

    def read(self, message: str) -> tuple[int, int | None]:
        """Return the tick that a report names, and the time of the storage now, both in ms."""
        tick_at, ahead, queues = json.loads(message.removeprefix(FromChild.TICKS))
        self._asked.update(queues)
        return tick_at, None if ahead is None else round(ahead + source.monotonic() * 1000)
