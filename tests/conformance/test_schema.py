"""open and close of a storage: new, existing, newer and foreign files and servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import PenstockError, StorageError, VersionMismatch
from penstock.storage.base import Storage
from tests.servers import free_port
from tests.support import Backend, Clock, RedisBackend, SqliteBackend, claim_all, ids, new, put1, state_of, tally

pytestmark = pytest.mark.beyond_model


def set_version(backend: Backend, version: int) -> int:
    """Write a schema version as another Penstock would; returns the one before."""
    before = 0
    if isinstance(backend, SqliteBackend):
        db = backend.connect()
        [before] = db.execute("select value from meta where key = 'schema'").fetchone()
        db.execute("update meta set value = ? where key = 'schema'", (version,))
        db.close()
    elif isinstance(backend, RedisBackend):
        key = f"{backend.namespace}:schema"
        client = backend.client()
        before = int(client.get(key))  # type: ignore[arg-type]
        client.set(key, version)
        client.close()
    assert before >= 1
    return before


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_a_newer_schema_is_refused(backend: Backend, clock: Clock) -> None:
    """Opening a storage with a newer schema raises `VersionMismatch`, which names that version."""
    storage = backend.build(clock)
    await storage.open()
    await put1(storage, "q", "a")
    await storage.close()
    set_version(backend, 99)
    with pytest.raises(VersionMismatch, match="99"):
        await storage.open()
    await storage.close()


@pytest.mark.only("sqlite", "redis")
async def test_an_older_schema_is_refused_with_the_way_to_move_its_jobs(backend: Backend, clock: Clock) -> None:
    """Opening a storage of an older layout raises `VersionMismatch`, which has the way to move its jobs."""
    storage = backend.build(clock)
    await storage.open()
    await put1(storage, "q", "a")
    await storage.close()
    known = set_version(backend, 1)
    with pytest.raises(VersionMismatch, match=r"schema version 1, .*; .* export its jobs .* import"):
        await storage.open()
    await storage.close()
    set_version(backend, known)
    await storage.open()
    await storage.delete_queue("q")
    await storage.close()


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_a_refused_storage_is_untouched(backend: Backend, clock: Clock) -> None:
    """An open that raises `VersionMismatch` changes nothing: the newer Penstock finds its jobs unchanged."""
    storage = backend.build(clock)
    await storage.open()
    await put1(storage, "q", "a")
    await storage.close()
    known = set_version(backend, 99)
    with pytest.raises(VersionMismatch):
        await storage.open()
    await storage.close()
    set_version(backend, known)
    await storage.open()
    assert await state_of(storage) == "queued"
    await storage.delete_queue("q")
    await storage.close()


@pytest.mark.only("redis", "valkey", "cluster")
async def test_opening_and_reading_write_nothing(backend: RedisBackend, clock: Clock) -> None:
    """A server that takes no writes can be opened and read: the schema is written with the first write."""
    storage = backend.build(clock)
    await storage.open()
    await storage.counts("q")
    await storage.workers()
    assert await storage.queues() == []
    assert backend.keys() == []
    await put1(storage, "q", "a")
    found = backend.keys()
    assert f"{backend.namespace}:schema".encode() in found
    await storage.close()


@pytest.mark.only("redis", "cluster")
@pytest.mark.parametrize("write", ["put", "beat", "pause"])
async def test_a_newer_schema_that_appears_later_is_refused(backend: RedisBackend, clock: Clock, write: str) -> None:
    """A storage that was opened in an empty namespace compares the version with its first write."""
    storage, other = backend.build(clock), backend.build(clock)
    await storage.open()
    await other.open()
    await put1(other, "q", "a")
    set_version(backend, 99)
    verbs = {
        "put": lambda: put1(storage, "q", "b"),
        "beat": lambda: storage.beat("w", 1000),
        "pause": lambda: storage.set_pause("q", True),
    }
    try:
        with pytest.raises(VersionMismatch, match="99"):
            await verbs[write]()
    finally:
        await storage.close()
        await other.close()


async def test_opening_twice_is_opening_once(storage: Storage) -> None:
    """A second open of an open storage changes nothing."""
    await put1(storage, "q", "a")
    await storage.open()
    await asyncio.gather(storage.open(), storage.open())
    assert ids(await claim_all(storage)) == ["a"]


async def test_closing_twice_is_closing_once(backend: Backend, clock: Clock) -> None:
    """A second close, or one before any open, changes nothing."""
    storage = backend.build(clock)
    await storage.close()
    await storage.open()
    await storage.close()
    await storage.close()


async def test_a_closed_storage_refuses_calls(backend: Backend, clock: Clock) -> None:
    """A verb on a storage that is not open raises `StorageError` instead of waiting."""
    storage = backend.build(clock)
    with pytest.raises(StorageError):
        await storage.put([new("q", "a")])
    await storage.open()
    await storage.close()
    with pytest.raises(StorageError):
        await storage.counts("q")


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_jobs_remain_after_close(backend: Backend, clock: Clock, storage: Storage) -> None:
    """Jobs that were put are there after close and open, and for another process."""
    await storage.put([new("q", "a"), new("q", "b", group="g")])
    await storage.close()
    await storage.open()
    assert await storage.counts("q") == tally(queued=2)
    other = backend.build(clock)
    await other.open()
    assert ids(await claim_all(other)) == ["a", "b"]
    await other.close()


@pytest.mark.only("memory")
async def test_a_private_database_is_private(backend: Backend, clock: Clock, storage: Storage) -> None:
    """Two storages in memory share no jobs."""
    await put1(storage, "q", "a")
    other = backend.build(clock)
    await other.open()
    assert await other.queues() == []
    await other.close()


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_many_may_open_at_once(backend: Backend, clock: Clock) -> None:
    """Storages that open the same new file or namespace at the same time all succeed."""
    storages = [backend.build(clock) for _ in range(8)]
    await asyncio.gather(*(storage.open() for storage in storages))
    for n, storage in enumerate(storages):
        await put1(storage, "q", f"j{n}")
    assert await storages[0].counts("q") == tally(queued=8)
    await storages[0].delete_queue("q")
    for storage in storages:
        await storage.close()


@pytest.mark.only("redis")
async def test_open_raises_an_error_that_names_an_unreachable_server(clock: Clock, backend: Backend) -> None:
    """Opening an address without a server raises a `PenstockError` that names the address."""
    assert isinstance(backend, RedisBackend)
    port = free_port()
    backend.url = f"redis://127.0.0.1:{port}/0"
    storage = backend.build(clock)
    with pytest.raises(PenstockError, match=str(port)):
        await storage.open()
    await storage.close()


@pytest.mark.only("redis")
async def test_a_server_is_reached_by_its_unix_socket(clock: Clock, backend: Backend) -> None:
    """A URL of a Unix socket opens the server like one of a port."""
    assert isinstance(backend, RedisBackend)
    backend.url = f"unix://{backend.server.socket_path}"  # type: ignore[union-attr]
    storage = backend.build(clock)
    await storage.open()
    await put1(storage, "q", "a")
    assert await storage.delete_queue("q") == 1
    await storage.close()


@pytest.mark.only("sqlite")
def test_open_refuses_a_file_that_is_no_database(clock: Clock, backend: Backend, runner: asyncio.Runner) -> None:
    """Opening a file that is no database raises `StorageError` and does not change the file."""
    assert isinstance(backend, SqliteBackend)
    file = Path(backend.path)
    file.write_bytes(b"this is no database" * 100)
    storage = backend.build(clock)
    with pytest.raises(StorageError):
        runner.run(storage.open())
    runner.run(storage.close())
    assert file.read_bytes() == b"this is no database" * 100
