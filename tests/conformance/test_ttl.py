"""set_ttl: keep a finished job for a time from now."""

from __future__ import annotations

import pytest

from penstock.storage.base import Storage
from tests.support import (
    DAY,
    HOUR,
    SECOND,
    T0,
    Clock,
    cancel_run,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    get1,
    ids,
    new,
    put1,
    settle1,
    state_of,
    tally,
)

pytestmark = pytest.mark.one_per_engine


@pytest.mark.parametrize("ending", [complete, fail, cancel_run])
async def test_a_finished_job_is_kept_longer(storage: Storage, clock: Clock, ending) -> None:
    """A longer TTL counts from the call, not from the end of the run."""
    await put1(storage, "q", "a")
    await settle1(storage, ending(await claim1(storage), ttl=2 * SECOND))
    clock.advance(seconds=1)
    assert await storage.set_ttl("q", "a", HOUR) is True
    assert (await get1(storage)).expires == T0 + SECOND + HOUR
    clock.advance(ms=HOUR - 1)
    assert await storage.purge(["q"]) == 0
    clock.advance(ms=1)
    assert await state_of(storage) is None
    assert await storage.purge(["q"]) == 1


async def test_a_finished_job_is_kept_shorter(storage: Storage, clock: Clock) -> None:
    """A shorter TTL moves the expiry of a finished job forward."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=HOUR))
    await storage.set_ttl("q", "a", SECOND)
    clock.advance(seconds=1)
    assert await state_of(storage) is None
    assert await storage.counts("q") == tally()


async def test_a_finished_job_is_kept_for_ever(storage: Storage, clock: Clock) -> None:
    """A TTL of None removes the expiry, and another TTL sets it again."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    assert await storage.set_ttl("q", "a", None)
    clock.advance(ms=1000 * DAY)
    assert (await get1(storage)).expires is None
    assert await storage.set_ttl("q", "a", SECOND)
    clock.advance(seconds=1)
    assert await state_of(storage) is None


async def test_a_ttl_of_zero_forgets_at_once(storage: Storage) -> None:
    """With a TTL of 0 the job is gone, and its id is free."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage)))
    assert await storage.set_ttl("q", "a", 0) is True
    assert await state_of(storage) is None
    assert await storage.queues() == []
    assert (await put1(storage, "q", "a")).status == "queued"


async def test_only_finished_jobs_have_a_ttl(storage: Storage) -> None:
    """set_ttl of a waiting, running or unknown job answers False."""
    await storage.put([new("q", "a"), new("q", "b"), new("q", "c", delay=HOUR)])
    await claim1(storage)
    answers = [await storage.set_ttl("q", id, 0) for id in ("a", "b", "c", "none")]
    assert answers == [False] * 4
    assert await storage.set_ttl("none", "a", 0) is False
    assert await storage.counts("q") == tally(running=1, queued=1, scheduled=1)


async def test_set_ttl_of_an_expired_job_answers_false(storage: Storage, clock: Clock) -> None:
    """A job whose TTL is over cannot be kept any longer."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=1)
    assert await storage.set_ttl("q", "a", HOUR) is False


async def test_set_ttl_moves_the_job_in_the_order_of_find(storage: Storage) -> None:
    """Finished jobs are listed by their new expiry."""
    await storage.put([new("q", id) for id in "abc"])
    await storage.settle([complete(claim, ttl=HOUR) for claim in await claim_all(storage)])
    await storage.set_ttl("q", "a", None)
    await storage.set_ttl("q", "c", SECOND)
    assert ids(await find_all(storage)) == ["c", "b", "a"]
