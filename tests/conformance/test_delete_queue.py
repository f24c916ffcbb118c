"""delete_queue: every record of a queue → gone, running claims are lost."""

from __future__ import annotations

import pytest

from penstock.model.job import State
from penstock.storage.base import Storage
from tests.support import (
    LEASE,
    LOST,
    SECOND,
    Backend,
    Clock,
    cancel_run,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    held,
    ids,
    new,
    put1,
    report_progress,
    retried,
    settle1,
    state_of,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine


async def fill(storage: Storage, queue: str = "q") -> int:
    """Put jobs into every state, some of them in groups, and return their number."""
    await storage.put([new(queue, id) for id in "abcdef"])
    done, failed, gone, again, running, _ = await claim_all(storage, queue)
    await storage.settle([complete(done), fail(failed), cancel_run(gone), retried(again, delay=SECOND)])
    await storage.put([update(queue, running.id), new(queue, "g", delay=SECOND), new(queue, "h")])
    await storage.put([new(queue, "i", group="g"), new(queue, "j", group="g")])
    return 11


async def test_delete_queue_removes_every_job(storage: Storage) -> None:
    """A deleted queue is empty, and the answer is the number of its jobs."""
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


async def test_delete_queue_leaves_nothing_in_the_storage(backend: Backend, storage: Storage) -> None:
    """A delete and the purges after it remove all keys and rows of a queue (QF-D17)."""
    await fill(storage)
    await storage.delete_queue("q")
    while await storage.purge(["q"]):
        pass
    assert backend.leftovers() == []


async def test_delete_queue_does_not_count_expired_jobs(storage: Storage, clock: Clock) -> None:
    """Finished jobs whose TTL is over are not part of the answer."""
    await storage.put([new("q", "a"), new("q", "b")])
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=1)
    assert await storage.delete_queue("q") == 1


async def test_no_verb_brings_a_job_of_a_deleted_queue_back(storage: Storage, clock: Clock) -> None:
    """After a delete, neither settle nor renew nor reap brings a job back (WQ-D10)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.delete_queue("q")
    assert await settle1(storage, retried(claim)) == LOST
    assert not (await storage.renew("w", [held(claim)], LEASE))[0].kept
    assert await report_progress(storage, held(claim), b"x") is False
    clock.advance(ms=LEASE)
    assert await storage.reap(["q"]) == []
    assert await storage.queues() == []


async def test_a_deleted_queue_starts_anew(storage: Storage) -> None:
    """Jobs put after a delete are new, and settlements of the old runs are lost."""
    await fill(storage)
    await put1(storage, "q", "z")
    claims = await claim_all(storage, token="old")
    await storage.delete_queue("q")
    await storage.put([new("q", id) for id in "zab"])
    assert await storage.settle([complete(claim) for claim in claims]) == [LOST] * len(claims)
    assert ids(await claim_all(storage)) == ["z", "a", "b"]


async def test_delete_queue_ends_a_pause(storage: Storage) -> None:
    """A queue that was deleted while paused is not paused when it is used again."""
    await storage.set_pause("q", True)
    await storage.delete_queue("q")
    assert await storage.paused("q") is None
    await put1(storage, "q", "a")
    assert ids(await claim_all(storage)) == ["a"]


async def test_delete_queue_leaves_other_queues_of_the_family_alone(storage: Storage) -> None:
    """Deleting a queue leaves the others of its family alone."""
    await storage.put([new("q", "a"), new("q/x", "a"), new("r", "a")])
    await storage.delete_queue("q")
    assert await storage.queues() == ["q/x", "r"]
    assert await state_of(storage, "a", "q/x") == State.QUEUED


async def test_a_held_group_is_free_after_a_delete(storage: Storage) -> None:
    """A group that was running when its queue was deleted is free in the new queue."""
    await put1(storage, "q", "a", group="g")
    await claim1(storage)
    await storage.delete_queue("q")
    await put1(storage, "q", "b", group="g")
    assert ids(await claim_all(storage)) == ["b"]


async def test_a_large_queue_is_deleted_whole(backend: Backend, storage: Storage) -> None:
    """Of a deleted queue of 5000 jobs no read shows one, and purges remove the rest."""
    for start in range(0, 5000, 500):
        await storage.put([new("q", f"j{start + n}") for n in range(500)])
    assert await storage.delete_queue("q") == 5000
    assert await storage.counts("q") == tally()
    assert await find_all(storage) == []
    await put1(storage, "q", "j1")
    while await storage.purge(["q"]):
        pass
    assert ids(await find_all(storage)) == ["j1"]
