"""Streams: the parts that the runs of a job emit, as an async iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Self

from penstock.client.answers import Enqueued
from penstock.errors import JobNotFound
from penstock.host import AppHost
from penstock.model.checks import LARGEST
from penstock.model.clock import Span
from penstock.model.history import HistoryEntry, Part, read_part
from penstock.model.ids import check_name
from penstock.model.job import FINISHED
from penstock.model.serde import decode
from penstock.storage.recording import need_recording

__all__ = ["Stream", "StreamCalls"]

#: How long (seconds) one wait for further parts is, and how many parts one read returns.
WAIT, PAGE = 10.0, 200


class StreamQueue(Protocol):
    """The queue of a stream."""

    name: str

    async def wait(self, id: str, timeout: Span | None = None) -> Any: ...


class Stream:
    """The parts of a job, as they come: `async for part in queue.stream(...)`, or of `queue.follow(id)`.

    It ends when the job has completed. If it failed or was cancelled, `JobFailed` or `JobCancelled` is raised after the
    last part. `await stream.result()` returns the result.
    """

    def __init__(
        self,
        host: AppHost,
        queue: StreamQueue,
        id: str | None,
        after: int,
        put: Callable[[], Awaitable[Enqueued]] | None = None,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        self._host = host
        self._queue = queue
        self._id = id
        self._after = after
        self._put = put
        self._convert = convert
        self._parts: deque[Part] = deque()
        self._ended = False

    def __repr__(self) -> str:
        return f"<Stream of {self._id!r} in {self._queue.name!r}>"

    @property
    def id(self) -> str | None:
        """The id of the job; None before `start`, or the first step, has enqueued it."""
        return self._id

    async def start(self) -> str:
        """Enqueue the job, unless that is done, and return its id."""
        if self._id is None:
            assert self._put is not None
            self._id = (await self._put()).id
        return self._id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Part:
        id = await self.start()
        while not self._parts:
            if self._ended:
                raise StopAsyncIteration
            await self._read(id)
        return self._parts.popleft()

    async def result(self, timeout: Span | None = None) -> Any:
        """Wait for the end of the job and return its result; raises as `Queue.wait` does."""
        value = await self._queue.wait(await self.start(), timeout)
        return value if self._convert is None else self._convert(value)

    async def _read(self, id: str) -> None:
        """Take the next parts, after a wait if there are none; raises if the job ended otherwise than completed."""
        storage, name = await self._host.opened(), self._queue.name
        recording = need_recording(storage)
        [job] = await storage.get(name, [id])  # before the parts: after the end there are no more
        page = await recording.read(name, id, "stream", self._after, PAGE)
        if page is not None and page.entries:
            self._take(id, page.entries)
        elif job is None:
            raise JobNotFound(f"there is no job {id!r} in queue {name!r}: it never was there, or was not kept")
        elif job.state in FINISHED:
            await self._queue.wait(id)
            self._ended = True
        else:
            await recording.wait_history(name, id, "stream", self._after, WAIT)

    def _take(self, id: str, entries: list[HistoryEntry]) -> None:
        serde = self._host.codec(self._queue.name).result_for(id)
        for entry in entries:
            found = read_part(entry)
            if found is not None:
                began, data = found
                self._parts.append(Part(decode(serde, data), entry.n, entry.attempt, began > self._after))
            self._after = entry.n


class StreamCalls:
    """The part of a queue that reads streams."""

    name: str
    _host: AppHost

    async def wait(self, id: str, timeout: Span | None = None) -> Any:
        """Wait for a job and return its result."""
        raise NotImplementedError

    def follow(self, id: str, after: int | None = None) -> Stream:
        """Return the stream of a job that was enqueued earlier; with `after` the parts after that number.

        It has the parts that are kept, the last 1,000 or 1 MiB, and then those that come.
        """
        check_name(id, "id")
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise TypeError(f"after must be the number of a part, not {type(after).__name__}")
        return Stream(self._host, self, id, min(max(after or 0, 0), LARGEST))
