"""set_pause of one group, pauses that end by themselves, and retries that pause."""

from __future__ import annotations

import pytest

from penstock.model.limit import EVERY, Limit
from penstock.model.pause import Pause
from penstock.storage.base import Storage
from tests.support import (
    MINUTE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    complete,
    ids,
    new,
    put1,
    retried,
    set_limit,
    settle1,
)

pytestmark = pytest.mark.one_per_engine


async def put_groups(storage: Storage, count: int = 3) -> None:
    """Put the jobs a1, b1, a2, b2, … of two groups."""
    await storage.put([new("q", f"{group}{i + 1}", group=group) for i in range(count) for group in "ab"])


async def take(storage: Storage, limit: int = 100) -> list[str]:
    return ids(await claim_all(storage, limit=limit))


async def test_a_paused_group_gives_nothing_and_the_others_go_on(storage: Storage) -> None:
    """Only jobs of other groups are claimed; after the resume the group goes on in its order."""
    await put_groups(storage)
    assert await storage.set_pause("q", True, group="a")
    assert await take(storage) == ["b1"]
    peeked = await storage.peek("q")
    assert peeked is None
    assert await storage.set_pause("q", False, group="a")
    assert await take(storage) == ["a1"]


async def test_a_run_of_a_paused_group_goes_on(storage: Storage) -> None:
    """A pause of a group touches no run: it ends as any, and the next of its group waits."""
    await put_groups(storage)
    claims = await claim_all(storage)
    await storage.set_pause("q", True, group="a")
    await storage.settle([complete(claim) for claim in claims])
    assert await take(storage) == ["b2"]
    await storage.set_pause("q", False, group="a")
    assert await take(storage) == ["a2"]


async def test_a_group_can_be_paused_before_it_has_jobs(storage: Storage) -> None:
    """Jobs put into a paused group wait; the queue is listed while the pause lasts."""
    await storage.set_pause("q", True, T0 + MINUTE, "ann", "a")
    assert await storage.queues() == ["q"]
    assert await storage.paused("q", "a") == Pause(T0, T0 + MINUTE, "ann")
    assert await storage.paused("q") is None
    await put_groups(storage)
    assert await take(storage) == ["b1"]


async def test_set_pause_answers_whether_the_pause_of_a_group_changed(storage: Storage, clock: Clock) -> None:
    """Another end or author is a change that keeps the begin; a pause until a time that has passed is a resume."""
    assert not await storage.set_pause("q", False, group="a")
    assert await storage.set_pause("q", True, group="a")
    assert not await storage.set_pause("q", True, group="a")
    clock.advance(seconds=1)
    assert await storage.set_pause("q", True, T0 + MINUTE, "ann", "a")
    assert await storage.paused("q", "a") == Pause(T0, T0 + MINUTE, "ann")
    assert await storage.set_pause("q", True, T0, group="a")
    assert await storage.paused("q", "a") is None
    assert not await storage.set_pause("q", False, group="a")


async def test_a_pause_of_a_group_ends_by_itself(storage: Storage, clock: Clock) -> None:
    """At its end the group is claimed from again, and is not paused any more."""
    await put_groups(storage)
    await storage.set_pause("q", True, T0 + MINUTE, group="a")
    assert await take(storage) == ["b1"]
    clock.advance(ms=MINUTE - 1)
    assert await take(storage) == []
    clock.advance(ms=1)
    assert await storage.paused("q", "a") is None
    assert await take(storage) == ["a1"]
    assert not await storage.set_pause("q", False, group="a")


async def test_a_pause_of_a_queue_ends_by_itself(storage: Storage, clock: Clock) -> None:
    """No job of the queue is claimed before the end; then it is as if it was resumed."""
    await put_groups(storage)
    assert await storage.set_pause("q", True, T0 + MINUTE, "ann")
    assert await storage.paused("q") == Pause(T0, T0 + MINUTE, "ann")
    clock.advance(ms=MINUTE - 1)
    assert await take(storage) == []
    assert await storage.peek("q") is None
    clock.advance(ms=1)
    assert await storage.paused("q") is None
    peeked = await storage.peek("q")
    assert peeked is not None
    assert peeked.id == "a1"
    assert await take(storage) == ["a1", "b1"]
    assert not await storage.set_pause("q", False)


async def test_a_pause_that_is_changed_ends_at_its_new_end(storage: Storage, clock: Clock) -> None:
    """A shorter pause of a group ends earlier, and one without an end does not end."""
    await put_groups(storage)
    await storage.set_pause("q", True, T0 + MINUTE, group="a")
    assert await take(storage) == ["b1"]
    await storage.set_pause("q", True, T0 + SECOND, group="a")
    clock.advance(seconds=1)
    assert await take(storage) == ["a1"]
    await storage.set_pause("q", True, T0 + MINUTE, group="b")
    await storage.set_pause("q", True, group="b")
    clock.advance(ms=MINUTE)
    assert await storage.paused("q", "b") == Pause(T0 + SECOND)


async def test_a_retry_pauses_its_group_until_it_is_due(storage: Storage, clock: Clock) -> None:
    """Others go on; the group starts again when the retry is due, with the retried job; `why` names the pause."""
    await set_limit(storage, Limit(concurrency=2), group=EVERY)
    await put_groups(storage, 4)
    a1, b1, a2, b2 = await claim_all(storage)
    await settle1(storage, retried(a1, delay=MINUTE, pause="group"))
    await storage.settle([complete(claim) for claim in (b1, a2, b2)])
    assert await take(storage) == ["b3", "b4"]
    position = await storage.why("q", "a3")
    assert position is not None
    assert (position.group_pause, position.gate, position.head) == (Pause(T0, T0 + MINUTE), None, None)
    clock.advance(ms=MINUTE - 1)
    assert await take(storage) == []
    clock.advance(ms=1)
    assert await take(storage) == ["a1", "a3"]


async def test_a_retry_pauses_its_queue(storage: Storage, clock: Clock) -> None:
    """With "queue", and with "group" for a job without one, nothing of the queue starts until the retry is due."""
    await storage.put([new("q", id) for id in "abc"])
    await settle1(storage, retried(await claim1(storage), delay=SECOND, pause="queue"))
    assert await storage.paused("q") == Pause(T0, T0 + SECOND)
    assert await take(storage) == []
    clock.advance(seconds=1)
    a = await claim1(storage)
    assert a.id == "a"
    await settle1(storage, retried(a, delay=SECOND, pause="group"))
    assert await take(storage) == []
    clock.advance(seconds=1)
    assert await take(storage) == ["a", "b", "c"]


async def test_a_retry_does_not_shorten_a_pause(storage: Storage, clock: Clock) -> None:
    """A pause without an end, or with a later one, stays; a retry that is due at once pauses nothing."""
    await put_groups(storage)
    a, b = await claim_all(storage)
    await storage.set_pause("q", True, group="a")
    await settle1(storage, retried(a, delay=SECOND, pause="group"))
    assert await storage.paused("q", "a") == Pause(T0)
    await storage.set_pause("q", True, T0 + MINUTE)
    await settle1(storage, retried(b, delay=SECOND, pause="queue"))
    assert await storage.paused("q") == Pause(T0, T0 + MINUTE)
    clock.advance(ms=MINUTE)
    [b] = await claim_all(storage)
    await settle1(storage, retried(b, pause="group"))
    assert await storage.paused("q", "b") is None


async def test_a_repeated_settlement_pauses_once(storage: Storage) -> None:
    """A retry that is settled again after the resume does not pause again."""
    await put_groups(storage)
    claim = await claim1(storage)
    settlement = retried(claim, delay=MINUTE, pause="group")
    first = await settle1(storage, settlement)
    await storage.set_pause("q", False, group="a")
    assert await settle1(storage, settlement) == first
    assert await storage.paused("q", "a") is None


async def test_a_put_of_a_later_job_takes_a_paused_group_out_of_the_rotation(storage: Storage) -> None:
    """A group that was paused while it had its turn loses it at the next put, also at that of a job that is not due."""
    await put1(storage, "q", "a", group="a")
    await storage.set_pause("q", True, T0 + MINUTE, group="a")
    await put1(storage, "q", "b", group="a", run_at=T0 + SECOND)
    position = await storage.why("q", "a")
    assert position is not None
    assert (position.group_pause, position.ahead) == (Pause(T0, T0 + MINUTE), None)


async def test_delete_queue_ends_the_pauses_of_groups(storage: Storage) -> None:
    """A group of a deleted queue is not paused when the queue is used again."""
    await put_groups(storage)
    await storage.set_pause("q", True, group="a")
    await storage.delete_queue("q")
    assert await storage.paused("q", "a") is None
    await put1(storage, "q", "x", group="a")
    assert await take(storage) == ["x"]


async def test_purge_forgets_pauses_that_are_over(storage: Storage, clock: Clock) -> None:
    """A queue of which only ended pauses are left is not listed."""
    await storage.set_pause("q", True, T0 + SECOND)
    await storage.set_pause("q", True, T0 + SECOND, group="a")
    clock.advance(seconds=1)
    assert await storage.queues() == []
    await storage.purge(["q"])
    clock.advance(seconds=-1)
    assert (await storage.paused("q"), await storage.paused("q", "a")) == (None, None)
