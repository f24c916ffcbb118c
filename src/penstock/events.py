"""What happened, told to whoever wants to hear it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from penstock.errors import JobError

__all__ = ["EVENTS", "Event", "Listener", "Listeners"]

log = logging.getLogger("penstock")

EVENTS = (
    "enqueued", "updated", "started", "completed", "retrying", "failed", "stalled", "timed_out", "cancelled",
    "cancel_requested", "skipped", "invalid_data", "released", "lease_lost", "idle", "no_queues", "queue_deleted",
    "disconnected", "error",
)  # fmt: skip


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. `id` is empty where it was no job's doing, `queue` where it was no queue's."""

    name: str
    at: datetime
    queue: str = ""
    id: str = ""
    attempt: int = 0
    result: Any = None
    error: JobError | None = None
    worker: str | None = None


Listener = Callable[[Event], Awaitable[object] | object]
L = TypeVar("L", bound=Listener)


class Listeners:
    """The listeners of one app, by event name. One that raises is logged and harms nothing."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Listener]] = {}
        self._running: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def add(self, name: str, listener: Listener) -> None:
        """Call a listener for each event of this name; "*" is every event."""
        if name != "*" and name not in EVENTS:
            raise ValueError(f'unknown event {name!r}; known: {", ".join(EVENTS)}, or "*" for all')
        if not callable(listener):
            raise TypeError(f"a listener must be callable, not {type(listener).__name__}")
        self._by_name.setdefault(name, []).append(listener)

    def wants(self, name: str) -> bool:
        """Whether an event of this name would be heard, so that nobody builds it for nothing."""
        return bool(self._by_name) and (name in self._by_name or "*" in self._by_name)

    def tell(self, event: Event) -> None:
        """Call the listeners; async ones go on in the background."""
        for listener in (*self._by_name.get(event.name, ()), *self._by_name.get("*", ())):
            try:
                answer = listener(event)
                if inspect.isawaitable(answer):
                    task = asyncio.ensure_future(self._finish(event, answer))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
            except Exception:
                log.exception("a listener for %r raised", event.name)

    async def settle(self) -> None:
        """Wait for the async listeners that are under way."""
        while self._running:
            await asyncio.wait(self._running)

    async def _finish(self, event: Event, answer: Awaitable[object]) -> None:
        try:
            await answer
        except Exception:
            log.exception("a listener for %r raised", event.name)
