"""Concurrent enqueues of one process leave in few script calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, Put

__all__ = ["PutCall", "Puts", "indexes_by_queue"]

#: A script call carries at most this many bytes of payload, so that no call holds up the server.
MAX_BYTES = 4_000_000

#: So many jobs are worth a call of their own, if there is a way for it.
ENOUGH = 32


class PutNow(Protocol):
    async def __call__(self, queue: str, jobs: Sequence[NewJob], *, fresh: bool, way: int) -> list[Put]: ...


class PutCall:
    """One script call with jobs of one queue: all with ids just made up, or none."""

    def __init__(self, fresh: bool) -> None:
        self.jobs: list[NewJob] = []
        self.fresh = fresh
        self.size = 0

    @property
    def full(self) -> bool:
        return len(self.jobs) >= MAX_BATCH or self.size > MAX_BYTES

    def take(self, jobs: Sequence[NewJob], indexes: Sequence[int], at: int) -> int:
        """Take the jobs at these indexes, from the one at `at`, while they fit; gives where it stopped."""
        while at < len(indexes) and not self.full:
            job = jobs[indexes[at]]
            if job.fresh != self.fresh:
                break
            self.jobs.append(job)
            self.size += len(job.payload)
            at += 1
        return at


class _Waiting(PutCall):
    """Jobs that wait for a way to be free, and who asked for which of them."""

    def __init__(self, fresh: bool) -> None:
        super().__init__(fresh)
        self.asked: list[tuple[asyncio.Future[list[Put]], int, int]] = []
        #: Whether it may be under way together with others: then, if it must be sent again, it may come after them.
        self.loose = fresh


class _Traffic:
    """What is under way for one queue, and what waits. The first way is taken from the beginning."""

    __slots__ = ("calls", "idle", "jobs", "most", "starting")

    def __init__(self, ways: int, jobs: int) -> None:
        self.calls: list[_Waiting] = []
        self.idle = [*range(1, ways)]
        #: How many senders are about to look what waits.
        self.starting = 0
        #: How many jobs are under way or wait, and how many that were at most.
        self.jobs = self.most = jobs

    def add(self, count: int) -> None:
        self.jobs += count
        if self.jobs > self.most:
            self.most = self.jobs

    def next(self, way: int) -> _Waiting | None:
        """What may go on a way now: in order, and on another way than the first only what need not keep it."""
        if not self.calls or (way > 0 and not self.calls[0].loose):
            return None
        return self.calls.pop(0)


def indexes_by_queue(jobs: Sequence[NewJob]) -> dict[str, list[int]]:
    """Where the jobs of each queue stand among all."""
    by_queue: dict[str, list[int]] = {}
    for i, job in enumerate(jobs):
        by_queue.setdefault(job.queue, []).append(i)
    return by_queue


class Puts:
    """Gathers what is put while calls are under way, and sends it together when one of them ends.

    With two ways the server works on one call while we spell, or read, another. The calls of each way come
    one after the other.
    """

    def __init__(self, put_now: PutNow, ways: int) -> None:
        self._put_now = put_now
        self._ways = ways
        self._traffic: dict[str, _Traffic] = {}
        self._senders: set[asyncio.Task[None]] = set()

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """Store jobs of any queues; the answers come in the order of the jobs."""
        if not jobs:
            return []
        count, queue = len(jobs), jobs[0].queue
        traffic = self._traffic.get(queue)
        if traffic is None and (count == 1 or _fit_one_call(jobs)):  # at once; what comes meanwhile may have to wait
            traffic = self._traffic[queue] = _Traffic(self._ways, count)
            try:
                return await self._put_now(queue, jobs, fresh=jobs[0].fresh, way=0)
            finally:
                traffic.jobs -= count
                self._end(queue, traffic, 0)
        if traffic is not None and count == 1:
            return await self._join(queue, traffic, jobs[0])
        answers: list[Put | None] = [None] * len(jobs)
        pending = [
            (indexes, future)
            for queue, all_ in indexes_by_queue(jobs).items()
            for indexes, future in self._add(queue, all_, jobs)
        ]
        results = await asyncio.gather(*(future for _, future in pending), return_exceptions=True)
        for (indexes, _), result in zip(pending, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            for i, put in zip(indexes, result, strict=True):
                answers[i] = put
        return [put for put in answers if put is not None]

    def _join(self, queue: str, traffic: _Traffic, job: NewJob) -> asyncio.Future[list[Put]]:
        """As `_add`, for one job: it goes with the last call that is gathered, unless that has its share."""
        traffic.add(1)
        call = traffic.calls[-1] if traffic.calls else None
        if (
            call is None or call.fresh != job.fresh or call.full
            or len(call.jobs) >= max(ENOUGH, traffic.most // self._ways)
        ):  # fmt: skip
            call = _Waiting(job.fresh)
            traffic.calls.append(call)
        future: asyncio.Future[list[Put]] = asyncio.get_running_loop().create_future()
        start = len(call.jobs)
        call.jobs.append(job)
        call.size += len(job.payload)
        call.asked.append((future, start, start + 1))
        if job.group is not None:
            call.loose = False
        self._start(queue, traffic)
        return future

    def _add(
        self, queue: str, indexes: list[int], jobs: Sequence[NewJob]
    ) -> list[tuple[list[int], asyncio.Future[list[Put]]]]:
        """Append to the last gathered call of the queue, opening new ones as they fill up."""
        loop = asyncio.get_running_loop()
        traffic = self._traffic.get(queue)
        if traffic is None:
            traffic = self._traffic[queue] = _Traffic(self._ways, 0)
            traffic.idle.append(0)
        calls = traffic.calls
        added: list[tuple[list[int], asyncio.Future[list[Put]]]] = []
        at = 0
        while at < len(indexes):
            fresh = jobs[indexes[at]].fresh
            if not calls or calls[-1].fresh != fresh or calls[-1].full:
                calls.append(_Waiting(fresh))
            call, start, first = calls[-1], len(calls[-1].jobs), at
            at = call.take(jobs, indexes, at)
            call.loose = False  # they were put together: they keep their order
            future: asyncio.Future[list[Put]] = loop.create_future()
            call.asked.append((future, start, len(call.jobs)))
            added.append((indexes[first:at], future))
        traffic.add(len(indexes))
        self._start(queue, traffic)
        return added

    def _start(self, queue: str, traffic: _Traffic) -> None:
        """Have an idle way take what waits, in the next turn of the loop: until then others may join."""
        if not traffic.idle or traffic.starting >= len(traffic.calls):
            return
        way = min(traffic.idle)
        if way == 0 or traffic.calls[traffic.starting].loose:
            traffic.idle.remove(way)
            traffic.starting += 1
            sender = asyncio.get_running_loop().create_task(self._send(queue, traffic, way))
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    async def _send(self, queue: str, traffic: _Traffic, way: int) -> None:
        """Carry what waits, a call after the other, until nothing does."""
        traffic.starting -= 1
        call = None
        try:
            while (call := traffic.next(way)) is not None:
                try:
                    puts = await self._put_now(queue, call.jobs, fresh=call.fresh, way=way)
                except Exception as error:
                    _refuse(call, error)
                else:
                    for future, start, end in call.asked:
                        if not future.done():
                            future.set_result(puts[start:end])
                traffic.jobs -= len(call.jobs)
                await asyncio.sleep(0)  # those who were answered may have more, which goes together
        except BaseException as error:  # the loop comes to its end
            for left in ([] if call is None else [call]) + traffic.calls:
                _refuse(left, error)
            traffic.calls.clear()
            raise
        finally:
            self._end(queue, traffic, way)

    def _end(self, queue: str, traffic: _Traffic, way: int) -> None:
        """A way is free again."""
        traffic.idle.append(way)
        if traffic.calls:
            self._start(queue, traffic)
        elif len(traffic.idle) == self._ways:
            del self._traffic[queue]


def _fit_one_call(jobs: Sequence[NewJob]) -> bool:
    """Whether jobs may go to the server together."""
    queue, fresh = jobs[0].queue, jobs[0].fresh
    size = 0
    for job in jobs:
        if job.queue != queue or job.fresh != fresh:
            return False
        size += len(job.payload)
    return len(jobs) <= MAX_BATCH and size <= MAX_BYTES


def _refuse(call: _Waiting, error: BaseException) -> None:
    for future, _, _ in call.asked:
        if not future.done():
            future.set_exception(error)
            future.exception()  # whoever was waiting may be gone: do not complain then
