"""Adaptive workers claim less while their process cannot keep up (`adaptive=True`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.worker.pool import Pool

__all__ = ["LoadMonitor", "Throttle"]

#: How often (seconds) the lag of the event loop is measured, and after how many measurements the share is set.
LOOK, LOOKS = 0.1, 5

#: The process cannot keep up: the loop lagged by this time (seconds), or used this share of a core.
LAGGING, SATURATED = 0.1, 0.9

#: The process keeps up well: both are below these. In between the share stays as it is.
SMOOTH, EASY = 0.03, 0.75

#: The factor of the share after a bad period, the summand after a good one, and the least share.
LESS, MORE, LEAST = 0.7, 0.1, 0.02


class Throttle:
    """The share of its capacity that a process may use: it falls fast and recovers step by step."""

    def __init__(self) -> None:
        self.share = 1.0

    def observe(self, lag: float, cpu: float) -> float:
        """Set the share by the worst lag of the loop (seconds) and the cores in use; returns the share."""
        if lag >= LAGGING or cpu >= SATURATED:
            self.share = max(LEAST, self.share * LESS)
        elif lag < SMOOTH and cpu < EASY:
            self.share = min(1.0, self.share + MORE)
        return self.share


class LoadMonitor:
    """Measures the lag of the event loop and the processor time of this process, and sets the share of the pool."""

    def __init__(self, pool: Pool, changed: Callable[[], None]) -> None:
        self._pool = pool
        self._changed = changed
        self._throttle = Throttle()
        self._due: float | None = None
        self._looks = 0
        self._worst = 0.0
        self._began = (0.0, 0.0)

    async def step(self) -> float | None:
        """Measure once; after `LOOKS` measurements, set the share."""
        now = asyncio.get_running_loop().time()
        if self._due is None:
            self._begin(now)
        else:
            self._worst = max(self._worst, now - self._due)
            self._looks += 1
        if self._looks >= LOOKS:
            self._set_share(now)
        self._due = now + LOOK
        return LOOK

    def _begin(self, now: float) -> None:
        self._looks, self._worst = 0, 0.0
        self._began = (now, time.process_time())

    def _set_share(self, now: float) -> None:
        began, used = self._began
        cpu = (time.process_time() - used) / max(now - began, LOOK)
        before = self._pool.share
        self._pool.share = self._throttle.observe(self._worst, cpu)
        self._begin(now)
        if self._pool.share != before:
            self._changed()
