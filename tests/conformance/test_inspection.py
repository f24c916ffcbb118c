"""inspect, meters, latest: the reads for operators of a storage."""

from __future__ import annotations

import pytest

from penstock.model.job import State
from penstock.model.storage_info import FileInfo, Inspectable, QueueMeter, ServerInfo
from penstock.storage.base import Storage
from tests.schedules import scheduling, set1, stored
from tests.support import (
    HOUR,
    LEASE,
    Backend,
    Clock,
    SqliteBackend,
    cancel_run,
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


def inspectable(storage: Storage) -> Inspectable:
    assert isinstance(storage, Inspectable)
    return storage


async def test_meters_count_finished_jobs(storage: Storage) -> None:
    """Completed, failed and cancelled jobs are counted, also those that are not kept."""
    await storage.put([new("q", "a"), new("q", "b"), new("q", "c"), new("q", "d"), new("q/x", "e")])
    a, b, c, d = await claim_all(storage)
    assert await inspectable(storage).meters(["q", "q/x"]) == [QueueMeter("q", 0, 0), QueueMeter("q/x", 0, 0)]
    await storage.settle([complete(a), complete(b, ttl=0), fail(c), cancel_run(d)])
    assert await inspectable(storage).meters(["q", "q/x"]) == [QueueMeter("q", 4, 0), QueueMeter("q/x", 0, 0)]


async def test_meters_count_expired_leases(storage: Storage, clock: Clock) -> None:
    """An expired lease is counted from its last moment until its runs are reaped."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE - 1)
    assert (await inspectable(storage).meters(["q"]))[0].overdue == 0
    clock.advance(ms=1)
    assert (await inspectable(storage).meters(["q"]))[0].overdue == 1
    await storage.reap(["q"])
    assert (await inspectable(storage).meters(["q"]))[0].overdue == 0


async def test_meters_name_the_next_tick_of_a_queue(storage: Storage) -> None:
    """The earliest tick of its schedules, and none if it has no schedules any more."""
    version = await set1(storage)
    [meter] = await inspectable(storage).meters(["q"])
    assert meter.tick == (await stored(storage)).next
    await scheduling(storage).drop_schedule("q", "s", version)
    [meter] = await inspectable(storage).meters(["q"])
    assert meter.tick is None


async def test_meters_of_no_queues_and_of_an_unknown_queue(storage: Storage) -> None:
    """No queues give no meters; an unknown queue has counted nothing and is not created."""
    assert await inspectable(storage).meters([]) == []
    assert await inspectable(storage).meters(["other"]) == [QueueMeter("other", 0, 0)]
    assert await storage.queues() == []


async def test_latest_lists_the_newest_finished_job_first(storage: Storage, clock: Clock) -> None:
    """Finished jobs are listed newest first, whole, and only those that are still kept."""
    for id in ("a", "b", "c"):
        await put1(storage, "q", id, payload=id.encode())
        await settle1(storage, fail(await claim1(storage), error=b"why", ttl=HOUR))
        clock.advance(seconds=60)
    latest = inspectable(storage).latest
    assert ids(await latest("q", State.FAILED)) == ["c", "b", "a"]
    assert ids(await latest("q", State.FAILED, 2)) == ["c", "b"]
    assert await latest("q", State.FAILED, 1) == await storage.get("q", ["c"])
    assert await latest("q", State.COMPLETED) == []
    assert await latest("other", State.FAILED) == []
    clock.advance(ms=HOUR - 60_000)
    assert await latest("q", State.FAILED) == []


@pytest.mark.only("redis", "valkey", "cluster")
async def test_inspect_a_server(storage: Storage, backend: Backend) -> None:
    """inspect of a server answers its version, eviction policy, clock and round trip."""
    info = await inspectable(storage).inspect()
    assert isinstance(info, ServerInfo)
    assert info.cluster == (backend.name == "cluster")
    assert len(info.nodes) == (3 if info.cluster else 1)
    for node in info.nodes:
        assert node.software == ("redis" if backend.name == "redis" else node.software)
        assert int(node.version.partition(".")[0]) >= 6
        assert (node.role, node.policy) == ("master", "noeviction")
        assert node.used_memory > 0
        assert node.latency_ms > 0
        assert node.appendfsync in ("always", "everysec", "no")
        assert node.needs_replicas == 0
        assert abs(node.ahead_ms) < 1000


@pytest.mark.only("sqlite")
async def test_inspect_a_file(storage: Storage, backend: Backend) -> None:
    """inspect of a SQLite file answers its modes and an integrity check, which can be left out."""
    info = await inspectable(storage).inspect()
    assert isinstance(info, FileInfo)
    assert isinstance(backend, SqliteBackend)
    assert info.path == backend.path
    assert (info.journal_mode, info.synchronous, info.faults) == ("wal", "NORMAL", [])
    assert (info.mode, info.exposures, info.foreign_wake_directory) == (0o600, [], "")
    assert min(info.size, info.free) > 0
    unchecked = await inspectable(storage).inspect(check=False)
    assert isinstance(unchecked, FileInfo)
    assert unchecked.faults is None


@pytest.mark.only("memory")
async def test_inspect_memory(storage: Storage) -> None:
    """inspect of a database in memory answers no path."""
    info = await inspectable(storage).inspect()
    assert isinstance(info, FileInfo)
    assert info.path == ""
