"""wait_work and wait_done: hints that arrive at once, wake one, and whose loss costs time only.

The storages look for themselves now and then; here they are told not to, so that a hint that is
missing is a test that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.model.job import Claim
from penstock.storage.base import Request, Storage
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Backend,
    Clock,
    RedisBackend,
    SqliteBackend,
    cancel_end,
    claim1,
    claim_all,
    complete,
    eventually,
    fail,
    forget_all,
    new,
    put1,
    release,
    retried,
    settle1,
    stall,
    stubborn,
    update,
)

pytestmark = pytest.mark.beyond_model

#: How long a waiter waits, and how soon it must be woken; between the two no hint was needed.
LONG = 60.0
SOON = 4.0


@pytest.fixture
def storage(
    request: pytest.FixtureRequest, backend: Backend, clock: Clock, no_leaks: None, runner: asyncio.Runner
) -> Iterator[Storage]:
    """An open storage that does not look for itself."""
    if isinstance(backend, SqliteBackend):
        backend.options["poll"] = LONG
    storage = backend.build(clock)
    runner.run(storage.open())
    yield storage
    runner.run(forget_all(storage))
    runner.run(storage.close())
    assert backend.leftovers() == []


async def waiters(backend: Backend, storage: Storage, count: int) -> None:
    """Wait until so many waiters are seen by the storage."""

    def seen() -> bool:
        if isinstance(backend, RedisBackend):
            total = 0
            for client in backend.clients():
                with client:
                    total += client.info("clients")["blocked_clients"]
            return total >= count
        if isinstance(backend, SqliteBackend) and backend.shared:
            db = backend.connect()
            [found] = db.execute("select count(distinct waiter) from idle").fetchone()
            db.close()
            return found >= count
        return len(storage._notifier._callbacks) >= count  # type: ignore[attr-defined]

    await eventually(seen)


async def watchers(backend: Backend, storage: Storage, count: int) -> None:
    """Wait until so many who wait for an end are known to the storage."""

    def seen() -> bool:
        if isinstance(backend, RedisBackend):
            client = backend.client()
            names = [key for key in backend.keys() if key.endswith(b":waits")]  # noqa: SIM118
            found = sum(int(client.hlen(name)) for name in names)  # type: ignore[arg-type]
            client.close()
            return found >= count
        if isinstance(backend, SqliteBackend) and backend.shared:
            db = backend.connect()
            [found] = db.execute("select count(*) from waits").fetchone()
            db.close()
            return found >= count
        return len(storage._notifier._callbacks) >= count  # type: ignore[attr-defined]

    await eventually(seen)


async def worker(storage: Storage, queues: tuple[str, ...] = ("q",), name: str = "idle") -> Claim:
    """An idle worker: looks, waits for a hint, looks again, until it gets one job."""
    while True:
        answer = await storage.claim([Request(queue, 1) for queue in queues], name, LEASE, f"token of {name}")
        if answer.claims:
            return answer.claims[0]
        await storage.wait_work(queues, LONG)


# work --------------------------------------------------------------------------------------------


async def test_an_enqueue_wakes_a_waiter(backend: Backend, storage: Storage) -> None:
    """A job that is put wakes an idle worker at once."""
    task = asyncio.create_task(storage.wait_work(["q"], LONG))
    await waiters(backend, storage, 1)
    await put1(storage, "q", "a")
    assert await asyncio.wait_for(task, SOON) is True


async def test_nothing_wakes_nobody(storage: Storage) -> None:
    """A wait without a job ends by its timeout and says so."""
    assert await storage.wait_work(["q", "r"], 0.02) is False


async def test_a_wait_for_no_queue_ends_by_its_timeout(storage: Storage) -> None:
    """There is nothing to be woken by when no queue is named."""
    assert await storage.wait_work([], 0.02) is False


async def test_a_job_that_is_there_is_not_waited_for(storage: Storage) -> None:
    """A job put before the wait began ends it at once (QF-D10)."""
    await put1(storage, "q", "a")
    assert await asyncio.wait_for(storage.wait_work(["q"], LONG), SOON) is True


async def test_one_wait_covers_all_queues(backend: Backend, storage: Storage) -> None:
    """A job in any of the queues, of any family, wakes the waiter (PJ-D22)."""
    for queue in ("r", "q/x", "q"):
        task = asyncio.create_task(worker(storage, ("q", "r", "q/x")))
        await waiters(backend, storage, 1)
        await put1(storage, queue, "a")
        claim = await asyncio.wait_for(task, SOON)
        assert claim.queue == queue
        await settle1(storage, complete(claim, ttl=0))


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_wait_may_outlast_the_patience_with_a_server(backend: RedisBackend, clock: Clock) -> None:
    """How long a silent server is borne with (`socket_timeout`) says nothing about how long work is waited for."""
    backend.url += "?socket_timeout=1"
    storage = backend.build(clock)
    await storage.open()
    assert await storage.wait_work(["q", "r"], 2.5) is False
    waiting = asyncio.create_task(storage.wait_work(["q", "r"], LONG))
    await waiters(backend, storage, 1)
    await put1(storage, "r", "a")
    assert await asyncio.wait_for(waiting, SOON) is True
    await forget_all(storage)
    await storage.close()


Setup = Callable[[Storage, Clock], Awaitable[Callable[[], Awaitable[Any]]]]


async def by_retry(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    return lambda: storage.settle([retried(claim)])


async def by_release(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    return lambda: storage.settle([release(claim)])


async def by_stall(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    return lambda: storage.settle([stall(claim)])


async def by_reap(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE)
    return lambda: storage.reap(["q"])


async def by_release_of_a_successor(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.put([update("q", "a")])
    return lambda: storage.settle([complete(claim)])


async def by_resume(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await storage.set_paused("q", True)
    await put1(storage, "q", "a")
    return lambda: storage.set_paused("q", False)


async def by_revive(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q", "a")
    await settle1(storage, fail(await claim1(storage)))
    return lambda: storage.revive("q", ["a"])


async def by_a_free_group(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    claim = await claim1(storage)
    return lambda: storage.settle([complete(claim)])


async def by_a_cancelled_backoff(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    return lambda: storage.cancel("q", ["a"])


async def by_a_follow_up(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q/x", "a")
    claim = await claim1(storage, "q/x")
    return lambda: storage.settle([complete(claim, then=[new("q", "b")])])


async def by_an_update(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await put1(storage, "q", "a", delay=HOUR)
    return lambda: storage.put([update("q", "a")])


WAYS: dict[str, Setup] = {
    "retry": by_retry,
    "release": by_release,
    "stall": by_stall,
    "reap": by_reap,
    "successor": by_release_of_a_successor,
    "resume": by_resume,
    "revive": by_revive,
    "free group": by_a_free_group,
    "cancelled backoff": by_a_cancelled_backoff,
    "follow-up": by_a_follow_up,
    "update": by_an_update,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
async def test_every_way_to_become_ready_wakes_a_waiter(
    backend: Backend, storage: Storage, clock: Clock, way: Setup
) -> None:
    """Whatever makes a job ready, an idle worker gets it at once (WQ-D7, rule 13)."""
    transition = await way(storage, clock)
    task = asyncio.create_task(worker(storage))
    await waiters(backend, storage, 1)
    await transition()
    claim = await asyncio.wait_for(task, SOON)
    assert claim.queue == "q"


async def test_a_job_wakes_one_of_many(backend: Backend, storage: Storage) -> None:
    """One job wakes one waiter, the next job another (WQ-D12)."""
    tasks = [asyncio.create_task(storage.wait_work(["q"], LONG)) for _ in range(3)]
    await waiters(backend, storage, 3)
    for count in (1, 2, 3):
        await put1(storage, "q", f"j{count}")
        await eventually(lambda count=count: sum(task.done() for task in tasks) >= count)
        await storage.counts("q")
        assert sum(task.done() for task in tasks) == count
    assert await asyncio.gather(*tasks) == [True] * 3


async def test_a_worker_that_leaves_work_behind_wakes_another(backend: Backend, storage: Storage) -> None:
    """Many jobs in one put reach many workers, each taking one."""
    tasks = [asyncio.create_task(worker(storage, name=f"w{n}")) for n in range(4)]
    await waiters(backend, storage, 4)
    await storage.put([new("q", f"j{n}") for n in range(4)])
    claims = await asyncio.wait_for(asyncio.gather(*tasks), SOON)
    assert sorted(claim.id for claim in claims) == ["j0", "j1", "j2", "j3"]


async def test_the_holder_of_the_alarm_is_told_of_an_earlier_job(backend: Backend, storage: Storage) -> None:
    """A job due before the time at which a worker was to look again makes somebody look earlier."""
    alarms: list[int] = []

    async def look() -> None:
        while True:
            answer = await storage.claim([Request("q", 1)], "w", LEASE, "t")
            if answer.look_at is not None:
                alarms.append(answer.look_at)
            await storage.wait_work(["q"], LONG)

    task = asyncio.create_task(look())
    await waiters(backend, storage, 1)
    await put1(storage, "q", "later", delay=HOUR)
    await eventually(lambda: alarms == [T0 + HOUR])
    await waiters(backend, storage, 1)
    await put1(storage, "q", "sooner", delay=SECOND)
    await eventually(lambda: alarms == [T0 + HOUR, T0 + SECOND])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_another_process_is_woken(backend: Backend, storage: Storage, peer: Storage) -> None:
    """A waiter in one process is woken by a put in another, without polling (QF-D10)."""
    task = asyncio.create_task(peer.wait_work(["q"], LONG))
    await waiters(backend, peer, 1)
    await put1(storage, "q", "a")
    assert await asyncio.wait_for(task, SOON) is True


async def test_a_cancelled_wait_leaves_the_hint_to_others(backend: Backend, storage: Storage) -> None:
    """A waiter that gives up takes no job's hint with it."""
    quitter = asyncio.create_task(storage.wait_work(["q"], LONG))
    await waiters(backend, storage, 1)
    quitter.cancel()
    await asyncio.gather(quitter, return_exceptions=True)
    task = asyncio.create_task(worker(storage))
    await put1(storage, "q", "a")
    assert (await asyncio.wait_for(task, SOON)).id == "a"


@pytest.mark.parametrize("loops", range(0, 60, 4))
async def test_a_wait_ends_whenever_it_is_cancelled(storage: Storage, loops: int) -> None:
    """Also in the middle of making its connection, a wait for work that is cancelled is over at once."""
    for turns in range(loops, loops + 4):
        waiting = asyncio.create_task(storage.wait_work(["q"], LONG))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        done, _ = await asyncio.wait({waiting}, timeout=SOON)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert done, f"swallowed after {turns} turns"


@pytest.mark.parametrize("wait", ["wait_cancel", "wait_done"])
async def test_a_storage_can_be_closed_whenever_somebody_waits(backend: Backend, clock: Clock, wait: str) -> None:
    """Closing does not hang on a connection that is just being made for a wait."""
    for turns in range(0, 60, 3):
        storage = backend.build(clock)
        await storage.open()
        await put1(storage, "q", "a")
        call = storage.wait_cancel("w", LONG) if wait == "wait_cancel" else storage.wait_done("q", "a", LONG)
        waiting = asyncio.ensure_future(call)
        for _ in range(turns):
            await asyncio.sleep(0)
        closing = asyncio.ensure_future(storage.close())
        done, _ = await asyncio.wait({closing}, timeout=30)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert done, f"hangs after {turns} turns"
    storage = backend.build(clock)
    await storage.open()
    await forget_all(storage)
    await storage.close()


async def test_closing_ends_a_wait(backend: Backend, clock: Clock) -> None:
    """A storage that is closed lets its waiters go, one way or the other."""
    storage = backend.build(clock)
    await storage.open()
    task = asyncio.create_task(storage.wait_work(["q"], LONG))
    await waiters(backend, storage, 1)
    await storage.close()
    await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), SOON)


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_job_is_found_though_its_hint_was_lost(backend: RedisBackend, storage: Storage) -> None:
    """A worker whose connection is cut while it waits gets the job when it looks again (WQ-D12)."""
    task = asyncio.create_task(stubborn(lambda: worker(storage)))
    await waiters(backend, storage, 1)
    cut(backend)
    await stubborn(lambda: put1(storage, "q", "a"))
    assert (await asyncio.wait_for(task, SOON)).id == "a"


def cut(backend: RedisBackend) -> None:
    """Kill every connection to the servers but our own."""
    for client in backend.clients():
        with client:
            for kind in ("normal", "pubsub"):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


# ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [complete, fail, cancel_end])
@pytest.mark.parametrize("ttl", [0, HOUR])
async def test_an_end_is_told_at_once(backend: Backend, storage: Storage, ending: Any, ttl: int) -> None:
    """Whoever waits for a job hears of its end, however it ended and whether or not it was kept (PJ-D15)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    await settle1(storage, ending(claim, ttl=ttl))
    assert await asyncio.wait_for(task, SOON) is True


async def test_a_wait_that_began_before_the_run(backend: Backend, storage: Storage) -> None:
    """Waiting may begin while the job waits, and lasts over a retry."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    await settle1(storage, retried(await claim1(storage)))
    await storage.counts("q")
    assert not task.done()
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(task, SOON) is True


async def test_a_finished_job_is_not_waited_for(storage: Storage) -> None:
    """A job that has ended, or is not there, ends the wait at once."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(storage.wait_done("q", "a", LONG), SOON) is True
    assert await asyncio.wait_for(storage.wait_done("q", "none", LONG), SOON) is True
    assert await asyncio.wait_for(storage.wait_done("none", "a", LONG), SOON) is True


async def test_a_wait_for_an_end_ends_by_its_timeout(storage: Storage) -> None:
    """A job that goes on ends the wait with False."""
    await put1(storage, "q", "a")
    assert await storage.wait_done("q", "a", 0.02) is False


async def test_a_cancel_is_told(backend: Backend, storage: Storage) -> None:
    """A waiting job that is cancelled has ended."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    await storage.cancel("q", ["a"])
    assert await asyncio.wait_for(task, SOON) is True


async def test_a_reaped_cancel_is_told(backend: Backend, storage: Storage, clock: Clock) -> None:
    """A run that was asked to cancel and whose worker died has ended."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.cancel("q", ["a"], "kill")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await asyncio.wait_for(task, SOON) is True


async def test_a_deleted_queue_is_told(backend: Backend, storage: Storage) -> None:
    """Nobody goes on waiting for a job whose queue was deleted."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    await storage.delete_queue("q")
    assert await asyncio.wait_for(task, SOON + 4) is True


async def test_two_waiters_with_different_patience(backend: Backend, storage: Storage) -> None:
    """A waiter that gives up does not silence the other (PJ-D17)."""
    await put1(storage, "q", "a")
    patient = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    assert await storage.wait_done("q", "a", 0.05) is False
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(patient, SOON) is True


async def test_an_end_is_told_to_all_who_wait(backend: Backend, storage: Storage, peer: Storage) -> None:
    """Everybody who waits for a job hears of its end, in every process."""
    await put1(storage, "q", "a")
    tasks = [asyncio.create_task(s.wait_done("q", "a", LONG)) for s in (storage, storage, peer)]
    await watchers(backend, storage, 1)
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(asyncio.gather(*tasks), SOON) == [True] * 3


async def test_waiting_for_one_is_not_waiting_for_its_namesake(backend: Backend, storage: Storage) -> None:
    """The end of the same id in another queue, or of another id, ends no wait."""
    await storage.put([new("q", "a"), new("q/x", "a"), new("q", "b")])
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    await storage.cancel("q/x", ["a"])
    await storage.cancel("q", ["b"])
    await storage.counts("q")
    assert not task.done()
    await storage.cancel("q", ["a"])
    assert await asyncio.wait_for(task, SOON) is True


@pytest.mark.only("redis", "valkey", "cluster")
async def test_an_end_is_heard_though_the_connection_was_cut(backend: RedisBackend, storage: Storage) -> None:
    """A waiter whose connection is cut hears of the end all the same (PJ-D18)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await watchers(backend, storage, 1)
    cut(backend)
    await stubborn(lambda: settle1(storage, complete(claim)))
    assert await asyncio.wait_for(task, SOON + 6) is True


async def silent(storage: Storage, worker: str) -> bool:
    """Whether nothing was said to a worker just now; the first waits may be cut short by the connecting."""
    return not await storage.wait_cancel(worker, 0.3)


async def test_a_request_before_the_first_wait_is_heard(storage: Storage) -> None:
    """A request to cancel that came before the worker began to wait for any ends its first wait at once."""
    await put1(storage, id="a")
    await claim1(storage, worker="w")
    await storage.cancel("q", ["a"], "signal")
    async with asyncio.timeout(SOON):
        assert await storage.wait_cancel("w", LONG)


async def test_a_request_between_two_waits_is_heard_by_the_second(storage: Storage) -> None:
    """A request to cancel that came while nobody waited is heard as soon as somebody does, and once."""
    await storage.put([new("q", id) for id in "abc"])
    await claim_all(storage, worker="w")
    await eventually(lambda: silent(storage, "w"))
    for id in "abc":
        await storage.cancel("q", [id], "signal")
        async with asyncio.timeout(SOON):
            assert await storage.wait_cancel("w", LONG)
        assert await silent(storage, "w")


async def test_a_request_is_heard_by_all_who_wait(storage: Storage, peer: Storage) -> None:
    """Whoever waits for requests to a worker hears of one, also in another process and when a wait was given up."""
    await put1(storage, id="a")
    await claim1(storage, worker="w")
    for each in (storage, peer):
        await eventually(lambda each=each: silent(each, "w"))
    given_up, *waiting = [asyncio.ensure_future(each.wait_cancel("w", LONG)) for each in (storage, storage, peer)]
    await asyncio.sleep(0)
    given_up.cancel()
    await peer.cancel("q", ["a"], "kill")
    async with asyncio.timeout(SOON):
        assert await asyncio.gather(*waiting) == [True, True]
    assert given_up.cancelled()


async def test_a_worker_hears_that_a_run_of_its_should_end(storage: Storage) -> None:
    """A request to cancel wakes the worker that runs the job, at once; to forget a result wakes nobody."""
    await put1(storage, id="a")
    await claim1(storage, worker="me:{1}")
    for worker in ("me:{1}", "you"):
        await eventually(lambda worker=worker: silent(storage, worker))
    other = asyncio.ensure_future(storage.wait_cancel("you", 1.0))
    waiting = asyncio.ensure_future(storage.wait_cancel("me:{1}", LONG))
    await asyncio.sleep(0.1)
    await storage.cancel("q", ["a"], "forget")
    await asyncio.sleep(0.2)
    assert not waiting.done()
    [answer] = await storage.cancel("q", ["a"], "signal")
    assert answer.status == "cancel_requested"
    async with asyncio.timeout(SOON):
        assert await waiting
    assert not await other
