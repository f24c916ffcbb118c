"""Streams as plain iterators."""

from __future__ import annotations

from typing import Any, Self

from penstock.client.streams import Stream as AsyncStream
from penstock.model.clock import Span
from penstock.model.history import Part
from penstock.sync.backends import SyncBackends

__all__ = ["Stream"]


class Stream:
    """The parts of a job, as they come: `for part in queue.stream(...)`. It ends as that of `penstock.Queue` does."""

    def __init__(self, backends: SyncBackends, stream: AsyncStream) -> None:
        self._backends = backends
        self._stream = stream

    @property
    def id(self) -> str | None:
        """The id of the job; None before `start`, or the first step, has enqueued it."""
        return self._stream.id

    def start(self) -> str:
        """Enqueue the job, unless that is done, and return its id."""
        return self._backends.run_blocking("stream()", self._stream.start())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Part:
        part = self._backends.run_blocking("stream()", self._next())
        if part is None:
            raise StopIteration
        return part

    def result(self, timeout: Span | None = None) -> Any:
        """Wait for the end of the job and return its result; raises as `Queue.wait` does."""
        return self._backends.run_blocking("stream()", self._stream.result(timeout))

    async def _next(self) -> Part | None:
        return await anext(self._stream, None)
