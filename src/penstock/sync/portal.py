"""From threads to coroutines: those that never suspend are run here and now, the others on one background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from penstock.errors import StorageError

__all__ = ["Closed", "Portal", "refuse_in_loop"]

T = TypeVar("T")

#: Who waits looks up so often (s): a signal that comes just before the wait is seen only after it.
SLICE = 0.5


def refuse_in_loop(what: str) -> None:
    """Refuse a call that may wait for long on a thread whose event loop would have to stand still meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{what} would stop the event loop that runs in this thread, perhaps the one it waits for: "
        "use the async penstock.Penstock here, or call it in a thread (asyncio.to_thread)"
    )


class Closed(StorageError):
    """The app was closed while a call was under way."""


class Portal:
    """One thread with an event loop, started when something must be awaited. `ending` is its last work."""

    def __init__(self, ending: Callable[[], Awaitable[None]]) -> None:
        self._ending = ending
        self._lock = threading.RLock()  # a collected stream says goodbye, whatever this thread is doing
        self._line: _Line | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal's loop and wait for its end; an interrupt cancels it."""
        if self._line is not None and self._line.thread is threading.current_thread():
            coroutine.close()
            raise RuntimeError("this is the event loop that would have to answer: await the methods of app.async_app")
        future = self._submit(coroutine, call=True)
        try:
            while not future.done():
                wait((future,), timeout=SLICE)
            return future.result()
        except CancelledError:
            raise Closed("the app was closed while this call was under way") from None
        except BaseException:
            future.cancel()
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine for which nobody waits, except `stop`."""
        self._submit(coroutine, call=False)

    def spawn_last(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """As `spawn`, if there is still a loop: what it had is gone with it."""
        with self._lock:
            if self._line is not None:
                self._submit(make(), call=False)

    def stop(self) -> None:
        """Cancel the calls, let the rest finish, do the last work, and end the thread. Idempotent."""
        with self._lock:
            line, self._line = self._line, None
            if line is not None:
                line.loop.call_soon_threadsafe(line.stopping.set)
        if line is not None:
            line.thread.join()
            if line.error is not None:
                raise line.error

    def forget(self) -> object:
        """In a child process: the thread stayed with the parent. Gives what must not be collected here."""
        line, self._line, self._lock = self._line, None, threading.RLock()
        return line

    def _submit(self, coroutine: Coroutine[Any, Any, T], *, call: bool) -> Future[T]:
        with self._lock:  # so that nothing is asked of a loop that has been told to stop
            if self._line is None:
                self._line = _Line(self._ending)
            line = self._line
            return asyncio.run_coroutine_threadsafe(line.watched(coroutine, call), line.loop)


class _Line:
    """The portal's thread and loop, from one start to one stop."""

    def __init__(self, ending: Callable[[], Awaitable[None]]) -> None:
        self.loop = asyncio.new_event_loop()
        self.stopping = asyncio.Event()
        self.error: BaseException | None = None
        self._ending = ending
        self._calls: set[asyncio.Task[Any]] = set()
        self._errands: set[asyncio.Task[Any]] = set()
        self.thread = threading.Thread(target=self._work, name="penstock-portal", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            self.error = error

    async def _live(self) -> None:
        await self.stopping.wait()
        for task in self._calls:
            task.cancel()
        if tasks := self._calls | self._errands:
            await asyncio.wait(tasks)
        await self._ending()

    async def watched(self, coroutine: Coroutine[Any, Any, T], call: bool) -> T:
        """The coroutine, known to `_live` while it runs."""
        task = asyncio.current_task()
        assert task is not None
        mine = self._calls if call else self._errands
        mine.add(task)
        try:
            return await coroutine
        finally:
            mine.discard(task)
