"""Helpers for coroutines: run one without an event loop, refuse one that is never awaited, coalesce or bound reads."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

from penstock.errors import StorageError

__all__ = ["RequestCoalescer", "drive", "first_of", "gather_each", "plain_handlers", "refused_in_plain_handlers"]

T = TypeVar("T")
Item = TypeVar("Item")
C = TypeVar("C")


class PlainHandlers(threading.local):
    """Whether this thread runs plain handlers, which cannot await; a worker sets it for its threads."""

    here: bool = False


plain_handlers = PlainHandlers()


def refused_in_plain_handlers(is_driven: Callable[[Any], bool]) -> Callable[[type[C]], type[C]]:
    """Decorate a class whose public coroutine methods raise, at the call, in the thread of a plain handler.

    There the coroutine would never be awaited, and a job that it was to enqueue would be lost.
    `is_driven` returns whether a sync app runs the coroutines of an object: these are not refused.
    """

    def decorate(cls: type[C]) -> type[C]:
        for name, function in list(vars(cls).items()):
            if inspect.iscoroutinefunction(function) and not name.startswith("_"):
                setattr(cls, name, _refused(function, is_driven))
        return cls

    return decorate


def _refused(function: Callable[..., Any], is_driven: Callable[[Any], bool]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if plain_handlers.here and not is_driven(self) and not _has_running_loop():
            raise RuntimeError(
                f"{function.__qualname__}() of an async app returns a coroutine, which a plain handler cannot await: "
                "write the handler as `async def`, use job.then(...) for follow-up jobs, or use penstock.sync.Penstock"
            )
        return function(self, *args, **options)

    return call


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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


async def gather_each(
    call: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item], at_once: int = 50
) -> list[T]:
    """Call a coroutine function for each item, at most `at_once` at the same time; returns the results in order."""
    found: list[T] = []
    left = iter(items)
    while some := list(islice(left, at_once)):
        found += await asyncio.gather(*map(call, some))
    return found


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
