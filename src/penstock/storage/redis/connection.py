"""The way to the server: one client for Redis, Valkey, Sentinel or Cluster, and its errors in our words."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
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
from penstock.storage.redis.clients import CONNECT, SILENCE, Kit, client_of, close, describe, options_of, silence_of
from penstock.storage.redis.pipeline import NoReplicasError, Wire, cancellable, pack_command
from penstock.storage.redis.scripts import Script

__all__ = ["Connection"]

T = TypeVar("T")

_UNAVAILABLE = (
    ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError, ClusterDownError, ClusterError, MasterDownError,
    NoReplicasError, OutOfMemoryError, TryAgainError, OSError,
)  # fmt: skip

#: Words at the start of an error reply that mean "not now" rather than "wrong".
_NOT_NOW = (
    "LOADING", "READONLY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY", "UNBLOCKED",
)  # fmt: skip

#: The same, where redis-py has taken the word away.
_REFUSALS = (BusyLoadingError, ReadOnlyError, OutOfMemoryError, MasterDownError, NoReplicasError, TryAgainError)

#: A Cluster's client that finds no node says so in an exception that may mean anything.
_UNREACHED = "cannot be connected"

#: On a Cluster each call under way has a connection of its own; so many go out at once, the rest wait here.
_AT_ONCE = 50

#: How often a call that may safely be repeated is repeated, and the longest pause between.
_TRIES, _PAUSE = 5, 0.5

ASYNCIO = Kit(Redis, RedisCluster, Sentinel, Retry)


class Connection:
    """The way to the server at a URL. It never repeats a call by itself unless told that it may."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.where, self.cluster = describe(url)
        #: How long (seconds) an answer is waited for.
        self.silence = silence_of(url)
        #: For so long (ms) a call that is repeated may still be under way: a few tries, each to connect and to wait.
        self.memory = round((_TRIES + 1) * (CONNECT + self.silence) * 1000)
        # redis-py's clients are typed loosely: they are handled as Any, here and nowhere else.
        self._client: Any = None
        self._wire: Wire | None = None
        self._wiring: asyncio.Task[Wire] | None = None
        #: Those that lead to no primary any more, while answers are still on their way.
        self._leaving: list[Wire] = []
        self._idle: list[Wire] = []
        self._popping: set[Wire] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def __repr__(self) -> str:
        return f"Connection({self.where!r})"

    async def open(self) -> None:
        if self._client is None:
            client = self._new_client()
            try:
                await self._greet(client)
            except BaseException as error:
                await self._let_go(client)
                raise self.explain(error) from error
            self._client = client

    async def _greet(self, client: Any) -> None:
        if self.cluster:
            await cancellable(client.initialize())
        else:
            self._wire = await Wire.open(client.connection_pool, self.silence)
            await self._wire.send(pack_command("PING"))

    async def close(self) -> None:
        client, self._client = self._client, None
        if self._wiring is not None:
            self._wiring.cancel()
            await asyncio.wait({self._wiring})
        await self._let_go(client)

    async def _let_go(self, client: Any) -> None:
        wires = [self._wire, *self._leaving, *self._idle, *self._popping]
        self._wire, self._leaving, self._idle = None, [], []
        for wire in wires:
            if wire is not None:
                wire.close()
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
        """One plain command that may be repeated."""
        return await self._repeat(lambda: self._send(*args))

    async def quick(self, command: bytes) -> Any:
        """The answer to a spelled command that may be repeated; None when it must be, whatever has become of it."""
        wire = self._wire
        if wire is None or not wire.alive:
            return None
        try:
            return await wire.send(command)
        except (RedisError, OSError):
            return None

    async def run(self, script: Script, keys: list[str], args: list[Any], *, repeat: bool) -> Any:
        """Run a script. With `repeat` it is tried again when the connection breaks, so it must bear that."""
        wire = self._wire
        if wire is not None and wire.alive:  # the usual way, without a coroutine for each of its steps
            try:
                return await wire.send(pack_command("EVALSHA", script.sha, len(keys), *keys, *args))
            except NoScriptError:
                pass
            except (RedisError, OSError) as error:
                if not repeat or not isinstance(error, _UNAVAILABLE):
                    raise self.explain(error) from error

        async def once() -> Any:
            try:
                return await self._send("EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return await self._send("EVAL", script.text, len(keys), *keys, *args)

        return await self.attempt(once, repeat=repeat)

    async def attempt(self, once: Callable[[], Awaitable[T]], *, repeat: bool) -> T:
        """Do what sends something, and have its errors in our words; `repeat` as for `run`."""
        if repeat:
            return await self._repeat(once)
        try:
            return await once()
        except (RedisError, OSError) as error:
            raise self.explain(error) from error

    async def alone(self, commands: list[tuple[Any, ...]], key: str) -> list[Any]:
        """The answers, errors among them, of commands that may block: nobody else uses their connection meanwhile.

        It leads to whoever serves the key.
        """
        async with asyncio.timeout(max(SILENCE, self.silence)):  # more than is ever asked of a WAIT
            if self.cluster:
                return await self._on_node(commands, key)
            async with self.own_wire() as wire:
                return await wire.answers_of([pack_command(*args) for args in commands])

    async def _on_node(self, commands: list[tuple[Any, ...]], key: str) -> list[Any]:
        client = self.client
        await client.initialize()
        node: Any = client.get_node_from_key(key)
        async with self._turns:
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

    async def run_many(self, calls: list[tuple[Script, list[str], list[Any]]], *, repeat: bool) -> list[Any]:
        """Run several scripts in one round trip, or side by side on a Cluster."""
        if len(calls) == 1:
            return [await self.run(*calls[0], repeat=repeat)]
        try:
            answers = await self._send_many([("EVALSHA", s.sha, len(keys), *keys, *args) for s, keys, args in calls])
        except (RedisError, OSError) as error:  # not even connected
            answers = [error] * len(calls)
        for i, answer in enumerate(answers):
            if isinstance(answer, NoScriptError) or (repeat and isinstance(answer, _UNAVAILABLE)):
                answers[i] = await self.run(*calls[i], repeat=repeat)
            elif isinstance(answer, BaseException):
                raise self.explain(answer) from answer
        return answers

    async def _send(self, *args: Any) -> Any:
        """A command's answer; an error is raised."""
        if self.cluster:
            async with self._turns:
                return await self.client.execute_command(*args)
        wire = self._wire
        if wire is None or not wire.alive:
            wire = await self._rewire()
        return await wire.send(pack_command(*args))

    async def _send_many(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """The answers of several commands, errors among them."""
        if self.cluster:
            return await asyncio.gather(*(self._send(*args) for args in commands), return_exceptions=True)
        wire = self._wire
        if wire is None or not wire.alive:
            wire = await self._rewire()
        return await asyncio.gather(*(wire.send(pack_command(*args)) for args in commands), return_exceptions=True)

    async def _rewire(self) -> Wire:
        """Connect again; who comes meanwhile waits for the same attempt, and hears how it went."""
        wiring = self._wiring
        if wiring is None or wiring.done():
            wiring = asyncio.create_task(self._connect(self.client.connection_pool), name="penstock-redis-wire")
            self._wiring = wiring
        try:
            return await asyncio.shield(wiring)
        except asyncio.CancelledError:
            if wiring.cancelled():  # by closing; those who wait for it were not
                raise ConnectionError("the storage was closed") from None
            raise

    async def _connect(self, pool: Any) -> Wire:
        self._leaving = [wire for wire in (*self._leaving, self._wire) if wire is not None and wire.answers]
        self._wire = await Wire.open(pool, self.silence)
        return self._wire

    async def pop(self, keys: list[str], timeout: float) -> bool:
        """Block until one of the lists (of one slot, on a Cluster) has something."""
        try:
            async with asyncio.timeout(timeout + 1):  # a server that is gone without a word does not answer at all
                if self.cluster:
                    return await self._pop_in_parts(keys, timeout)
                return await self._pop(pack_command(*blpop(keys, timeout))) is not None
        except (RedisError, OSError) as error:
            raise self.explain(error) from error

    async def _pop_in_parts(self, keys: list[str], timeout: float) -> bool:
        """A Cluster's client gives up a node that is silent for long, and looks for who has taken over."""
        while timeout > 0:
            part = min(timeout, self.silence / 2)
            if await cancellable(self.client.execute_command(*blpop(keys, part))) is not None:
                return True
            timeout -= part
        return False

    async def _pop(self, command: bytes) -> Any:
        async with self.own_wire() as wire:
            return await wire.send(command, patient=True)

    async def number_of(self, wire: Wire) -> int | None:
        """The number by which the server knows a connection; None if it does not let us end waits by it."""
        try:
            number = int(await wire.send(pack_command("CLIENT", "ID")))
            await self._send("CLIENT", "UNBLOCK", number)
        except ResponseError:
            return None
        return number

    async def unblock(self, wire: Wire) -> bool:
        """End the wait that is under way on a connection; False when there is none."""
        return bool(await self._send("CLIENT", "UNBLOCK", wire.number))

    @contextlib.asynccontextmanager
    async def own_wire(self) -> AsyncGenerator[Wire]:
        """A connection of one's own, which goes with a caller that does not wait for the answer."""
        wire, whole = await self.take_wire(), False
        try:
            yield wire
            whole = True
        finally:
            self.put_back(wire, whole=whole)

    async def take_wire(self) -> Wire:
        """A connection for one caller, until it is put back."""
        pool = self.client.connection_pool
        while self._idle:
            wire = self._idle.pop()
            if wire.alive:
                break
        else:
            wire = await Wire.open(pool, self.silence)
        self._popping.add(wire)
        return wire

    def put_back(self, wire: Wire, *, whole: bool) -> None:
        """Keep a connection for the next one, unless its caller went away before it was answered."""
        self._popping.discard(wire)
        if whole and self._client is not None:
            self._idle.append(wire)
        else:
            wire.close()

    def subscriber(self) -> Any:
        """A client of its own for pub/sub: on a Cluster any node will do, messages reach them all."""
        if isinstance(self._client, RedisCluster):
            node: Any = random.choice(self._client.get_nodes())
            options = options_of(ASYNCIO, self.silence)
            options |= {k: v for k, v in node.connection_kwargs.items() if k in ("username", "password", "ssl")}
            return Redis(host=str(node.host), port=int(node.port), **options)
        return client_of(self._url, ASYNCIO)

    async def listeners(self, channel: str) -> int:
        """How many connections are subscribed to a channel, on all nodes."""
        if not self.cluster:
            return int((await self.command("PUBSUB", "NUMSUB", channel))[1])
        counted = await self.client.pubsub_numsub(channel, target_nodes=self.client.ALL_NODES)
        return sum(int(count) for _, count in counted)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _repeat(self, once: Callable[[], Awaitable[T]]) -> T:
        for tried in range(1, _TRIES + 1):
            try:
                return await once()
            except _UNAVAILABLE as error:
                if tried == _TRIES:
                    raise self.explain(error) from error
                await self._pause(random.uniform(0.5, 1) * min(_PAUSE, 0.02 * 2**tried))
            except RedisError as error:
                raise self.explain(error) from error
        raise AssertionError("unreachable")

    def explain(self, error: BaseException) -> BaseException:
        """A server's or socket's error in our words: where, what, and whether it may pass."""
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
    """The command that waits until one of the lists has something."""
    return ("BLPOP", *keys, max(0.001, round(timeout, 3)))
