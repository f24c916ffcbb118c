"""The one shape of all loops: take a step, rest for as long as it says, until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable

__all__ = ["Loop"]

#: After an error a loop rests for twice as long each time, between these two (s).
FIRST_REST = 0.1
LONGEST_REST = 5.0


class Loop:
    """A background task made of steps.

    A step gives the seconds to rest until the next one, or None to rest until woken. It is never
    cancelled: a call to the storage whose answer got lost may have taken jobs. A rest always can be:
    it is cut short by `wake` and `stop`. `doze` may replace the sleep of a finite rest; after an error
    the rest grows up to `longest`. `answers` counts the answers of the storage that steps have heard: a
    step that had nothing to ask says nothing about it.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Awaitable[float | None]],
        failed: Callable[[str, Exception, int], None],
        doze: Callable[[float], Awaitable[object]] | None = None,
        longest: float = LONGEST_REST,
        answers: Callable[[], int] = lambda: 0,
    ) -> None:
        self.name = name
        self._step = step
        self._failed = failed
        self._doze = doze
        self._longest = longest
        self._answers = answers
        #: Called with the name when a step went well, and with a doze that too, and whether it was answered.
        self.went_well: Callable[[str, bool], None] = lambda name, answered: None
        self._awake = asyncio.Event()
        #: Whether it was woken since its last step began: to wake it again changes nothing.
        self.woken = False
        self._stopping = False
        self._due = -math.inf
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._dozing = self._roused = False
        #: Ends a doze from inside, if it can; else whoever wakes cancels it.
        self.hurry: Callable[[], bool] = lambda: False

    @property
    def stopping(self) -> bool:
        return self._stopping

    def start(self) -> None:
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
        """Let the step under way end, and be done. Idempotent."""
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
                rest = await self._step()
                dozes = rest is not None and self._doze is not None
                if not dozes:
                    self.went_well(self.name, self._answers() != before)
                self._due = math.inf if rest is None else asyncio.get_running_loop().time() + rest
                if not self._stopping:
                    await self._rest(rest, self._doze)
                if dozes:
                    self.went_well(self.name, self._answers() != before)
                self._failures = 0
            except Exception as error:
                self._failures += 1
                self._failed(self.name, error, self._failures)
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
        """Doze in this very task, so that nothing stands between a hint and the step: whoever wakes cancels it."""
        task = asyncio.current_task()
        assert task is not None
        self._dozing = True
        try:
            await doze(seconds)
        except asyncio.CancelledError:
            if not self._roused or task.cancelling() > 1:
                raise
        finally:
            self._dozing = False
            if self._roused:
                self._roused = False
                task.uncancel()

    def _rouse(self) -> None:
        if self._task is not None and not self._roused and not self.hurry():
            self._roused = True
            self._task.cancel()

    def _backoff(self) -> float:
        rest = min(self._longest, FIRST_REST * 2 ** min(self._failures - 1, 16))
        return rest * random.uniform(0.5, 1.0)
