"""discard: waiting, blocked or finished → gone; a running job is refused."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.job import State
from penstock.storage.base import PutStatus, Storage
from tests.conformance.test_events import EventScenario, listening
from tests.support import (
    HOUR,
    LOST,
    MINUTE,
    Backend,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    get1,
    ids,
    new,
    put1,
    retried,
    run_order,
    settle1,
    state_of,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine


async def one_in_each_state(storage: Storage) -> None:
    """Put a job into each state but `blocked`; its id is the name of the state."""
    names = ("completed", "failed", "retrying", "running")
    await storage.put([new("q", name) for name in names])
    completed, failed, retrying, _ = await claim_all(storage, lease=HOUR)
    await storage.settle([complete(completed), fail(failed), retried(retrying, delay=HOUR)])
    await storage.put([new("q", "queued"), new("q", "scheduled", delay=HOUR), new("q", "cancelled")])
    await storage.cancel("q", ["cancelled"], ttl=HOUR)


async def test_a_job_in_any_state_but_running_is_gone(storage: Storage) -> None:
    """Unfinished and finished jobs have different answers; a running job and an unknown id are left alone."""
    await one_in_each_state(storage)
    names = ["queued", "scheduled", "retrying", "completed", "failed", "cancelled", "running", "unknown"]
    answers = await storage.discard("q", names)
    assert answers == [*["cancelled"] * 3, *["discarded"] * 3, "running", "not_found"]
    assert await storage.counts("q") == tally(running=1)
    assert ids((await storage.find("q")).jobs) == ["running"]
    assert await storage.discard("q", ["queued", "completed"]) == ["not_found", "not_found"]


async def test_an_unknown_queue_has_nothing_to_discard(storage: Storage) -> None:
    """A discard in a queue that does not exist answers not_found, and creates no queue."""
    assert await storage.discard("q", ["a"]) == ["not_found"]
    assert await storage.queues() == []


async def test_the_successor_of_a_running_job_is_discarded_and_the_run_goes_on(storage: Storage) -> None:
    """The first discard takes the successor, the next one is refused, and the run ends as usual."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.put([update("q", "a")])
    assert await storage.discard("q", ["a"]) == ["cancelled"]
    assert await storage.discard("q", ["a"]) == ["running"]
    assert await storage.counts("q") == tally(running=1)
    await settle1(storage, complete(claim))
    assert await storage.counts("q") == tally(completed=1)


async def test_the_id_of_a_discarded_job_is_free(storage: Storage) -> None:
    """Also that of a completed job, whose result was kept."""
    await put1(storage, "q", "a", b"old")
    await settle1(storage, complete(await claim1(storage), ttl=None))
    assert await storage.discard("q", ["a"]) == ["discarded"]
    assert (await put1(storage, "q", "a", b"new")).status is PutStatus.QUEUED
    assert (await claim1(storage)).payload == b"new"


async def test_a_settlement_of_a_discarded_job_is_lost(storage: Storage, clock: Clock) -> None:
    """A run that lost its lease, and whose job was discarded meanwhile, cannot settle it."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    clock.advance(ms=HOUR)
    await storage.reap(["q"])
    assert await storage.discard("q", ["a"]) == ["cancelled"]
    assert await settle1(storage, complete(claim)) == LOST


async def test_discarding_the_head_of_a_group_gives_the_turn_to_the_next_job(storage: Storage) -> None:
    """The group goes on in its order; a group without jobs has no turn."""
    await storage.put([new("q", id, group="g") for id in "abc"] + [new("q", "h", group="h")])
    assert await storage.discard("q", ["a", "h"]) == ["cancelled", "cancelled"]
    assert await run_order(storage) == ["b", "c"]


async def test_discarding_a_head_in_backoff_frees_its_group(storage: Storage) -> None:
    """A retrying head holds its group until it is discarded."""
    await storage.put([new("q", id, group="g") for id in "ab"])
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    assert await claim_all(storage) == []
    assert await storage.discard("q", ["a"]) == ["cancelled"]
    assert ids(await claim_all(storage)) == ["b"]


async def test_discard_with_a_state_keeps_jobs_in_other_states(storage: Storage) -> None:
    """A job that has left the state since it was listed is kept."""
    await one_in_each_state(storage)
    names = ["queued", "scheduled", "retrying", "completed", "failed", "cancelled", "running"]
    answers = await storage.discard("q", names, State.FAILED)
    assert dict(zip(names, answers, strict=True)) == {
        **dict.fromkeys(names, "kept"), "failed": "discarded", "running": "running",
    }  # fmt: skip
    await put1(storage, "q", "failed")
    assert await storage.discard("q", ["failed"], State.FAILED) == ["kept"]
    assert await state_of(storage, "failed") is State.QUEUED


async def test_discard_with_the_state_blocked_takes_the_successor(storage: Storage) -> None:
    """Other states do not fit a successor."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.put([update("q", "a")])
    assert await storage.discard("q", ["a"], State.QUEUED) == ["kept"]
    assert await storage.discard("q", ["a"], State.BLOCKED) == ["cancelled"]


async def test_discard_with_a_time_keeps_younger_jobs(storage: Storage, clock: Clock) -> None:
    """A finished job is as old as its end, an unfinished one as its acceptance; equal times are old enough."""
    await storage.put([new("q", id) for id in "abc"])
    start = clock.ms
    a, b = await claim_all(storage, limit=2, lease=HOUR)
    await settle1(storage, complete(a))
    clock.advance(ms=MINUTE)
    await settle1(storage, complete(b))
    await put1(storage, "q", "d")
    assert await storage.discard("q", list("abcd"), None, start - 1) == ["kept"] * 4
    assert await storage.discard("q", list("abcd"), None, start) == ["discarded", "kept", "cancelled", "kept"]


async def test_an_expired_job_is_discarded_as_a_finished_one(storage: Storage, clock: Clock) -> None:
    """A job whose start-by time has passed is cancelled before the discard finds it."""
    await put1(storage, "q", "a", start_within=MINUTE)
    clock.advance(ms=MINUTE)
    assert await storage.discard("q", ["a"]) == ["discarded"]


async def test_a_finished_job_whose_ttl_is_over_is_not_found(storage: Storage, clock: Clock) -> None:
    """As for every other verb, purged or not."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=MINUTE))
    clock.advance(ms=MINUTE)
    assert await storage.discard("q", ["a"]) == ["not_found"]


@pytest.mark.beyond_model
async def test_unfinished_jobs_emit_cancelled_and_finished_ones_nothing(storage: Storage, clock: Clock) -> None:
    """Each job has one terminal event: `cancelled` for a discarded one unless it had ended before."""
    async with listening(storage) as delivered:
        scenario = EventScenario(storage, clock, delivered)
        await scenario.do("put", [new("q", "a"), new("q", "b"), new("q", "c")])
        await scenario.do("settle", [complete(await scenario.claim())])
        await scenario.claim()
        await scenario.do("put", [update("q", "b")])
        await scenario.expect("enqueued", "enqueued", "enqueued", "started", "completed", "started", "enqueued")
        await scenario.do("discard", "q", ["a", "b", "c"])
        await scenario.expect("cancelled", "cancelled")


@pytest.mark.beyond_model
async def test_the_waiter_of_a_discarded_job_is_notified_and_reads_cancelled(storage: Storage) -> None:
    """The job stays as cancelled for its waiter, as after a cancel with a TTL of 0, and its id is free."""
    await put1(storage, "q", "a", waiter="waiter")
    waiting = asyncio.create_task(storage.wait_done("q", "a", 30))
    await asyncio.sleep(0)
    assert await storage.discard("q", ["a"]) == ["cancelled"]
    assert await asyncio.wait_for(waiting, 10)
    assert (await get1(storage)).state is State.CANCELLED
    assert (await put1(storage, "q", "a")).status is PutStatus.QUEUED


@pytest.mark.beyond_model
async def test_nothing_is_left_of_discarded_jobs(storage: Storage, backend: Backend) -> None:
    """After everything was discarded and purged no record is left (invariants 1 and 9)."""
    jobs = [new("q", f"j{n}", group=f"g{n % 3}" if n % 2 else None, delay=n % 4, start_within=HOUR) for n in range(40)]
    await storage.put(jobs)
    answers = await storage.discard("q", [job.id for job in jobs])
    assert answers == ["cancelled"] * 40
    assert await storage.counts("q") == tally()
    await storage.purge(["q"])
    assert backend.leftovers() == []
