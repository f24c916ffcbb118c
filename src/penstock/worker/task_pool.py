"""Tasks that take runs from one line, each as soon as the one before waits for something or is over."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["TaskPool"]

#: So many runs in a row may end without waiting for anything before the event loop has its turn.
IN_A_ROW = 100


class Runnable(Protocol):
    """A run: the task it is in, and whether it was interrupted."""

    task: asyncio.Task[Any] | None

    @property
    def interruption(self) -> object | None: ...


R = TypeVar("R", bound=Runnable)
E = TypeVar("E")


class TaskPool(Generic[R, E]):
    """As many tasks as runs are under way, used again: a task for each run would cost more than most runs.

    A run never sees what another one left behind: a task ends after a run that was interrupted, or
    that set context variables and did not reset them.
    """

    def __init__(
        self,
        begin: Callable[[R], bool],
        execute: Callable[[R], Awaitable[E]],
        finish: Callable[[R, E], None],
        more: Callable[[], None],
    ) -> None:
        #: Says whether the run is to be executed.
        self._begin = begin
        self._execute = execute
        self._finish = finish
        #: Called when the line is empty: it may add to it.
        self._more = more
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._line: deque[R] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming = False

    def add(self, runs: Sequence[R]) -> None:
        """Begin runs when those before them in line have begun."""
        self._line.extend(runs)
        if not self._coming:
            self._call()

    def close(self) -> None:
        """Let the idle tasks end; the others end with their runs."""
        for waiter in self._idle:
            waiter.cancel()
        self._idle.clear()

    def _call(self) -> None:
        """Somebody is to look at the line in the next turn of the event loop."""
        self._coming = True
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        task = self._loop.create_task(self._work(), name="penstock lane", context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refilled(self) -> bool:
        """Whether there is a run in line, now that those before it have begun."""
        if not self._line:
            self._more()
        return bool(self._line)

    async def _work(self) -> None:
        task = asyncio.current_task()
        before, line = contextvars.copy_context(), self._line
        begin, execute, finish = self._begin, self._execute, self._finish
        while True:
            self._coming = False
            in_a_row = 0
            while line or self._refilled():
                run = line.popleft()
                if line and not self._coming:
                    self._call()  # in case this run waits for something
                run.task = task
                try:
                    if begin(run):
                        finish(run, await execute(run))
                finally:
                    run.task = None
                if run.interruption is not None or contextvars.copy_context() != before:
                    if self._refilled() and not self._coming:
                        self._call()
                    return
                in_a_row += 1
                if in_a_row == IN_A_ROW:
                    in_a_row = 0
                    await asyncio.sleep(0)
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                return
