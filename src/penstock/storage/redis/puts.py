"""Concurrent enqueues of one process leave in one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.job import NewJob
from penstock.storage.base import MAX_BATCH, Put
from penstock.storage.redis.records import Blobs, spell_job

__all__ = ["Puts"]

#: A script call carries at most this many bytes of payload, so that no call holds up the server.
MAX_BYTES = 4_000_000


class PutNow(Protocol):
    async def __call__(self, queue: str, entries: list[list[Any]], blobs: list[bytes], *, fresh: bool) -> list[Put]: ...


class _Waiting:
    """The jobs of one queue that wait for the call in flight to come back."""

    def __init__(self, fresh: bool) -> None:
        self.entries: list[list[Any]] = []
        self.blobs = Blobs()
        self.fresh = fresh
        self.size = 0
        self.asked: list[tuple[asyncio.Future[list[Put]], int, int]] = []


class Puts:
    """Gathers what is put while a call is under way, and sends it together when that call ends."""

    def __init__(self, put_now: PutNow) -> None:
        self._put_now = put_now
        self._waiting: dict[str, list[_Waiting]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """Store jobs of any queues; the answers come in the order of the jobs."""
        answers: list[Put | None] = [None] * len(jobs)
        by_queue: dict[str, list[int]] = {}
        for i, job in enumerate(jobs):
            by_queue.setdefault(job.queue, []).append(i)
        pending = [
            (indexes, future) for queue, all_ in by_queue.items() for indexes, future in self._add(queue, all_, jobs)
        ]
        results = await asyncio.gather(*(future for _, future in pending), return_exceptions=True)
        for (indexes, _), result in zip(pending, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            for i, put in zip(indexes, result, strict=True):
                answers[i] = put
        return [put for put in answers if put is not None]

    def _add(
        self, queue: str, indexes: list[int], jobs: Sequence[NewJob]
    ) -> list[tuple[list[int], asyncio.Future[list[Put]]]]:
        """Append to the last gathered call of the queue, opening new ones as they fill up."""
        loop = asyncio.get_running_loop()
        calls = self._waiting.setdefault(queue, [])
        added: list[tuple[list[int], asyncio.Future[list[Put]]]] = []
        at = 0
        while at < len(indexes):
            fresh = jobs[indexes[at]].fresh
            if (
                not calls
                or calls[-1].fresh != fresh
                or len(calls[-1].entries) >= MAX_BATCH
                or calls[-1].size > MAX_BYTES
            ):
                calls.append(_Waiting(fresh))
            call, start, first = calls[-1], len(calls[-1].entries), at
            while at < len(indexes) and len(call.entries) < MAX_BATCH and call.size <= MAX_BYTES:
                job = jobs[indexes[at]]
                if job.fresh != fresh:
                    break
                call.entries.append(spell_job(job, call.blobs))
                call.size += len(job.payload)
                at += 1
            future: asyncio.Future[list[Put]] = loop.create_future()
            call.asked.append((future, start, len(call.entries)))
            added.append((indexes[first:at], future))
        sender = self._senders.get(queue)
        if sender is None or sender.done():
            self._senders[queue] = loop.create_task(self._send(queue))
        return added

    async def _send(self, queue: str) -> None:
        calls = self._waiting[queue]
        while calls:
            call = calls.pop(0)
            try:
                puts = await self._put_now(queue, call.entries, call.blobs.all, fresh=call.fresh)
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
