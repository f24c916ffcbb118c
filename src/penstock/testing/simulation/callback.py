"""Callbacks of a simulated node, and the end of tasks that it never runs to their end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

__all__ = ["Callback", "end_task"]


class Callback(asyncio.TimerHandle):
    """A function to be called by a node; the handle that `call_soon` and `call_at` return."""

    __slots__ = ("_arguments", "_due", "_in_context", "function")

    def __init__(
        self, due: float, function: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        self._due = due
        #: None if it was cancelled.
        self.function: Callable[..., object] | None = function
        self._arguments = args
        self._in_context = context

    def cancel(self) -> None:
        """Have the function not called."""
        self.function, self._arguments = None, ()

    def cancelled(self) -> bool:
        """Return whether `cancel` was called."""
        return self.function is None

    def when(self) -> float:
        """Return the time of the node's clock at which it is due."""
        return self._due

    def run(self) -> None:
        """Call the function, unless it was cancelled."""
        if self.function is not None:
            self._in_context.run(self.function, *self._arguments)


def end_task(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task of a killed node; its last steps have no effect."""
    setattr(task, "_log_destroy_pending", False)  # noqa: B010 - asyncio has no public name for it
    with contextlib.suppress(BaseException):
        task.get_coro().close()  # pyright: ignore[reportOptionalMemberAccess]
