"""Helpers for coroutines: run one without an event loop, wait for the first of several, coalesce reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import Any, Generic, TypeVar

from penstock.errors import StorageError

__all__ = ["RequestCoalescer", "drive", "first_of"]

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, from start to end, on this thread; returns its value."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError(f"{coroutine.__qualname__} waits for an event loop, so it cannot be run on this thread")


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of the coroutines has ended, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class RequestCoalescer(Generic[T]):
    """Batches requests for single jobs into one call per queue.

    Requests made in one turn of the event loop, or while a call is in progress, go into the next call. A
    request never joins a call that was already sent, so its answer reflects everything done before it.
    """

    def __init__(self, fetch: Callable[[str, list[str]], Awaitable[list[T]]], max_batch: int) -> None:
        self._fetch = fetch
        self._max_batch = max_batch
        self._waiting: dict[str, dict[str, list[asyncio.Future[T]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}

    def get(self, queue: str, id: str) -> asyncio.Future[T]:
        """Return a future of the answer for one job of a queue."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.setdefault(queue, {}).setdefault(id, []).append(future)
        if queue not in self._senders:
            self._senders[queue] = loop.create_task(self._send(queue), name="penstock-ask")
        return future

    async def close(self) -> None:
        """Cancel the calls in progress; requests without an answer fail with `StorageError`."""
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders)
        for queue in list(self._senders):  # senders that were cancelled before they started
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
                future.exception()  # marks it as retrieved: the waiter may be gone, and asyncio would log it
