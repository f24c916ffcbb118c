"""A Redis server that loses its scripts, cuts connections or is restarted: work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.errors import StorageUnavailable
from penstock.model.job import State
from penstock.storage.base import Settled, Storage
from tests.servers import Server, redis_program, start_or_skip
from tests.support import (
    LEASE,
    Clock,
    RedisBackend,
    claim1,
    claim_all,
    complete,
    find_all,
    forget_all,
    held,
    ids,
    new,
    new_namespace,
    put1,
    report_progress,
    retried,
    retry_until_available,
    run_order,
    settle1,
    tally,
)

pytestmark = pytest.mark.beyond_model
redis_only = pytest.mark.only("redis", "valkey", "cluster")


def flush_scripts(backend: RedisBackend) -> None:
    for client in backend.clients():
        with client:
            client.script_flush()


def cut(backend: RedisBackend) -> None:
    """Kill every connection but our own."""
    for client in backend.clients():
        with client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


# scripts -----------------------------------------------------------------------------------------


@redis_only
async def test_every_verb_survives_a_script_flush(backend: RedisBackend, storage: Storage, clock: Clock) -> None:
    """A server that lost its script cache is given the scripts again (PJ-D21)."""
    flush_scripts(backend)
    await storage.put([new("q", id) for id in "abc"])
    flush_scripts(backend)
    a, b, _ = await claim_all(storage)
    flush_scripts(backend)
    assert (await storage.renew("w", [held(a)], LEASE))[0].kept
    flush_scripts(backend)
    assert await report_progress(storage, held(a), b"half")
    flush_scripts(backend)
    assert await settle1(storage, complete(a)) == Settled(State.COMPLETED)
    flush_scripts(backend)
    clock.advance(ms=LEASE)
    assert len(await storage.reap(["q"])) == 2
    for call in (
        lambda: storage.get("q", ["a"]),
        lambda: storage.find("q"),
        lambda: storage.counts("q"),
        lambda: storage.peek("q"),
        lambda: storage.queues(),
        lambda: storage.cancel("q", [b.id]),
        lambda: storage.revive("q", ["a"]),
        lambda: storage.set_ttl("q", "a", 1000),
        lambda: storage.purge(["q"]),
        lambda: storage.set_pause("q", True),
        lambda: storage.beat("w", 1000),
        lambda: storage.workers(),
        lambda: storage.delete_queue("q"),
    ):
        flush_scripts(backend)
        await call()
    assert await storage.counts("q") == tally()


@redis_only
async def test_many_queues_at_once_survive_a_script_flush(backend: RedisBackend, storage: Storage) -> None:
    """Calls that are sent together are each given their script again."""
    queues = [f"q/{n}" for n in range(5)] + ["r", "s"]
    flush_scripts(backend)
    await storage.put([new(queue, "a") for queue in queues])
    flush_scripts(backend)
    claims = [claim for queue in queues for claim in await claim_all(storage, queue)]
    flush_scripts(backend)
    assert await storage.settle([complete(claim) for claim in claims]) == [Settled(State.COMPLETED)] * 7


# connections -------------------------------------------------------------------------------------


@redis_only
async def test_reads_survive_a_cut_connection(backend: RedisBackend, storage: Storage) -> None:
    """A call that may be repeated is repeated on a new connection."""
    await put1(storage, "q", "a")
    cut(backend)
    assert ids(await find_all(storage)) == ["a"]
    cut(backend)
    assert await storage.counts("q") == tally(queued=1)


@redis_only
async def test_a_settlement_survives_a_cut_connection(backend: RedisBackend, storage: Storage) -> None:
    """An outcome is sent again until it is recorded, and is recorded once (PJ-D16)."""
    await storage.put([new("q", "a"), new("q", "b")])
    a, b = await claim_all(storage)
    cut(backend)
    assert await settle1(storage, retried(a)) == Settled(State.QUEUED)
    cut(backend)
    assert await settle1(storage, complete(b)) == Settled(State.COMPLETED)
    [again] = await claim_all(storage)
    assert (again.id, again.attempts, again.retries) == ("a", 2, 1)


@redis_only
async def test_a_put_on_a_cut_connection_stores_once_or_raises(backend: RedisBackend, storage: Storage) -> None:
    """A put is answered or raises; made again, there is still one job."""
    cut(backend)
    await retry_until_available(lambda: put1(storage, "q", "a"))
    assert await run_order(storage) == ["a"]


@redis_only
async def test_a_fresh_put_survives_a_cut_connection(backend: RedisBackend, storage: Storage) -> None:
    """A job with an id that was just made up can be sent again by the storage itself."""
    cut(backend)
    assert (await put1(storage, "q", "fresh id", fresh=True)).status == "queued"
    assert await run_order(storage) == ["fresh id"]


@redis_only
async def test_nothing_is_lost_when_connections_are_cut_all_the_time(
    backend: RedisBackend, storage: Storage, clock: Clock
) -> None:
    """With a connection cut between any two calls, every job completes and none is recorded twice."""
    names = [f"j{n}" for n in range(60)]
    for name in names:
        cut(backend)
        await retry_until_available(lambda name=name: put1(storage, "q", name))
    done: list[str] = []
    while len(done) < len(names):
        cut(backend)
        claims = await retry_until_available(lambda: claim_all(storage, limit=7))
        if not claims:  # an answer that was lost with its connection: the lease runs out
            clock.advance(ms=LEASE)
            await retry_until_available(lambda: storage.reap(["q"]))
            continue
        cut(backend)
        settlements = [complete(claim) for claim in claims]
        answers = await retry_until_available(lambda settlements=settlements: storage.settle(settlements))
        done += [claim.id for claim, answer in zip(claims, answers, strict=True) if not answer.lost]
    assert sorted(done) == sorted(names)
    assert await storage.counts("q") == tally(completed=60)


# restarts ----------------------------------------------------------------------------------------


@pytest.fixture
def durable() -> Iterator[RedisBackend]:
    """A server of our own that writes every change to its append-only file."""
    server = start_or_skip(lambda: Server(redis_program(), "--appendonly", "yes", "--appendfsync", "always").start())
    yield RedisBackend("redis", f"redis://{server.address}/0", new_namespace(), server)
    server.remove()


async def test_jobs_survive_a_crash_of_the_server(durable: RedisBackend, clock: Clock) -> None:
    """A server that was killed and started again has every job, and the run before it can still be settled."""
    storage = durable.build(clock)
    await storage.open()
    await storage.put([new("q", id) for id in "abc"])
    await storage.put([new("q", "d", group="g"), new("q", "e", delay=1000)])
    claim = await claim1(storage)
    assert isinstance(durable.server, Server)
    await asyncio.to_thread(durable.server.restart)
    assert await retry_until_available(lambda: storage.counts("q")) == tally(running=1, queued=3, scheduled=1)
    assert await settle1(storage, complete(claim)) == Settled(State.COMPLETED)
    assert await run_order(storage) == ["b", "c", "d"]
    await forget_all(storage)
    await storage.close()


async def test_a_server_that_is_away_is_unavailable(durable: RedisBackend, clock: Clock) -> None:
    """While the server is down, calls raise; when it is back, they go through."""
    storage = durable.build(clock)
    await storage.open()
    await put1(storage, "q", "a")
    assert isinstance(durable.server, Server)
    durable.server.kill()
    with pytest.raises(StorageUnavailable):
        await put1(storage, "q", "b")
    with pytest.raises(StorageUnavailable):
        await storage.counts("q")
    await asyncio.to_thread(durable.server.restart)
    assert await retry_until_available(lambda: storage.counts("q")) == tally(queued=1)
    await storage.close()


async def test_a_waiter_outlives_a_restart(durable: RedisBackend, clock: Clock) -> None:
    """A waiter is notified of the end of its job though the server was restarted meanwhile."""
    storage = durable.build(clock)
    await storage.open()
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    task = asyncio.create_task(retry_until_available(lambda: storage.wait_done("q", "a", 60), within=30))
    assert isinstance(durable.server, Server)
    await asyncio.to_thread(durable.server.restart)
    await retry_until_available(lambda: settle1(storage, complete(claim)))
    assert await asyncio.wait_for(task, 30) is True
    await storage.close()
