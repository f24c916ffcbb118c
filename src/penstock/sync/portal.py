"""Running coroutines from threads: here if they never suspend, otherwise on one background thread with a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from penstock.errors import StorageError

__all__ = ["Closed", "Portal", "refuse_in_loop", "wait_for"]

T = TypeVar("T")

#: The longest uninterrupted wait (s): a signal that arrives just before a wait is handled only after it.
WAIT_SLICE = 0.5


def refuse_in_loop(what: str) -> None:
    """Raise `RuntimeError` on a thread with a running event loop, which a long call would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{what} would stop the event loop that runs in this thread, perhaps the one it waits for: "
        "use the async penstock.Penstock here, or call it in a thread (asyncio.to_thread)"
    )


def wait_for(future: Future[T]) -> T:
    """Wait for a future and return its result; signals are handled meanwhile."""
    while not future.done():
        wait((future,), timeout=WAIT_SLICE)
    return future.result()


class Closed(StorageError):
    """The app was closed during a call."""


class Portal:
    """A thread with an event loop, started with the first coroutine; `on_stop` is awaited before it ends."""

    def __init__(self, on_stop: Callable[[], Awaitable[None]]) -> None:
        self._on_stop = on_stop
        self._lock = threading.RLock()  # reentrant: a collected stream unsubscribes inside any call of this thread
        self._current: _LoopThread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal's loop and return its result; an interrupt cancels it."""
        if self._current is not None and self._current.thread is threading.current_thread():
            coroutine.close()
            raise RuntimeError("this is the event loop that would have to answer: await the methods of app.async_app")
        future = self._submit(coroutine, call=True)
        try:
            return wait_for(future)
        except CancelledError:
            raise Closed("the app was closed while this call was under way") from None
        except BaseException:
            future.cancel()
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine in the background; only `stop` waits for it."""
        self._submit(coroutine, call=False)

    def spawn_if_running(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine in the background if the loop still runs; otherwise its resources ended with the loop."""
        with self._lock:
            if self._current is not None:
                self._submit(make(), call=False)

    def stop(self) -> None:
        """Cancel the calls, let background coroutines finish, await `on_stop`, and end the thread. Idempotent."""
        with self._lock:
            thread, self._current = self._current, None
            if thread is not None:
                thread.loop.call_soon_threadsafe(thread.stopping.set)
        if thread is not None:
            thread.thread.join()
            if thread.error is not None:
                raise thread.error

    def forget(self) -> object:
        """Forget the thread, which does not run in a child process; returns the object that must not be collected."""
        thread, self._current, self._lock = self._current, None, threading.RLock()
        return thread

    def _submit(self, coroutine: Coroutine[Any, Any, T], *, call: bool) -> Future[T]:
        with self._lock:  # so that no coroutine is submitted to a loop that is stopping
            if self._current is None:
                self._current = _LoopThread(self._on_stop)
            thread = self._current
            return asyncio.run_coroutine_threadsafe(thread.tracked(coroutine, call), thread.loop)


class _LoopThread:
    """The thread and the loop of a portal, from one start to one stop."""

    def __init__(self, on_stop: Callable[[], Awaitable[None]]) -> None:
        self.loop = asyncio.new_event_loop()
        self.stopping = asyncio.Event()
        self.error: BaseException | None = None
        self._on_stop = on_stop
        self._calls: set[asyncio.Task[Any]] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self.thread = threading.Thread(target=self._run, name="penstock-portal", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._main())
        except BaseException as error:
            self.error = error

    async def _main(self) -> None:
        await self.stopping.wait()
        for task in self._calls:
            task.cancel()
        if tasks := self._calls | self._background:
            await asyncio.wait(tasks)
        await self._on_stop()

    async def tracked(self, coroutine: Coroutine[Any, Any, T], call: bool) -> T:
        """Await a coroutine, known to `_main` while it runs."""
        task = asyncio.current_task()
        assert task is not None
        mine = self._calls if call else self._background
        mine.add(task)
        try:
            return await coroutine
        finally:
            mine.discard(task)
