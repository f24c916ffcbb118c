"""beat and workers: who says that it is there."""

from __future__ import annotations

import pytest

from penstock.storage.base import Storage, WorkerRecord
from tests.support import HOUR, LEASE, SECOND, T0, Clock, claim1, put1, state_of

pytestmark = pytest.mark.beyond_model


async def test_nobody_is_there_at_first(storage: Storage) -> None:
    """A storage without workers lists none."""
    assert await storage.workers() == []


async def test_a_beat_shows_a_worker(storage: Storage) -> None:
    """A worker is listed with the time of its beat, its end, and what it says of itself."""
    await storage.beat("w", 5 * SECOND, b"\x00info\xff")
    assert await storage.workers() == [WorkerRecord("w", T0, T0 + 5 * SECOND, b"\x00info\xff")]


async def test_a_beat_goes_on(storage: Storage, clock: Clock) -> None:
    """Each beat replaces the last one."""
    await storage.beat("w", 5 * SECOND, b"one")
    clock.advance(seconds=4)
    await storage.beat("w", 5 * SECOND, b"two")
    clock.advance(seconds=4)
    assert await storage.workers() == [WorkerRecord("w", T0 + 4 * SECOND, T0 + 9 * SECOND, b"two")]


async def test_a_silent_worker_is_forgotten(storage: Storage, clock: Clock) -> None:
    """A worker that beats no more is off the list when its time is over, and others stay (PJ-D4)."""
    await storage.beat("silent", SECOND)
    await storage.beat("alive", HOUR)
    clock.advance(ms=SECOND - 1)
    assert [worker.id for worker in await storage.workers()] == ["alive", "silent"]
    clock.advance(ms=1)
    assert [worker.id for worker in await storage.workers()] == ["alive"]


async def test_a_worker_takes_itself_off(storage: Storage) -> None:
    """A beat with a TTL of 0 takes a worker off the list, whether or not it was on it (QZ-D18)."""
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


async def test_presence_and_runs_are_two_things(storage: Storage) -> None:
    """A worker that leaves the list keeps its leases until they end (PJ-D1)."""
    await storage.beat("w", HOUR)
    await put1(storage, "q", "a")
    await claim1(storage, worker="w", lease=LEASE)
    await storage.beat("w", 0)
    assert await state_of(storage) == "running"


async def test_another_process_sees_the_workers(storage: Storage, peer: Storage) -> None:
    """Presence is shared by everybody at the same place."""
    await storage.beat("w", HOUR, b"i")
    assert await peer.workers() == [WorkerRecord("w", T0, T0 + HOUR, b"i")]
