"""Refused requests in the activity: coalesced and bounded, so that repeating one cannot push out other entries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from penstock.model.activity import Activity

__all__ = ["Refusals"]

#: Equal refusals within this time (seconds) are one further entry, with their number.
SPAN = 60.0

#: The entries at first, and how often (seconds) there is one more: at most 1,000 in the 90 days of the activity.
BURST, REFILL = 100, 8_640.0

#: The sorts of refusals that are counted apart when there is no entry for each; others share one.
MAX_SORTS = 50


class Refusals:
    """The refused requests of one dashboard, as entries of the activity.

    The first of equal ones is written at once; those of the minute after it are one further entry, with their number.
    When the entries of the burst are used up, refusals are counted by verb and viewer, without address and target, and
    written when there is one more.
    """

    def __init__(
        self, write: Callable[[Activity], Awaitable[object]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._left, self._filled_at = float(BURST), clock()
        #: The refusals of this minute that were written, with the number of equal ones after them.
        self._repeated: dict[Activity, int] = {}
        #: The refusals that found no entry left, by sort.
        self._uncounted: dict[Activity, int] = {}
        self._ticks: asyncio.Task[None] | None = None

    async def add(self, entry: Activity) -> None:
        """Record a refusal: at once, or with the others like it."""
        if entry in self._repeated:
            self._repeated[entry] += 1
        elif self._take():
            self._repeated[entry] = 0
            await self._write(entry)
        else:
            self._count(entry, 1)
        if self._ticks is None or self._ticks.done():
            self._ticks = asyncio.get_running_loop().create_task(self._run())

    async def flush(self) -> None:
        """Write the refusals that were counted since the last flush, as far as there are entries for them."""
        repeated, self._repeated = self._repeated, {}
        for entry, count in repeated.items():
            if count and self._take():
                await self._write(replace(entry, outcome=f"{entry.outcome}, {count:,} more within a minute"))
            elif count:
                self._count(entry, count)
        for entry in list(self._uncounted):
            if self._take():
                count = self._uncounted.pop(entry)
                await self._write(replace(entry, outcome=f"{entry.outcome}, {count:,} times, not listed singly"))

    async def close(self) -> None:
        """End the task that writes, and write the rest."""
        task, self._ticks = self._ticks, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.flush()

    async def _run(self) -> None:
        while self._repeated or self._uncounted:
            await asyncio.sleep(SPAN)
            await self.flush()

    def _count(self, entry: Activity, count: int) -> None:
        sort = replace(entry, queue=None, target="", ids=(), count=0, address="")
        if sort not in self._uncounted and len(self._uncounted) >= MAX_SORTS:
            sort = replace(sort, who="", role="", verb="request")
        self._uncounted[sort] = self._uncounted.get(sort, 0) + count

    def _take(self) -> bool:
        """Return whether an entry is left, and take it."""
        now = self._clock()
        self._left = min(self._left + (now - self._filled_at) / REFILL, float(BURST))
        self._filled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
