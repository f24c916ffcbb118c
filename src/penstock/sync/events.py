"""Event streams as plain iterators."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from penstock.client.event_stream import EventStream as AsyncEventStream
from penstock.model.events import Event
from penstock.sync.backends import SyncBackends
from penstock.sync.portal import Closed

__all__ = ["EventStream"]


class EventStream:
    """Stream of the events of a storage, of all its clients: `for event in app.events()`.

    It gives events from its first step on; `with app.events() as stream` from the beginning of the block.
    An interrupted step loses no event. Closing it, or the app, in another thread ends the iteration.
    """

    def __init__(self, backends: SyncBackends, stream: AsyncEventStream) -> None:
        self._backends = backends
        self._stream = stream

    def __enter__(self) -> Self:
        self._backends.run_blocking("events()", self._stream.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            event = self._backends.run_blocking("events()", self._next())
        except Closed:
            event = None
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Unsubscribe. Idempotent."""
        self._backends.portal.spawn_if_running(self._stream.aclose)

    def __del__(self) -> None:
        self.close()

    async def _next(self) -> Event | None:
        return await anext(self._stream, None)
