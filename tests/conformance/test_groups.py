"""Groups: the jobs of one run one at a time or in one batch, in order; groups take turns."""

from __future__ import annotations

import pytest

from penstock.model.job import State
from penstock.storage.base import Storage
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Clock,
    cancel_run,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    ids,
    new,
    put1,
    release,
    retried,
    run_order,
    settle1,
    stall,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine


async def test_one_run_of_a_group_at_a_time(storage: Storage) -> None:
    """While a job of a group runs, no other of that group is given (invariant 2)."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    claims = await claim_all(storage)
    assert ids(claims) == ["a"]
    assert await claim_all(storage) == []
    await settle1(storage, complete(claims[0]))
    assert ids(await claim_all(storage)) == ["b"]


async def test_different_groups_run_side_by_side(storage: Storage) -> None:
    """The heads of all free groups are given at once."""
    await storage.put([new("q", f"{group}{n}", group=group) for n in (1, 2) for group in "ghi"])
    assert ids(await claim_all(storage)) == ["g1", "h1", "i1"]


async def test_a_group_keeps_the_order_of_acceptance(storage: Storage) -> None:
    """Jobs of a group run in the order in which they were accepted, never by the alphabet (invariant 3)."""
    await storage.put([new("q", id, group="g") for id in "zmab"])
    assert await run_order(storage) == ["z", "m", "a", "b"]


async def test_the_same_group_name_in_two_queues_is_two_groups(storage: Storage) -> None:
    """The same group name in two queues is two groups."""
    await storage.put([new("q", "a", group="g"), new("q/x", "b", group="g")])
    await claim1(storage, "q")
    assert ids(await claim_all(storage, "q/x")) == ["b"]


async def test_jobs_without_a_group_are_not_held(storage: Storage) -> None:
    """A held group delays no job outside of it."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g"), new("q", "c"), new("q", "d")])
    assert ids(await claim_all(storage)) == ["a", "c", "d"]


async def test_groups_take_turns(storage: Storage) -> None:
    """A group with many jobs delays another's single job by at most one round."""
    await storage.put([new("q", f"big{n}", group="big") for n in range(50)])
    await storage.put([new("q", "small", group="small")])
    assert (await run_order(storage))[:3] == ["big0", "small", "big1"]


async def test_three_groups_are_served_round_robin(storage: Storage) -> None:
    """Each group gets one run per round."""
    await storage.put([new("q", f"{group}{n}", group=group) for group in "ghi" for n in (1, 2, 3)])
    assert await run_order(storage) == ["g1", "h1", "i1", "g2", "h2", "i2", "g3", "h3", "i3"]


async def test_jobs_without_a_group_and_groups_share_one_order(storage: Storage, clock: Clock) -> None:
    """A group's turn stands among the jobs without a group at the time at which the group became free."""
    await storage.put([new("q", "a1", group="a"), new("q", "p1"), new("q", "a2", group="a")])
    clock.advance(ms=1)
    await storage.put([new("q", "p2")])
    assert await run_order(storage) == ["a1", "p1", "p2", "a2"]


@pytest.mark.parametrize("ending", [complete, fail, cancel_run])
async def test_the_next_runs_when_the_head_is_done(storage: Storage, ending) -> None:
    """When the head of a group is completed, failed or cancelled, the next job is claimed."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await settle1(storage, ending(await claim1(storage)))
    assert ids(await claim_all(storage)) == ["b"]


@pytest.mark.parametrize("ttl", [0, HOUR])
async def test_the_next_runs_when_the_head_is_cancelled(storage: Storage, ttl: int) -> None:
    """When the waiting head of a group is cancelled, the next job is claimed."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await storage.cancel("q", ["a"], ttl=ttl)
    assert ids(await claim_all(storage)) == ["b"]


async def test_a_group_whose_last_job_is_cancelled_is_idle(storage: Storage) -> None:
    """A claim of a group without jobs returns nothing, and the group works again when it gets one."""
    await put1(storage, "q", "a", group="g")
    await storage.cancel("q", ["a"])
    assert await claim_all(storage) == []
    await put1(storage, "q", "b", group="g")
    assert ids(await claim_all(storage)) == ["b"]


async def test_a_failing_head_holds_its_group_through_its_backoff(storage: Storage, clock: Clock) -> None:
    """A retrying head holds its group until it is finished."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    assert await claim_all(storage) == []
    clock.advance(ms=SECOND - 1)
    assert await claim_all(storage) == []
    clock.advance(ms=1)
    assert await run_order(storage) == ["a", "b"]


async def test_a_retried_head_keeps_its_position_for_position_due(storage: Storage, clock: Clock) -> None:
    """In a group, a retry with position=due does not let other jobs pass."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await settle1(storage, retried(await claim1(storage), delay=SECOND, position="due"))
    clock.advance(seconds=1)
    assert await run_order(storage) == ["a", "b"]


async def test_a_cancelled_backoff_frees_the_group(storage: Storage) -> None:
    """Cancelling a head in its backoff lets its group go on."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    await storage.cancel("q", ["a"])
    assert ids(await claim_all(storage)) == ["b"]


async def test_an_update_that_ends_a_backoff_puts_the_head_first(storage: Storage) -> None:
    """A head whose backoff is ended by an update runs before what waits behind it."""
    await storage.put([new("q", "a", group="g", run_at=T0), new("q", "b", group="g")])
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    await storage.put([update("q", "a", b"new")])
    assert await run_order(storage) == ["a", "b"]


async def test_an_update_that_schedules_a_head_frees_the_group(storage: Storage) -> None:
    """A head that an update moves to a later time is scheduled and does not hold its group."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await storage.put([update("q", "a", delay=HOUR)])
    assert await run_order(storage) == ["b"]


@pytest.mark.parametrize("ending", [release, stall, retried])
async def test_a_returned_head_stays_the_head(storage: Storage, ending) -> None:
    """Release, stall and an immediate retry keep the order of the group (invariant 3)."""
    await storage.put([new("q", id, group="g") for id in "zma"])
    await settle1(storage, ending(await claim1(storage)))
    assert await run_order(storage) == ["z", "m", "a"]


async def test_a_reaped_head_stays_the_head(storage: Storage, clock: Clock) -> None:
    """A reaped head runs first again, and no other job of its group runs meanwhile (QF-D2)."""
    await storage.put([new("q", id, group="g") for id in "zma"])
    await claim1(storage)
    clock.advance(ms=LEASE)
    assert await claim_all(storage) == []
    await storage.reap(["q"])
    assert await run_order(storage) == ["z", "m", "a"]


async def test_a_stale_worker_does_not_free_the_group(storage: Storage, clock: Clock) -> None:
    """A settlement with a stale token does not free the group (QF-D2)."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    stale = await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    await claim1(storage)
    assert (await settle1(storage, complete(stale))).lost
    assert await claim_all(storage) == []


async def test_a_repeated_settlement_does_not_free_the_group_twice(storage: Storage) -> None:
    """A completion sent again while the next job runs does not let a third one in."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    first = await claim1(storage)
    await settle1(storage, complete(first))
    await claim1(storage)
    await settle1(storage, complete(first))
    assert await claim_all(storage) == []


async def test_a_scheduled_job_joins_its_group_when_due(storage: Storage, clock: Clock) -> None:
    """A scheduled job does not hold its group, and joins it behind the waiting ones when it is due."""
    await storage.put([new("q", "later", group="g", delay=SECOND), new("q", "now", group="g")])
    assert await run_order(storage) == ["now"]
    await storage.put([new("q", "more", group="g")])
    clock.advance(seconds=1)
    assert await run_order(storage) == ["more", "later"]


async def test_a_run_at_in_the_past_does_not_jump_the_group(storage: Storage) -> None:
    """In a group, a run-at in the past does not sort a job before those accepted earlier."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g", run_at=0), new("q", "c", group="g")])
    assert await run_order(storage) == ["a", "b", "c"]


async def test_an_idle_group_gets_its_turn_with_its_next_job(storage: Storage) -> None:
    """The turn of a group that was idle is at the time of its new job."""
    await storage.put([new("q", f"big{n}", group="big") for n in range(5)])
    await settle1(storage, complete(await claim1(storage)))
    await storage.put([new("q", "woken", group="idle")])
    assert await run_order(storage) == ["big1", "woken", "big2", "big3", "big4"]


async def test_a_batch_is_of_one_group(storage: Storage) -> None:
    """A batch of a group holds its first jobs in order and none of another."""
    await storage.put([new("q", f"{group}{n}", group=group) for n in (1, 2, 3) for group in "gh"])
    claims = await claim_all(storage, batch=2)
    assert [(claim.id, claim.batch) for claim in claims] == [("g1", 0), ("g2", 0), ("h1", 1), ("h2", 1)]


async def test_a_group_is_held_until_its_whole_batch_is_done(storage: Storage) -> None:
    """The next job of a group waits for the last of a batch."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    claims = await claim_all(storage, batch=2)
    await settle1(storage, complete(claims[0]))
    assert await claim_all(storage) == []
    await settle1(storage, complete(claims[1]))
    assert ids(await claim_all(storage)) == ["c"]


async def test_a_returned_member_of_a_batch_runs_first(storage: Storage, clock: Clock) -> None:
    """A retrying job of a batch holds the group and runs before the rest."""
    await storage.put([new("q", id, group="g") for id in "abcd"])
    claims = await claim_all(storage, batch=3)
    await storage.settle([complete(claims[0]), retried(claims[1], delay=SECOND), complete(claims[2])])
    assert await claim_all(storage) == []
    clock.advance(seconds=1)
    assert await run_order(storage) == ["b", "d"]


async def test_a_solo_member_is_cut_out_of_the_batch(storage: Storage) -> None:
    """In a group, a job that must run alone ends the batch before it and is a batch by itself (QF-D5)."""
    await storage.put([new("q", id, group="g") for id in "abcd"])
    claims = await claim_all(storage, batch=4)
    await storage.settle([retried(claim, solo=claim.id == "b") for claim in claims])
    seen: list[list[str]] = []
    while claims := await claim_all(storage, batch=4):
        seen.append(ids(claims))
        await storage.settle([complete(claim) for claim in claims])
    assert seen == [["a"], ["b"], ["c", "d"]]


async def test_a_reaped_batch_comes_back_in_order(storage: Storage, clock: Clock) -> None:
    """A reaped batch of a group is claimed again as it was (QF-D1)."""
    await storage.put([new("q", id, group="g") for id in "zma"])
    await claim_all(storage, batch=2)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert ids(await claim_all(storage, batch=2)) == ["z", "m"]


async def test_a_job_without_a_group_joins_no_batch_of_a_group(storage: Storage) -> None:
    """The jobs of a batch are all of one group or all without one."""
    await storage.put([new("q", "p1"), new("q", "g1", group="g"), new("q", "g2", group="g"), new("q", "p2")])
    claims = await claim_all(storage, batch=10)
    assert [(claim.id, claim.batch) for claim in claims] == [("p1", 0), ("g1", 1), ("g2", 1), ("p2", 2)]


async def test_many_groups_all_finish(storage: Storage) -> None:
    """300 groups of three jobs each run completely and in order."""
    jobs = [new("q", f"{group}-{n}", group=f"g{group}") for n in range(3) for group in range(300)]
    for start in range(0, len(jobs), 300):
        await storage.put(jobs[start : start + 300])
    seen: dict[str, list[str]] = {}
    while claims := await claim_all(storage, limit=128):
        for claim in claims:
            seen.setdefault(claim.group or "", []).append(claim.id)
        await storage.settle([complete(claim, ttl=0) for claim in claims])
    assert seen == {f"g{group}": [f"{group}-{n}" for n in range(3)] for group in range(300)}
    assert await storage.counts("q") == tally()


async def test_a_grouped_successor_waits_its_turn(storage: Storage) -> None:
    """A successor in a group is released behind the jobs that were accepted before it."""
    await storage.put([new("q", "a", b"1", group="g")])
    claim = await claim1(storage)
    await storage.put([new("q", "b", group="g"), update("q", "a", b"2", group="g")])
    await settle1(storage, complete(claim))
    assert await run_order(storage) == ["b", "a"]


async def test_find_shows_a_queued_job_of_a_held_group(storage: Storage) -> None:
    """find shows a waiting job of a held group as queued, with its group."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await claim1(storage)
    [waiting] = await find_all(storage, state=State.QUEUED)
    assert (waiting.id, waiting.group) == ("b", "g")
