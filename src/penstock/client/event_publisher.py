"""The storage's feed: hearing what everybody does, and adding what only a worker knows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque

from penstock.errors import StorageUnavailable
from penstock.storage.base import EventRecord, Storage

__all__ = ["EventPublisher"]


log = logging.getLogger("penstock")

#: The announcer keeps so many notes while it cannot send them, and sends at most so often (seconds).
MAX_PENDING, SEND_INTERVAL = 100, 1.0

#: How long (seconds) the last announcements may hold up the closing of an app.
CLOSE_TIMEOUT = 1.0


class EventPublisher:
    """Adds to the feed what only this process knows, in the background: at most once a second, never in the way.

    While the storage is away the newest notes are kept; when it is back they are sent.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._records: deque[EventRecord] = deque(maxlen=MAX_PENDING)
        self._task: asyncio.Task[None] | None = None
        self._next_send = 0.0
        self._closing = asyncio.Event()

    def add(self, record: EventRecord) -> None:
        """Send a note soon."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # nobody works here
        self._records.append(record)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._send_all(), name="penstock announce")

    async def close(self) -> None:
        """Send what is left if that can be done quickly; `add` may follow."""
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
        """Send everything; it is forgotten once the storage has it, or has refused it."""
        notes = list(self._records)
        try:
            await self._storage.announce(notes)
        except StorageUnavailable:
            return
        except Exception:
            log.exception("the storage refused an announcement")
        for note in notes:
            with contextlib.suppress(ValueError):
                self._records.remove(note)
