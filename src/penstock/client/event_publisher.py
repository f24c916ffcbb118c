"""Publishing of the events that only this process knows to the event streams of all processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque

from penstock.errors import StorageUnavailable, StorageUnusable
from penstock.model.printing import escape_controls
from penstock.storage.base import EventRecord, Storage

__all__ = ["EventPublisher"]


log = logging.getLogger("penstock")

#: The most records that are kept while they cannot be sent, and the least time between two sends (seconds).
MAX_PENDING, SEND_INTERVAL = 100, 1.0

#: How long (seconds) the last send may delay the closing of an app.
CLOSE_TIMEOUT = 1.0


class EventPublisher:
    """Publishes events to the storage in the background, at most once a second; emitting never waits for it.

    While the storage is unavailable the newest records are kept; they are sent when it is back.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._records: deque[EventRecord] = deque(maxlen=MAX_PENDING)
        self._task: asyncio.Task[None] | None = None
        self._next_send = 0.0
        self._closing = asyncio.Event()

    def add(self, record: EventRecord) -> None:
        """Queue a record to be sent soon."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no event loop, so no worker runs here
        self._records.append(record)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._send_all(), name="penstock announce")

    async def close(self) -> None:
        """Send the remaining records within `CLOSE_TIMEOUT`, or drop them; `add` may follow."""
        self._closing.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=CLOSE_TIMEOUT)
            task.cancel()
            await asyncio.wait({task})
        self._records.clear()
        self._closing.clear()

    async def _send_all(self) -> None:
        while self._records:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_send):
                    await self._closing.wait()
            self._next_send = asyncio.get_running_loop().time() + SEND_INTERVAL
            await self._send()
            if self._closing.is_set():
                break

    async def _send(self) -> None:
        """Send all records; those that the storage took or refused are dropped, the others kept."""
        records = list(self._records)
        try:
            await self._storage.announce(records)
        except StorageUnavailable:
            return
        except StorageUnusable as error:  # the worker or the caller whose call fails reports it
            log.debug("events are dropped: %s", escape_controls(str(error)))
        except Exception:
            log.exception("the storage refused an announcement")
        for record in records:
            with contextlib.suppress(ValueError):
                self._records.remove(record)
