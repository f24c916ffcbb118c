"""put with an update: priority and group of a waiting job, of a successor, and of the job it is folded into."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.job import State, Update
from penstock.storage.base import Put, PutStatus, Settled, Storage
from tests.support import (
    HOUR,
    SECOND,
    Clock,
    claim1,
    claim_all,
    complete,
    find_all,
    get1,
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

UPDATED = Put(PutStatus.UPDATED, State.QUEUED)
NO_PRIORITY = Update(priority=False)


async def update1(storage: Storage, id: str = "a", flags: Update | None = None, **options: Any) -> Put:
    [answer] = await storage.put([update("q", id, b"new", flags, **options)])
    return answer


# waiting jobs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["queued", "scheduled", "retrying"])
async def test_an_update_changes_the_priority(storage: Storage, clock: Clock, state: str) -> None:
    """A waiting job that is updated with a priority runs by that priority from then on."""
    await put1(storage, "q", "a", delay=SECOND if state == "scheduled" else None)
    if state == "retrying":
        await settle1(storage, retried(await claim1(storage), delay=SECOND))
    await storage.put([new("q", "b", priority=5), new("q", "c", priority=9)])
    assert (await update1(storage, flags=Update(run_at=False), priority=7)).state == state
    clock.advance(seconds=1)
    assert (await get1(storage)).priority == 7
    assert await run_order(storage) == ["c", "a", "b"]


async def test_an_update_with_priority_0_takes_the_priority_away(storage: Storage) -> None:
    """An update with the flag `priority` and a priority of 0 sets it to 0; without the flag the priority stays."""
    await storage.put([new("q", "a", priority=5), new("q", "b", priority=1)])
    assert await update1(storage, flags=NO_PRIORITY) == UPDATED
    assert (await get1(storage)).priority == 5
    assert await update1(storage) == UPDATED
    assert (await get1(storage)).priority == 0
    assert await run_order(storage) == ["b", "a"]


@pytest.mark.parametrize("flags", [Update(), Update(payload=False, run_at=False)])
async def test_an_update_with_a_group_moves_the_job_to_the_end_of_it(
    storage: Storage, clock: Clock, flags: Update
) -> None:
    """A job that changes its group stands behind the jobs that were accepted into it before."""
    await storage.put([new("q", "a"), new("q", "b", group="g")])
    clock.advance(seconds=1)
    await storage.put([new("q", "c", group="h"), new("q", "d", group="h")])
    assert await update1(storage, "a", flags, group="h") == UPDATED
    assert await update1(storage, "b", flags, group="h") == UPDATED
    await put1(storage, "q", "e", group="h")
    assert ids(await find_all(storage)) == ["c", "d", "a", "b", "e"]
    assert ids(await claim_all(storage)) == ["c"]
    assert await storage.counts("q") == tally(running=1, queued=4)


async def test_an_update_with_the_same_group_keeps_the_place(storage: Storage) -> None:
    """A job that is updated with the group it has keeps its place, and so does one updated without a group."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    assert await update1(storage, "a", group="g") == UPDATED
    assert await update1(storage, "b") == UPDATED
    assert await update1(storage, "b", Update(group=False), group="h") == UPDATED
    assert await run_order(storage) == ["a", "b", "c"]


async def test_the_group_that_a_job_leaves_goes_on(storage: Storage, clock: Clock) -> None:
    """When the head of a group moves to another, also out of its backoff, the next of the old group can run."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g"), new("q", "c", group="h")])
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    assert ids(await claim_all(storage, limit=1)) == ["c"]
    assert await claim_all(storage) == []
    assert await update1(storage, "a", Update(run_at=False), group="h") == Put(PutStatus.UPDATED, State.SCHEDULED)
    assert ids(await claim_all(storage)) == ["b"]
    clock.advance(ms=HOUR)
    assert ids(await find_all(storage, state=State.QUEUED)) == ["a"]


async def test_a_job_in_backoff_does_not_hold_the_group_it_moves_to(storage: Storage, clock: Clock) -> None:
    """A job that changes its group during its backoff joins the new group when it is due, and holds it no earlier."""
    await put1(storage, "q", "a", group="g")
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    assert await update1(storage, "a", Update(run_at=False), group="h") == Put(PutStatus.UPDATED, State.SCHEDULED)
    await put1(storage, "q", "b", group="h")
    assert await run_order(storage) == ["b"]
    clock.advance(seconds=1)
    assert await run_order(storage) == ["a"]


async def test_a_group_that_becomes_empty_or_new_by_updates_takes_its_turn(storage: Storage) -> None:
    """Groups that are left, entered, or both in one call are served in turn, and none twice."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="h"), new("q", "c", group="i")])
    await storage.put([update("q", "a", group="h"), update("q", "c", group="g"), update("q", "b", group="g")])
    assert ids(await claim_all(storage)) == ["a", "c"]
    assert await claim_all(storage) == []


@pytest.mark.parametrize("before", [{"priority": 3}, {"group": "g"}])
async def test_an_update_to_a_group_and_a_priority_is_refused(storage: Storage, before: dict[str, Any]) -> None:
    """An update after which a job would have a group and a priority changes nothing at all."""
    await put1(storage, "q", "a", b"old", **before)
    unchanged = await get1(storage)
    given: dict[str, Any] = {"priority": 4} if "group" in before else {"group": "h"}
    flags = Update() if "group" in before else NO_PRIORITY
    assert await update1(storage, flags=flags, delay=HOUR, **given) == Put(
        PutStatus.DUPLICATE, State.QUEUED, refused=True
    )
    assert await get1(storage) == unchanged
    assert ids(await claim_all(storage)) == ["a"]


async def test_an_update_from_a_priority_to_a_group(storage: Storage) -> None:
    """An update that gives a group and the priority 0 moves a job with a priority into the group."""
    await put1(storage, "q", "a", priority=3)
    assert await update1(storage, group="g", priority=0) == UPDATED
    job = await get1(storage)
    assert (job.group, job.priority) == ("g", 0)


# successors --------------------------------------------------------------------------------------

ENDINGS = pytest.mark.parametrize("ending", [release, retried, stall])


@ENDINGS
async def test_a_successor_folds_its_priority_in(storage: Storage, ending: Any) -> None:
    """A run that returns to its queue takes the priority of its successor, if that was given one."""
    await storage.put([new("q", id, priority=2) for id in "ab"])
    a, b = await claim_all(storage)
    assert (await update1(storage, "a", priority=9)).status == "blocked"
    assert (await update1(storage, "b", NO_PRIORITY)).status == "blocked"
    await storage.settle([ending(a), ending(b)])
    assert [(await get1(storage, id)).priority for id in "ab"] == [9, 2]


@ENDINGS
async def test_a_successor_folds_its_group_in(storage: Storage, ending: Any) -> None:
    """A run that returns to its queue moves to the end of its successor's group, and its old group goes on."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g"), new("q", "c", group="h")])
    claim = await claim1(storage)
    assert (await update1(storage, "a", group="h")).status == "blocked"
    assert await settle1(storage, ending(claim)) == Settled(State.QUEUED)
    assert (await get1(storage)).group == "h"
    assert ids(await find_all(storage)) == ["b", "c", "a"]
    assert sorted(await run_order(storage)) == ["a", "b", "c"]


async def test_updates_of_a_successor_are_merged(storage: Storage) -> None:
    """The second put behind a run changes the successor's group, and both changes are folded in."""
    await put1(storage, "q", "a", b"old")
    claim = await claim1(storage)
    assert (await update1(storage, "a", Update(payload=False), priority=4)).status == "blocked"
    assert await update1(storage, "a", Update(payload=False), group="g", priority=0) == Put(
        PutStatus.UPDATED, State.BLOCKED
    )
    await settle1(storage, release(claim))
    job = await get1(storage)
    assert (job.payload, job.group, job.priority) == (b"old", "g", 0)


async def test_a_successor_keeps_its_priority_in_a_merge_without_one(storage: Storage) -> None:
    """A second put behind a run that gives no priority leaves that of the successor, which is released with it."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await update1(storage, "a", priority=4)
    await update1(storage, "a", NO_PRIORITY)
    await settle1(storage, complete(claim, ttl=0))
    assert (await get1(storage)).priority == 4


REFUSED = Put(PutStatus.DUPLICATE, State.RUNNING, refused=True)


async def test_a_successor_that_could_not_be_folded_in_is_refused(storage: Storage) -> None:
    """A put behind a run that gives a priority is refused if the run has a group, since it may be folded into it."""
    await put1(storage, "q", "a", group="g")
    claim = await claim1(storage)
    assert await update1(storage, "a", priority=4) == REFUSED
    assert await storage.counts("q") == tally(running=1)
    assert (await update1(storage, "a", NO_PRIORITY)).status == "blocked"
    assert await update1(storage, "a", priority=4) == REFUSED
    await settle1(storage, release(claim))
    job = await get1(storage)
    assert (job.group, job.priority) == ("g", 0)


async def test_a_merge_that_gives_a_successor_both_is_refused(storage: Storage) -> None:
    """A second put behind a run is refused if the successor would have a group and a priority by it."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert (await update1(storage, "a", group="g")).status == "blocked"
    assert await update1(storage, "a", priority=4) == REFUSED
    [successor] = await find_all(storage, state=State.BLOCKED)
    assert (successor.payload, successor.group, successor.priority) == (b"new", "g", 0)
    await settle1(storage, complete(claim, ttl=0))
    assert ids(await claim_all(storage)) == ["a"]
