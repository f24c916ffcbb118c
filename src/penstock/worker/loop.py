"""The background loops of a worker: take a step, rest for the time that it returned, until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.model.source import source

__all__ = ["Loop", "LoopReport"]

#: After an error a loop rests for twice as long each time, between these two (seconds).
FIRST_REST = 0.1
LONGEST_REST = 5.0


class LoopReport(Protocol):
    """The receiver of what becomes of a loop's steps, see `OutageLog`."""

    def failed(self, loop: str, error: Exception, times: int) -> None: ...

    def went_well(self, loop: str, answered: bool) -> None: ...


class Loop:
    """A background task made of steps.

    A step returns the seconds to rest until the next one, or None to rest until woken. It is never
    cancelled: a call to the storage whose answer got lost may have claimed jobs. A rest can always be
    cut short, by `wake` and `stop`. After an error the rest grows up to `longest`.

    `doze` replaces the sleep of a finite rest. To wake the loop, `end_doze` ends it from inside and
    returns True; where that is False, or there is none, the doze is cancelled.

    `answers` counts the storage's answers, so that a step without any is not reported as a sign that
    the storage is there.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[float | None]],
        report: LoopReport,
        doze: Callable[[float], Awaitable[object]] | None = None,
        end_doze: Callable[[], bool] | None = None,
        longest: float = LONGEST_REST,
        answers: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = name
        self._step = step
        self._report = report
        self._doze = doze
        self._end_doze = end_doze
        self._longest = longest
        self._answers = answers
        self._awake = asyncio.Event()
        #: Whether it was woken since its last step began: waking it again changes nothing.
        self.woken = False
        #: Since when (monotonic) a step is under way; 0 while the loop rests.
        self.stepping_since = 0.0
        self._stopping = False
        self._due = -math.inf
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._dozing = self._cancelled = False

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def start(self) -> None:
        """Start the task of the loop."""
        self._task = asyncio.create_task(self._run(), name=f"penstock {self.name}")

    def wake(self) -> None:
        """Take the next step now, or right after the one under way."""
        self.woken = True
        self._awake.set()
        if self._dozing:
            self._rouse()

    def wake_by(self, due: float) -> None:
        """Take a step at this time of the event loop's clock at the latest."""
        if due < self._due:
            self.wake()

    async def stop(self) -> None:
        """Let the step under way end, then end the loop. Idempotent."""
        self._stopping = True
        self.wake()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._stopping:
            self.woken = False
            self._awake.clear()
            before = self._answers()
            try:
                self.stepping_since = source.monotonic()
                rest = await self._step()
                self.stepping_since = 0.0
                dozes = rest is not None and self._doze is not None
                if not dozes:
                    self._report.went_well(self.name, self._answers() != before)
                self._due = math.inf if rest is None else asyncio.get_running_loop().time() + rest
                if not self._stopping:
                    await self._rest(rest, self._doze)
                if dozes:
                    self._report.went_well(self.name, self._answers() != before)
                self._failures = 0
            except Exception as error:
                self.stepping_since = 0.0
                self._failures += 1
                self._report.failed(self.name, error, self._failures)
                if not self._stopping:
                    await self._rest(self._backoff(), None)
            self._due = -math.inf

    async def _rest(self, seconds: float | None, doze: Callable[[float], Awaitable[object]] | None) -> None:
        if seconds is None:
            await self._awake.wait()
        elif doze is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._awake.wait()
        elif not self._awake.is_set():
            await self._nap(doze, seconds)

    async def _nap(self, doze: Callable[[float], Awaitable[object]], seconds: float) -> None:
        """Doze in the loop's own task: a task for each doze would delay the step that follows a hint."""
        task = asyncio.current_task()
        assert task is not None
        self._dozing = True
        try:
            await doze(seconds)
        except asyncio.CancelledError:
            if not self._cancelled or task.cancelling() > 1:
                raise
        finally:
            self._dozing = False
            if self._cancelled:
                self._cancelled = False
                task.uncancel()

    def _rouse(self) -> None:
        """End a doze from inside if possible, else cancel it."""
        if self._task is None or self._cancelled or (self._end_doze is not None and self._end_doze()):
            return
        self._cancelled = True
        self._task.cancel()

    def _backoff(self) -> float:
        rest = min(self._longest, FIRST_REST * 2 ** min(self._failures - 1, 16))
        return rest * (0.5 + source.draw() / 2)
