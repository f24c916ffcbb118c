"""The storage's feed: hearing what everybody does, and adding what only a worker knows."""

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


#: A storage that is away is asked again after half of this to all of it (seconds).
PAUSE = 1.0

#: A stream's mark is announced under this name, which is no event's, first after so long (seconds).
MARK, FIRST_PAUSE = "listening", 0.002


class EventStream:
    """What happens in the storage, whoever causes it: `async for event in app.events()`.

    It begins to listen with its first step; `async with app.events() as stream` listens for certain
    when the block begins, and has left nothing behind when it ends. A step that is cancelled loses
    nothing. When the storage was lost it goes on by itself; what happened meanwhile is not heard.
    """

    def __init__(self, host: AppHost, names: str | Iterable[str] | None = None, queue: str | None = None) -> None:
        self._host = host
        self._names = frozenset(EVENTS if names is None else check_names(names, "names"))
        if not self._names:
            raise ValueError("names must name at least one event; leave it out to hear all")
        self._queue = None if queue is None else check_name(queue, "queue")
        self._notes: AsyncIterator[EventRecord] | None = None
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
            note = await self._hear(await self._stepping())
            if note is not None and note.name in self._names:
                return self._event(note)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop listening; whoever waits for the next event gets the end of the iteration. Idempotent."""
        self._closed = True
        step, notes, self._notes = self._step, self._notes, None
        if step is not None:
            step.cancel()
            await asyncio.wait({step})
            if not step.cancelled():
                step.exception()
        await _close(notes)

    def __del__(self) -> None:
        # Forgotten in the middle of a step: the step must not go on for ever.
        step: asyncio.Task[Any] | None = getattr(self, "_step", None)
        if step is not None and not step.done() and not step.get_loop().is_closed():
            step.cancel()

    async def _listen(self) -> None:
        """Announce a mark until it comes back: whatever happens from then on is heard."""
        mark = EventRecord(MARK, self._queue or "", new_id(), 0)
        pause = FIRST_PAUSE
        while not self._closed:
            step = await self._stepping()
            done, _ = await asyncio.wait({step}, timeout=pause)
            if not done:
                await (await self._host.opened()).announce([mark])
                pause = min(2 * pause, PAUSE)
                continue
            note = await self._hear(step)
            if note is not None and (note.name, note.id) == (mark.name, mark.id):
                break

    async def _stepping(self) -> asyncio.Task[EventRecord | None]:
        """The step under way, or a new one."""
        if self._step is None:
            if self._notes is None:
                self._notes = (await self._host.opened()).events(self._queue)
            self._step = asyncio.create_task(_take(self._notes), name="penstock events")
        return self._step

    async def _hear(self, step: asyncio.Task[EventRecord | None]) -> EventRecord | None:
        """What a step gives; None when it is the end, or when there is a new beginning."""
        await asyncio.wait({step})
        self._step = None
        if self._closed or step.cancelled():
            return None
        try:
            note = step.result()
        except StorageUnavailable:
            notes, self._notes = self._notes, None
            await _close(notes)
            await asyncio.sleep(random.uniform(PAUSE / 2, PAUSE))
            return None
        if note is None:
            await self.aclose()
        return note

    def _event(self, note: EventRecord) -> Event:
        return Event(
            name=note.name,
            at=as_datetime(note.at),
            queue=note.queue,
            id=note.id,
            attempt=note.attempt,
            result=None if note.result is None else self._result(note.queue, note.result),
            error=None if note.error is None else JobError.decode(note.error),
            worker=note.worker,
        )

    def _result(self, queue: str, data: bytes) -> Any:
        """A result as the queue's serde reads it, or its bytes."""
        try:
            return decode(self._host.codec(queue).result, data)
        except InvalidPayload:
            return data


async def _take(notes: AsyncIterator[EventRecord]) -> EventRecord | None:
    return await anext(notes, None)


async def _close(notes: AsyncIterator[EventRecord] | None) -> None:
    closing = getattr(notes, "aclose", None)
    if closing is not None:
        with contextlib.suppress(StorageError):
            await closing()
