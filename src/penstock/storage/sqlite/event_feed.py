"""Reading the events that all processes write to one storage."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Collection

import msgspec

from penstock.errors import UNREADABLE, StorageError
from penstock.storage.base import EventRecord
from penstock.storage.sqlite import waiters
from penstock.storage.sqlite.notifier import Notifier, ignore_result
from penstock.storage.sqlite.writer import Submit

__all__ = ["EventFeed"]

#: Rows of events that one read fetches at most.
READ_SIZE = 500

#: The least time (s) between two reads, so that a busy storage costs a feed few of them.
READ_INTERVAL = 0.005

_decode = msgspec.msgpack.Decoder(list[EventRecord]).decode


class EventFeed:
    """Async iterator over the events of one queue or all, and of some names or all, from its construction on.

    Construction submits the row that makes it a listener, so events caused by later calls of this
    process are read even if they happen before the first `__anext__`. An event is only stored while
    there is a listener that wants it.
    """

    def __init__(
        self, notifier: Notifier, submit: Submit, queue: str | None, names: Collection[str] | None, poll: float
    ) -> None:
        self._notifier = notifier
        self._submit = submit
        self._queue = queue
        self._names = None if names is None else frozenset(names)
        self._poll = poll
        self._woken = asyncio.Event()
        self._events: deque[EventRecord] = deque()
        self._ended = False
        self._next_read = 0.0
        # Not a method of this object: the notifier would then keep a forgotten feed alive.
        self._name = notifier.register(self._woken.set)
        #: The number of the last event read; the first value is the answer of the registration.
        self._last = asyncio.ensure_future(self._add_listener())
        self._last.add_done_callback(ignore_result)
        notifier.add_feed(self)

    def _add_listener(self) -> Awaitable[int]:
        waiter, address, queue, names = self._name, self._notifier.address, self._queue, self._names
        return self._submit(lambda tx: waiters.add_listener(tx, waiter, address, queue, names), True)

    def renew(self) -> None:
        """Renew the row of this listener, which expires otherwise."""
        if not self._ended:
            with contextlib.suppress(StorageError):
                asyncio.ensure_future(self._add_listener()).add_done_callback(ignore_result)

    def end(self) -> None:
        """Stop the iteration after the events that were read already."""
        self._ended = True
        self._woken.set()

    def __aiter__(self) -> EventFeed:
        return self

    async def __anext__(self) -> EventRecord:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._woken.clear()
            if not await self._read():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self._poll)
        return self._events.popleft()

    async def _read(self) -> bool:
        """Fetch the next events and keep those that this feed wants; False if there were none at all."""
        after, queue, names = await asyncio.shield(self._last), self._queue, self._names
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next_read - loop.time())
        self._next_read = loop.time() + READ_INTERVAL
        rows = await self._submit(lambda tx: waiters.read_events(tx, after, queue, READ_SIZE), False)
        if rows:
            self._last = loop.create_future()
            self._last.set_result(rows[-1][0])
        for _, note in rows:
            if note is not None:
                with contextlib.suppress(*UNREADABLE, TypeError):  # other software wrote it
                    self._events += [event for event in _decode(note) if names is None or event.name in names]
        return bool(rows)

    async def aclose(self) -> None:
        """End the iteration and delete the row of this listener."""
        if not self._ended:
            self.end()
            self._notifier.unregister(self._name)
            waiter = self._name
            with contextlib.suppress(StorageError):
                await self._submit(lambda tx: waiters.remove_listener(tx, waiter), True)

    def __del__(self) -> None:
        # The row is deleted when the next wake-up finds no waiter of that name: no verb can be awaited here.
        self._notifier.unregister(self._name)
