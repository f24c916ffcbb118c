"""Event streams: the events of all processes that use a storage, as an async iterator."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self

from penstock.errors import InvalidPayload, JobError, StorageError, StorageUnavailable
from penstock.host import AppHost
from penstock.model.clock import as_datetime
from penstock.model.events import EVENTS, Event, check_names
from penstock.model.ids import check_name, new_id
from penstock.model.serde import decode
from penstock.storage.base import EventRecord

__all__ = ["EventStream"]


#: After a loss of the storage a stream retries after half of this to all of it (seconds).
RETRY_DELAY = 1.0

#: At most this many records are read ahead; the others wait in the storage.
MAX_AHEAD = 1000

#: The name of a stream's marks, which is no event's, and the wait before the first one (seconds).
MARK, FIRST_MARK_DELAY = "listening", 0.002


class EventStream:
    """Stream of the events of a storage, of all its clients: `async for event in app.events()`.

    It is subscribed with its first step; `async with app.events() as stream` is subscribed for certain
    when the block begins, and unsubscribed when it ends. A step that is cancelled loses no event. After
    a loss of the storage it subscribes again by itself; events of the meantime are missed.
    """

    def __init__(self, host: AppHost, names: str | Iterable[str] | None = None, queue: str | None = None) -> None:
        self._host = host
        self._names = frozenset(EVENTS if names is None else check_names(names, "names"))
        if not self._names:
            raise ValueError("names must name at least one event; leave it out for all")
        self._queue = None if queue is None else check_name(queue, "queue")
        self._reader: _Reader | None = None
        self._closed = False
        #: A time (ms) and the same as a datetime: many events have the time of the one before.
        self._time = 0, as_datetime(0)

    async def __aenter__(self) -> Self:
        try:
            await self._listen()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            reader = self._reader or await self._start()
            record = reader.take() if reader.records else await self._next_record(reader)
            if record is not None and record.name in self._names:
                return self._event(record)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Unsubscribe; a pending `anext` ends the iteration. Idempotent."""
        self._closed = True
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    def __del__(self) -> None:
        # Collected while it is subscribed: the reader must not run for ever.
        reader: _Reader | None = getattr(self, "_reader", None)
        if reader is not None:
            reader.cancel()

    async def _listen(self) -> None:
        """Announce a mark until it comes back: the stream is subscribed from then on."""
        mark = EventRecord(MARK, self._queue or "", new_id(), 0)
        pause = FIRST_MARK_DELAY
        while not self._closed:
            reader = self._reader or await self._start()
            try:
                async with asyncio.timeout(pause):
                    await reader.wait()
            except TimeoutError:
                await (await self._host.opened()).announce([mark])
                pause = min(2 * pause, RETRY_DELAY)
                continue
            record = await self._next_record(reader)
            if record is not None and (record.name, record.id) == (mark.name, mark.id):
                break

    async def _start(self) -> _Reader:
        """Begin to read; the storage gives only the events of this stream and its marks."""
        storage = await self._host.opened()
        if self._reader is None:
            names = None if len(self._names) == len(EVENTS) else self._names | {MARK}
            self._reader = _Reader(storage.events(self._queue, names))
        return self._reader

    async def _next_record(self, reader: _Reader) -> EventRecord | None:
        """Wait for a record; None at the end, or when the stream has to subscribe again."""
        await reader.wait()
        if reader.records:
            return reader.take()
        if self._closed or self._reader is not reader:
            return None
        self._reader = None
        await reader.close()
        if isinstance(reader.error, StorageUnavailable):
            await asyncio.sleep(random.uniform(RETRY_DELAY / 2, RETRY_DELAY))
        elif reader.error is not None:
            raise reader.error
        else:
            self._closed = True
        return None

    def _event(self, record: EventRecord) -> Event:
        if record.at != self._time[0]:
            self._time = record.at, as_datetime(record.at)
        return Event(
            name=record.name,
            at=self._time[1],
            queue=record.queue,
            id=record.id,
            attempt=record.attempt,
            result=None if record.result is None else self._result(record, record.result),
            error=None if record.error is None else JobError.decode(record.error),
            worker=record.worker,
        )

    def _result(self, record: EventRecord, data: bytes) -> Any:
        """Decode a result with the serde of its queue; gives its bytes if that fails."""
        try:
            return decode(self._host.codec(record.queue).result_for(record.id), data)
        except InvalidPayload:
            return data


class _Reader:
    """Background task that reads the records of a storage ahead, so that not each of them takes a turn of the loop."""

    def __init__(self, records: AsyncIterator[EventRecord]) -> None:
        self.records: deque[EventRecord] = deque()
        #: The error that ended the task; None at the end of the records.
        self.error: Exception | None = None
        self._source = records
        self._changed, self._room = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._read(), name="penstock events")

    async def wait(self) -> None:
        """Wait until there are records, or the reader has ended."""
        await self._changed.wait()

    def take(self) -> EventRecord:
        """Return the next of `records`, which must not be empty."""
        record = self.records.popleft()
        if not self.records and not self._task.done():
            self._changed.clear()
        if len(self.records) == MAX_AHEAD // 2:
            self._room.set()
        return record

    async def close(self) -> None:
        """Stop to read, and unsubscribe."""
        self._task.cancel()
        await asyncio.wait({self._task})
        closing = getattr(self._source, "aclose", None)
        if closing is not None:
            with contextlib.suppress(StorageError):
                await closing()

    def cancel(self) -> None:
        """Stop to read, without waiting for it."""
        if not self._task.done() and not self._task.get_loop().is_closed():
            self._task.cancel()

    async def _read(self) -> None:
        try:
            async for record in self._source:
                self.records.append(record)
                if len(self.records) == 1:
                    self._changed.set()
                elif len(self.records) >= MAX_AHEAD:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            self.error = error
        finally:
            self._changed.set()
