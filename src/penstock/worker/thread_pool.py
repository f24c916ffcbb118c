"""Threads for sync handlers: daemons, so that one that never ends does not block the interpreter's exit."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from penstock.aio import plain_handlers
from penstock.worker.fork_guard import PROCESS, end_copy

__all__ = ["ThreadPool", "Thrown"]

Call = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Thrown:
    """An exception of a function that was called in a thread.

    It is handed over and not raised again: its traceback would refer to the frame of the caller, and
    that frame to the exception. Such a cycle keeps the payload alive until the garbage collector runs.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class ThreadPool:
    """As many daemon threads as calls are under way, kept for the next calls."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Call | None]] = []
        self._closed = False
        self._pid = PROCESS.pid

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function in a thread; returns its value, or `Thrown` with its exception.

        If the caller is cancelled, the call goes on unnoticed.
        """
        context = contextvars.copy_context()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        inbox = self._idle.pop() if self._idle else self._thread()
        inbox.put((lambda: context.run(function, *args), future))
        return await future

    def close(self) -> None:
        """Let idle threads end; the others end after their call."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _thread(self) -> SimpleQueue[Call | None]:
        inbox: SimpleQueue[Call | None] = SimpleQueue()
        threading.Thread(target=self._work, args=(inbox,), name="penstock handler", daemon=True).start()
        return inbox

    def _work(self, inbox: SimpleQueue[Call | None]) -> None:
        plain_handlers.here = True
        while (call := inbox.get()) is not None:
            function, future = call
            try:
                answer = function()
            except BaseException as error:
                answer = Thrown(error)
            if self._pid != PROCESS.pid:
                end_copy()
            try:
                future.get_loop().call_soon_threadsafe(self._done, inbox, future, answer)
            except RuntimeError:  # the event loop is gone
                return
            del call, function, future, answer

    def _done(self, inbox: SimpleQueue[Call | None], future: asyncio.Future[Any], answer: Any) -> None:
        if not future.done():
            future.set_result(answer)
        if self._closed:
            inbox.put(None)
        else:
            self._idle.append(inbox)
