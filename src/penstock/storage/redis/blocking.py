"""The Redis storage for threads without an event loop: the same verbs over redis-py's blocking clients.

Its coroutines never suspend: whoever drives one gets its answer from the first step. What waits for
others (`wait_work`, `wait_done`, `events`) needs a loop and is not here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, NoReturn

from redis import Redis
from redis.cluster import RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from penstock.job import NewJob
from penstock.storage.base import Note, Put
from penstock.storage.redis import RedisStorage
from penstock.storage.redis.connection import Connection, Kit, client_of
from penstock.storage.redis.puts import PutCall, indexes_by_queue

__all__ = ["BlockingRedisStorage"]

BLOCKING = Kit(Redis, RedisCluster, Sentinel, Retry)


class BlockingRedisStorage(RedisStorage):
    """A `Storage` whose verbs block the calling thread; any number of threads may use it at once."""

    @staticmethod
    def _connect(url: str) -> Connection:
        return BlockingConnection(url)

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """Store jobs of any queues, a call for each queue and as many more as their size needs."""
        if len(jobs) == 1:
            call = PutCall(jobs[0].fresh)
            call.take(jobs, (0,), 0)
            return await self._put_now(jobs[0].queue, call.entries, call.blobs.all, fresh=call.fresh)
        answers: dict[int, Put] = {}
        for queue, indexes in indexes_by_queue(jobs).items():
            at = 0
            while at < len(indexes):
                call = PutCall(jobs[indexes[at]].fresh)
                end = call.take(jobs, indexes, at)
                puts = await self._put_now(queue, call.entries, call.blobs.all, fresh=call.fresh)
                answers.update(zip(indexes[at:end], puts, strict=True))
                at = end
        return [answers[i] for i in range(len(jobs))]

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        _refuse("wait_work")

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool:
        _refuse("wait_done")

    def events(self, queue: str | None = None) -> AsyncIterator[Note]:
        _refuse("events")


def _refuse(verb: str) -> NoReturn:
    raise RuntimeError(f"{verb} waits for others: it needs a storage with an event loop")


class BlockingConnection(Connection):
    """The rules of `Connection` (errors, repeats, NOSCRIPT) without its event loop."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._turns = contextlib.nullcontext()  # threads are few, and each has its own connection

    def _new_client(self, *, blocking: bool = False) -> Any:
        return None if blocking else _Client(self._url)

    async def _side_by_side(self, calls: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        return [await call for call in calls]

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs this


class _Client:
    """A blocking client under the names of the asyncio one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None

    def _made(self) -> Any:
        if self._client is None:
            self._client = client_of(self._url, BLOCKING)  # a Cluster's client connects as it is made
        return self._client

    async def initialize(self) -> None:
        self._made()

    async def execute_command(self, *args: object) -> Any:
        return (self._client or self._made()).execute_command(*args)

    def pipeline(self, *, transaction: bool) -> _Pipeline:
        return _Pipeline(self._made().pipeline(transaction=transaction))

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
            manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
            for sentinel in manager.sentinels if manager else ():
                sentinel.close()


class _Pipeline:
    """A blocking pipeline under the names of the asyncio one."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def execute_command(self, *args: object) -> None:
        self._pipe.execute_command(*args)

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        with self._pipe as pipe:
            return pipe.execute(raise_on_error=raise_on_error)
