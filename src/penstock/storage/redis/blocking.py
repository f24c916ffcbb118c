"""Redis storage for threads without an event loop: the same verbs over redis-py's blocking clients.

Its coroutines never suspend: the first step of each returns its answer. The verbs that wait (`wait_work`,
`wait_done`, `wait_cancel`, `events`) need an event loop and raise `RuntimeError` here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, NoReturn, Self

from redis import Redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from penstock.model.job import NewJob
from penstock.storage.base import EventRecord, Put
from penstock.storage.redis import RedisStorage
from penstock.storage.redis.blocking_pipeline import ThreadConnectionPool
from penstock.storage.redis.clients import ClientClasses, client_of
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.pipeline import pack_command
from penstock.storage.redis.put import PutBatch, indexes_by_queue
from penstock.storage.redis.sockets import Sockets

__all__ = ["BlockingRedisStorage"]

BLOCKING = ClientClasses(Redis, RedisCluster, ClusterNode, Sentinel, Retry)


class BlockingRedisStorage(RedisStorage):
    """A `Storage` whose verbs block the calling thread; any number of threads may use it at once."""

    shares_connection = False

    @staticmethod
    def _connect(url: str) -> Connection:
        return BlockingConnection(url)

    async def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        """Store jobs of any queues: a call for each queue, and more where a batch is full."""
        if any(job.flow is not None for job in jobs):
            return await self._put_flow(jobs, max_queued)
        if max_queued is not None and jobs:
            return await self._put_calls.send_bounded(jobs, max_queued)
        if len(jobs) == 1:
            return await self._put_calls.send(jobs[0].queue, jobs, fresh=jobs[0].fresh)
        answers: dict[int, Put] = {}
        for queue, indexes in indexes_by_queue(jobs).items():
            own = [jobs[i] for i in indexes]
            at = 0
            while at < len(own):
                batch = PutBatch(own[at].fresh)
                end = batch.take(own, at)
                puts = await self._put_calls.send(queue, batch.jobs, fresh=batch.fresh)
                answers.update(zip(indexes[at:end], puts, strict=True))
                at = end
        return [answers[i] for i in range(len(jobs))]

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        _refuse("wait_work")

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool:
        _refuse("wait_done")

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        _refuse("wait_cancel")

    def events(self, queue: str | None = None, names: Collection[str] | None = None) -> AsyncIterator[EventRecord]:
        _refuse("events")


def _refuse(verb: str) -> NoReturn:
    raise RuntimeError(f"{verb} waits for others: it needs a storage with an event loop")


class BlockingConnection(Connection):
    """The rules of `Connection` (errors, retries, NOSCRIPT) without its event loop."""

    def bounded(self, timeout: float) -> Self:
        """Return this connection with a bound for each request; only producers use it, so there is one bound."""
        self._sockets.threads_timeout = timeout
        return super().bounded(timeout)

    async def open(self) -> None:
        """Make the client, and send a PING."""
        sockets = self._sockets
        if sockets.client is None:
            try:
                # That of a Cluster connects when it is made.
                sockets.client = client_of(self._server, BLOCKING, sockets.threads_timeout)
                if not self.cluster:
                    sockets.threads = ThreadConnectionPool(sockets.client.connection_pool, self.read_timeout)
                await self._ping(sockets)
            except BaseException as error:
                await self.close()
                raise self.explain(error) from error

    async def _ping(self, sockets: Sockets) -> None:
        if sockets.threads is None:
            await self._send("PING")
        else:
            sockets.threads.call(pack_command("PING"), timeout=sockets.threads_timeout)

    async def close(self) -> None:
        sockets = self._sockets
        client, sockets.client = sockets.client, None
        threads, sockets.threads = sockets.threads, None
        if threads is not None:
            threads.close()
        if client is not None:
            client.close()
            manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
            for sentinel in manager.sentinels if manager else ():
                sentinel.close()

    def _left(self, deadline: float | None) -> float | None:
        """Return the seconds until a deadline: the whole bound if the request began just now.

        So the timeout of a connection is set once, and again only for a retry.
        """
        if deadline is None or self.timeout is None:
            return None
        left = deadline - time.monotonic()
        return self.timeout if left > 0.9 * self.timeout else max(0.001, left)

    async def try_once(self, command: bytes, deadline: float | None) -> Any:
        threads = self._sockets.threads
        if threads is None:
            return None
        try:
            (answer,) = threads.call(command, timeout=self.timeout, check=False)
        except (RedisError, OSError) as error:
            return error
        return answer

    async def _send(self, *args: Any, deadline: float | None = None) -> Any:
        threads = self._sockets.threads
        if threads is None:
            return self.client.execute_command(*args)
        (answer,) = threads.call(pack_command(*args), timeout=self._left(deadline))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _send_many(self, commands: list[tuple[Any, ...]], deadline: float | None) -> list[Any]:
        client, threads = self.client, self._sockets.threads
        if threads is not None:
            packed = b"".join(pack_command(*args) for args in commands)
            return threads.call(packed, len(commands), timeout=self._left(deadline))
        answers: list[Any] = []
        for args in commands:
            try:
                answers.append(client.execute_command(*args))
            except (RedisError, OSError) as error:
                answers.append(error)
        return answers

    async def alone(self, commands: list[tuple[Any, ...]], key: str, seconds: float) -> list[Any]:
        threads = self._sockets.threads
        if threads is not None:  # each call has a connection of its own anyway
            return threads.call(b"".join(pack_command(*args) for args in commands), len(commands), timeout=seconds)
        client = self.client
        pool = client.get_redis_connection(client.get_node_from_key(key)).connection_pool
        connection = pool.get_connection()
        answers = list[Any]()
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            for _ in commands:
                try:
                    answers.append(connection.read_response())
                except ResponseError as error:
                    answers.append(error)
            return answers
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs this
