"""wait_work, wait_done and wait_cancel: notifications that arrive at once, wake one waiter, and may be lost.

Storages also poll at long intervals, which is switched off here, so that a missing notification fails a test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.model.job import Claim
from penstock.model.limit import EVERY, Limit
from penstock.storage.base import Request, Storage
from penstock.storage.limiting import Scope
from penstock.storage.redis import RedisStorage
from tests.schedules import fire1, set1, tick
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Backend,
    Clock,
    RedisBackend,
    SqliteBackend,
    cancel_run,
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
    retry_until_available,
    set_limit,
    set_scope_limit,
    settle1,
    stall,
    update,
)

pytestmark = pytest.mark.beyond_model

#: Timeout of a wait, and the time within which it must be notified.
LONG = 60.0
SOON = 4.0


@pytest.fixture
def storage(
    request: pytest.FixtureRequest, backend: Backend, clock: Clock, no_leaks: None, runner: asyncio.Runner
) -> Iterator[Storage]:
    """An open storage that does not poll."""
    if isinstance(backend, SqliteBackend):
        backend.options["poll"] = LONG
    storage = backend.build(clock)
    runner.run(storage.open())
    yield storage
    runner.run(forget_all(storage))
    runner.run(storage.close())
    assert backend.leftovers() == []


async def wait_for_idle_workers(backend: Backend, storage: Storage, count: int) -> None:
    """Wait until the storage has this number of wait_for_idle_workers for work."""

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


async def wait_for_result_waiters(backend: Backend, storage: Storage, count: int) -> None:
    """Wait until the storage has this number of wait_for_idle_workers for finished jobs."""

    await eventually(lambda: result_waiters(backend, storage) >= count)


def result_waiters(backend: Backend, storage: Storage) -> int:
    """Return the number of waiters for finished jobs in the storage."""
    if isinstance(backend, RedisBackend):
        return len(waiters_of(backend))
    if isinstance(backend, SqliteBackend) and backend.shared:
        db = backend.connect()
        [found] = db.execute("select count(*) from waits").fetchone()
        db.close()
        return found
    return len(storage._notifier._callbacks)  # type: ignore[attr-defined]


def waiters_of(backend: RedisBackend) -> list[bytes]:
    """Return the waiters of all jobs: secrets and channels."""
    client: Any = backend.client()
    found: list[bytes] = []
    for key in backend.keys():  # noqa: SIM118
        for waiters in client.hvals(key) if key.endswith(b":waits") else ():
            while waiters:
                end = 2 + int.from_bytes(waiters[:2], "big")
                found.append(waiters[2:end])
                waiters = waiters[end:]
    client.close()
    return found


async def worker(storage: Storage, queues: tuple[str, ...] = ("q",), name: str = "idle") -> Claim:
    """Claim, wait for a notification and claim again, until there is one job."""
    while True:
        answer = await storage.claim([Request(queue, 1) for queue in queues], name, LEASE, f"token of {name}")
        if answer.claims:
            return answer.claims[0]
        await storage.wait_work(queues, LONG)


# work --------------------------------------------------------------------------------------------


async def test_put_wakes_a_waiter(backend: Backend, storage: Storage) -> None:
    """A put wakes an idle worker at once."""
    task = asyncio.create_task(storage.wait_work(["q"], LONG))
    await wait_for_idle_workers(backend, storage, 1)
    await put1(storage, "q", "a")
    assert await asyncio.wait_for(task, SOON) is True


async def test_wait_work_without_a_job_ends_by_its_timeout(storage: Storage) -> None:
    """A wait without a job ends by its timeout and answers False."""
    assert await storage.wait_work(["q", "r"], 0.02) is False


async def test_wait_work_of_no_queue_ends_by_its_timeout(storage: Storage) -> None:
    """A wait that names no queue ends by its timeout."""
    assert await storage.wait_work([], 0.02) is False


async def test_wait_work_with_a_ready_job_ends_at_once(storage: Storage) -> None:
    """A job put before the wait began ends it at once (QF-D10)."""
    await put1(storage, "q", "a")
    assert await asyncio.wait_for(storage.wait_work(["q"], LONG), SOON) is True


async def test_one_wait_work_covers_all_queues(backend: Backend, storage: Storage) -> None:
    """A job in any of the queues, of any family, wakes the waiter (PJ-D22)."""
    for queue in ("r", "q/x", "q"):
        task = asyncio.create_task(worker(storage, ("q", "r", "q/x")))
        await wait_for_idle_workers(backend, storage, 1)
        await put1(storage, queue, "a")
        claim = await asyncio.wait_for(task, SOON)
        assert claim.queue == queue
        await settle1(storage, complete(claim, ttl=0))


@pytest.mark.only("redis", "valkey", "cluster")
async def test_wait_work_may_outlast_the_read_timeout(backend: RedisBackend, clock: Clock) -> None:
    """A wait for work may last longer than the read timeout of the server (`socket_timeout`)."""
    backend.url += "?socket_timeout=1"
    storage = backend.build(clock)
    await storage.open()
    assert await storage.wait_work(["q", "r"], 2.5) is False
    waiting = asyncio.create_task(storage.wait_work(["q", "r"], LONG))
    await wait_for_idle_workers(backend, storage, 1)
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
    await storage.set_pause("q", True)
    await put1(storage, "q", "a")
    return lambda: storage.set_pause("q", False)


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


async def by_a_tick(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    version = await set1(storage)
    await claim_all(storage)  # takes the hint of the new schedule
    return lambda: fire1(storage, version, tick(1))


async def by_a_replaced_backoff(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    version = (await fire1(storage, await set1(storage), tick(1, group="g"))).version
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    return lambda: fire1(storage, version, tick(2, group="g"), overlap="replace")


async def by_a_free_slot(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await set_limit(storage, Limit(concurrency=1))
    await storage.put([new("q", "a"), new("q", "b")])
    claim = await claim1(storage)
    return lambda: storage.settle([complete(claim)])


async def by_a_slot_that_is_reaped(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await set_limit(storage, Limit(concurrency=1))
    await storage.put([new("q", "a"), new("q", "b")])
    await claim1(storage)
    clock.advance(ms=LEASE)
    return lambda: storage.reap(["q"])


async def by_a_free_slot_of_the_family(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await set_scope_limit(storage, Limit(concurrency=1), Scope("family", "q"))
    await storage.put([new("q/x", "a"), new("q", "b")])
    claim = await claim1(storage, "q/x")
    return lambda: storage.settle([complete(claim)])


async def by_a_free_slot_of_a_group(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await set_limit(storage, Limit(concurrency=2), group="g")
    await storage.put([new("q", id, group="g") for id in "abc"])
    claim, _ = await claim_all(storage)
    return lambda: storage.settle([complete(claim)])


async def by_a_raised_limit(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await set_limit(storage, Limit(concurrency=1), group=EVERY)
    await storage.put([new("q", id, group="g") for id in "ab"])
    await claim1(storage)
    return lambda: set_limit(storage, Limit(concurrency=2), group=EVERY)


async def by_a_resumed_group(storage: Storage, clock: Clock) -> Callable[[], Awaitable[Any]]:
    await storage.set_pause("q", True, group="g")
    await put1(storage, "q", "a", group="g")
    return lambda: storage.set_pause("q", False, group="g")


TRANSITIONS: dict[str, Setup] = {
    "free slot": by_a_free_slot,
    "reaped slot": by_a_slot_that_is_reaped,
    "free slot of the family": by_a_free_slot_of_the_family,
    "free slot of a group": by_a_free_slot_of_a_group,
    "raised limit": by_a_raised_limit,
    "resumed group": by_a_resumed_group,
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
    "tick": by_a_tick,
    "tick that replaces a job in backoff": by_a_replaced_backoff,
}


@pytest.mark.parametrize("setup", TRANSITIONS.values(), ids=TRANSITIONS.keys())
async def test_every_transition_to_ready_wakes_a_waiter(
    backend: Backend, storage: Storage, clock: Clock, setup: Setup
) -> None:
    """Every transition that makes a job ready wakes an idle worker at once (WQ-D7, rule 13)."""
    transition = await setup(storage, clock)
    task = asyncio.create_task(worker(storage))
    await wait_for_idle_workers(backend, storage, 1)
    await transition()
    claim = await asyncio.wait_for(task, SOON)
    assert claim.queue == "q"


async def test_each_put_wakes_one_waiter(backend: Backend, storage: Storage) -> None:
    """One job wakes one waiter, the next job another (WQ-D12)."""
    tasks = [asyncio.create_task(storage.wait_work(["q"], LONG)) for _ in range(3)]
    await wait_for_idle_workers(backend, storage, 3)
    for count in (1, 2, 3):
        await put1(storage, "q", f"j{count}")
        await eventually(lambda count=count: sum(task.done() for task in tasks) >= count)
        await storage.counts("q")
        assert sum(task.done() for task in tasks) == count
    assert await asyncio.gather(*tasks) == [True] * 3


async def test_a_claim_that_leaves_jobs_wakes_another_worker(backend: Backend, storage: Storage) -> None:
    """Four jobs of one put reach four workers that claim one each."""
    tasks = [asyncio.create_task(worker(storage, name=f"w{n}")) for n in range(4)]
    await wait_for_idle_workers(backend, storage, 4)
    await storage.put([new("q", f"j{n}") for n in range(4)])
    claims = await asyncio.wait_for(asyncio.gather(*tasks), SOON)
    assert sorted(claim.id for claim in claims) == ["j0", "j1", "j2", "j3"]


async def test_a_job_due_earlier_wakes_the_worker_with_the_next_due_time(backend: Backend, storage: Storage) -> None:
    """A job due before the time at which a worker is to look again wakes a worker."""
    alarms: list[int] = []

    async def look() -> None:
        while True:
            answer = await storage.claim([Request("q", 1)], "w", LEASE, "t")
            if answer.look_at is not None:
                alarms.append(answer.look_at)
            await storage.wait_work(["q"], LONG)

    task = asyncio.create_task(look())
    await wait_for_idle_workers(backend, storage, 1)
    await put1(storage, "q", "later", delay=HOUR)
    await eventually(lambda: alarms == [T0 + HOUR])
    await wait_for_idle_workers(backend, storage, 1)
    await put1(storage, "q", "sooner", delay=SECOND)
    await eventually(lambda: alarms == [T0 + HOUR, T0 + SECOND])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_earlier_tick_wakes_a_worker(backend: Backend, storage: Storage) -> None:
    """A schedule that ticks before all others of its queue wakes a worker, whose claim answers the tick."""
    ticks: list[int | None] = []

    async def look() -> None:
        while True:
            ticks.append((await storage.claim([Request("q", 1)], "w", LEASE, "t")).tick_at)
            await storage.wait_work(["q"], LONG)

    task = asyncio.create_task(look())
    await wait_for_idle_workers(backend, storage, 1)
    await set1(storage, "far", next=T0 + HOUR)
    await eventually(lambda: ticks == [None, T0 + HOUR])
    await wait_for_idle_workers(backend, storage, 1)
    await set1(storage, "near", next=T0 + SECOND)
    await eventually(lambda: ticks == [None, T0 + HOUR, T0 + SECOND])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("group", [None, "g"])
async def test_a_worker_looks_again_when_a_pause_ends(backend: Backend, storage: Storage, group: str | None) -> None:
    """A pause with an end, set while a worker is idle, wakes it to look again at its end."""
    alarms: list[int] = []

    async def look() -> None:
        while True:
            answer = await storage.claim([Request("q", 1)], "w", LEASE, "t")
            if answer.look_at is not None:
                alarms.append(answer.look_at)
            await storage.wait_work(["q"], LONG)

    await storage.set_pause("q", True, None, "", group)
    await put1(storage, "q", "a", group="g")
    task = asyncio.create_task(look())
    await wait_for_idle_workers(backend, storage, 1)
    await storage.set_pause("q", True, T0 + HOUR, "", group)
    await eventually(lambda: alarms == [T0 + HOUR])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_wait_work_sleeps_while_gates_hold_all_jobs(backend: Backend, storage: Storage) -> None:
    """Jobs that no gate lets start are no work: a wait sleeps on."""
    await set_limit(storage, Limit(concurrency=1))
    await set_limit(storage, Limit(rate="1/h"), "r")
    await storage.put([new(queue, id) for queue in "qr" for id in "ab"])
    for queue in "qr":
        await claim1(storage, queue)
    task = asyncio.create_task(storage.wait_work(["q", "r"], LONG))
    await wait_for_idle_workers(backend, storage, 1)
    await storage.counts("q")
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_put_wakes_a_waiter_of_another_process(backend: Backend, storage: Storage, peer: Storage) -> None:
    """A waiter in one process is woken by a put in another, without polling (QF-D10)."""
    task = asyncio.create_task(peer.wait_work(["q"], LONG))
    await wait_for_idle_workers(backend, peer, 1)
    await put1(storage, "q", "a")
    assert await asyncio.wait_for(task, SOON) is True


async def test_a_cancelled_wait_work_takes_no_notification(backend: Backend, storage: Storage) -> None:
    """A wait that is cancelled does not take the notification of a job from another worker."""
    quitter = asyncio.create_task(storage.wait_work(["q"], LONG))
    await wait_for_idle_workers(backend, storage, 1)
    quitter.cancel()
    await asyncio.gather(quitter, return_exceptions=True)
    task = asyncio.create_task(worker(storage))
    await put1(storage, "q", "a")
    assert (await asyncio.wait_for(task, SOON)).id == "a"


@pytest.mark.parametrize("loops", range(0, 60, 4))
async def test_wait_work_can_be_cancelled_at_any_moment(storage: Storage, loops: int) -> None:
    """A wait for work ends when it is cancelled, also while it connects."""
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
async def test_close_during_a_wait_does_not_hang(backend: Backend, clock: Clock, wait: str) -> None:
    """Closing a storage does not hang on a connection that is being made for a wait."""
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


async def test_close_ends_a_wait_work(backend: Backend, clock: Clock) -> None:
    """Closing a storage ends its waits, with an answer or an error."""
    storage = backend.build(clock)
    await storage.open()
    task = asyncio.create_task(storage.wait_work(["q"], LONG))
    await wait_for_idle_workers(backend, storage, 1)
    await storage.close()
    await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), SOON)


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_job_is_claimed_after_its_notification_was_lost(backend: RedisBackend, storage: Storage) -> None:
    """A worker whose connection is cut while it waits claims the job afterwards (WQ-D12)."""
    task = asyncio.create_task(retry_until_available(lambda: worker(storage)))
    await wait_for_idle_workers(backend, storage, 1)
    cut(backend)
    await retry_until_available(lambda: put1(storage, "q", "a"))
    assert (await asyncio.wait_for(task, SOON)).id == "a"


def cut(backend: RedisBackend) -> None:
    """Kill every other connection to the servers."""
    for client in backend.clients():
        with client:
            for kind in ("normal", "pubsub"):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


# results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [complete, fail, cancel_run])
@pytest.mark.parametrize("ttl", [0, HOUR])
async def test_wait_done_ends_when_the_job_is_finished(
    backend: Backend, storage: Storage, ending: Any, ttl: int
) -> None:
    """wait_done ends at once when the job is completed, failed or cancelled, kept or not (PJ-D15)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    await settle1(storage, ending(claim, ttl=ttl))
    assert await asyncio.wait_for(task, SOON) is True


async def test_wait_done_of_a_queued_job_lasts_over_a_retry(backend: Backend, storage: Storage) -> None:
    """wait_done may begin while the job is queued, and lasts over a retry."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    await settle1(storage, retried(await claim1(storage)))
    await storage.counts("q")
    assert not task.done()
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(task, SOON) is True


async def test_wait_done_of_a_finished_job_ends_at_once(storage: Storage) -> None:
    """wait_done of a finished or unknown job ends at once."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(storage.wait_done("q", "a", LONG), SOON) is True
    assert await asyncio.wait_for(storage.wait_done("q", "none", LONG), SOON) is True
    assert await asyncio.wait_for(storage.wait_done("none", "a", LONG), SOON) is True


async def test_wait_done_of_a_running_job_ends_by_its_timeout(storage: Storage) -> None:
    """wait_done of a job that stays running answers False after its timeout."""
    await put1(storage, "q", "a")
    assert await storage.wait_done("q", "a", 0.02) is False


async def test_cancel_ends_wait_done(backend: Backend, storage: Storage) -> None:
    """A cancel of a waiting job ends wait_done."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    await storage.cancel("q", ["a"])
    assert await asyncio.wait_for(task, SOON) is True


async def test_reap_of_a_run_with_a_cancel_request_ends_wait_done(
    backend: Backend, storage: Storage, clock: Clock
) -> None:
    """A reaped run with a cancel request is cancelled and ends wait_done."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.cancel("q", ["a"], "kill")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await asyncio.wait_for(task, SOON) is True


async def test_delete_queue_ends_wait_done(backend: Backend, storage: Storage) -> None:
    """Deleting a queue ends wait_done of its jobs."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    await storage.delete_queue("q")
    assert await asyncio.wait_for(task, SOON + 4) is True


async def test_wait_done_with_two_timeouts(backend: Backend, storage: Storage) -> None:
    """A wait_done that times out does not end another one (PJ-D17)."""
    await put1(storage, "q", "a")
    patient = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    assert await storage.wait_done("q", "a", 0.05) is False
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(patient, SOON) is True


async def test_a_finished_job_ends_every_wait_done(backend: Backend, storage: Storage, peer: Storage) -> None:
    """A finished job ends every wait_done of it, in every process."""
    await put1(storage, "q", "a")
    tasks = [asyncio.create_task(s.wait_done("q", "a", LONG)) for s in (storage, storage, peer)]
    await wait_for_result_waiters(backend, storage, 1)
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(asyncio.gather(*tasks), SOON) == [True] * 3


async def test_wait_done_is_not_ended_by_another_job(backend: Backend, storage: Storage) -> None:
    """The same id in another queue, or another id, does not end wait_done."""
    await storage.put([new("q", "a"), new("q/x", "a"), new("q", "b")])
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    await storage.cancel("q/x", ["a"])
    await storage.cancel("q", ["b"])
    await storage.counts("q")
    assert not task.done()
    await storage.cancel("q", ["a"])
    assert await asyncio.wait_for(task, SOON) is True


@pytest.mark.only("redis", "valkey", "cluster")
async def test_wait_done_survives_a_cut_connection(backend: RedisBackend, storage: Storage) -> None:
    """wait_done whose connection is cut ends when the job is finished (PJ-D18)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    task = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    cut(backend)
    await retry_until_available(lambda: settle1(storage, complete(claim)))
    assert await asyncio.wait_for(task, SOON + 6) is True


@pytest.fixture
def leaves_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests for notices are taken back without a delay."""
    monkeypatch.setattr("penstock.storage.redis.end_notices._LEAVE_AFTER", 0.02)


async def test_a_wait_done_that_times_out_leaves_no_waiter(
    backend: Backend, storage: Storage, leaves_soon: None
) -> None:
    """After the timeout of the last wait_done of a job the storage has no waiter of it, and does not keep it."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    patient = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    assert await storage.wait_done("q", "a", 0.02) is False
    assert result_waiters(backend, storage) >= 1
    patient.cancel()
    await asyncio.gather(patient, return_exceptions=True)
    await eventually(lambda: result_waiters(backend, storage) == 0)
    await settle1(storage, complete(claim, ttl=0))
    assert await storage.get("q", ["a"]) == [None]


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_put_with_a_waiter_that_gives_up_leaves_no_waiter(
    backend: RedisBackend, storage: Storage, leaves_soon: None
) -> None:
    """A caller that put its job with a waiter, and whose wait is cancelled or times out, leaves no waiter."""
    for id in ("a", "b"):
        await put1(storage, "q", id, waiter="w", fresh=True)
        waiting = asyncio.create_task(storage.wait_done("q", id, LONG if id == "a" else 0.02))
        await asyncio.sleep(0)
        assert len(waiters_of(backend)) == 1
        if id == "a":
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: result_waiters(backend, storage) == 0)


async def test_close_leaves_no_waiter(backend: Backend, storage: Storage, clock: Clock) -> None:
    """A storage that is closed while it waits for an end leaves no waiter behind."""
    if not backend.shared:
        return
    await put1(storage, "q", "a")
    other = backend.build(clock)
    await other.open()
    waiting = asyncio.create_task(other.wait_done("q", "a", LONG))
    await wait_for_result_waiters(backend, storage, 1)
    await other.close()
    await asyncio.gather(waiting, return_exceptions=True)
    assert result_waiters(backend, storage) == 0


async def test_waits_that_time_out_before_and_after_a_reopen_leave_no_waiter(
    backend: Backend, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that is closed before it has taken its requests back takes later ones back after `open`."""
    await put1(storage, "q", "a")
    if not backend.shared:
        return
    assert await storage.wait_done("q", "a", 0.02) is False
    await storage.close()
    monkeypatch.setattr("penstock.storage.redis.end_notices._LEAVE_AFTER", 0.02)
    await storage.open()
    assert await storage.wait_done("q", "a", 0.02) is False
    await eventually(lambda: result_waiters(backend, storage) == 0)


@pytest.mark.only("redis", "valkey", "cluster")
async def test_many_waits_of_one_client_are_one_waiter(backend: RedisBackend, storage: Storage) -> None:
    """A client that waits for one job many times, at once and one after the other, is one waiter, which stays."""
    await put1(storage, "q", "a", waiter="w")
    waits = [asyncio.create_task(storage.wait_done("q", "a", LONG)) for _ in range(5)]
    for _ in range(5):
        assert await storage.wait_done("q", "a", 0.02) is False
    assert len(waiters_of(backend)) == 1
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(asyncio.gather(*waits), SOON) == [True] * 5
    assert waiters_of(backend) == []


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_job_has_at_most_a_hundred_waiters(backend: RedisBackend, storage: RedisStorage) -> None:
    """The storage refuses further waiters of a job, which then look by themselves until it has ended."""
    await put1(storage, "q", "a")
    others = [f"{number:032}{storage._keys.done(f'{number:016}')}" for number in range(130)]
    answers = [(await storage._join_waiters("q", ["a"], waiter))[0] for waiter in others]
    assert [*map(int, answers)] == [0] * 100 + [2] * 30
    assert (await storage._join_waiters("q", ["a"], others[0]))[0] == 0
    assert len(waiters_of(backend)) == 100
    waiting = asyncio.create_task(storage.wait_done("q", "a", LONG))
    await put1(storage, "q", "a", waiter="w")
    await storage.counts("q")
    await settle1(storage, complete(await claim1(storage)))
    assert await asyncio.wait_for(waiting, SOON) is True
    assert waiters_of(backend) == []


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_waiter_that_leaves_does_not_take_others_with_it(backend: RedisBackend, storage: RedisStorage) -> None:
    """Waiters of a job leave one by one, from any position; one that is not there changes nothing."""
    await put1(storage, "q", "a")
    names = [letter * 32 + storage._keys.done(letter) for letter in "abcd"]
    for name in names:
        await storage._join_waiters("q", ["a"], name)
    for left in (names[1], names[0], "x" * 32 + "y", names[3], names[2]):
        await storage._leave_waiters("q", ["a"], left)
        names = [name for name in names if name != left]
        assert waiters_of(backend) == [name.encode() for name in names]


async def no_cancel_request(storage: Storage, worker: str) -> bool:
    """Return whether no cancel request is pending for a worker; connecting may end the first waits early."""
    return not await storage.wait_cancel(worker, 0.3)


async def test_wait_cancel_gets_a_request_made_before_it(storage: Storage) -> None:
    """A cancel request made before the worker's first wait_cancel ends that wait at once."""
    await put1(storage, id="a")
    await claim1(storage, worker="w")
    await storage.cancel("q", ["a"], "signal")
    async with asyncio.timeout(SOON):
        assert await storage.wait_cancel("w", LONG)


async def test_wait_cancel_gets_a_request_made_between_two_waits(storage: Storage) -> None:
    """A cancel request made between two waits ends the next one at once, and only that one."""
    await storage.put([new("q", id) for id in "abc"])
    await claim_all(storage, worker="w")
    await eventually(lambda: no_cancel_request(storage, "w"))
    for id in "abc":
        await storage.cancel("q", [id], "signal")
        async with asyncio.timeout(SOON):
            assert await storage.wait_cancel("w", LONG)
        assert await no_cancel_request(storage, "w")


async def test_a_cancel_request_ends_every_wait_cancel(storage: Storage, peer: Storage) -> None:
    """A cancel request ends every wait_cancel of the worker, in another process too and after one was cancelled."""
    await put1(storage, id="a")
    await claim1(storage, worker="w")
    for each in (storage, peer):
        await eventually(lambda each=each: no_cancel_request(each, "w"))
    given_up, *waiting = [asyncio.ensure_future(each.wait_cancel("w", LONG)) for each in (storage, storage, peer)]
    await asyncio.sleep(0)
    given_up.cancel()
    await peer.cancel("q", ["a"], "kill")
    async with asyncio.timeout(SOON):
        assert await asyncio.gather(*waiting) == [True, True]
    assert given_up.cancelled()


async def test_wait_cancel_is_ended_by_signal_and_not_by_forget(storage: Storage) -> None:
    """A cancel by signal ends the wait_cancel of the worker that runs the job; a cancel by forget ends none."""
    await put1(storage, id="a")
    await claim1(storage, worker="me:{1}")
    for worker in ("me:{1}", "you"):
        await eventually(lambda worker=worker: no_cancel_request(storage, worker))
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
