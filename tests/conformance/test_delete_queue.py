"""delete_queue: every record of a queue → gone, running claims are lost."""

from __future__ import annotations

from penstock.model.job import State
from penstock.storage.base import Storage
from tests.support import (
    LEASE,
    LOST,
    SECOND,
    Backend,
    Clock,
    cancel_end,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    held,
    ids,
    new,
    put1,
    retried,
    settle1,
    state_of,
    tally,
    update,
)


async def fill(storage: Storage, queue: str = "q") -> int:
    """One job of every state, and a few in groups; answers how many."""
    await storage.put([new(queue, id) for id in "abcdef"])
    done, failed, gone, again, running, _ = await claim_all(storage, queue)
    await storage.settle([complete(done), fail(failed), cancel_end(gone), retried(again, delay=SECOND)])
    await storage.put([update(queue, running.id), new(queue, "g", delay=SECOND), new(queue, "h")])
    await storage.put([new(queue, "i", group="g"), new(queue, "j", group="g")])
    return 11


async def test_every_job_is_gone(storage: Storage) -> None:
    """A deleted queue holds nothing, and the answer counts what it held."""
    assert await storage.delete_queue("q") == 0
    expected = await fill(storage)
    assert sum((await storage.counts("q")).values()) == expected
    assert await storage.delete_queue("q") == expected
    assert await storage.counts("q") == tally()
    assert await find_all(storage) == []
    assert await storage.queues() == []
    assert await storage.peek("q") is None
    assert await claim_all(storage) == []
    assert await storage.delete_queue("q") == 0


async def test_nothing_is_left_in_the_storage(backend: Backend, storage: Storage) -> None:
    """All keys and rows of a queue die together (QF-D17)."""
    await fill(storage)
    await storage.delete_queue("q")
    while await storage.purge(["q"]):
        pass
    assert backend.leftovers() == []


async def test_expired_jobs_are_not_counted(storage: Storage, clock: Clock) -> None:
    """What is forgotten already is not part of the answer."""
    await storage.put([new("q", "a"), new("q", "b")])
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=1)
    assert await storage.delete_queue("q") == 1


async def test_nothing_reappears(storage: Storage, clock: Clock) -> None:
    """After a delete, neither outcomes nor renewals nor sweeps bring a job back (WQ-D10)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.delete_queue("q")
    assert await settle1(storage, retried(claim)) == LOST
    assert not (await storage.renew("w", [held(claim)], LEASE))[0].kept
    assert await storage.report(held(claim), b"x") is False
    clock.advance(ms=LEASE)
    assert await storage.reap(["q"]) == []
    assert await storage.queues() == []


async def test_a_queue_of_that_name_starts_anew(storage: Storage) -> None:
    """Jobs put after a delete know nothing of the ones before, and stale runs cannot touch them."""
    await fill(storage)
    await put1(storage, "q", "z")
    claims = await claim_all(storage, token="old")
    await storage.delete_queue("q")
    await storage.put([new("q", id) for id in "zab"])
    assert await storage.settle([complete(claim) for claim in claims]) == [LOST] * len(claims)
    assert ids(await claim_all(storage)) == ["z", "a", "b"]


async def test_a_pause_ends_with_its_queue(storage: Storage) -> None:
    """A queue that was deleted while paused is not paused when it comes back."""
    await storage.set_paused("q", True)
    await storage.delete_queue("q")
    assert await storage.paused("q") is None
    await put1(storage, "q", "a")
    assert ids(await claim_all(storage)) == ["a"]


async def test_siblings_are_untouched(storage: Storage) -> None:
    """Deleting a queue leaves the others of its family alone."""
    await storage.put([new("q", "a"), new("q/x", "a"), new("r", "a")])
    await storage.delete_queue("q")
    assert await storage.queues() == ["q/x", "r"]
    assert await state_of(storage, "a", "q/x") == State.QUEUED


async def test_a_held_group_is_free_after_a_delete(storage: Storage) -> None:
    """A group that was running when its queue was deleted is free in the new one."""
    await put1(storage, "q", "a", group="g")
    await claim1(storage)
    await storage.delete_queue("q")
    await put1(storage, "q", "b", group="g")
    assert ids(await claim_all(storage)) == ["b"]


async def test_a_large_queue_is_deleted_whole(backend: Backend, storage: Storage) -> None:
    """However many jobs there were, none is left to see, and purging takes the rest away."""
    for start in range(0, 5000, 500):
        await storage.put([new("q", f"j{start + n}") for n in range(500)])
    assert await storage.delete_queue("q") == 5000
    assert await storage.counts("q") == tally()
    assert await find_all(storage) == []
    await put1(storage, "q", "j1")
    while await storage.purge(["q"]):
        pass
    assert ids(await find_all(storage)) == ["j1"]
