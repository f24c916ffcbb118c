"""Many runs at once, with groups and without: storages keep them together, and they behave as few do."""

from __future__ import annotations

import pytest

from penstock.model.job import State, Update
from penstock.storage.base import Settled, Storage
from tests.support import (
    HOUR,
    LEASE,
    Clock,
    claim_all,
    complete,
    get1,
    held,
    ids,
    new,
    put1,
    release,
    report_progress,
    retried,
    settle1,
    state_of,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine

MANY = 40


def group_of(n: int, grouped: bool) -> str | None:
    return f"g{n}" if grouped else None


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("at", [0, 1, MANY - 1])
async def test_each_of_many_runs_reports_is_cancelled_and_has_a_successor(
    storage: Storage, at: int, grouped: bool
) -> None:
    """Each of many runs can report progress, get a cancel request and have a successor."""
    await storage.put([new("q", f"j{n}", group=group_of(n, grouped)) for n in range(MANY)])
    claims = await claim_all(storage)
    claim = claims[at]
    assert (await get1(storage, claim.id)).progress is None
    assert await report_progress(storage, held(claim), b"half") is True
    assert (await get1(storage, claim.id)).progress == b"half"
    await storage.cancel("q", [claim.id], "signal")
    await storage.put([update("q", claim.id, group=group_of(at, grouped))])
    answers = await storage.renew("w", [held(each) for each in claims], LEASE)
    assert [answer.cancel for answer in answers] == ["signal" if n == at else None for n in range(MANY)]
    settled = await storage.settle([complete(each) for each in claims])
    assert settled == [Settled(State.COMPLETED)] * MANY
    assert await state_of(storage, claim.id) is State.QUEUED
    assert await storage.counts("q") == tally(queued=1, completed=MANY - 1)


@pytest.mark.parametrize("ending", [complete, release, retried])
async def test_many_groups_are_held_and_freed(storage: Storage, clock: Clock, ending) -> None:
    """Each of many groups has one run at a time; a group whose run is settled has the next, the others none."""
    await storage.put([new("q", f"{n}-{k}", group=f"g{n}") for k in (1, 2) for n in range(MANY)])
    first = await claim_all(storage)
    assert ids(first) == [f"{n}-1" for n in range(MANY)]
    assert await claim_all(storage) == []
    await storage.settle([ending(claim) for claim in first[::2]])
    expected = [f"{n}-{2 if ending is complete else 1}" for n in range(0, MANY, 2)]
    assert ids(await claim_all(storage)) == expected
    clock.advance(ms=LEASE)
    assert len(await storage.reap(["q"])) == MANY
    assert sorted(ids(await claim_all(storage))) == sorted([*expected, *(f"{n}-1" for n in range(1, MANY, 2))])


async def cancelled(storage: Storage) -> None:
    await storage.cancel("q", ["b"])


async def cancelled_and_kept(storage: Storage) -> None:
    await storage.cancel("q", ["b"], ttl=None)


async def scheduled(storage: Storage) -> None:
    await storage.put([update("q", "b", delay=1000, group="g")])


async def moved_to_another_group(storage: Storage) -> None:
    await storage.cancel("q", ["b"])
    await storage.put([new("q", "b", group="other", delay=1000)])


@pytest.mark.parametrize("leave", [cancelled, cancelled_and_kept, scheduled, moved_to_another_group])
async def test_a_group_gives_the_following_job_when_its_next_one_leaves(storage: Storage, leave) -> None:
    """If a group's next job is cancelled or moved, its turn goes to the following job."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    await storage.settle([complete(claim) for claim in await claim_all(storage)])
    await leave(storage)
    assert ids(await claim_all(storage)) == ["c"]


async def test_a_job_moved_before_the_next_of_its_group_is_claimed_first(storage: Storage, clock: Clock) -> None:
    """A job moved to now, after the clock was set back, is claimed before those accepted earlier."""
    clock.advance(seconds=60)
    await storage.put([new("q", id, group="g") for id in "abc"])
    await storage.put([new("q", "later", group="g", delay=HOUR)])
    await storage.settle([complete(claim) for claim in await claim_all(storage)])
    clock.advance(seconds=-60)
    await storage.put([update("q", "later", flags=Update(run_at=True), group="g")])
    assert ids(await claim_all(storage)) == ["later"]


async def test_a_group_that_empties_before_its_turn_has_none(storage: Storage) -> None:
    """When the last job of a group is cancelled, its turn is gone; a job that comes later is claimed."""
    await storage.put([new("q", id, group="g") for id in "ab"])
    [claim] = await claim_all(storage)
    await settle1(storage, complete(claim))
    await storage.cancel("q", ["b"])
    assert await claim_all(storage) == []
    await put1(storage, "q", "c", group="g")
    assert ids(await claim_all(storage)) == ["c"]


async def test_a_released_job_is_claimed_before_the_next_of_its_group(storage: Storage) -> None:
    """A released job keeps its position, before the one that would have been next."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    [a] = await claim_all(storage)
    await settle1(storage, complete(a))
    [b] = await claim_all(storage)
    await settle1(storage, release(b))
    assert ids(await claim_all(storage)) == ["b"]
