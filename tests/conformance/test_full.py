"""A Redis server with a full memory: every verb is carried out but those that only add, as `put` and `fire`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.errors import StorageUnavailable
from penstock.model.job import State
from penstock.storage.base import EventRecord, Storage
from tests.schedules import fire1, record, scheduling, set1, stored, tick
from tests.support import (
    HOUR,
    LEASE,
    Backend,
    Clock,
    RedisBackend,
    claim1,
    complete,
    eventually,
    fail,
    held,
    new,
    put1,
    report_progress,
    retried,
    settle1,
    state_of,
    tally,
)

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey", "cluster")]


@pytest.fixture
def full(backend: Backend, storage: Storage, runner: asyncio.Runner) -> Iterator[None]:
    """Jobs a to f, a of them claimed, on a server that then has less memory than it uses."""
    assert isinstance(backend, RedisBackend)
    runner.run(storage.put([new("q", id) for id in "abcdef"]))
    clients = backend.clients()
    for client in clients:
        client.config_set("maxmemory", 1)
    yield
    for client in clients:
        client.config_set("maxmemory", 0)
        client.close()


@pytest.mark.usefixtures("full")
async def test_a_full_server_refuses_put_and_restore(storage: Storage) -> None:
    """A put and a restore raise `StorageUnavailable`, and nothing is stored."""
    [job] = (await storage.find("q", limit=1)).jobs
    with pytest.raises(StorageUnavailable, match="is full"):
        await put1(storage, "q", "g")
    with pytest.raises(StorageUnavailable, match="is full"):
        await storage.put([new("r", fresh=True)])
    with pytest.raises(StorageUnavailable, match="is full"):
        await storage.restore([job])  # type: ignore[attr-defined]
    assert await storage.queues() == ["q"]
    assert await state_of(storage, "g") is None


@pytest.mark.usefixtures("full")
async def test_each_verb_but_put_and_restore_works_on_a_full_server(storage: Storage, clock: Clock) -> None:
    """Jobs are claimed, renewed, reported, settled in every way, reaped, cancelled, revived, purged and deleted."""
    then = (new("q/side", "next"),)
    await storage.beat("w", HOUR)
    assert await settle1(storage, complete(await claim1(storage), then=then)) is not None
    assert (await settle1(storage, fail(await claim1(storage), then=then))).state is State.FAILED
    assert (await settle1(storage, retried(await claim1(storage), delay=1000))).state is State.RETRYING
    claim = await claim1(storage)
    assert (await storage.renew("w", [held(claim)], LEASE))[0].kept
    assert await report_progress(storage, held(claim), b"half")
    clock.advance(ms=LEASE + 1)
    assert [each.id for each in await storage.reap(["q"])] == [claim.id]
    assert [each.status for each in await storage.cancel("q", ["f"], ttl=HOUR)] == ["cancelled"]
    assert await storage.revive("q", ["f", "b"]) == [True, True]
    assert await storage.set_pause("q", True)
    assert await storage.set_pause("q", False)
    assert await storage.set_ttl("q", "a", HOUR)
    assert await storage.peek("q") is not None
    assert await storage.why("q", "f") is not None
    assert await storage.find("q/side") is not None
    assert await storage.counts("q") != {}
    assert [worker.id for worker in await storage.workers()] == ["w"]
    await storage.beat("w", 0)
    clock.advance(ms=3 * HOUR)
    assert await storage.purge(["q"]) >= 1
    assert await storage.delete_queue("q") >= 1


async def test_a_full_server_fires_nothing_or_all(backend: RedisBackend, storage: Storage) -> None:
    """A fire and a new schedule raise `StorageUnavailable` and change nothing; the tick fires when there is room."""
    version = await set1(storage)
    clients = backend.clients()
    for client in clients:
        client.config_set("maxmemory", 1)
    try:
        before = await stored(storage)
        with pytest.raises(StorageUnavailable, match="is full"):
            await fire1(storage, version, tick(1))
        with pytest.raises(StorageUnavailable, match="is full"):
            await scheduling(storage).set_schedule(record("other"), 0)
        assert (await scheduling(storage).due(["q"], "w")).look_at == before.next
        assert await stored(storage) == before
        assert await storage.counts("q") == tally()
        assert (await scheduling(storage).schedules("q")).schedules == [before]
    finally:
        for client in clients:
            client.config_set("maxmemory", 0)
            client.close()
    assert (await fire1(storage, version, tick(1))).ids == ("s@1",)
    assert await scheduling(storage).drop_schedule("q", "s", (await stored(storage)).version)


@pytest.mark.usefixtures("full")
async def test_events_reach_a_listener_of_a_full_server(storage: Storage) -> None:
    """A listener that comes while the server is full gets the events."""
    events = storage.events()
    first = asyncio.ensure_future(anext(events))

    async def announced() -> bool:
        await storage.announce([EventRecord("idle", "q", "", 0)])
        return first.done()

    await eventually(announced)
    assert first.result().name == "idle"
    await events.aclose()  # type: ignore[attr-defined]


async def test_a_worker_that_leaves_gives_its_connection_back(backend: RedisBackend, storage: Storage) -> None:
    """The subscription to the cancel requests of a worker ends with its last heartbeat, not when the storage closes."""
    for n in range(5):
        await storage.beat(f"w{n}", HOUR)
        await storage.wait_cancel(f"w{n}", 5)  # the first wait ends when the subscription is confirmed
        await storage.beat(f"w{n}", 0)
    clients = backend.clients()
    await eventually(lambda: not [each for each in clients for row in each.client_list() if row["sub"] != "0"])
    for client in clients:
        client.close()
