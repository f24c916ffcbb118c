"""The ticker of a worker: it fires the due ticks of its queues' schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from penstock.host import AppHost
from penstock.ticking import TickFirer, scheduling_of

__all__ = ["Ticker"]

#: How often (seconds) it looks at the latest while a queue has a schedule: another worker may hold the alarm. Answers
#: to claims, which come as often, replace a look while they name only ticks that are further away.
LONGEST_REST = 5.0
#: How often (seconds) a worker looks that knows of no schedule, and has not claimed since.
IDLE_REST = 30.0
#: How many of the times that claims have named are remembered.
MAX_NOTICED = 1000
#: By how much (seconds) the two clocks may drift apart until the storage is asked for its time again.
MARGIN = 1.0


class Ticker:
    """Fires ticks while a queue of the worker has a schedule; the answer to a claim has the time of the next tick.

    `asked` gives the queues of the claims since its last call. A worker that is full claims nothing, so it looks at the
    other queues by itself now and then.
    """

    def __init__(self, host: AppHost, worker: str, queues: Sequence[str], asked: Callable[[], Collection[str]]) -> None:
        self._host = host
        self._queues = queues
        self._firer = TickFirer(host, worker)
        self._asked = asked
        declared = any(queue in queues for queue, _ in host.declared_schedules)
        self._supported = scheduling_of(host.storage) is not None
        #: Whether a queue has a schedule with a next tick, as far as is known.
        self.active = declared and self._supported
        #: When (ms) the next look is due, None if that is not known.
        self._look_at: int | None = None
        #: The next ticks that answers to claims have named.
        self._noticed: set[int] = set()
        #: The earliest of those since the last step, and how far (ms) the storage's clock was ahead then.
        self._named: int | None = None
        self._named_ahead = 0.0
        #: How far (ms) the storage's clock was ahead of the event loop's, None before its first answer.
        self._ahead: float | None = None

    @property
    def rounds(self) -> int:
        """The number of answers of the storage."""
        return self._firer.rounds

    @property
    def foreign(self) -> set[tuple[str, str]]:
        """The due schedules that other code declares, as queue and name."""
        return self._firer.foreign

    def notice(self, tick_at: int, now: int | None = None) -> bool:
        """Take note of the next tick of a queue (ms); returns whether it is new, and earlier than the next look.

        Where another worker holds the alarm the next look is after that tick, so every answer to a claim names it.
        It is also earlier if the storage's clock, `now`, was set forward past the next look.
        """
        if now is not None and self._supported and self._set_forward(tick_at, now):
            return True
        if not self._supported or (self.active and self._look_at is not None and self._look_at <= tick_at):
            return False
        if self.active and tick_at in self._noticed:
            return False
        if len(self._noticed) >= MAX_NOTICED:
            self._noticed.clear()
        self._noticed.add(tick_at)
        self.active = True
        self._look_at = tick_at
        return True

    async def step(self) -> float | None:
        """Fire what is due; returns the seconds until the next look."""
        if not self._supported:
            return None
        if self._is_answered_by_claims():
            return LONGEST_REST + MARGIN if self.active else IDLE_REST  # claims come about every LONGEST_REST
        await self.fire_due(stays=True)
        return IDLE_REST if self._look_at is None else await self._rest(self._look_at)

    def _set_forward(self, tick_at: int, now: int) -> bool:
        """Remember the time of an answer that named a tick; returns whether it is a reason to look now."""
        here = asyncio.get_running_loop().time() * 1000
        self._named = tick_at if self._named is None else min(self._named, tick_at)
        self._named_ahead = now - here
        jumped = self._ahead is not None and now - here > self._ahead + MARGIN * 1000
        if jumped:
            self._ahead = None
        return jumped and self.active and self._look_at is not None and self._look_at <= now

    def _is_answered_by_claims(self) -> bool:
        """Return whether claims have asked for every queue since the last step, and no tick is near."""
        covered = set(self._queues) <= set(self._asked())
        named, self._named = self._named, None
        if not covered or not self.active or named is None:
            return covered and not self.active
        here = asyncio.get_running_loop().time() * 1000
        return named - here - self._named_ahead > (LONGEST_REST + 2 * MARGIN) * 1000

    async def _rest(self, look_at: int) -> float:
        """Return the seconds until a time (ms) of the storage's clock, at most `LONGEST_REST`.

        The storage is asked for its time only if its last answer leaves a doubt.
        """
        here = asyncio.get_running_loop().time() * 1000
        if self._ahead is None or look_at - here - self._ahead < (LONGEST_REST + MARGIN) * 1000:
            self._ahead = await self._host.storage.time() - here
        return min(max((look_at - here - self._ahead) / 1000, 0.0), LONGEST_REST)

    async def fire_due(self, *, stays: bool = False) -> int:
        """Fire what is due; returns the number of schedules whose ticks were decided here."""
        before = self._firer.fired
        self._look_at = await self._firer.fire_due(self._queues, stays=stays)
        self.active = self._look_at is not None
        return self._firer.fired - before
