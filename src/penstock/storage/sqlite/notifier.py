"""Waiting without polling: for work, for a job's end, and for lines of the feed.

Every waiter has a random name. Whoever has something for it takes its rows off the table and, after
the commit, wakes it: by a call in its own process, by a datagram from another one. A slow look every
`poll` seconds is the net below: a lost hint costs latency, never a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from penstock.errors import StorageError
from penstock.storage.base import EventRecord
from penstock.storage.sqlite import waiters
from penstock.storage.sqlite.engine import Engine
from penstock.storage.sqlite.transaction import Transaction
from penstock.storage.sqlite.wakeup import WakeupSocket

__all__ = ["Feed", "Notifier"]

#: A feed says so often (s) that it is still there.
REFRESH = 10.0

#: A feed reads so many lines at a time.
LINES = 500

#: Who has not waited for requests to cancel for so long (s) does not do so any more.
CANCEL_LISTENER_IDLE = 120.0

T = TypeVar("T")

_decode = msgspec.msgpack.Decoder(EventRecord).decode


class Submit(Protocol):
    """How a verb is asked for: `SqliteStorage` hands it to its writer."""

    def __call__(self, verb: Callable[[Transaction], T], write: bool) -> Awaitable[T]: ...


class Notifier:
    """Everybody in this process who waits for something in one storage."""

    def __init__(self, engine: Engine, submit: Submit, poll: float) -> None:
        self._engine = engine
        self._submit = submit
        self._poll = poll
        self._callbacks: dict[str, tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = {}
        self._socket: WakeupSocket | None = None
        self._cancel_listeners: dict[str, CancelListener] = {}
        self._closed = False
        self._feeds: weakref.WeakSet[Feed] = weakref.WeakSet()
        self._refresher: asyncio.Task[None] | None = None
        engine.wake_local = self.wake

    # names and bells -----------------------------------------------------------------------------

    def register(self, bell: Callable[[], object]) -> str:
        """A new waiter: its name, under which `bell` is called on this event loop."""
        self._ensure_socket()
        waiter = secrets.token_hex(8)
        self._callbacks[waiter] = (asyncio.get_running_loop(), bell)
        return waiter

    def unregister(self, waiter: str) -> None:
        """A waiter needs no waking any more."""
        self._callbacks.pop(waiter, None)

    def wake(self, waiter: str) -> bool:
        """Wake a waiter of this process, from any thread; False when there is none of that name."""
        found = self._callbacks.get(waiter)
        if found is None:
            return False
        loop, bell = found
        try:
            loop.call_soon_threadsafe(bell)
        except RuntimeError:  # its loop was closed under it
            return False
        return True

    def _ensure_socket(self) -> None:
        """A socket on the running loop; where none can be had, the slow look must do."""
        loop = asyncio.get_running_loop()
        box = self._socket
        if self._engine.memory or (box is not None and box.loop is loop):
            return
        if box is not None and not box.loop.is_closed():
            return  # another loop of this process reads for all
        with contextlib.suppress(OSError, AttributeError, NotImplementedError):
            self._socket = WakeupSocket(self._engine.path, loop, self.wake)
            self._engine.address = self._socket.address
        if box is not None:
            box.close()

    def submit_unawaited(self, verb: Callable[[Transaction], object]) -> None:
        """Ask for a verb that nobody waits for."""
        with contextlib.suppress(StorageError, RuntimeError):
            asyncio.ensure_future(self._submit(verb, True)).add_done_callback(_ignore_result)

    # waiting -------------------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until a job may be ready in one of the queues; True at once when one is."""
        if timeout <= 0:
            return await self._submit(lambda tx: waiters.is_ready(tx, queues), False)
        path, span = self._path, round(timeout * 1000)
        return await self._wait(
            timeout,
            lambda tx, waiter: waiters.add_idle(tx, queues, waiter, path(), span),
            lambda tx, waiter: not waiters.is_idle(tx, queues, waiter),
            lambda tx, waiter, looks: waiters.remove_idle(tx, queues, waiter, looks),
        )

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool:
        """Sleep until a job may have ended; True at once when it has, or is not there."""
        if timeout <= 0:
            return await self._submit(lambda tx: waiters.is_done(tx, queue, id), False)
        path, span = self._path, round(timeout * 1000)
        return await self._wait(
            timeout,
            lambda tx, waiter: waiters.add_done_waiter(tx, queue, id, waiter, path(), span),
            lambda tx, waiter: waiters.is_done(tx, queue, id),
            lambda tx, waiter, looks: waiters.remove_done_waiter(tx, waiter),
        )

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Sleep until a run of a worker may have been asked to end, since the last such sleep."""
        ear = self._cancel_listener(worker)
        path, span, end = self._path, round(timeout * 1000), time.monotonic() + timeout

        def watch(tx: Transaction) -> bool:
            return waiters.add_cancel_waiter(tx, worker, ear.name, path(), span)

        with ear.listening() as rung:
            if await self._submit(watch, True):
                return True
            while (left := end - time.monotonic()) > 0:
                await asyncio.wait((rung,), timeout=min(left, self._poll))
                if rung.done() or await self._submit(lambda tx: waiters.is_cancel_requested(tx, worker), False):
                    # On the list again before anybody looks, so that nothing is missed between.
                    if not self._closed:
                        await self._submit(watch, True)
                    return True
            return False

    def _cancel_listener(self, worker: str) -> CancelListener:
        loop = asyncio.get_running_loop()
        ear = self._cancel_listeners.get(worker)
        if ear is None or ear.loop is not loop:
            for name, old in list(self._cancel_listeners.items()):
                if name == worker or old.unused > CANCEL_LISTENER_IDLE:
                    self.unregister(self._cancel_listeners.pop(name).name)  # its row goes by itself
            ear = self._cancel_listeners[worker] = CancelListener(self, loop)
        return ear

    def _path(self) -> str:
        return self._engine.address

    async def _wait(
        self,
        timeout: float,
        join: Callable[[Transaction, str], bool],
        look: Callable[[Transaction, str], bool],
        leave: Callable[[Transaction, str, bool], bool],
    ) -> bool:
        """Join a list, sleep until woken, look now and then, and leave the list whatever happens."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = self.register(lambda: future.done() or future.set_result(None))
        end = time.monotonic() + timeout
        found = left_already = False
        try:
            found = await self._submit(lambda tx: join(tx, waiter), True)
            while not found:
                left = end - time.monotonic()
                if left <= 0:
                    picked = await self._submit(lambda tx: leave(tx, waiter, True), True)
                    left_already = True
                    return picked
                await asyncio.wait((future,), timeout=min(left, self._poll))
                if future.done():
                    found = True
                    return True
                if end > time.monotonic():
                    found = await self._submit(lambda tx: look(tx, waiter), False)
            return True
        finally:
            self.unregister(waiter)
            if not future.done() and not left_already:
                # Queued behind the joining, so that no row is left even when that was cancelled.
                looks = found
                self.submit_unawaited(lambda tx: leave(tx, waiter, looks))

    # feeds ---------------------------------------------------------------------------------------

    def feed(self, queue: str | None) -> Feed:
        """A reader of the feed, registered from now on."""
        feed = Feed(self, self._submit, queue, self._poll, self._path)
        self._feeds.add(feed)
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.ensure_future(self._refresh())
        return feed

    async def _refresh(self) -> None:
        """Say for every feed that it is still there, also while its reader is busy elsewhere."""
        while self._feeds:
            await asyncio.sleep(REFRESH)
            for feed in list(self._feeds):
                feed.register()

    async def close(self) -> None:
        """Wake everybody for good and remove the socket."""
        self._closed = True
        for feed in list(self._feeds):
            feed.end()
        if self._refresher is not None:
            self._refresher.cancel()
            self._refresher = None
        for waiter in list(self._callbacks):
            self.wake(waiter)
        address = self._engine.address
        with contextlib.suppress(StorageError):
            await self._submit(lambda tx: waiters.forget_process(tx, address), True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._engine.wake_local = lambda waiter: False

    def reset_in_child(self) -> None:
        """In a child process: the parent's socket and waiters are not ours."""
        self._callbacks.clear()
        self._cancel_listeners.clear()
        self._socket = None


def _ignore_result(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class CancelListener:
    """Those in this process who wait for requests to one worker, and the name under which they are known."""

    def __init__(self, waiters: Notifier, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.name = waiters.register(self._wake)
        self._futures: set[asyncio.Future[None]] = set()
        self._last_used = time.monotonic()

    @property
    def unused(self) -> float:
        """For how long (seconds) nobody has waited."""
        return 0.0 if self._futures else time.monotonic() - self._last_used

    @contextlib.contextmanager
    def listening(self) -> Generator[asyncio.Future[None]]:
        """A future that is done when somebody asks."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._futures.add(future)
        try:
            yield future
        finally:
            self._futures.discard(future)
            self._last_used = time.monotonic()

    def _wake(self) -> None:
        for future in self._futures:
            if not future.done():
                future.set_result(None)


class Feed:
    """An iterator over the notes of everybody, from the moment it was made."""

    def __init__(
        self, waiters: Notifier, submit: Submit, queue: str | None, poll: float, path: Callable[[], str]
    ) -> None:
        self._waiters = waiters
        self._submit = submit
        self._queue = queue
        self._poll = poll
        self._path = path
        self._news = asyncio.Event()
        self._notes: deque[EventRecord] = deque()
        self._ended = False
        # A bell that held the feed itself would keep a forgotten feed alive.
        self._name = waiters.register(self._news.set)
        self._last = asyncio.ensure_future(self._listen())
        self._last.add_done_callback(_ignore_result)

    def _listen(self) -> Awaitable[int]:
        waiter, path = self._name, self._path()
        return self._submit(lambda tx: waiters.add_listener(tx, waiter, path), True)

    def register(self) -> None:
        """Say that this feed is still read."""
        if not self._ended:
            with contextlib.suppress(StorageError):
                asyncio.ensure_future(self._listen()).add_done_callback(_ignore_result)

    def end(self) -> None:
        """No more notes: the iteration stops."""
        self._ended = True
        self._news.set()

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> EventRecord:
        while not self._notes:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            if not await self._read():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), self._poll)
        return self._notes.popleft()

    async def _read(self) -> bool:
        after = await asyncio.shield(self._last)
        rows = await self._submit(lambda tx: waiters.read_events(tx, after, LINES), False)
        if rows:
            self._last = asyncio.get_running_loop().create_future()
            self._last.set_result(rows[-1][0])
        self._notes.extend(_decode(note) for _, queue, note in rows if self._queue in (None, queue))
        return bool(rows)

    async def aclose(self) -> None:
        """Stop reading."""
        if not self._ended:
            self.end()
            self._waiters.unregister(self._name)
            waiter = self._name
            with contextlib.suppress(StorageError):
                await self._submit(lambda tx: waiters.remove_listener(tx, waiter), True)

    def __del__(self) -> None:
        # Its row goes when the next note finds nobody of that name here.
        self._waiters.unregister(self._name)
