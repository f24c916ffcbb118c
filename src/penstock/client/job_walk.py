"""Walks over the jobs of several queues at once: state by state, each state in one order of time.

The queues are read in pages, side by side, and their jobs are taken in the order of time, so that the first page of a
search over all queues has the newest jobs of all of them. A cursor has the place in each queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from penstock.aio import gather_each
from penstock.model.job import FIND_ORDER, Snapshot, State
from penstock.storage.base import Page, Storage

__all__ = ["MAX_TOGETHER", "ReadPage", "Walk", "WalkCursor"]

#: The queues that are read side by side; more are read after these, by name.
MAX_TOGETHER = 200

#: The most jobs of one page of a queue.
MAX_PAGE = 500

ReadPage = Callable[[str, State | None, str | None, int], Awaitable[Page]]


class WalkCursor(msgspec.Struct, frozen=True, array_like=True):
    """A place in a walk: the first queue of those read together, the state, and the place in each queue.

    A queue that is not in `places` is at its begin; one whose place is None has no more jobs in this state.
    """

    first: str = ""
    phase: int = 0
    places: dict[str, str | None] = {}


class Source(msgspec.Struct):
    """One queue of a walk: the page that was read last, where that begins, and how many of its jobs were taken."""

    queue: str
    start: str | None = None
    following: str | None = None
    jobs: list[Snapshot] = []
    taken: int = 0
    ended: bool = False
    was_read: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether a page must be read before a job can be taken."""
        return not self.ended and self.taken == len(self.jobs)


class Walk:
    """Jobs of queues in the order of `find`, or with `newest` the newest of each state first, from a cursor on.

    `state` is the one state that is wanted, None for all; with `apart` each is read by itself, also of a single queue.
    `size` is the number of jobs that are wanted, a hint.
    """

    def __init__(
        self, storage: Storage, read: ReadPage, queues: Sequence[str], *, state: State | None, newest: bool, size: int,
        after: WalkCursor, apart: bool = False,
    ) -> None:  # fmt: skip
        left = [name for name in queues if name >= after.first]
        self._together, self._following = left[:MAX_TOGETHER], left[MAX_TOGETHER : MAX_TOGETHER + 1]
        self._storage, self._read, self._newest, self._size = storage, read, newest, size
        together = state is not None or (len(queues) == 1 and not apart)
        self._wanted: Sequence[State | None] = [state] if together else FIND_ORDER
        self._phase, self._places = after.phase, after.places
        self._sources: list[Source] | None = None
        self._counts: dict[str, dict[State, int]] | None = None
        self._heap: list[tuple[int, int, Snapshot]] = []
        self._drained: list[int] = []
        self._page = min(MAX_PAGE, 2 * size // max(len(self._together), 1) + 1, size)

    async def next(self) -> Snapshot | None:
        """Take the next job; None if there is none in these queues."""
        while self._phase < len(self._wanted):
            if self._sources is None:
                self._sources = await self._open()
                self._drained = list(range(len(self._sources)))
            await self._fill(self._sources)
            if self._heap:
                _, index, job = heapq.heappop(self._heap)
                source = self._sources[index]
                source.taken += 1
                if source.taken < len(source.jobs):
                    self._push(index, source.jobs[source.taken])
                else:
                    self._drained.append(index)
                return job
            self._phase, self._places, self._sources = self._phase + 1, {}, None
        return None

    async def cursor(self) -> str | None:
        """Return the place after the job that was taken last, None at the end of all queues."""
        sources = self._sources or []
        partly = [source for source in sources if 0 < source.taken < len(source.jobs)]
        state = self._wanted[self._phase] if self._phase < len(self._wanted) else None
        pages = await gather_each(lambda source: self._page_of(source, state, source.taken), partly)
        places = dict(self._places)
        for source in sources:
            if source.ended:
                places[source.queue] = None
            elif source.was_read and not source.is_empty and not source.taken and source.start is not None:
                places[source.queue] = source.start
            elif source.was_read and source.is_empty:
                places[source.queue] = source.following
        places |= {source.queue: page.cursor for source, page in zip(partly, pages, strict=True)}
        if sources and any(places.get(source.queue, "") is not None for source in sources):
            return self._encode(WalkCursor(self._together[0], self._phase, places))
        if await self._has_later_states():
            return self._encode(WalkCursor(self._together[0], self._phase + 1))
        return self._encode(WalkCursor(self._following[0])) if self._following else None

    async def _open(self) -> list[Source]:
        """Return the queues that have jobs in this state."""
        state = self._wanted[self._phase]
        names = self._together
        if len(self._wanted) > 1 and state is not None:
            counts = await self._all_counts()
            names = [name for name in names if counts[name][state]]
        return [
            Source(name, self._places.get(name)) for name in names if self._places.get(name, "") is not None
        ]  # fmt: skip

    async def _all_counts(self) -> dict[str, dict[State, int]]:
        if self._counts is None:
            read = await gather_each(self._storage.counts, self._together)
            self._counts = dict(zip(self._together, read, strict=True))
        return self._counts

    async def _has_later_states(self) -> bool:
        later = [state for state in self._wanted[self._phase + 1 :] if state is not None]
        return bool(later) and any(each[state] for each in (await self._all_counts()).values() for state in later)

    async def _fill(self, sources: list[Source]) -> None:
        """Read the next page of every queue whose jobs were all taken."""
        state = self._wanted[self._phase]
        while self._drained:
            some: list[Source] = []
            for index in self._drained:
                source = sources[index]
                if source.was_read:
                    source.start, source.ended = source.following, source.following is None
                if not source.ended:
                    some.append(source)
            if any(source.was_read for source in some):
                self._page = min(self._page * 2, self._size, MAX_PAGE)
            pages = await gather_each(partial(self._page_of, state=state, limit=self._page), some)
            for source, page in zip(some, pages, strict=True):
                source.jobs, source.following, source.taken, source.was_read = page.jobs, page.cursor, 0, True
            for index in self._drained:
                if not sources[index].is_empty and not sources[index].ended:
                    self._push(index, sources[index].jobs[0])
            self._drained = [index for index in self._drained if sources[index].is_empty]

    async def _page_of(self, source: Source, state: State | None, limit: int) -> Page:
        return await self._read(source.queue, state, source.start, limit)

    def _push(self, index: int, job: Snapshot) -> None:
        at = moment_of(job)
        heapq.heappush(self._heap, (-at if self._newest else at, index, job))

    @staticmethod
    def _encode(cursor: WalkCursor) -> str:
        return msgspec.json.encode(cursor).decode()


def moment_of(job: Snapshot) -> int:
    """Return the time (ms) by which jobs of one state are ordered: of the end, of the begin of the run, or due."""
    if job.finished is not None:
        return job.finished
    return job.started or job.run_at if job.state is State.RUNNING else job.run_at
