"""Enqueues with `durability`: an acknowledged job outlives its server, else the enqueue raises."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import (
    Durability,
    DurabilityReport,
    Enqueued,
    Entry,
    NotDurable,
    Penstock,
    State,
    StorageError,
    StorageUnavailable,
    sync,
)
from tests.servers import Server, redis_program, start_or_skip, valkey_program

#: A replica that stands still is not waited for longer than this.
BRIEF = Durability("replicas", timeout=0.2)
#: One that lives may be slow on a busy machine.
LONG_TIMEOUT = Durability("replicas", timeout=10)


def until(true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait for something that a server does by itself."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Pair:
    """A primary and its replica."""

    def __init__(self, program: str) -> None:
        self.primary = Server(program, "--repl-diskless-sync-delay", "0").start()
        self.replica = Server(program, "--replicaof", f"127.0.0.1 {self.primary.port}").start()
        until(self._follows, "the replica does not follow")

    @property
    def url(self) -> str:
        return f"redis://{self.primary.address}"

    def _follows(self) -> bool:
        with contextlib.closing(self.primary.client()) as client:
            client.set("seen", 1, px=1000)
            return client.wait(1, 1000) == 1

    def freeze(self, frozen: bool = True) -> None:
        assert self.replica.process
        self.replica.process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def promote(self) -> str:
        """Make the replica a primary and return its URL."""
        with contextlib.closing(self.replica.client()) as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        return f"redis://{self.replica.address}"

    def remove(self) -> None:
        self.replica.remove()
        self.primary.remove()


@pytest.fixture(params=["redis", "valkey"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A primary and a replica of each kind of server."""
    pair = start_or_skip(lambda: Pair(redis_program() if request.param == "redis" else valkey_program()))
    yield pair
    pair.remove()


@pytest.fixture
def valkey() -> Iterator[Server]:
    """A server with an append-only file that is synced every second, and with WAITAOF."""
    server = start_or_skip(lambda: Server(valkey_program(), "--appendonly", "yes", "--appendfsync", "everysec").start())
    yield server
    server.remove()


# replicas ----------------------------------------------------------------------------------------


async def test_what_replicas_have_outlives_the_primary(pair: Pair) -> None:
    """Every acknowledged job is on the replica when the primary dies at once."""
    async with Penstock(pair.url, durability=LONG_TIMEOUT) as app:
        queue = app.queue("q")
        answers = [await queue.enqueue(1), *await queue.enqueue_many([Entry(n, delay=60) for n in range(700)])]
        answers += await asyncio.gather(*(app.queue(f"q{n % 3}").enqueue(n, id=f"j{n}") for n in range(60)))
        pair.primary.kill()
    assert all(each.durability and each.durability.replicas == 1 for each in answers)
    async with Penstock(pair.promote()) as app:
        assert len(await app.queue("q").find(limit=1000)) == 701
        assert [sum((await app.queue(f"q{n}").counts()).values()) for n in range(3)] == [20, 20, 20]


async def test_a_frozen_replica_raises_not_durable(pair: Pair) -> None:
    """The enqueue raises with what is known; the same id again is confirmed once the replica goes on."""
    async with Penstock(pair.url, durability=BRIEF) as app:
        queue = app.queue("q")
        pair.freeze()
        for payload, id in ((1, None), (2, "a"), (2, "a")):  # the last one finds its job, and writes nothing
            with pytest.raises(NotDurable, match="0 of 1 replicas") as caught:
                await queue.enqueue(payload, id=id)
            [answer] = caught.value.enqueued
            assert not answer.durability
            assert await queue.status(answer.id)
        assert sum((await queue.counts()).values()) == 2
    pair.freeze(False)
    async with Penstock(pair.url, durability=LONG_TIMEOUT) as app:
        again = await app.queue("q").enqueue(2, id="a")
        assert (again.status, bool(again.durability)) == ("duplicate", True)


async def test_nobody_else_waits_for_the_replica(pair: Pair) -> None:
    """While an enqueue waits to be confirmed, the app's other calls are answered."""
    async with Penstock(pair.url, durability=LONG_TIMEOUT) as app:
        await app.queue("q").enqueue(0, id="a")
        pair.freeze()
        waiting = asyncio.create_task(app.queue("q").enqueue(1))
        while (await app.queue("q").counts())[State.QUEUED] < 2:  # noqa: ASYNC110 - until it is stored
            await asyncio.sleep(0)
        for _ in range(20):
            assert await app.queue("q").status("a")
        assert not waiting.done()
        pair.freeze(False)
        assert (await waiting).durability


async def test_a_primary_that_dies_meanwhile_confirms_nothing(pair: Pair) -> None:
    """An enqueue whose confirmation never comes is not acknowledged."""
    async with Penstock(pair.url, durability=LONG_TIMEOUT) as app:
        await app.queue("q").enqueue(0)
        pair.freeze()
        waiting = asyncio.create_task(app.queue("q").enqueue(1, id="a"))
        while (await app.queue("q").counts())[State.QUEUED] < 2:  # noqa: ASYNC110 - until it is stored
            await asyncio.sleep(0)
        pair.primary.kill()
        with pytest.raises(StorageUnavailable):
            await waiting
    pair.freeze(False)


def test_without_await(pair: Pair) -> None:
    """The sync app confirms as the async one does."""
    with sync.Penstock(pair.url, durability=LONG_TIMEOUT) as app, sync.Penstock(pair.url, durability=BRIEF) as brief:
        queue = app.queue("q")
        assert queue.enqueue(1, id="a").durability
        assert all(each.durability for each in queue.enqueue_many(range(20)))
        pair.freeze()
        with pytest.raises(NotDurable) as caught:
            brief.queue("q").enqueue(2, id="b")
        assert [each.id for each in caught.value.enqueued] == ["b"]
        pair.freeze(False)
        assert queue.enqueue(2, id="b").durability


async def test_more_replicas_than_there_are(pair: Pair) -> None:
    """The error has the number of replicas that have the job."""
    async with Penstock(pair.url, durability=Durability("replicas", 2, timeout=2)) as app:
        with pytest.raises(NotDurable, match="1 of 2 replicas") as caught:
            await app.queue("q").enqueue_many([1, 2, 3])
        assert [each.durability.replicas for each in caught.value.enqueued] == [1, 1, 1]


async def test_scripts_are_loaded_on_the_way(pair: Pair) -> None:
    """A server that has forgotten the scripts is given them, and the put is confirmed."""
    async with Penstock(pair.url, durability=LONG_TIMEOUT) as app:
        for n in range(3):
            with contextlib.closing(pair.primary.client()) as client:
                client.script_flush()
            assert (await app.queue("q").enqueue(n, id=str(n))).durability
        assert (await app.queue("q").counts())[State.QUEUED] == 3


async def test_nothing_is_left_of_a_confirmation(pair: Pair) -> None:
    """Keys that confirmations write go by themselves."""
    async with Penstock(pair.url, durability=LONG_TIMEOUT) as app:
        await app.queue("q").enqueue(1)
    with contextlib.closing(pair.primary.client()) as client:
        assert 0 < client.pttl("penstock:{q}:q:confirmed") <= 1000


# a Cluster ---------------------------------------------------------------------------------------


async def test_on_a_cluster_the_primary_of_the_slot_is_asked() -> None:
    """Confirmed jobs of all families outlive the death of a primary, from both kinds of app."""
    from chaos.failover_faults import wait_for_takeover
    from chaos.failover_servers import ClusterServers, family_slot

    place = await asyncio.to_thread(start_or_skip, ClusterServers)
    names = [f"f{n}" for n in range(12)]
    try:
        with sync.Penstock(place.url, durability=LONG_TIMEOUT) as blocking:
            assert all(blocking.queue(name).enqueue(0, id="s").durability for name in names)
        async with Penstock(place.url, durability=LONG_TIMEOUT) as app:
            answers = await asyncio.gather(*(app.queue(name).enqueue(1, id="a") for name in names))
            assert all(each.durability for each in answers)
            victim = place.serves(family_slot("f0"))
            assert victim
            victim.kill()
            await asyncio.to_thread(wait_for_takeover, place, victim)
            for name in names:
                assert (await _after_failover(app, name))["queued"] == 2
    finally:
        await asyncio.to_thread(place.remove)


async def _after_failover(app: Penstock, name: str) -> dict[str, int]:
    end = time.monotonic() + 30
    while True:
        try:
            return {str(state): count for state, count in (await app.queue(name).counts()).items()}
        except StorageUnavailable:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)


async def test_on_a_cluster_without_replicas(servers) -> None:
    """Without replicas nothing is confirmed, and the enqueue raises, on either kind of app."""
    node = servers.get("cluster").nodes[0]
    url = f"redis+cluster://{node.address}"
    async with Penstock(url, namespace="durable", durability=BRIEF) as app:
        with pytest.raises(NotDurable):
            await app.queue("q").enqueue(1)
        await app.queue("q").delete()
    with sync.Penstock(url, namespace="durable", durability=BRIEF) as blocking:
        with pytest.raises(NotDurable):
            blocking.queue("q").enqueue(1)
        blocking.queue("q").delete()


# the disk ----------------------------------------------------------------------------------------


async def test_what_is_on_disk_outlives_a_crash(valkey: Server) -> None:
    """Jobs acknowledged with "fsync" are there when the server comes back."""
    async with Penstock(f"redis://{valkey.address}", durability="fsync") as app:
        answers = await app.queue("q").enqueue_many(range(50))
        assert all(each.durability and each.durability.fsynced for each in answers)
        valkey.kill()
    valkey.restart()
    async with Penstock(f"redis://{valkey.address}") as app:
        assert (await app.queue("q").counts())[State.QUEUED] == 50


async def test_a_server_without_an_append_only_file(pair: Pair) -> None:
    """It is refused when it is opened, with what to do; an old one with the version that is needed."""
    for app in (Penstock(pair.url, durability="fsync"), sync.Penstock(pair.url, durability="fsync").async_app):
        with pytest.raises(StorageError, match=r"appendonly yes|7\.2"):
            await app.open()
    with pytest.raises(StorageError, match=r"appendonly yes|7\.2"):
        sync.Penstock(pair.url, durability="fsync").open()


async def test_a_slow_disk_raises_not_durable(valkey: Server) -> None:
    """A server that syncs once a second does not confirm within a moment; the job is stored."""
    asked = Durability("fsync", timeout=0.001)
    async with Penstock(f"redis://{valkey.address}", durability=asked) as app:
        with pytest.raises(NotDurable, match="not yet on disk"):  # noqa: PT012
            for n in range(200):  # now and then the second is just over
                await app.queue("q").enqueue(n)


async def test_a_file(tmp_path: Path) -> None:
    """On SQLite "fsync" makes every commit wait for the disk, and every answer has that level."""
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    async with Penstock(url, durability="fsync") as app:
        answer = await app.queue("q").enqueue(1, id="a")
        assert answer.durability == DurabilityReport(asked=Durability("fsync"), fsynced=True)
        assert (await app.queue("q").enqueue(1, id="a")).durability
        assert app.storage.engine.synchronous == "FULL"  # type: ignore[attr-defined]
    with sync.Penstock(url, durability="fsync") as blocking:
        assert blocking.queue("q").enqueue(2).durability
        blocking.queue("q").delete()


# arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Penstock, sync.Penstock])
def test_what_cannot_be_kept_is_refused(make: Callable[..., object], tmp_path: Path) -> None:
    """A file has no replicas, memory no disk, a storage object its own ways; other words are no durability."""
    file = f"sqlite:{tmp_path / 'jobs.db'}"
    for url in (file, "memory:"):
        with pytest.raises(ValueError, match="durability"):
            make(url, durability="replicas")
    with pytest.raises(ValueError, match="durability"):
        make("memory:", durability="fsync")
    with pytest.raises(ValueError, match="durability"):
        make(file, durability=Durability("fsync", replicas=1))
    with pytest.raises(ValueError, match="durability"):
        make(storage=Penstock("memory:").storage, durability="fsync")
    with pytest.raises(ValueError, match="durability"):
        make(file, durability="always")
    with pytest.raises(TypeError, match="durability"):
        make(file, durability=True)


def test_a_durability_is_checked() -> None:
    """Counts and timeouts that make no sense are refused by name."""
    for bad in ({"replicas": 0}, {"timeout": 0}, {"timeout": 11}, {"timeout": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Durability("replicas", **bad)  # type: ignore[arg-type]
    for bad in ({"replicas": 1.5}, {"timeout": "1"}, {"replicas": True}):
        with pytest.raises(TypeError, match=next(iter(bad))):
            Durability("replicas", **bad)  # type: ignore[arg-type]
    assert (Durability("replicas").copies, Durability("fsync").copies, Durability("fsync", 2).copies) == (1, 0, 2)


def test_what_was_reached_in_words() -> None:
    """A report is true when the level was reached, and its text names what is missing."""
    both = Durability("fsync", 2)
    assert str(DurabilityReport(asked=both, replicas=1, fsynced=True)) == "on disk and on 1 of 2 replicas"
    assert not DurabilityReport(asked=both, replicas=1, fsynced=True)
    assert not DurabilityReport(asked=both, replicas=2)
    assert DurabilityReport(asked=both, replicas=2, fsynced=True)


def test_the_error_travels() -> None:
    """It comes out of another process as it went in."""
    answer = Enqueued(id="a", status="queued", state="queued")  # type: ignore[arg-type]
    error = pickle.loads(pickle.dumps(NotDurable("not yet", [answer])))
    assert (str(error), error.enqueued) == ("not yet", [answer])


async def test_nobody_asks_by_default(backend) -> None:
    """Without `durability` nothing is confirmed, and the answer has no report."""
    storage = backend.build(None)
    async with Penstock(storage=storage) as app:
        assert (await app.queue("q").enqueue(1)).durability is None
        await app.queue("q").delete()
