"""A server that refuses writes because it is no primary, or has too few replicas: the next call finds the primary."""

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
from penstock.storage.redis.pipeline import Pipeline, pack_command
from tests.servers import Server, free_port, redis_program, start_or_skip
from tests.support import eventually, new, new_namespace

pytestmark = pytest.mark.xdist_group("redis")

#: How a former primary is made to refuse commands of a primary.
REFUSALS: dict[str, Callable[[redis.Redis], object]] = {
    "NOREPLICAS": lambda client: client.config_set("min-replicas-to-write", 1),
    "READONLY": lambda client: client.replicaof("127.0.0.1", 1),
    "MASTERDOWN": lambda client: (client.config_set("replica-serve-stale-data", "no"), client.replicaof("::1", 1)),
}


class Failover:
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

    def switch(self) -> None:
        """Make the other server the primary, without a word to the old one."""
        with redis.Redis(port=self._port) as sentinel:
            sentinel.execute_command("SENTINEL", "REMOVE", "mymaster")
            sentinel.execute_command("SENTINEL", "MONITOR", "mymaster", "127.0.0.1", str(self.new.port), "1")

    def remove(self) -> None:
        self._sentinel.kill()
        self._sentinel.wait()
        self.old.remove()
        self.new.remove()


@pytest.fixture
def failover(tmp_path: Path) -> Iterator[Failover]:
    made = start_or_skip(lambda: Failover(tmp_path))
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


async def may_be_refused(call: Any) -> None:
    """Await a call, and ignore a refusal."""
    with contextlib.suppress(StorageUnavailable):
        await call


@pytest.mark.parametrize("kind", [RedisStorage, BlockingRedisStorage])
@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refused_call_is_followed_by_one_to_the_new_primary(
    failover: Failover, name: str, kind: type[RedisStorage]
) -> None:
    """Of several connections to the old primary each is refused once at most, and then the new one is found."""
    storage = kind(failover.url, namespace=new_namespace())
    await until_open(storage)
    try:
        assert [put.status for put in await storage.put([new("q", "a")])] == [PutStatus.QUEUED]
        failover.switch()
        with failover.old.client() as client:
            REFUSALS[name](client)
        await may_be_refused(storage.claim([Request("q", 1)], "w", 10_000, new_token()))
        assert [put.status for put in await storage.put([new("q", "b")])] == [PutStatus.QUEUED]
        claimed = await storage.claim([Request("q", 9)], "w", 10_000, new_token())
        assert [claim.id for claim in claimed.claims] == ["b"]
    finally:
        await storage.close()


@pytest.mark.parametrize("name", REFUSALS)
async def test_who_waits_for_work_looks_for_the_new_primary(failover: Failover, name: str) -> None:
    """A wait that the old primary refuses is followed by one that is woken by a job on the new primary."""
    storage = RedisStorage(failover.url, namespace=new_namespace())
    await until_open(storage)
    try:
        assert not await storage.wait_work(["q"], 0.01)
        failover.switch()
        with failover.old.client() as client:
            REFUSALS[name](client)
        await may_be_refused(storage.wait_work(["q"], 0.01))
        await may_be_refused(storage.put([new("q", "a")]))
        await storage.put([new("q", "b")])
        assert await storage.wait_work(["q"], 20)
    finally:
        await storage.close()


@pytest.fixture
def refusing(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server without a sentinel that refuses commands of a primary."""
    server = Server(redis_program()).start()
    with server.client() as client:
        REFUSALS[request.param](client)
    yield server
    server.remove()


@pytest.mark.parametrize("refusing", ["NOREPLICAS", "READONLY"], indirect=True)
async def test_a_refusal_fails_nobody_else(refusing: Server) -> None:
    """Other commands on the connection of a refused one are answered before it is closed."""
    connection = Connection(f"redis://{refusing.address}")
    await connection.open()
    try:
        pipeline = await Pipeline.open(connection.client.connection_pool, 15)
        refused = pipeline.send(pack_command("SET", "a", "b"))
        slow = pipeline.send(pack_command("XREAD", "BLOCK", 300, "STREAMS", "s", "$"))
        with pytest.raises(ResponseError):
            await refused
        assert (pipeline.alive, pipeline.answers) == (False, True)
        assert await slow is None
        assert not pipeline.answers
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
