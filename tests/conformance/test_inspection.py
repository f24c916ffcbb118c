"""vitals, meters, latest: what whoever looks after a storage can see."""

from __future__ import annotations

import pytest

from penstock.model.job import State
from penstock.model.storage_info import FileInfo, Inspectable, QueueMeter, ServerInfo
from penstock.storage.base import Storage
from tests.support import (
    HOUR,
    LEASE,
    Backend,
    Clock,
    SqliteBackend,
    cancel_end,
    claim1,
    claim_all,
    complete,
    fail,
    ids,
    new,
    put1,
    settle1,
)

pytestmark = pytest.mark.beyond_model


def looked_into(storage: Storage) -> Inspectable:
    assert isinstance(storage, Inspectable)
    return storage


async def test_meters_count_every_end(storage: Storage) -> None:
    """Completed, failed and cancelled jobs count, also those that are not kept."""
    await storage.put([new("q", "a"), new("q", "b"), new("q", "c"), new("q", "d"), new("q/x", "e")])
    a, b, c, d = await claim_all(storage)
    assert await looked_into(storage).meters(["q", "q/x"]) == [QueueMeter("q", 0, 0), QueueMeter("q/x", 0, 0)]
    await storage.settle([complete(a), complete(b, ttl=0), fail(c), cancel_end(d)])
    assert await looked_into(storage).meters(["q", "q/x"]) == [QueueMeter("q", 4, 0), QueueMeter("q/x", 0, 0)]


async def test_meters_show_leases_that_are_over(storage: Storage, clock: Clock) -> None:
    """A lease that is over is counted from its last moment until its runs are taken back."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE - 1)
    assert (await looked_into(storage).meters(["q"]))[0].overdue == 0
    clock.advance(ms=1)
    assert (await looked_into(storage).meters(["q"]))[0].overdue == 1
    await storage.reap(["q"])
    assert (await looked_into(storage).meters(["q"]))[0].overdue == 0


async def test_meters_of_nothing(storage: Storage) -> None:
    """No queues, no meters; an unknown queue has counted nothing and is not created."""
    assert await looked_into(storage).meters([]) == []
    assert await looked_into(storage).meters(["other"]) == [QueueMeter("other", 0, 0)]
    assert await storage.queues() == []


async def test_latest_gives_the_newest_end_first(storage: Storage, clock: Clock) -> None:
    """Ended jobs come newest first, whole, and only those that are still kept."""
    for id in ("a", "b", "c"):
        await put1(storage, "q", id, payload=id.encode())
        await settle1(storage, fail(await claim1(storage), error=b"why", ttl=HOUR))
        clock.advance(seconds=60)
    latest = looked_into(storage).latest
    assert ids(await latest("q", State.FAILED)) == ["c", "b", "a"]
    assert ids(await latest("q", State.FAILED, 2)) == ["c", "b"]
    assert await latest("q", State.FAILED, 1) == await storage.get("q", ["c"])
    assert await latest("q", State.COMPLETED) == []
    assert await latest("other", State.FAILED) == []
    clock.advance(ms=HOUR - 60_000)
    assert await latest("q", State.FAILED) == []


@pytest.mark.only("redis", "valkey", "cluster")
async def test_the_vitals_of_a_server(storage: Storage, backend: Backend) -> None:
    """A server tells its version, what it does when its memory is full, its clock and how far away it is."""
    vitals = await looked_into(storage).inspect()
    assert isinstance(vitals, ServerInfo)
    assert vitals.cluster == (backend.name == "cluster")
    assert len(vitals.nodes) == (3 if vitals.cluster else 1)
    for node in vitals.nodes:
        assert node.software == ("redis" if backend.name == "redis" else node.software)
        assert int(node.version.partition(".")[0]) >= 6
        assert (node.role, node.policy) == ("master", "noeviction")
        assert node.used_memory > 0
        assert node.latency_ms > 0
        assert node.appendfsync in ("always", "everysec", "no")
        assert node.needs_replicas == 0
        assert abs(node.ahead_ms) < 1000


@pytest.mark.only("sqlite")
async def test_the_vitals_of_a_file(storage: Storage, backend: Backend) -> None:
    """A file tells how it is kept and that it is whole; the check can be left out."""
    vitals = await looked_into(storage).inspect()
    assert isinstance(vitals, FileInfo)
    assert isinstance(backend, SqliteBackend)
    assert vitals.path == backend.path
    assert (vitals.journal_mode, vitals.synchronous, vitals.faults) == ("wal", "NORMAL", [])
    assert (vitals.mode, vitals.own) == (0o600, True)
    assert min(vitals.size, vitals.free) > 0
    unchecked = await looked_into(storage).inspect(check=False)
    assert isinstance(unchecked, FileInfo)
    assert unchecked.faults is None


@pytest.mark.only("memory")
async def test_the_vitals_of_memory(storage: Storage) -> None:
    """A database in memory has no path."""
    vitals = await looked_into(storage).inspect()
    assert isinstance(vitals, FileInfo)
    assert vitals.path == ""
