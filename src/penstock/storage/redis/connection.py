"""Connection to Redis, Valkey, Sentinel or Cluster: sends commands, retries them, and explains errors."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
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

from penstock.errors import AccessDenied, StorageError, StorageUnavailable
from penstock.storage.redis.clients import (
    CONNECT_TIMEOUT,
    ClientClasses,
    client_of,
    close,
    node_client_of,
)
from penstock.storage.redis.pipeline import NoAnswer, NoReplicasError, Pipeline, cancellable, pack_command
from penstock.storage.redis.scripts import WRITE, Script
from penstock.storage.redis.server_url import parse_url
from penstock.storage.redis.sockets import Sockets
from penstock.storage.redis.wrong_type import find_wrong_type, is_wrong_type, wrong_type

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

#: Scripts raise a `ResponseError` with this text if the user may not run one of their commands.
_NOT_ALLOWED = "ACL failure in script"

#: How often a call that may be repeated is sent, and the longest pause (seconds) before the next time.
_TRIES, _PAUSE = 5, 0.5

ASYNCIO = ClientClasses(Redis, RedisCluster, ClusterNode, Sentinel, Retry)


class Connection:
    """Commands and script calls to the server at a URL. A call is repeated only if its caller allows it."""

    def __init__(self, url: str) -> None:
        self._server = parse_url(url)
        self.where, self.cluster, self.database = self._server.where, self._server.cluster, self._server.database
        #: The timeout (seconds) of an answer.
        self.read_timeout = self._server.read_timeout
        #: The bound (seconds) of a request with its retries and reconnects; None for workers, which wait longer.
        self.timeout: float | None = None
        #: A call that is repeated may still arrive for this long (ms): each try takes time to connect and to answer.
        self.retry_window_ms = round((_TRIES + 1) * (CONNECT_TIMEOUT + self.read_timeout) * 1000)
        self._sockets = Sockets()

    def __repr__(self) -> str:
        return f"Connection({self.where!r})"

    def bounded(self, timeout: float) -> Self:
        """Return this connection for producers: each request ends within this time (seconds)."""
        bounded = copy.copy(self)
        bounded.timeout = timeout
        return bounded

    async def open(self) -> None:
        if self._sockets.client is None:
            client = self._new_client()
            try:
                await self._test(client)
            except BaseException as error:
                await self._close_all(client)
                raise self.explain(error) from error
            self._sockets.client = client

    async def _test(self, client: Any) -> None:
        if self.cluster:
            await cancellable(client.initialize())
        else:
            self._sockets.pipeline = await Pipeline.open(client.connection_pool, self.read_timeout)
            await self._sockets.pipeline.send(pack_command("PING"))

    async def close(self) -> None:
        sockets = self._sockets
        client, sockets.client = sockets.client, None
        if sockets.connecting is not None:
            sockets.connecting.cancel()
            await asyncio.wait({sockets.connecting})
        await self._close_all(client)

    async def _close_all(self, client: Any) -> None:
        sockets = self._sockets
        pipelines = [sockets.pipeline, *sockets.retired, *sockets.idle, *sockets.taken]
        sockets.pipeline, sockets.retired, sockets.idle = None, [], []
        for pipeline in pipelines:
            if pipeline is not None:
                pipeline.close()
        if client is not None:
            await close(client)

    @property
    def client(self) -> Any:
        if self._sockets.client is None:
            raise StorageError(f"the storage at {self.where} is not open: use `async with app` or `await app.open()`")
        return self._sockets.client

    def _new_client(self) -> Any:
        return client_of(self._server, ASYNCIO)

    # calling ---------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return the time (of `time.monotonic`) at which a request that begins now must have ended, if it has one."""
        return None if self.timeout is None else time.monotonic() + self.timeout

    async def command(self, *args: object) -> Any:
        """Send a command that may be repeated, and return its answer."""
        deadline = self.deadline()
        try:
            return await self.attempt(lambda: self._send(*args, deadline=deadline), repeat=True, deadline=deadline)
        except StorageError as error:
            if error.__cause__ is not None and is_wrong_type(error.__cause__):
                raise wrong_type(self.where, str(args[1])) from error
            raise

    async def write(self, *args: object) -> Any:
        """Send a command that writes a few bytes and may be repeated. A server with a full memory accepts it too."""
        return await self.run(WRITE, [str(args[1])], list(args), repeat=True)

    async def try_once(self, command: bytes, deadline: float | None) -> Any:
        """Send an encoded command that may be repeated, and return its answer or error; None if there is no connection.

        After either of these the caller sends it again by `run`, which handles both.
        """
        pipeline = self._sockets.pipeline
        if pipeline is None or not pipeline.alive:
            return None
        try:
            return await pipeline.send(command, deadline)
        except (RedisError, OSError) as error:
            return error

    async def run(
        self, script: Script, keys: list[str], args: list[Any], *,
        repeat: bool, deadline: float | None = None, uncertain: bool = False,
    ) -> Any:  # fmt: skip
        """Run a script and return its answer.

        With `repeat` it is sent again when the connection breaks, so running it twice must do no harm. A request that
        has begun already gives its deadline, and with `uncertain` that it was sent and got no answer.
        """
        deadline = deadline or self.deadline()
        command: tuple[Any, ...] = ("EVALSHA", script.sha, len(keys), *keys, *args)
        tries = 0
        while True:
            try:
                return await self._send(*command, deadline=deadline)
            except NoScriptError:
                command = ("EVAL", script.text, len(keys), *keys, *args)
            except (RedisError, OSError) as error:
                if is_wrong_type(error):
                    raise await find_wrong_type(self.where, self._send, keys, args) from error
                tries += 1
                uncertain = uncertain or self._may_have_run(error)
                await self._before_retry(error, tries if repeat else _TRIES, deadline, uncertain)

    async def attempt(self, once: Callable[[], Awaitable[T]], *, repeat: bool, deadline: float | None = None) -> T:
        """Do something that sends commands, and explain its errors; `repeat` and `deadline` as for `run`."""
        deadline = deadline or self.deadline()
        tries, uncertain = 0, False
        while True:
            try:
                return await once()
            except (RedisError, OSError) as error:
                tries += 1
                uncertain = uncertain or self._may_have_run(error)
                await self._before_retry(error, tries if repeat else _TRIES, deadline, uncertain)

    def _may_have_run(self, error: Exception) -> bool:
        """Return whether the server may have run the command that got this error."""
        lost = (ConnectionError, TimeoutError, OSError) if self.cluster else NoAnswer
        return isinstance(error, lost)

    async def _before_retry(self, error: Exception, tries: int, deadline: float | None, uncertain: bool) -> None:
        """Wait before the next try; raises the error, explained, if there is none."""
        if isinstance(error, OutOfMemoryError):
            raise await self._full(uncertain) from error
        pause = random.uniform(0.5, 1) * min(_PAUSE, 0.02 * 2**tries)
        late = deadline is not None and time.monotonic() + pause >= deadline
        if late or tries == _TRIES or not isinstance(error, _UNAVAILABLE):
            explained = self.explain(error)
            if late and isinstance(explained, StorageUnavailable):
                reason = str(error) or "no answer in time"
                explained = StorageUnavailable(f"{self.where} did not answer within {self.timeout:g} s: {reason}")
            if isinstance(explained, StorageUnavailable):
                explained.uncertain = uncertain
            raise explained from error
        await self._pause(pause)

    async def _full(self, uncertain: bool) -> StorageUnavailable:
        """Return the error for a server whose memory is full, with the numbers if it shows them."""
        usage = ""
        if not self.cluster:  # there each node has its own
            with contextlib.suppress(RedisError, OSError):
                info = (await self._send("INFO", "memory", deadline=self.deadline())).decode()
                used, limit = (int(info.partition(f"\n{name}:")[2].split()[0]) for name in ("used_memory", "maxmemory"))
                usage = f" ({used / 1e6:,.1f} MB used, maxmemory {limit / 1e6:,.1f} MB)"
        full = StorageUnavailable(
            f"{self.where} is full{usage} and takes no new jobs until there is room: let workers finish jobs, delete "
            "jobs or queues, keep results for a shorter time, or raise maxmemory"
        )
        full.uncertain = uncertain
        return full

    async def alone(self, commands: list[tuple[Any, ...]], key: str, seconds: float) -> list[Any]:
        """Send commands that may block on a connection of their own; return their answers, errors among them.

        On a Cluster the connection leads to the node that has the key. Without answers it raises after these seconds.
        """
        async with asyncio.timeout(seconds):
            if self.cluster:
                return await self._on_node(commands, key)
            async with self.own_pipeline() as pipeline:
                return await pipeline.answers_of([pack_command(*args) for args in commands])

    async def _on_node(self, commands: list[tuple[Any, ...]], key: str) -> list[Any]:
        client = self.client
        await client.initialize()
        node: Any = client.get_node_from_key(key)
        async with self._sockets.call_limit:
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
        deadline = self.deadline()
        commands = [("EVALSHA", s.sha, len(keys), *keys, *args) for s, keys, args in calls]
        try:
            answers = await self._send_many(commands, deadline)
        except (RedisError, OSError) as error:  # no connection
            answers = [error] * len(calls)
        for i, answer in enumerate(answers):
            if isinstance(answer, NoScriptError) or (repeat and isinstance(answer, _UNAVAILABLE)):
                answers[i] = await self.run(*calls[i], repeat=repeat, deadline=deadline)
            elif isinstance(answer, BaseException):
                if is_wrong_type(answer):
                    raise await find_wrong_type(self.where, self._send, *calls[i][1:]) from answer
                raise self.explain(answer) from answer
        return answers

    def _send(self, *args: Any, deadline: float | None = None) -> Awaitable[Any]:
        """Send a command and return its answer as an awaitable, which raises an error answer."""
        pipeline = self._sockets.pipeline
        if pipeline is not None and pipeline.alive:  # a future, without a coroutine around it
            return pipeline.send(pack_command(*args), deadline)
        return self._send_to_cluster(args, deadline) if self.cluster else self._reconnect_and_send(args, deadline)

    async def _send_to_cluster(self, args: tuple[Any, ...], deadline: float | None) -> Any:
        async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
            async with self._sockets.call_limit:
                return await cancellable(self.client.execute_command(*args))

    async def _reconnect_and_send(self, args: tuple[Any, ...], deadline: float | None) -> Any:
        return await (await self._reconnect(deadline)).send(pack_command(*args), deadline)

    async def _send_many(self, commands: list[tuple[Any, ...]], deadline: float | None) -> list[Any]:
        """Send several commands and return their answers, errors among them."""
        pipeline = self._sockets.pipeline
        if not self.cluster and (pipeline is None or not pipeline.alive):
            await self._reconnect(deadline)
        sent = (self._send(*args, deadline=deadline) for args in commands)
        return await asyncio.gather(*sent, return_exceptions=True)

    async def _reconnect(self, deadline: float | None) -> Pipeline:
        """Connect again. Concurrent callers wait for the same attempt and share its outcome."""
        connecting = self._sockets.connecting
        if connecting is None or connecting.done():
            connecting = asyncio.create_task(self._connect(self.client.connection_pool), name="penstock-redis-connect")
            connecting.add_done_callback(lambda task: task.cancelled() or task.exception())  # marks it as retrieved
            self._sockets.connecting = connecting
        await asyncio.wait({connecting}, timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        if not connecting.done():
            raise ConnectionError("no connection in time")
        if connecting.cancelled():  # by `close`; the caller itself was not cancelled
            raise ConnectionError("the storage was closed")
        return connecting.result()

    async def _connect(self, pool: Any) -> Pipeline:
        sockets = self._sockets
        sockets.retired = [each for each in (*sockets.retired, sockets.pipeline) if each is not None and each.answers]
        sockets.pipeline = await Pipeline.open(pool, self.read_timeout)
        return sockets.pipeline

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
        while self._sockets.idle:
            pipeline = self._sockets.idle.pop()
            if pipeline.alive:
                break
        else:
            pipeline = await Pipeline.open(pool, self.read_timeout)
        self._sockets.taken.add(pipeline)
        return pipeline

    def put_back(self, pipeline: Pipeline, *, answered: bool) -> None:
        """Keep a connection for the next caller, or close it if answers may still come on it."""
        self._sockets.taken.discard(pipeline)
        if answered and self._sockets.client is not None:
            self._sockets.idle.append(pipeline)
        else:
            pipeline.close()

    def subscriber(self) -> Any:
        """Make a client for pub/sub: on a Cluster of any node, because messages reach them all."""
        if isinstance(self._sockets.client, RedisCluster):
            node: Any = random.choice(self._sockets.client.get_nodes())
            return node_client_of(self._server, ASYNCIO, str(node.host), int(node.port))
        return client_of(self._server, ASYNCIO)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def explain(self, error: BaseException) -> BaseException:
        """Return an error of the server or socket as a `StorageError`, or `StorageUnavailable` if it may pass."""
        if isinstance(error, AuthenticationError | NoPermissionError) or _NOT_ALLOWED in str(error):
            return AccessDenied(f"{self.where} refused the credentials: {error}")
        text = f"{type(error).__name__}: {error}"
        refused = isinstance(error, ResponseError) and str(error).startswith(_NOT_NOW)
        if refused or isinstance(error, _REFUSALS):
            return StorageUnavailable(f"{self.where} cannot take this now: {error}")
        if isinstance(error, NoAnswer):
            return StorageUnavailable(f"cannot reach {self.where}: {error}")
        if isinstance(error, _UNAVAILABLE) or (isinstance(error, RedisClusterException) and _UNREACHED in str(error)):
            return StorageUnavailable(f"cannot reach {self.where}: {text}")
        if is_wrong_type(error):
            return StorageError(f"{self.where}: a key is not of the type that Penstock keeps there: {error}")
        if isinstance(error, RedisError):
            return StorageError(f"{self.where} answered with an error: {text}")
        return error


def blpop(keys: list[str], timeout: float) -> tuple[Any, ...]:
    """Build the command that blocks until one of the lists has an element."""
    return ("BLPOP", *keys, max(0.001, round(timeout, 3)))
