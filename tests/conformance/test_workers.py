"""beat and workers: heartbeats of workers."""

from __future__ import annotations

import pytest

from penstock.storage.base import Storage, WorkerRecord
from tests.support import HOUR, LEASE, SECOND, T0, Clock, claim1, put1, state_of

pytestmark = pytest.mark.beyond_model


async def test_a_new_storage_lists_no_workers(storage: Storage) -> None:
    """A storage without workers lists none."""
    assert await storage.workers() == []


async def test_a_beat_shows_a_worker(storage: Storage) -> None:
    """A worker is listed with the time of its heartbeat, its expiry and its info."""
    await storage.beat("w", 5 * SECOND, b"\x00info\xff")
    assert await storage.workers() == [WorkerRecord("w", T0, T0 + 5 * SECOND, b"\x00info\xff")]


async def test_each_beat_replaces_the_last_one(storage: Storage, clock: Clock) -> None:
    """Each heartbeat replaces the last one."""
    await storage.beat("w", 5 * SECOND, b"one")
    clock.advance(seconds=4)
    await storage.beat("w", 5 * SECOND, b"two")
    clock.advance(seconds=4)
    assert await storage.workers() == [WorkerRecord("w", T0 + 4 * SECOND, T0 + 9 * SECOND, b"two")]


async def test_a_worker_without_a_beat_expires(storage: Storage, clock: Clock) -> None:
    """A worker without a new heartbeat is off the list after its TTL, and others stay (PJ-D4)."""
    await storage.beat("silent", SECOND)
    await storage.beat("alive", HOUR)
    clock.advance(ms=SECOND - 1)
    assert [worker.id for worker in await storage.workers()] == ["alive", "silent"]
    clock.advance(ms=1)
    assert [worker.id for worker in await storage.workers()] == ["alive"]


async def test_a_beat_with_a_ttl_of_zero_removes_the_worker(storage: Storage) -> None:
    """A heartbeat with a TTL of 0 takes a worker off the list, listed or not (QZ-D18)."""
    await storage.beat("w", HOUR)
    await storage.beat("w", 0)
    await storage.beat("unknown", 0)
    assert await storage.workers() == []


async def test_workers_are_sorted_by_id(storage: Storage) -> None:
    """The list is in the order of the ids, whatever characters they hold (PJ-D20)."""
    names = ["b", "a:1", "a", "é", "B", "host_1:2", "{x}*"]
    for name in names:
        await storage.beat(name, HOUR)
    assert [worker.id for worker in await storage.workers()] == sorted(names)


async def test_a_worker_off_the_list_keeps_its_leases(storage: Storage) -> None:
    """A worker that leaves the list keeps its leases until they expire (PJ-D1)."""
    await storage.beat("w", HOUR)
    await put1(storage, "q", "a")
    await claim1(storage, worker="w", lease=LEASE)
    await storage.beat("w", 0)
    assert await state_of(storage) == "running"


async def test_another_process_sees_the_workers(storage: Storage, peer: Storage) -> None:
    """Heartbeats are shared by all processes of one storage."""
    await storage.beat("w", HOUR, b"i")
    assert await peer.workers() == [WorkerRecord("w", T0, T0 + HOUR, b"i")]
