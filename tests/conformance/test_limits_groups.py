"""Limits of groups: concurrency, order, rates and shares of each, and changes of them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.limit_changes import limiting
from penstock.model.limit import EVERY, Limit
from penstock.model.why import GatePosition, Holder
from penstock.storage.base import Storage
from penstock.storage.limiting import Scope
from penstock.storage.observing import need_observing
from tests.support import (
    LEASE,
    MINUTE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    ids,
    new,
    put1,
    release,
    retried,
    set_limit,
    settle1,
)

pytestmark = pytest.mark.one_per_engine


async def put_group(storage: Storage, group: str, count: int = 5, **options: Any) -> None:
    """Put the jobs group1, group2, … of a group."""
    await storage.put([new("q", f"{group}{i + 1}", group=group, **options) for i in range(count)])


async def take(storage: Storage, limit: int = 100, batch: int = 1) -> list[str]:
    return ids(await claim_all(storage, limit=limit, batch=batch))


# concurrency and order ---------------------------------------------------------------------------


async def test_every_group_runs_as_many_jobs_as_its_limit(storage: Storage) -> None:
    """With a limit of 2 for every group, a claim gives two of each, in order and in turns."""
    await set_limit(storage, Limit(concurrency=2), group=EVERY)
    await put_group(storage, "a")
    await put_group(storage, "b")
    claims = await claim_all(storage, limit=10)
    assert ids(claims) == ["a1", "b1", "a2", "b2"]
    assert await take(storage) == []
    await settle1(storage, complete(claims[2]))
    assert await take(storage) == ["a3"]


async def test_a_group_enters_the_rotation_again_when_one_of_several_runs_ends(storage: Storage) -> None:
    """Each end of a run frees one slot of a full group, in whatever order they end."""
    await set_limit(storage, Limit(concurrency=3), group="a")
    await put_group(storage, "a", 9)
    claims = await claim_all(storage)
    assert ids(claims) == ["a1", "a2", "a3"]
    for number, claim in enumerate([claims[1], claims[2], claims[0]]):
        await settle1(storage, complete(claim, ttl=0))
        assert await take(storage) == [f"a{number + 4}"]


async def test_completions_of_one_call_free_their_groups(storage: Storage) -> None:
    """Runs of several groups that are completed in one call, and kept, leave room for the next jobs of each."""
    await set_limit(storage, Limit(concurrency=2), group=EVERY)
    await storage.put([new("q", f"{group}{number}", group=group) for number in range(4) for group in "ab"])
    first = await claim_all(storage)
    assert ids(first) == ["a0", "b0", "a1", "b1"]
    assert await claim_all(storage) == []
    await storage.settle([complete(claim, ttl=60 * MINUTE) for claim in first])
    assert ids(await claim_all(storage)) == ["a2", "b2", "a3", "b3"]


async def test_a_follow_up_into_the_group_of_a_settled_run_leaves_no_closed_group(storage: Storage) -> None:
    """A group that a follow-up closes, and that the next settlement of the call opens, is only in the rotation."""
    await set_limit(storage, Limit(concurrency=2), group="a")
    await put_group(storage, "a", 2)
    first, second = await claim_all(storage)
    await set_limit(storage, Limit(concurrency=1, ordered=False), group="a")
    await storage.settle([complete(first, then=[new("q", "a3", group="a")]), complete(second)])
    assert (await limiting(storage).get_limit(Scope("groups", "q"))).closed == 0
    await settle1(storage, complete(await claim1(storage)))
    assert (await need_observing(storage).groups("q")).groups == []


async def test_a_limit_of_one_group_wins_over_that_of_every_group(storage: Storage) -> None:
    """A group with a limit of its own follows that, the others the common one; without both there is order."""
    await set_limit(storage, Limit(concurrency=2), group=EVERY)
    await set_limit(storage, Limit(concurrency=3), group="a")
    for group in "ab":
        await put_group(storage, group)
    assert sorted(await take(storage)) == ["a1", "a2", "a3", "b1", "b2"]
    await set_limit(storage, None, group="a")
    await set_limit(storage, None, group=EVERY)
    await put_group(storage, "c")
    assert await take(storage) == ["c1"]


async def test_an_ordered_group_waits_for_the_backoff_of_its_first_job(storage: Storage) -> None:
    """Without a limit the others wait behind a job in backoff."""
    await put_group(storage, "g", 3)
    await settle1(storage, retried(await claim1(storage), delay=MINUTE))
    assert await take(storage) == []
    position = await storage.why("q", "g2")
    assert position is not None
    assert position.head is not None
    assert position.head.id == "g1"


async def test_a_group_without_order_does_not_wait_for_a_backoff(storage: Storage, clock: Clock) -> None:
    """With `ordered=False` the second job is given at once; the first keeps its place for its retry."""
    await set_limit(storage, Limit(concurrency=1, ordered=False), group="g")
    await put_group(storage, "g", 4)
    await settle1(storage, retried(await claim1(storage), delay=MINUTE))
    second = await claim1(storage)
    assert second.id == "g2"
    assert await take(storage) == []
    clock.advance(ms=MINUTE)
    await settle1(storage, complete(second))
    assert await take(storage) == ["g1"]


async def test_why_names_the_runs_that_fill_a_group(storage: Storage) -> None:
    """The first of the lane names the full gate and its holders; the others are behind it."""
    await set_limit(storage, Limit(concurrency=2), group="a")
    await put_group(storage, "a")
    await claim_all(storage)
    first, last = await storage.why("q", "a3"), await storage.why("q", "a5")
    assert first is not None
    assert last is not None
    assert first.gate is not None
    assert (first.head, first.ahead) == (None, None)
    assert (first.gate.kind, first.gate.group, first.gate.reason, first.gate.used) == ("group", "a", "limit", 2)
    assert first.gate.holders == (Holder("a1", "w", T0, "q"), Holder("a2", "w", T0, "q"))
    assert last.head is not None
    assert (last.head.id, last.gate) == ("a3", None)


async def test_a_batch_of_a_group_shrinks_to_its_room(storage: Storage) -> None:
    """A group with a limit above 1 gives no larger batch than its room; a group of 1 gives whole batches."""
    await set_limit(storage, Limit(concurrency=3), group="a")
    await put_group(storage, "a", 9)
    await put_group(storage, "b", 9)
    claims = await claim_all(storage, limit=2, batch=5)
    assert ids(claims) == ["a1", "a2", "a3", "b1", "b2", "b3", "b4", "b5"]
    assert [claim.batch for claim in claims] == [0] * 3 + [1] * 5
    assert await take(storage, batch=5) == []


async def test_the_slots_of_a_group_come_back_when_its_runs_are_reaped(storage: Storage, clock: Clock) -> None:
    """Runs whose leases have expired hold their slots until they are reaped, and no longer."""
    await set_limit(storage, Limit(concurrency=2), group="a")
    await put_group(storage, "a", 4)
    await claim_all(storage)
    clock.advance(ms=LEASE + 1)
    assert await take(storage) == []
    await storage.reap(["q"])
    assert await take(storage) == ["a1", "a2"]
    assert await take(storage) == []


async def test_a_stale_settlement_frees_no_slot_of_a_group(storage: Storage, clock: Clock) -> None:
    """A settle of claims whose jobs run again is lost, and one that is repeated frees the slot of its run once."""
    await set_limit(storage, Limit(concurrency=2), group="a")
    await put_group(storage, "a", 6)
    stale = await claim_all(storage)
    clock.advance(ms=LEASE + 1)
    await storage.reap(["q"])
    claims = await claim_all(storage)
    assert ids(claims) == ids(stale) == ["a1", "a2"]
    for claim in stale:
        await settle1(storage, complete(claim))
    assert await take(storage) == []
    for _ in range(2):
        await settle1(storage, fail(claims[0]))
    assert await take(storage) == ["a3"]
    assert await take(storage) == []


async def test_a_group_opens_when_its_last_waiting_job_left_and_another_came(storage: Storage) -> None:
    """A full group without waiting jobs is not forgotten: a new job of it waits for a slot."""
    await set_limit(storage, Limit(concurrency=2), group="a")
    await put_group(storage, "a", 2)
    claims = await claim_all(storage)
    await put1(storage, "q", "a3", group="a")
    assert await take(storage) == []
    await settle1(storage, complete(claims[0]))
    assert await take(storage) == ["a3"]


# changes -----------------------------------------------------------------------------------------


async def test_a_raised_limit_opens_full_groups_at_once(storage: Storage) -> None:
    """Groups that were full start more jobs with the next claim after the limit of every group was raised."""
    await set_limit(storage, Limit(concurrency=1), group=EVERY)
    for group in "abc":
        await put_group(storage, group)
    assert len(await take(storage)) == 3
    await set_limit(storage, Limit(concurrency=2), group=EVERY)
    assert await take(storage) == ["a2", "b2", "c2"]
    await set_limit(storage, Limit(concurrency=3), group="b")
    assert await take(storage) == ["b3"]


async def test_the_first_limit_of_a_queue_finds_the_groups_that_are_held(storage: Storage) -> None:
    """Groups that ran or waited for a backoff before there was any limit follow it."""
    await put_group(storage, "a")
    await put_group(storage, "b")
    a, _ = await claim_all(storage)
    await settle1(storage, retried(a, delay=MINUTE))
    await set_limit(storage, Limit(concurrency=2), group=EVERY)
    assert await take(storage) == ["a2", "b2", "a3"]


async def test_a_lowered_limit_of_a_group_touches_no_run(storage: Storage) -> None:
    """Lowered from 3 to 1, a group starts nothing until all have ended, and is ordered from then on."""
    await set_limit(storage, Limit(concurrency=3), group="a")
    await put_group(storage, "a", 9)
    claims = await claim_all(storage)
    await set_limit(storage, Limit(concurrency=1), group="a")
    for claim in claims[:2]:
        assert not (await settle1(storage, complete(claim))).lost
        assert await take(storage) == []
    await settle1(storage, retried(claims[2], delay=MINUTE))
    assert await take(storage) == []
    await storage.cancel("q", ["a3"])
    assert await take(storage) == ["a4"]


async def test_order_is_kept_while_limits_change(storage: Storage) -> None:
    """Whatever the limits were meanwhile, an ordered group goes on with its first waiting job."""
    await put_group(storage, "a", 6)
    first = await claim1(storage)
    await set_limit(storage, Limit(concurrency=2), group="a")
    second = await claim1(storage)
    await set_limit(storage, None, group="a")
    await settle1(storage, release(first))
    assert await take(storage) == []
    await settle1(storage, complete(second))
    assert [claim.id for claim in await claim_all(storage)] == ["a1"]


# rates -------------------------------------------------------------------------------------------


async def test_a_rate_of_every_group_holds_for_each(storage: Storage, clock: Clock) -> None:
    """One start per second and group: the first of each, the second of each a second later; `why` names the time."""
    await set_limit(storage, Limit(rate="1/s"), group=EVERY)
    for group in "abc":
        await put_group(storage, group, 3)
    for number in (1, 2):
        claims = await claim_all(storage, limit=9)
        assert ids(claims) == [f"a{number}", f"b{number}", f"c{number}"]
        await storage.settle([complete(claim) for claim in claims])
        assert await take(storage) == []
        if number == 1:
            clock.advance(seconds=1)
    position = await storage.why("q", "a3")
    assert position is not None
    assert position.gate is not None
    until = T0 + 2 * SECOND
    gate = GatePosition(kind="group", name="q", group="a", rule=position.gate.rule, reason="rate", until=until)
    assert position.gate == gate


async def test_a_rate_keeps_the_order_of_a_group_and_charges_retries(storage: Storage, clock: Clock) -> None:
    """The head starts when the gate opens, a retry pays again, and nothing overtakes."""
    await set_limit(storage, Limit(rate="1/s"), group="a")
    await put_group(storage, "a", 2)
    await settle1(storage, retried(await claim1(storage)))
    assert await take(storage) == []
    clock.advance(seconds=1)
    head = await claim1(storage)
    assert head.id == "a1"
    await settle1(storage, fail(head))
    assert await take(storage) == []
    clock.advance(seconds=1)
    assert await take(storage) == ["a2"]


async def test_a_closed_group_does_not_hold_others(storage: Storage, clock: Clock) -> None:
    """A group whose rate is closed is passed over, also by claims of one job."""
    await set_limit(storage, Limit(concurrency=9, rate="1/s"), group=EVERY)
    await put_group(storage, "a")
    await put_group(storage, "b")
    assert [await take(storage, 1) for _ in range(3)] == [["a1"], ["b1"], []]
    clock.advance(seconds=1)
    assert await take(storage) == ["a2", "b2"]


async def test_the_price_of_the_first_job_closes_its_group(storage: Storage, clock: Clock) -> None:
    """A dear head waits for its price; when it is cancelled, the next one is looked at with its own."""
    await set_limit(storage, Limit(rate="1/s", burst=4, by="cost", concurrency=9), group="a")
    await storage.put([new("q", f"a{cost}", group="a", cost=cost) for cost in (3, 4, 1)])
    assert await take(storage) == ["a3"]
    await storage.cancel("q", ["a4"])
    assert await take(storage) == ["a1"]


async def test_a_closed_group_does_not_stop_a_queue_by_the_price_of_its_job(storage: Storage) -> None:
    """The rate of a queue waits for the first job that could start, not for one whose group is paused."""
    await set_limit(storage, Limit(rate="1/s", burst=5, by="cost"))
    await storage.put([new("q", "z", cost=3), new("q", "a", group="a", cost=5), new("q", "b", group="b")])
    assert await take(storage, 1) == ["z"]
    await storage.set_pause("q", True, group="a")
    assert await take(storage) == ["b"]


async def test_a_rate_of_groups_is_raised_for_closed_ones(storage: Storage, clock: Clock) -> None:
    """Raised from 1 per hour to 100 per second, closed groups open with the next claims."""
    await set_limit(storage, Limit(concurrency=9, rate="1/h"), group=EVERY)
    await put_group(storage, "a")
    assert await take(storage) == ["a1"]
    await set_limit(storage, Limit(concurrency=9, rate="100/s"), group=EVERY)
    clock.advance(ms=10)
    assert await take(storage) == ["a2"]


async def test_a_clock_that_is_set_back_does_not_close_groups_for_longer(storage: Storage, clock: Clock) -> None:
    """Closed groups are looked at again when the clock was set back: their rates go back with it."""
    await set_limit(storage, Limit(concurrency=9, rate="1/s"), group=EVERY)
    await put_group(storage, "a")
    assert await take(storage) == ["a1"]
    assert await take(storage) == []
    clock.advance(ms=-60 * MINUTE)
    assert await take(storage) == []
    clock.advance(seconds=1)
    assert await take(storage) == ["a2"]


async def test_a_wait_for_work_is_no_look_at_closed_groups(storage: Storage, clock: Clock) -> None:
    """After the clock was set back, rates go back at the next call, not at a wait before it."""
    await set_limit(storage, Limit(concurrency=9, rate="1/s"), group=EVERY)
    await put_group(storage, "a")
    assert await take(storage) == ["a1"]
    assert await take(storage) == []
    clock.advance(ms=-60 * MINUTE)
    await storage.wait_work(["q"], 0.01)
    clock.advance(ms=500)
    assert await take(storage) == []
    clock.advance(ms=600)
    assert await take(storage) == []
    clock.advance(ms=400)
    assert await take(storage) == ["a2"]


async def test_a_group_with_many_jobs_leaves_room_for_one_with_a_single_job(storage: Storage) -> None:
    """A single job of another group waits for at most one round."""
    await set_limit(storage, Limit(concurrency=1))
    await put_group(storage, "a", 50)
    running = await claim1(storage)
    await put_group(storage, "b", 1)
    await settle1(storage, complete(running))
    running = await claim1(storage)
    await settle1(storage, complete(running))
    assert "b1" in (running.id, (await claim1(storage)).id)


async def test_nothing_remains_of_an_idle_group(storage: Storage, clock: Clock) -> None:
    """When its starts are paid, purge forgets the rate of a group: the queue is not listed any more."""
    await set_limit(storage, Limit(concurrency=2, rate="1/s"), group="a")
    await put_group(storage, "a", 1)
    await settle1(storage, complete(await claim1(storage), ttl=0))
    await set_limit(storage, None, group="a")
    clock.advance(ms=MINUTE + SECOND)
    await storage.purge(["q"])
    assert await storage.queues() == []
