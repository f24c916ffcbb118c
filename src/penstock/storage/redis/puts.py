"""Concurrent enqueues of one process leave in one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from penstock.job import NewJob
from penstock.storage.base import MAX_BATCH, Put

__all__ = ["PutCall", "Puts", "indexes_by_queue"]

#: A script call carries at most this many bytes of payload, so that no call holds up the server.
MAX_BYTES = 4_000_000


class PutNow(Protocol):
    async def __call__(self, queue: str, jobs: Sequence[NewJob], *, fresh: bool) -> list[Put]: ...


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
    """Jobs that wait for the call in flight to come back, and who asked for which of them."""

    def __init__(self, fresh: bool) -> None:
        super().__init__(fresh)
        self.asked: list[tuple[asyncio.Future[list[Put]], int, int]] = []


def indexes_by_queue(jobs: Sequence[NewJob]) -> dict[str, list[int]]:
    """Where the jobs of each queue stand among all."""
    by_queue: dict[str, list[int]] = {}
    for i, job in enumerate(jobs):
        by_queue.setdefault(job.queue, []).append(i)
    return by_queue


class Puts:
    """Gathers what is put while a call is under way, and sends it together when that call ends."""

    def __init__(self, put_now: PutNow) -> None:
        self._put_now = put_now
        self._waiting: dict[str, list[_Waiting]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """Store jobs of any queues; the answers come in the order of the jobs."""
        if len(jobs) == 1:
            queue = jobs[0].queue
            calls = self._waiting.get(queue)
            if calls is None:
                return await self._put_at_once(queue, jobs)
            return await self._join(calls, jobs[0])
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

    def _join(self, calls: list[_Waiting], job: NewJob) -> asyncio.Future[list[Put]]:
        """As `_add`, for one job: it goes with the last call that is gathered."""
        call = calls[-1] if calls else None
        if call is None or call.fresh != job.fresh or call.full:
            call = _Waiting(job.fresh)
            calls.append(call)
        future: asyncio.Future[list[Put]] = asyncio.get_running_loop().create_future()
        start = len(call.jobs)
        call.jobs.append(job)
        call.size += len(job.payload)
        call.asked.append((future, start, start + 1))
        return future

    async def _put_at_once(self, queue: str, jobs: Sequence[NewJob]) -> list[Put]:
        """Nothing is under way for the queue; what comes meanwhile waits for this one."""
        calls = self._waiting[queue] = []
        try:
            return await self._put_now(queue, jobs, fresh=jobs[0].fresh)
        finally:
            if calls:
                self._senders[queue] = asyncio.get_running_loop().create_task(self._send(queue))
            else:
                del self._waiting[queue]

    def _add(
        self, queue: str, indexes: list[int], jobs: Sequence[NewJob]
    ) -> list[tuple[list[int], asyncio.Future[list[Put]]]]:
        """Append to the last gathered call of the queue, opening new ones as they fill up."""
        loop = asyncio.get_running_loop()
        idle = queue not in self._waiting
        calls = self._waiting.setdefault(queue, [])
        added: list[tuple[list[int], asyncio.Future[list[Put]]]] = []
        at = 0
        while at < len(indexes):
            fresh = jobs[indexes[at]].fresh
            if not calls or calls[-1].fresh != fresh or calls[-1].full:
                calls.append(_Waiting(fresh))
            call, start, first = calls[-1], len(calls[-1].jobs), at
            at = call.take(jobs, indexes, at)
            future: asyncio.Future[list[Put]] = loop.create_future()
            call.asked.append((future, start, len(call.jobs)))
            added.append((indexes[first:at], future))
        if idle:
            self._senders[queue] = loop.create_task(self._send(queue))
        return added

    async def _send(self, queue: str) -> None:
        calls = self._waiting[queue]
        while calls:
            call = calls.pop(0)
            try:
                puts = await self._put_now(queue, call.jobs, fresh=call.fresh)
            except BaseException as error:
                for future, _, _ in call.asked:
                    if not future.done():
                        future.set_exception(error)
                        future.exception()  # whoever was waiting may be gone: do not complain then
                if not isinstance(error, Exception):
                    raise
            else:
                for future, start, end in call.asked:
                    if not future.done():
                        future.set_result(puts[start:end])
        del self._waiting[queue]
        del self._senders[queue]
