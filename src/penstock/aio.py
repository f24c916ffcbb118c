"""Questions about single jobs, asked at the same time, go to the storage as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Generic, TypeVar

from penstock.errors import StorageError

__all__ = ["RequestCoalescer"]

T = TypeVar("T")


class RequestCoalescer(Generic[T]):
    """Gathers what is asked in one turn of the loop, or while a call is under way, for the next call.

    A question never joins a call that has left: whoever asks sees everything that was done before.
    """

    def __init__(self, fetch: Callable[[str, list[str]], Awaitable[list[T]]], max_batch: int) -> None:
        self._fetch = fetch
        self._max_batch = max_batch
        self._waiting: dict[str, dict[str, list[asyncio.Future[T]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}

    def get(self, queue: str, id: str) -> asyncio.Future[T]:
        """The answer for one job of a queue."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.setdefault(queue, {}).setdefault(id, []).append(future)
        if queue not in self._senders:
            self._senders[queue] = loop.create_task(self._send(queue), name="penstock-ask")
        return future

    async def close(self) -> None:
        """End what is under way; whoever still asks is told."""
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders)
        for queue in list(self._senders):  # those that were ended before they began
            self._finish(queue)

    async def _send(self, queue: str) -> None:
        waiting = self._waiting[queue]
        try:
            while waiting:
                asked = {id: waiting.pop(id) for id in list(islice(waiting, self._max_batch))}
                await self._call(queue, asked)
        finally:
            self._finish(queue)

    def _finish(self, queue: str) -> None:
        del self._senders[queue]
        _fail(self._waiting.pop(queue), StorageError("the storage was closed before it could be asked"))

    async def _call(self, queue: str, asked: dict[str, list[asyncio.Future[T]]]) -> None:
        asked = {id: futures for id, futures in asked.items() if not all(future.done() for future in futures)}
        if not asked:
            return
        try:
            answers = await self._fetch(queue, list(asked))
        except Exception as error:
            _fail(asked, error)
        except BaseException:
            _fail(asked, StorageError("the storage was closed before it answered"))
            raise
        else:
            for futures, answer in zip(asked.values(), answers, strict=True):
                for future in futures:
                    if not future.done():
                        future.set_result(answer)


def _fail(asked: dict[str, list[asyncio.Future[T]]], error: Exception) -> None:
    for futures in asked.values():
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever was waiting may be gone: do not complain then
