"""Connection to Redis, Valkey, Sentinel or Cluster: sends commands, retries them, and explains errors."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from penstock.errors import StorageError, StorageUnavailable
from penstock.storage.redis.clients import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    ClientClasses,
    client_of,
    close,
    describe,
    options_of,
    read_timeout_of,
)
from penstock.storage.redis.pipeline import NoReplicasError, Pipeline, cancellable, pack_command
from penstock.storage.redis.scripts import Script

__all__ = ["Connection"]

T = TypeVar("T")

_UNAVAILABLE = (
    ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, ClusterDownError, ClusterError, MasterDownError,
    NoReplicasError, OutOfMemoryError, TryAgainError, OSError,
)  # fmt: skip

#: The codes of error answers that mean "not now" rather than "wrong".
_NOT_NOW = (
    "LOADING", "READONLY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY", "UNBLOCKED",
)  # fmt: skip

#: The same as exceptions, of which redis-py has removed the code.
_REFUSALS = (BusyLoadingError, ReadOnlyError, OutOfMemoryError, MasterDownError, NoReplicasError, TryAgainError)

#: The Cluster client raises a `RedisClusterException`, which may mean anything, with this text if it finds no node.
_UNREACHED = "cannot be connected"

#: On a Cluster each call under way has a connection of its own: at most this many, other calls wait.
_MAX_CALLS = 50

#: How often a call that may be repeated is sent, and the longest pause (seconds) before the next time.
_TRIES, _PAUSE = 5, 0.5

ASYNCIO = ClientClasses(Redis, RedisCluster, Sentinel, Retry)


class Connection:
    """Commands and script calls to the server at a URL. A call is repeated only if its caller allows it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.where, self.cluster = describe(url)
        #: The timeout (seconds) of an answer.
        self.read_timeout = read_timeout_of(url)
        #: A call that is repeated may still arrive for this long (ms): each try takes time to connect and to answer.
        self.retry_window_ms = round((_TRIES + 1) * (CONNECT_TIMEOUT + self.read_timeout) * 1000)
        # redis-py's clients are typed loosely: this class and its subclass handle them as Any.
        self._client: Any = None
        self._pipeline: Pipeline | None = None
        self._connecting: asyncio.Task[Pipeline] | None = None
        #: Pipelines to a server that is no primary any more, while answers are still under way.
        self._retired: list[Pipeline] = []
        self._idle: list[Pipeline] = []
        self._taken: set[Pipeline] = set()
        self._call_limit = asyncio.Semaphore(_MAX_CALLS)

    def __repr__(self) -> str:
        return f"Connection({self.where!r})"

    async def open(self) -> None:
        if self._client is None:
            client = self._new_client()
            try:
                await self._test(client)
            except BaseException as error:
                await self._close_all(client)
                raise self.explain(error) from error
            self._client = client

    async def _test(self, client: Any) -> None:
        if self.cluster:
            await cancellable(client.initialize())
        else:
            self._pipeline = await Pipeline.open(client.connection_pool, self.read_timeout)
            await self._pipeline.send(pack_command("PING"))

    async def close(self) -> None:
        client, self._client = self._client, None
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        await self._close_all(client)

    async def _close_all(self, client: Any) -> None:
        pipelines = [self._pipeline, *self._retired, *self._idle, *self._taken]
        self._pipeline, self._retired, self._idle = None, [], []
        for pipeline in pipelines:
            if pipeline is not None:
                pipeline.close()
        if client is not None:
            await close(client)

    @property
    def client(self) -> Any:
        if self._client is None:
            raise StorageError(f"the storage at {self.where} is not open: use `async with app` or `await app.open()`")
        return self._client

    def _new_client(self) -> Any:
        return client_of(self._url, ASYNCIO)

    # calling ---------------------------------------------------------------------------------------

    async def command(self, *args: object) -> Any:
        """Send a command that may be repeated, and return its answer."""
        return await self.attempt(lambda: self._send(*args), repeat=True)

    async def try_once(self, command: bytes) -> Any:
        """Send an encoded command that may be repeated, and return its answer.

        None if there is no answer or an error: then the caller sends it again by `run`, which handles both.
        """
        pipeline = self._pipeline
        if pipeline is None or not pipeline.alive:
            return None
        try:
            return await pipeline.send(command)
        except (RedisError, OSError):
            return None

    async def run(self, script: Script, keys: list[str], args: list[Any], *, repeat: bool) -> Any:
        """Run a script and return its answer.

        With `repeat` it is sent again when the connection breaks, so running it twice must do no harm.
        """
        command: tuple[Any, ...] = ("EVALSHA", script.sha, len(keys), *keys, *args)
        tries = 0
        while True:
            try:
                return await self._send(*command)
            except NoScriptError:
                command = ("EVAL", script.text, len(keys), *keys, *args)
            except (RedisError, OSError) as error:
                tries += 1
                await self._before_retry(error, tries if repeat else _TRIES)

    async def attempt(self, once: Callable[[], Awaitable[T]], *, repeat: bool) -> T:
        """Do something that sends commands, and explain its errors; `repeat` as for `run`."""
        tries = 0
        while True:
            try:
                return await once()
            except (RedisError, OSError) as error:
                tries += 1
                await self._before_retry(error, tries if repeat else _TRIES)

    async def _before_retry(self, error: Exception, tries: int) -> None:
        """Wait before the next try; raises the error, explained, if there is none."""
        if tries == _TRIES or not isinstance(error, _UNAVAILABLE):
            raise self.explain(error) from error
        await self._pause(random.uniform(0.5, 1) * min(_PAUSE, 0.02 * 2**tries))

    async def alone(self, commands: list[tuple[Any, ...]], key: str) -> list[Any]:
        """Send commands that may block on a connection of their own; return their answers, errors among them.

        On a Cluster the connection leads to the node that has the key.
        """
        async with asyncio.timeout(max(READ_TIMEOUT, self.read_timeout)):  # longer than the timeout of any WAIT
            if self.cluster:
                return await self._on_node(commands, key)
            async with self.own_pipeline() as pipeline:
                return await pipeline.answers_of([pack_command(*args) for args in commands])

    async def _on_node(self, commands: list[tuple[Any, ...]], key: str) -> list[Any]:
        client = self.client
        await client.initialize()
        node: Any = client.get_node_from_key(key)
        async with self._call_limit:
            connection = node.acquire_connection()
            answers = list[Any]()
            try:
                await node.disconnect_if_needed(connection)
                await connection.send_packed_command(connection.pack_commands(commands))
                for _ in commands:
                    try:
                        answers.append(await connection.read_response())
                    except ResponseError as error:
                        answers.append(error)
                return answers
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            finally:
                node.release(connection)

    async def run_many(self, calls: Sequence[tuple[Script, list[str], list[Any]]], *, repeat: bool) -> list[Any]:
        """Run several scripts in one round trip, or concurrently on a Cluster; return their answers."""
        if len(calls) == 1:
            return [await self.run(*calls[0], repeat=repeat)]
        try:
            answers = await self._send_many([("EVALSHA", s.sha, len(keys), *keys, *args) for s, keys, args in calls])
        except (RedisError, OSError) as error:  # no connection
            answers = [error] * len(calls)
        for i, answer in enumerate(answers):
            if isinstance(answer, NoScriptError) or (repeat and isinstance(answer, _UNAVAILABLE)):
                answers[i] = await self.run(*calls[i], repeat=repeat)
            elif isinstance(answer, BaseException):
                raise self.explain(answer) from answer
        return answers

    def _send(self, *args: Any) -> Awaitable[Any]:
        """Send a command and return its answer as an awaitable, which raises an error answer."""
        pipeline = self._pipeline
        if pipeline is not None and pipeline.alive:  # a future, without a coroutine around it
            return pipeline.send(pack_command(*args))
        return self._send_to_cluster(*args) if self.cluster else self._reconnect_and_send(*args)

    async def _send_to_cluster(self, *args: Any) -> Any:
        async with self._call_limit:
            return await self.client.execute_command(*args)

    async def _reconnect_and_send(self, *args: Any) -> Any:
        return await (await self._reconnect()).send(pack_command(*args))

    async def _send_many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """Send several commands and return their answers, errors among them."""
        if not self.cluster and (self._pipeline is None or not self._pipeline.alive):
            await self._reconnect()
        return await asyncio.gather(*(self._send(*args) for args in commands), return_exceptions=True)

    async def _reconnect(self) -> Pipeline:
        """Connect again. Concurrent callers wait for the same attempt and share its outcome."""
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = asyncio.create_task(self._connect(self.client.connection_pool), name="penstock-redis-connect")
            self._connecting = connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled():  # by `close`; the caller itself was not cancelled
                raise ConnectionError("the storage was closed") from None
            raise

    async def _connect(self, pool: Any) -> Pipeline:
        self._retired = [each for each in (*self._retired, self._pipeline) if each is not None and each.answers]
        self._pipeline = await Pipeline.open(pool, self.read_timeout)
        return self._pipeline

    async def pop(self, keys: list[str], timeout: float) -> bool:
        """Block until one of the lists (of one slot, on a Cluster) has an element; False if the timeout ends first."""
        try:
            async with asyncio.timeout(timeout + 1):  # a server that vanished does not even answer that
                if self.cluster:
                    return await self._pop_in_parts(keys, timeout)
                return await self._pop(pack_command(*blpop(keys, timeout))) is not None
        except (RedisError, OSError) as error:
            raise self.explain(error) from error

    async def _pop_in_parts(self, keys: list[str], timeout: float) -> bool:
        """Block in parts, each shorter than the read timeout after which the Cluster client gives a node up."""
        while timeout > 0:
            part = min(timeout, self.read_timeout / 2)
            if await cancellable(self.client.execute_command(*blpop(keys, part))) is not None:
                return True
            timeout -= part
        return False

    async def _pop(self, command: bytes) -> Any:
        async with self.own_pipeline() as pipeline:
            return await pipeline.send(command, no_timeout=True)

    async def client_id_of(self, pipeline: Pipeline) -> int | None:
        """Ask for the server's id of a connection; None if this client may not end waits by it (CLIENT UNBLOCK)."""
        try:
            client_id = int(await pipeline.send(pack_command("CLIENT", "ID")))
            await self._send("CLIENT", "UNBLOCK", client_id)
        except ResponseError:
            return None
        return client_id

    async def unblock(self, pipeline: Pipeline) -> bool:
        """End the blocking command on a connection; False if none is under way."""
        return bool(await self._send("CLIENT", "UNBLOCK", pipeline.client_id))

    @contextlib.asynccontextmanager
    async def own_pipeline(self) -> AsyncGenerator[Pipeline]:
        """Take a connection for one caller; it is closed if the caller leaves before its answer."""
        pipeline, answered = await self.take_pipeline(), False
        try:
            yield pipeline
            answered = True
        finally:
            self.put_back(pipeline, answered=answered)

    async def take_pipeline(self) -> Pipeline:
        """Take a connection for one caller, until `put_back`."""
        pool = self.client.connection_pool
        while self._idle:
            pipeline = self._idle.pop()
            if pipeline.alive:
                break
        else:
            pipeline = await Pipeline.open(pool, self.read_timeout)
        self._taken.add(pipeline)
        return pipeline

    def put_back(self, pipeline: Pipeline, *, answered: bool) -> None:
        """Keep a connection for the next caller, or close it if answers may still come on it."""
        self._taken.discard(pipeline)
        if answered and self._client is not None:
            self._idle.append(pipeline)
        else:
            pipeline.close()

    def subscriber(self) -> Any:
        """Make a client for pub/sub: on a Cluster of any node, because messages reach them all."""
        if isinstance(self._client, RedisCluster):
            node: Any = random.choice(self._client.get_nodes())
            options = options_of(ASYNCIO, self.read_timeout)
            options |= {k: v for k, v in node.connection_kwargs.items() if k in ("username", "password", "ssl")}
            return Redis(host=str(node.host), port=int(node.port), **options)
        return client_of(self._url, ASYNCIO)

    async def listeners(self, channel: str) -> int:
        """Count the connections, on all nodes, that are subscribed to a channel."""
        if not self.cluster:
            return int((await self.command("PUBSUB", "NUMSUB", channel))[1])
        counted = await self.client.pubsub_numsub(channel, target_nodes=self.client.ALL_NODES)
        return sum(int(count) for _, count in counted)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def explain(self, error: BaseException) -> BaseException:
        """Return an error of the server or socket as a `StorageError`, or `StorageUnavailable` if it may pass."""
        if isinstance(error, AuthenticationError | NoPermissionError):
            return StorageError(f"{self.where} refused the credentials: {error}")
        text = f"{type(error).__name__}: {error}"
        refused = isinstance(error, ResponseError) and str(error).startswith(_NOT_NOW)
        if refused or isinstance(error, _REFUSALS):
            return StorageUnavailable(f"{self.where} cannot take this now: {error}")
        if isinstance(error, _UNAVAILABLE) or (isinstance(error, RedisClusterException) and _UNREACHED in str(error)):
            return StorageUnavailable(f"cannot reach {self.where}: {text}")
        if isinstance(error, RedisError):
            return StorageError(f"{self.where} answered with an error: {text}")
        return error


def blpop(keys: list[str], timeout: float) -> tuple[Any, ...]:
    """Build the command that blocks until one of the lists has an element."""
    return ("BLPOP", *keys, max(0.001, round(timeout, 3)))
