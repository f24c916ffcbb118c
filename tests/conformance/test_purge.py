"""purge: finished with its TTL over → gone."""

from __future__ import annotations

import pytest

from penstock.storage.base import Storage
from tests.support import (
    DAY,
    MINUTE,
    SECOND,
    Backend,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    new,
    put1,
    release,
    retried,
    run_order,
    settle1,
    tally,
)

pytestmark = pytest.mark.one_per_engine


async def finish(storage: Storage, queue: str, count: int, ttl: int | None) -> None:
    await storage.put([new(queue, f"{queue}{ttl}-{n}") for n in range(count)])
    await storage.settle([complete(claim, ttl=ttl) for claim in await claim_all(storage, queue, limit=count)])


async def test_a_finished_job_is_purged_after_its_ttl(storage: Storage, clock: Clock) -> None:
    """A job is kept until the last millisecond of its TTL, and then purge counts it."""
    await finish(storage, "q", 1, SECOND)
    clock.advance(ms=SECOND - 1)
    assert await storage.purge(["q"]) == 0
    clock.advance(ms=1)
    assert await storage.purge(["q"]) == 1
    assert await storage.purge(["q"]) == 0


async def test_an_expired_job_is_invisible_before_the_purge(storage: Storage, clock: Clock) -> None:
    """Reads never show a job whose TTL is over, purged or not."""
    await finish(storage, "q", 1, SECOND)
    clock.advance(seconds=1)
    assert await find_all(storage) == []
    assert await storage.counts("q") == tally()
    assert await storage.queues() == []
    assert await storage.get("q", ["q1000-0"]) == [None]


async def test_each_result_has_its_own_ttl(storage: Storage, clock: Clock) -> None:
    """A short-lived result does not take a long-lived one with it (PJ-D12)."""
    await finish(storage, "q", 2, SECOND)
    await finish(storage, "q", 3, MINUTE)
    clock.advance(seconds=1)
    assert await storage.purge(["q"]) == 2
    assert await storage.counts("q") == tally(completed=3)


async def test_every_finished_state_is_purged(storage: Storage, clock: Clock) -> None:
    """Completed, failed and cancelled jobs are all forgotten."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, _ = await claim_all(storage)
    await storage.settle([complete(a, ttl=SECOND), fail(b, ttl=SECOND)])
    await storage.put([new("q", "d")])
    await storage.cancel("q", ["d"], ttl=SECOND)
    clock.advance(seconds=1)
    assert await storage.purge(["q"]) == 3
    assert await storage.counts("q") == tally(running=1)


async def test_waiting_and_running_jobs_are_never_purged(storage: Storage, clock: Clock) -> None:
    """After any time, only finished jobs are purged (invariant 1)."""
    await storage.put([new("q", id) for id in "abcd"])
    a, b, _ = await claim_all(storage, limit=3)
    await storage.settle([retried(a, delay=SECOND), release(b)])
    clock.advance(ms=3650 * DAY)
    assert await storage.purge(["q"]) == 0
    assert sum((await storage.counts("q")).values()) == 4


@pytest.mark.beyond_model
async def test_a_purge_is_bounded(storage: Storage, clock: Clock) -> None:
    """A purge takes at most its limit of each queue, and calling it again takes the rest."""
    await finish(storage, "q", 25, SECOND)
    await finish(storage, "r", 5, SECOND)
    clock.advance(seconds=1)
    assert [await storage.purge(["q", "r"], 10) for _ in range(4)] == [15, 10, 5, 0]


async def test_only_the_named_queues_are_purged(storage: Storage, clock: Clock) -> None:
    """A purge of one queue leaves the expired jobs of another."""
    await finish(storage, "q", 2, SECOND)
    await finish(storage, "r", 3, SECOND)
    clock.advance(seconds=1)
    assert await storage.purge(["q", "none"]) == 2
    assert await storage.purge(["r"]) == 3


async def test_purge_of_an_unknown_queue_creates_nothing(storage: Storage) -> None:
    """A purge of unknown queues answers 0 and creates nothing."""
    assert await storage.purge(["q"]) == 0
    assert await storage.purge([]) == 0
    assert await storage.queues() == []


async def test_nothing_is_left_of_a_thousand_jobs(backend: Backend, storage: Storage, clock: Clock) -> None:
    """When all jobs are finished and expired, the storage holds what it held before (invariant 9, PJ-D13)."""
    await put1(storage, "q", "first")
    await settle1(storage, complete(await claim1(storage), ttl=0))
    clock.advance(ms=2 * MINUTE)
    while await storage.purge(["q"]):
        pass
    before = len(backend.leftovers())
    await storage.put([new("q", f"plain{n}") for n in range(500)])
    await storage.put([new("q", f"grouped{n}", group=f"g{n % 50}") for n in range(500)])
    count = 0
    while claims := await claim_all(storage, limit=200):
        settlements = [complete(c, ttl=SECOND) if i % 2 else fail(c, ttl=0) for i, c in enumerate(claims)]
        await storage.settle(settlements)
        count += len(claims)
    assert count == 1000
    clock.advance(ms=2 * MINUTE)
    while await storage.purge(["q"]):
        pass
    assert len(backend.leftovers()) <= before


@pytest.mark.beyond_model
async def test_a_queue_that_was_used_up_leaves_nothing(backend: Backend, storage: Storage, clock: Clock) -> None:
    """A queue whose jobs have all expired leaves nothing after a purge (invariant 9, QF-D17)."""
    names = [f"q{n}" for n in range(20)]
    await storage.put([new(name, "a", group="g") for name in names])
    for name in names:
        await settle1(storage, complete(await claim1(storage, name), ttl=0))
    clock.advance(ms=2 * MINUTE)
    while await storage.purge(names):
        pass
    assert backend.leftovers() == []


async def test_a_purged_id_can_be_used_again(storage: Storage, clock: Clock) -> None:
    """A purged job leaves its id free."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=1)
    await storage.purge(["q"])
    await put1(storage, "q", "a")
    assert await run_order(storage) == ["a"]
