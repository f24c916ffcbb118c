"""put with `max_queued`: all jobs are stored, or none if more than that many would then wait in their queue."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import QueueFull
from penstock.model.job import State
from penstock.storage.base import Put, PutStatus, Storage
from tests.support import (
    HOUR,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    ids,
    new,
    put1,
    retried,
    settle1,
    tally,
    update,
)

QUEUED = Put(PutStatus.QUEUED, State.QUEUED)


async def fill(storage: Storage) -> None:
    """Put a job of each waiting state: queued, in a group, scheduled, retrying; "run" runs, and "end" has ended."""
    await storage.put([new("q", id) for id in ("again", "run", "end")])
    again, _, end = await claim_all(storage)
    await storage.settle([retried(again, delay=HOUR), complete(end)])
    await storage.put([new("q", "plain"), new("q", "grouped", group="g"), new("q", "later", delay=HOUR)])


async def refusal(storage: Storage, most: int, *names: str) -> tuple[int, int, int]:
    """Put jobs with this bound; returns how many wait, the bound, and how many were to be added."""
    with pytest.raises(QueueFull) as refused:
        await storage.put([new("q", name) for name in names], most)
    return refused.value.waiting, refused.value.max_queued, refused.value.count


async def test_queued_scheduled_and_retrying_jobs_count(storage: Storage) -> None:
    """Running and finished jobs do not; a put that fills the queue to its bound is accepted."""
    await fill(storage)
    before = await storage.counts("q")
    assert await refusal(storage, 4, "more") == (4, 4, 1)
    assert await storage.counts("q") == before == tally(queued=2, scheduled=1, retrying=1, running=1, completed=1)
    assert await storage.put([new("q", "more")], 5) == [QUEUED]
    assert await refusal(storage, 5, "most") == (5, 5, 1)


async def test_of_several_jobs_all_are_stored_or_none(storage: Storage) -> None:
    """The error has the number of jobs that wait, and of those that would be added."""
    await put1(storage, "q", "a")
    assert await refusal(storage, 3, "b", "c", "d") == (1, 3, 3)
    assert await storage.get("q", ["b", "c", "d"]) == [None] * 3
    assert await storage.put([new("q", "b"), new("q", "c")], 3) == [QUEUED] * 2


async def test_a_full_queue_that_is_new_is_not_created(storage: Storage) -> None:
    """A refused put leaves nothing behind."""
    assert await refusal(storage, 1, "a", "b") == (0, 1, 2)
    assert await storage.queues() == []


async def test_a_put_that_adds_no_waiting_job_is_not_refused(storage: Storage) -> None:
    """Duplicates, updates, kept results and blocked successors are answered in a full queue as in any other."""
    await fill(storage)
    puts = await storage.put(
        [new("q", "plain"), update("q", "later", delay=HOUR), new("q", "end"), new("q", "run"), update("q", "run")], 1
    )
    assert [put.status for put in puts] == ["duplicate", "updated", "completed", "duplicate", "blocked"]
    assert puts[2].result == b"r"
    assert await refusal(storage, 4, "plain", "more") == (4, 4, 1)


async def test_an_id_counts_once(storage: Storage) -> None:
    """Of two jobs with one id the first is new, and the second is a duplicate or an update of it."""
    jobs = [new("q", "a"), new("q", "a"), update("q", "a", b"new")]
    assert [put.status for put in await storage.put(jobs, 1)] == ["queued", "duplicate", "updated"]


async def test_a_job_that_replaces_a_finished_one_counts(storage: Storage, clock: Clock) -> None:
    """A failed job, a completed one that is updated, and one whose TTL is over are new jobs."""
    await storage.put([new("q", id) for id in ("failed", "done", "old")])
    failed, done, old = await claim_all(storage)
    await storage.settle([fail(failed), complete(done), complete(old, ttl=1)])
    await put1(storage, "q", "waits")
    clock.advance(ms=2)
    for job in (new("q", "failed"), update("q", "done"), new("q", "old")):
        with pytest.raises(QueueFull):
            await storage.put([job], 1)
    with pytest.raises(QueueFull):
        await storage.put([new("q", "done"), update("q", "done")], 1)
    assert await storage.put([new("q", "failed"), update("q", "done"), new("q", "old")], 4) == [QUEUED] * 3


async def test_expired_jobs_make_room(storage: Storage, clock: Clock) -> None:
    """A job whose start-by time has passed is cancelled before the jobs are counted."""
    await storage.put([new("q", "late", start_within=10)], 1)
    clock.advance(ms=11)
    assert await storage.put([new("q", "a")], 1) == [QUEUED]


async def test_jobs_that_come_back_are_never_refused(storage: Storage) -> None:
    """Retries, follow-ups and revived jobs enter a full queue."""
    await storage.put([new("q", "a"), new("q", "b")])
    a, b = await claim_all(storage)
    await storage.put([new("q", "c")], 1)
    await storage.settle([retried(a, delay=HOUR), fail(b, then=[new("q", "then")])])
    assert await storage.revive("q", ["b"]) == [True]
    assert await storage.counts("q") == tally(queued=3, retrying=1)
    assert await refusal(storage, 4, "more") == (4, 4, 1)


async def test_concurrent_puts_are_accepted_up_to_the_bound(storage: Storage) -> None:
    """Of 30 puts of new jobs at once, 10 are accepted, whatever their order."""
    puts = [storage.put([new("q", f"j{n}", fresh=n % 2 == 0)], 10) for n in range(30)]
    answers = await asyncio.gather(*puts, return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, list)] == [[QUEUED]] * 10
    assert sum(isinstance(answer, QueueFull) for answer in answers) == 20
    assert await storage.counts("q") == tally(queued=10)


async def test_bounded_and_other_puts_keep_their_order(storage: Storage) -> None:
    """Jobs run in the order of their acceptance, with and without a bound."""
    await storage.put([new("q", "a", fresh=True)], 10)
    await storage.put([new("q", "b", fresh=True)])
    await storage.put([new("q", "c", fresh=True), new("q", "d")], 10)
    assert ids(await claim_all(storage)) == ["a", "b", "c", "d"]


async def test_a_waiter_gets_the_result_of_a_bounded_put(storage: Storage) -> None:
    """A job put with a waiter and a TTL of 0 is kept for a minute; a refused put leaves no waiter."""
    await storage.put([new("q", "a", waiter="me")], 1)
    with pytest.raises(QueueFull):
        await storage.put([new("q", "b", waiter="me")], 1)
    await settle1(storage, complete(await claim1(storage), ttl=0))
    assert (await storage.get("q", ["a"]))[0] is not None
