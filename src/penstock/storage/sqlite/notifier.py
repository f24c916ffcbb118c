"""Waiting without fast polling: for work, for the end of a job, for cancel requests.

Every waiter has a random name and a row in a table (see `waiters.py`). The transaction that has
something for a waiter deletes its row and, after the commit, wakes it: by a call in its own process, by a
datagram from another one (see `wakeup.py`). Each waiter also reads the database every `poll` seconds, so a
lost wake-up costs latency, never a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from penstock.errors import StorageError
from penstock.model.source import source
from penstock.storage.sqlite import waiters
from penstock.storage.sqlite.engine import Engine
from penstock.storage.sqlite.file_access import warn_once
from penstock.storage.sqlite.transaction import Transaction
from penstock.storage.sqlite.wakeup import ForeignDirectory, WakeupSocket
from penstock.storage.sqlite.writer import Submit

__all__ = ["CancelListener", "Feed", "Notifier", "ignore_result"]

#: Seconds between two renewals of the rows of open feeds.
FEED_RENEWAL = 10.0

#: A `CancelListener` without a waiter for this time (s) is removed.
CANCEL_LISTENER_IDLE = 120.0


class Feed(Protocol):
    """A reader of events that the notifier keeps registered; `EventFeed` is the one there is."""

    def renew(self) -> None:
        """Renew the row of this listener."""
        ...

    def end(self) -> None:
        """Stop the iteration."""
        ...


class Notifier:
    """The waiters of this process in one storage: their names, callbacks and wake-up socket."""

    def __init__(self, engine: Engine, submit: Submit, poll: float) -> None:
        self._engine = engine
        self._submit = submit
        self._poll = poll
        self._callbacks: dict[str, tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = {}
        self._socket: WakeupSocket | None = None
        self._cancel_listeners: dict[str, CancelListener] = {}
        self._closed = False
        self._feeds: weakref.WeakSet[Feed] = weakref.WeakSet()
        self._renewer: asyncio.Task[None] | None = None
        engine.wake_local = self.wake

    # names and callbacks -------------------------------------------------------------------------

    def register(self, callback: Callable[[], object]) -> str:
        """Add a waiter and return its name; `wake` calls `callback` on the running event loop."""
        self._ensure_socket()
        waiter = source.bytes(8).hex()
        self._callbacks[waiter] = (asyncio.get_running_loop(), callback)
        return waiter

    def unregister(self, waiter: str) -> None:
        """Remove a waiter; its callback is not called any more."""
        self._callbacks.pop(waiter, None)

    def wake(self, waiter: str) -> bool:
        """Wake a waiter of this process, from any thread; False if there is none of that name."""
        found = self._callbacks.get(waiter)
        if found is None:
            return False
        loop, callback = found
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:  # its loop is closed
            return False
        return True

    @property
    def address(self) -> str:
        """Address at which other processes wake the waiters of this one."""
        return self._engine.address

    def _ensure_socket(self) -> None:
        """Bind the wake-up socket on the running loop; without one, waiters rely on polling."""
        loop = asyncio.get_running_loop()
        old = self._socket
        if self._engine.memory or (old is not None and old.loop is loop):
            return
        if old is not None and not old.loop.is_closed():
            return  # another loop of this process reads the socket for all waiters
        for directory in self._engine.wake_directories():
            try:
                self._socket = WakeupSocket(directory, loop, self.wake)
            except ForeignDirectory:
                warn_once(
                    f"{directory} belongs to another user, so other processes cannot wake this one: jobs that they"
                    f" enqueue wait up to {self._poll:g} s; remove it, or use a shorter path for the database"
                )
            except (OSError, AttributeError, NotImplementedError):
                continue
            else:
                self._engine.address = self._socket.address
                break
        if old is not None:
            old.close()

    def _submit_unawaited(self, verb: Callable[[Transaction], object]) -> None:
        """Submit a write whose answer is not needed."""
        with contextlib.suppress(StorageError, RuntimeError):
            asyncio.ensure_future(self._submit(verb, True)).add_done_callback(ignore_result)

    # waiting -------------------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until a job may be ready in one of the queues; True at once if one is."""
        if timeout <= 0:
            return await self._submit(lambda tx: waiters.is_ready(tx, queues), False)
        timeout_ms = round(timeout * 1000)
        return await self._wait(
            timeout,
            lambda tx, waiter: waiters.add_idle(tx, queues, waiter, self.address, timeout_ms),
            lambda tx, waiter: not waiters.is_idle(tx, queues, waiter),
            lambda tx, waiter, claims_next: waiters.remove_idle(tx, queues, waiter, claims_next),
        )

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool:
        """Sleep until a job may have ended; True at once if it has, or does not exist."""
        if timeout <= 0:
            return await self._submit(lambda tx: waiters.is_done(tx, queue, id), False)
        timeout_ms = round(timeout * 1000)
        return await self._wait(
            timeout,
            lambda tx, waiter: waiters.add_done_waiter(tx, queue, id, waiter, self.address, timeout_ms),
            lambda tx, waiter: waiters.is_done(tx, queue, id),
            lambda tx, waiter, claims_next: waiters.remove_done_waiter(tx, waiter),
        )

    async def wait_history(self, queue: str, id: str, kind: int, after: int, timeout: float) -> bool:
        """Sleep until a history may have entries after this number; True at once if it has, or the job has ended."""

        def check(tx: Transaction) -> bool:
            return waiters.has_entries(tx, queue, id, kind, after) or waiters.is_done(tx, queue, id)

        if timeout <= 0:
            return await self._submit(check, False)
        timeout_ms, named = round(timeout * 1000), list[str]()

        def add(tx: Transaction, waiter: str) -> bool:
            named[:] = [waiter]
            return waiters.has_entries(tx, queue, id, kind, after) or waiters.add_reader(
                tx, queue, id, waiter, self.address, timeout_ms
            )

        woken = await self._wait(
            timeout,
            add,
            lambda tx, waiter: check(tx),
            lambda tx, waiter, claims_next: waiters.remove_done_waiter(tx, waiter),
        )
        if woken and named:  # of its two rows the one that did not wake it is left
            self._submit_unawaited(lambda tx: waiters.remove_done_waiter(tx, named[0]))
        return woken

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Sleep until a run of a worker may have been asked to cancel since the last such wait."""
        listener = self._cancel_listener(worker)
        timeout_ms, deadline = round(timeout * 1000), source.monotonic() + timeout

        def register(tx: Transaction) -> bool:
            return waiters.add_cancel_waiter(tx, worker, listener.name, self.address, timeout_ms)

        with listener.waiting() as woken:
            if await self._submit(register, True):
                return True
            while (left := deadline - source.monotonic()) > 0:
                await asyncio.wait((woken,), timeout=min(left, self._poll))
                if woken.done() or await self._submit(lambda tx: waiters.is_cancel_requested(tx, worker), False):
                    # Register again before the caller renews: a request after that renewal is then not missed.
                    if not self._closed:
                        await self._submit(register, True)
                    return True
            return False

    def _cancel_listener(self, worker: str) -> CancelListener:
        loop = asyncio.get_running_loop()
        listener = self._cancel_listeners.get(worker)
        if listener is None or listener.loop is not loop:
            for name, old in list(self._cancel_listeners.items()):
                if name == worker or old.idle_time > CANCEL_LISTENER_IDLE:
                    self.unregister(self._cancel_listeners.pop(name).name)  # purge deletes its row
            listener = self._cancel_listeners[worker] = CancelListener(self, loop)
        return listener

    async def _wait(
        self,
        timeout: float,
        add: Callable[[Transaction, str], bool],
        check: Callable[[Transaction, str], bool],
        remove: Callable[[Transaction, str, bool], bool],
    ) -> bool:
        """Add a waiter's row, sleep until woken, check every `poll` seconds, and always remove the row."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = self.register(lambda: future.done() or future.set_result(None))
        deadline = source.monotonic() + timeout
        found = removed = False
        try:
            found = await self._submit(lambda tx: add(tx, waiter), True)
            while not found:
                left = deadline - source.monotonic()
                if left <= 0:
                    woken = await self._submit(lambda tx: remove(tx, waiter, True), True)
                    removed = True
                    return woken
                await asyncio.wait((future,), timeout=min(left, self._poll))
                if future.done():
                    found = True
                    return True
                if deadline > source.monotonic():
                    found = await self._submit(lambda tx: check(tx, waiter), False)
            return True
        finally:
            self.unregister(waiter)
            if not future.done() and not removed:
                # Runs after the insert in the writer's queue, so no row is left even if that was cancelled.
                claims_next = found
                self._submit_unawaited(lambda tx: remove(tx, waiter, claims_next))

    # feeds ---------------------------------------------------------------------------------------

    def add_feed(self, feed: Feed) -> None:
        """Renew a feed's row until it is garbage-collected, and end the feed when the storage closes."""
        self._feeds.add(feed)
        if self._renewer is None or self._renewer.done():
            self._renewer = asyncio.ensure_future(self._renew_feeds())

    async def _renew_feeds(self) -> None:
        """Renew the rows of all feeds, also of those whose reader is busy with an event."""
        while self._feeds:
            await asyncio.sleep(FEED_RENEWAL)
            for feed in list(self._feeds):
                feed.renew()

    async def close(self) -> None:
        """Wake all waiters for the last time, delete their rows and remove the socket."""
        self._closed = True
        for feed in list(self._feeds):
            feed.end()
        if self._renewer is not None:
            self._renewer.cancel()
            self._renewer = None
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
        """Drop the socket and the waiters of the parent process after a fork."""
        self._callbacks.clear()
        self._cancel_listeners.clear()
        self._socket = None


def ignore_result(future: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a future, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


class CancelListener:
    """The waiters of this process for cancel requests to one worker, under one registered name.

    The name stays registered between two waits, so a request made in between is not lost.
    """

    def __init__(self, notifier: Notifier, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.name = notifier.register(self._wake)
        self._futures: dict[asyncio.Future[None], None] = {}
        self._last_used = source.monotonic()

    @property
    def idle_time(self) -> float:
        """Seconds since the last waiter left; 0 while there is one."""
        return 0.0 if self._futures else source.monotonic() - self._last_used

    @contextlib.contextmanager
    def waiting(self) -> Generator[asyncio.Future[None]]:
        """Yield a future that is done when a cancel request arrives."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._futures[future] = None
        try:
            yield future
        finally:
            self._futures.pop(future, None)
            self._last_used = source.monotonic()

    def _wake(self) -> None:
        for future in self._futures:
            if not future.done():
                future.set_result(None)
