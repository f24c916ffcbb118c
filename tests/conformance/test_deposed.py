"""A server that says that it is no primary, or has nobody behind it: the next call asks anew who is."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from penstock.errors import StorageUnavailable
from penstock.model.ids import new_token
from penstock.storage.base import PutStatus, Request
from penstock.storage.redis import RedisStorage
from penstock.storage.redis.blocking import BlockingRedisStorage
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.pipeline import Wire, pack_command
from tests.servers import Server, free_port, redis_program, start_or_skip
from tests.support import eventually, new, new_namespace

pytestmark = pytest.mark.xdist_group("redis")

#: Ways in which a server that was a primary refuses what only a primary may do.
REFUSALS: dict[str, Callable[[redis.Redis], object]] = {
    "NOREPLICAS": lambda client: client.config_set("min-replicas-to-write", 1),
    "READONLY": lambda client: client.replicaof("127.0.0.1", 1),
    "MASTERDOWN": lambda client: (client.config_set("replica-serve-stale-data", "no"), client.replicaof("::1", 1)),
}


class Realm:
    """Two servers, and a sentinel that calls one of them the primary."""

    def __init__(self, directory: Path) -> None:
        self.old = Server(redis_program()).start()
        self.new = Server(redis_program()).start()
        self._config = directory / "sentinel.conf"
        self._config.write_text(f"sentinel monitor mymaster 127.0.0.1 {self.old.port} 1\n")
        self._port = free_port()
        self._sentinel = subprocess.Popen(
            [redis_program(), str(self._config), "--sentinel", "--port", str(self._port), "--bind", "127.0.0.1"],
            stdout=subprocess.DEVNULL,
        )

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self._port}/mymaster"

    def succeed(self) -> None:
        """From now on the other server is the primary; nobody has told the old one."""
        with redis.Redis(port=self._port) as sentinel:
            sentinel.execute_command("SENTINEL", "REMOVE", "mymaster")
            sentinel.execute_command("SENTINEL", "MONITOR", "mymaster", "127.0.0.1", str(self.new.port), "1")

    def remove(self) -> None:
        self._sentinel.kill()
        self._sentinel.wait()
        self.old.remove()
        self.new.remove()


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    made = start_or_skip(lambda: Realm(tmp_path))
    yield made
    made.remove()


async def until_open(storage: RedisStorage) -> None:
    async def opens() -> bool:
        try:
            await storage.open()
        except StorageUnavailable:  # the sentinel has not looked yet
            await storage.close()
            return False
        return True

    await eventually(opens, within=20)


async def said_or_done(call: Any) -> None:
    """A call that may be refused."""
    with contextlib.suppress(StorageUnavailable):
        await call


@pytest.mark.parametrize("kind", [RedisStorage, BlockingRedisStorage])
@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refused_call_is_followed_by_one_to_the_new_primary(
    realm: Realm, name: str, kind: type[RedisStorage]
) -> None:
    """Of several connections to the old primary each is refused once at most, and then the new one is found."""
    storage = kind(realm.url, namespace=new_namespace())
    await until_open(storage)
    try:
        assert [put.status for put in await storage.put([new("q", "a")])] == [PutStatus.QUEUED]
        realm.succeed()
        with realm.old.client() as client:
            REFUSALS[name](client)
        await said_or_done(storage.claim([Request("q", 1)], "w", 10_000, new_token()))
        assert [put.status for put in await storage.put([new("q", "b")])] == [PutStatus.QUEUED]
        claimed = await storage.claim([Request("q", 9)], "w", 10_000, new_token())
        assert [claim.id for claim in claimed.claims] == ["b"]
    finally:
        await storage.close()


@pytest.mark.parametrize("name", REFUSALS)
async def test_who_waits_for_work_looks_for_the_new_primary(realm: Realm, name: str) -> None:
    """A wait that the old primary refuses is followed by one that hears of the new primary's jobs."""
    storage = RedisStorage(realm.url, namespace=new_namespace())
    await until_open(storage)
    try:
        assert not await storage.wait_work(["q"], 0.01)
        realm.succeed()
        with realm.old.client() as client:
            REFUSALS[name](client)
        await said_or_done(storage.wait_work(["q"], 0.01))
        await said_or_done(storage.put([new("q", "a")]))
        await storage.put([new("q", "b")])
        assert await storage.wait_work(["q"], 20)
    finally:
        await storage.close()


@pytest.fixture
def refusing(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server without a sentinel that refuses what only a primary may do."""
    server = Server(redis_program()).start()
    with server.client() as client:
        REFUSALS[request.param](client)
    yield server
    server.remove()


@pytest.mark.parametrize("refusing", ["NOREPLICAS", "READONLY"], indirect=True)
async def test_a_refusal_fails_nobody_else(refusing: Server) -> None:
    """Callers who wait on the same connection as a refused one get their answers."""
    connection = Connection(f"redis://{refusing.address}")
    await connection.open()
    try:
        wire = await Wire.open(connection.client.connection_pool, 15)
        refused = wire.send(pack_command("SET", "a", "b"))
        slow = wire.send(pack_command("XREAD", "BLOCK", 300, "STREAMS", "s", "$"))
        with pytest.raises(ResponseError):
            await refused
        assert (wire.alive, wire.answers) == (False, True)
        assert await slow is None
        assert not wire.answers
    finally:
        await connection.close()


@pytest.mark.parametrize("refusing", ["NOREPLICAS"], indirect=True)
async def test_refusals_of_many_callers_cost_few_connections(refusing: Server) -> None:
    """Refused calls that come together share the next connection, and are repeated on it."""
    connection = Connection(f"redis://{refusing.address}")
    await connection.open()
    with refusing.client() as client:
        before = client.info("stats")["total_connections_received"]
        try:
            calls = (connection.command("SET", "a", "b") for _ in range(100))
            answers = await asyncio.gather(*calls, return_exceptions=True)
        finally:
            await connection.close()
        assert {type(answer) for answer in answers} == {StorageUnavailable}
        assert client.info("stats")["total_connections_received"] - before < 400
