"""Event streams: the events of all processes that use a storage, as an async iterator."""

from __future__ import annotations

import asyncio
import contextlib
import random
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
        self._records: AsyncIterator[EventRecord] | None = None
        self._step: asyncio.Task[EventRecord | None] | None = None
        self._closed = False

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
            record = await self._finish_step(await self._current_step())
            if record is not None and record.name in self._names:
                return self._event(record)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Unsubscribe; a pending `anext` ends the iteration. Idempotent."""
        self._closed = True
        step, records, self._records = self._step, self._records, None
        if step is not None:
            step.cancel()
            await asyncio.wait({step})
            if not step.cancelled():
                step.exception()
        await _close(records)

    def __del__(self) -> None:
        # Collected during a step: the step must not run for ever.
        step: asyncio.Task[Any] | None = getattr(self, "_step", None)
        if step is not None and not step.done() and not step.get_loop().is_closed():
            step.cancel()

    async def _listen(self) -> None:
        """Announce a mark until it comes back: the stream is subscribed from then on."""
        mark = EventRecord(MARK, self._queue or "", new_id(), 0)
        pause = FIRST_MARK_DELAY
        while not self._closed:
            step = await self._current_step()
            done, _ = await asyncio.wait({step}, timeout=pause)
            if not done:
                await (await self._host.opened()).announce([mark])
                pause = min(2 * pause, RETRY_DELAY)
                continue
            record = await self._finish_step(step)
            if record is not None and (record.name, record.id) == (mark.name, mark.id):
                break

    async def _current_step(self) -> asyncio.Task[EventRecord | None]:
        """Return the step in progress, or start one."""
        if self._step is None:
            if self._records is None:
                self._records = (await self._host.opened()).events(self._queue)
            self._step = asyncio.create_task(_next_record(self._records), name="penstock events")
        return self._step

    async def _finish_step(self, step: asyncio.Task[EventRecord | None]) -> EventRecord | None:
        """Wait for a step and return its record; None at the end, or when the stream has to subscribe again."""
        await asyncio.wait({step})
        self._step = None
        if self._closed or step.cancelled():
            return None
        try:
            record = step.result()
        except StorageUnavailable:
            records, self._records = self._records, None
            await _close(records)
            await asyncio.sleep(random.uniform(RETRY_DELAY / 2, RETRY_DELAY))
            return None
        if record is None:
            await self.aclose()
        return record

    def _event(self, record: EventRecord) -> Event:
        return Event(
            name=record.name,
            at=as_datetime(record.at),
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


async def _next_record(records: AsyncIterator[EventRecord]) -> EventRecord | None:
    return await anext(records, None)


async def _close(records: AsyncIterator[EventRecord] | None) -> None:
    closing = getattr(records, "aclose", None)
    if closing is not None:
        with contextlib.suppress(StorageError):
            await closing()
