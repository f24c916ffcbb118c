"""Reused asyncio tasks: they take runs from one line, each when the run before it awaits something or ends."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from penstock.worker.fork_guard import PROCESS, end_copy, leave_loop, watch_forks

__all__ = ["TaskPool"]

#: After this number of runs that never suspended, a task yields to the event loop.
IN_A_ROW = 100


class Runnable(Protocol):
    """A run with its task, and the reason if it was interrupted."""

    task: asyncio.Task[Any] | None

    @property
    def interruption(self) -> object | None: ...


R = TypeVar("R", bound=Runnable)
E = TypeVar("E")


class TaskPool(Generic[R, E]):
    """As many tasks as runs are under way. They are reused: a task for each run would cost more than most runs.

    A run goes as it would in a task of its own (`tests/worker/test_task_pool.py`): a task ends after a
    run that was interrupted, that cancelled the task itself, or that set context variables and did not
    reset them.
    """

    def __init__(
        self,
        begin: Callable[[R], bool],
        execute: Callable[[R], Awaitable[E]],
        finish: Callable[[R, E], None],
        more: Callable[[], None],
    ) -> None:
        #: Returns whether the run is to be executed.
        self._begin = begin
        self._execute = execute
        self._finish = finish
        #: Called when the line is empty; it may add runs.
        self._more = more
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._line: deque[R] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._called = False
        self._thread = threading.get_ident()
        self._pid = watch_forks(self)

    def forked(self) -> None:
        """Have this copy of the process, which a handler forked, end before it runs the loop."""
        leave_loop(self._loop, self._thread)

    def add(self, runs: Sequence[R]) -> None:
        """Add runs to the line; each begins after those before it."""
        self._line.extend(runs)
        if not self._called:
            self._call()

    def close(self) -> None:
        """Let the idle tasks end; the others end with their runs."""
        for waiter in self._idle:
            waiter.cancel()
        self._idle.clear()

    def _call(self) -> None:
        """Have a task look at the line in the next turn of the event loop."""
        self._called = True
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        task = self._loop.create_task(self._work(), name="penstock run", context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refilled(self) -> bool:
        """Return whether a run is in line, after asking for more if it was empty."""
        if not self._line:
            self._more()
        return bool(self._line)

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        before, line = contextvars.copy_context(), self._line
        begin, execute, finish, pid = self._begin, self._execute, self._finish, self._pid
        while True:
            self._called = False
            in_a_row = 0
            while line or self._refilled():
                run = line.popleft()
                if line and not self._called:
                    self._call()  # another task goes on if this run suspends
                run.task = task
                try:
                    if begin(run):
                        outcomes = await execute(run)
                        if PROCESS.pid != pid:
                            end_copy()
                        finish(run, outcomes)
                finally:
                    run.task = None
                if run.interruption is not None or task.cancelling() or contextvars.copy_context() != before:
                    del run
                    if not loop_is_ending(task) and self._refilled() and not self._called:
                        self._call()
                    return
                del run  # an idle task keeps nothing of its last run alive
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


def loop_is_ending(task: asyncio.Task[None]) -> bool:
    """Return whether a cancelled task was cancelled together with all others, as when the event loop is shut down.

    Otherwise the run cancelled its task itself, and the runs in line go on.
    """
    return bool(task.cancelling()) and all(each.cancelling() for each in asyncio.all_tasks())
