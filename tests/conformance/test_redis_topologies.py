"""URLs of servers: plain, unix socket, valkey://, TLS, and Sentinel."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.aio import drive
from penstock.errors import StorageError, StorageUnavailable
from penstock.model.ids import new_token
from penstock.model.job import State
from penstock.storage.base import Complete, PutStatus, Request, Settled, Settlement
from penstock.storage.redis import RedisStorage
from penstock.storage.redis.blocking import BlockingRedisStorage
from tests.servers import Cluster, Server, Servers, free_port, redis_program, start_or_skip
from tests.support import eventually, new, new_namespace

pytestmark = pytest.mark.xdist_group("redis")


def redis_server(servers: Servers) -> Server:
    server = servers.get("redis")
    assert isinstance(server, Server)
    return server


async def run_a_job(url: str) -> None:
    """Put, claim and settle one job at a URL, and leave nothing behind."""
    storage = RedisStorage(url, namespace=new_namespace())
    await storage.open()
    try:
        assert [put.status for put in await storage.put([new("q", "a", payload=b"\x00\xff")])] == [PutStatus.QUEUED]
        claimed = await storage.claim([Request("q", 1)], "w", 10_000, new_token())
        (claim,) = claimed.claims
        assert claim.payload == b"\x00\xff"
        assert await storage.settle([Settlement("q", "a", claim.token, Complete(b"r", 1000))]) == [
            Settled(State.COMPLETED)
        ]
        assert await storage.delete_queue("q") == 1
    finally:
        await storage.close()


async def test_a_valkey_url_reaches_a_server(servers: Servers) -> None:
    """valkey:// is redis:// under another name."""
    await run_a_job(f"valkey://{redis_server(servers).address}")


async def test_a_unix_socket_reaches_a_server(servers: Servers) -> None:
    """unix:// leads to the server's socket file."""
    await run_a_job(f"unix://{redis_server(servers).socket_path}")


async def test_a_database_number_is_kept(servers: Servers) -> None:
    """The path of a URL chooses the database, as everywhere with Redis."""
    await run_a_job(f"redis://{redis_server(servers).address}/3")


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Server]:
    """A server that also speaks TLS, with a certificate of its own."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    options = ["--tls-port", str(free_port()), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    options += ["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"]
    server = start_or_skip(lambda: Server(redis_program(), *options).start())
    yield server
    server.remove()


async def test_an_encrypted_connection_works(encrypted: Server) -> None:
    """rediss:// speaks TLS and checks the server's certificate."""
    port, certificate = encrypted.options[1], encrypted.options[3]
    await run_a_job(f"rediss://localhost:{port}?ssl_ca_certs={certificate}")


async def test_an_unknown_certificate_is_refused(encrypted: Server) -> None:
    """A certificate of an unknown authority is refused."""
    with pytest.raises(StorageUnavailable, match="rediss://localhost"):
        await RedisStorage(f"rediss://localhost:{encrypted.options[1]}").open()


async def test_a_dead_server_is_named() -> None:
    """Opening a URL without a server raises `StorageUnavailable` with the address and without the password."""
    port = free_port()
    storage = RedisStorage(f"redis://user:s3cret@127.0.0.1:{port}/0")
    with pytest.raises(StorageUnavailable, match=f"127.0.0.1:{port}") as caught:
        await storage.open()
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(storage)


async def test_wrong_credentials_raise_an_error_of_their_own(servers: Servers) -> None:
    """Refused credentials are an error of their own kind, not a dead server."""
    storage = RedisStorage(f"redis://nobody:s3cret@{redis_server(servers).address}")
    with pytest.raises(StorageError, match="credentials") as caught:
        await storage.open()
    assert not isinstance(caught.value, StorageUnavailable)
    assert "s3cret" not in str(caught.value)


class Watched:
    """A primary, its replica, and the sentinel that watches them."""

    def __init__(self, directory: Path) -> None:
        self.primary = Server(redis_program()).start()
        self.replica = Server(redis_program(), "--replicaof", f"127.0.0.1 {self.primary.port}").start()
        config = directory / "sentinel.conf"
        config.write_text(
            f"sentinel monitor mymaster 127.0.0.1 {self.primary.port} 1\n"
            "sentinel down-after-milliseconds mymaster 300\n"
            "sentinel failover-timeout mymaster 2000\n"
        )
        self.port = free_port()
        self.sentinel = subprocess.Popen(
            [redis_program(), str(config), "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"],
            stdout=subprocess.DEVNULL,
        )

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.port}/mymaster"

    def remove(self) -> None:
        self.sentinel.kill()
        self.sentinel.wait()
        self.primary.remove()
        self.replica.remove()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A primary under a sentinel."""
    watched = start_or_skip(lambda: Watched(tmp_path))
    yield watched
    watched.remove()


async def until_open(storage: RedisStorage) -> None:
    async def opens() -> bool:
        try:
            await storage.open()
        except StorageError:
            await storage.close()
            return False
        return True

    await eventually(opens, within=20)


async def test_work_goes_on_after_a_failover(watched: Watched) -> None:
    """When the primary dies, the storage finds the new one by itself and the replicated job is run."""
    storage = RedisStorage(watched.url)
    await until_open(storage)
    try:
        with watched.replica.client() as replica:
            await eventually(lambda: replica.info("replication")["master_link_status"] == "up", within=20)
            await storage.put([new("q", "a")])
            await eventually(lambda: replica.dbsize() >= 3, within=20)
        watched.primary.kill()

        async def claims() -> bool:
            try:
                claimed = await storage.claim([Request("q", 1)], "w", 10_000, new_token())
            except StorageUnavailable:
                await asyncio.sleep(0.05)
                return False
            return [claim.id for claim in claimed.claims] == ["a"]

        await eventually(claims, within=30)
    finally:
        await storage.close()


async def test_a_cluster_is_found_from_any_node_of_the_url(servers: Servers) -> None:
    """A node that is down, first in the URL, does not keep a client from the others; for threads too."""
    cluster = servers.get("cluster")
    assert isinstance(cluster, Cluster)
    url = f"redis+cluster://127.0.0.1:{free_port()},{cluster.nodes[1].address}"
    await run_a_job(url)
    blocking = BlockingRedisStorage(url, namespace=new_namespace())
    drive(blocking.open())
    assert drive(blocking.queues()) == []
    drive(blocking.close())
