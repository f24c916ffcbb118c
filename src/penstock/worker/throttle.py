"""Claiming less while the process cannot keep up (`adaptive=True`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from penstock.worker.pool import Pool

__all__ = ["LoadMonitor", "Throttle"]

#: How often (seconds) the event loop's lag is looked at, and after how many looks it is judged.
LOOK, LOOKS = 0.1, 5

#: The process cannot keep up: the loop was late by so much (seconds), or this share of a core was used.
LAGGING, SATURATED = 0.1, 0.9

#: It keeps up well: both are below these. In between everything stays as it is.
SMOOTH, EASY = 0.03, 0.75

#: What is left of the share after each bad stretch, what comes back after each good one, and the least.
LESS, MORE, LEAST = 0.7, 0.1, 0.02


class Throttle:
    """The share of its capacity that a process may use: it falls fast and comes back step by step."""

    def __init__(self) -> None:
        self.share = 1.0

    def observe(self, lag: float, cpu: float) -> float:
        """How the last stretch went: the worst lag of the loop (seconds) and the cores in use; gives the share."""
        if lag >= LAGGING or cpu >= SATURATED:
            self.share = max(LEAST, self.share * LESS)
        elif lag < SMOOTH and cpu < EASY:
            self.share = min(1.0, self.share + MORE)
        return self.share


class LoadMonitor:
    """Watches the event loop and the processor time of this process, and tells the pool what it may use."""

    def __init__(self, pool: Pool, changed: Callable[[], None]) -> None:
        self._pool = pool
        self._changed = changed
        self._throttle = Throttle()
        self._due: float | None = None
        self._looks = 0
        self._worst = 0.0
        self._began = (0.0, 0.0)

    async def step(self) -> float | None:
        """Look once; every few looks, judge."""
        now = asyncio.get_running_loop().time()
        if self._due is None:
            self._begin(now)
        else:
            self._worst = max(self._worst, now - self._due)
            self._looks += 1
        if self._looks >= LOOKS:
            self._judge(now)
        self._due = now + LOOK
        return LOOK

    def _begin(self, now: float) -> None:
        self._looks, self._worst = 0, 0.0
        self._began = (now, time.process_time())

    def _judge(self, now: float) -> None:
        began, used = self._began
        cpu = (time.process_time() - used) / max(now - began, LOOK)
        before = self._pool.share
        self._pool.share = self._throttle.observe(self._worst, cpu)
        self._begin(now)
        if self._pool.share != before:
            self._changed()
