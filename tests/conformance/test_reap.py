"""reap: running with its lease over → queued at its place, stalls + 1."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.job import State
from penstock.storage.base import Reaped, Storage
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    Clock,
    claim1,
    claim_all,
    complete,
    get1,
    held,
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


async def test_a_live_lease_is_left_alone(storage: Storage, clock: Clock) -> None:
    """A lease lasts to its last millisecond."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []
    assert await state_of(storage) == State.RUNNING


async def test_an_expired_run_is_queued_again(storage: Storage, clock: Clock) -> None:
    """A run whose lease is over goes back, and the answer names it, its worker and the attempt (PJ-D4, PJ-D5)."""
    await put1(storage, "q", "a")
    await claim1(storage, worker="dead")
    clock.advance(ms=LEASE)
    assert await storage.reap(["q"]) == [Reaped("q", "a", State.QUEUED, "dead", 1)]
    job = await get1(storage)
    assert (job.state, job.worker, job.attempts, job.stalls, job.retries) == (State.QUEUED, None, 1, 1, 0)


async def test_a_stall_is_counted_every_time(storage: Storage, clock: Clock) -> None:
    """A job that kills its worker again and again shows how often (PJ-D6, WQ-D13)."""
    await put1(storage, "q", "a")
    for stalls in range(4):
        claim = await claim1(storage)
        assert (claim.attempts, claim.stalls) == (stalls + 1, stalls)
        clock.advance(ms=LEASE)
        assert len(await storage.reap(["q"])) == 1


async def test_a_reaped_job_keeps_its_place(storage: Storage, clock: Clock) -> None:
    """A job taken back from a dead worker is the next one again (WQ-D3, QF-D1)."""
    await storage.put([new("q", id) for id in "zma"])
    await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await run_order(storage) == ["z", "m", "a"]


async def test_one_workers_death_is_nobody_elses(storage: Storage, clock: Clock) -> None:
    """Only the expired runs are taken; the others go on untouched (WQ-D1)."""
    await storage.put([new("q", "a"), new("q", "b")])
    await claim1(storage, worker="dead")
    alive = await claim1(storage, worker="alive", lease=2 * LEASE)
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]
    assert await state_of(storage, "b") == State.RUNNING
    assert (await settle1(storage, complete(alive))).lost is False


@pytest.mark.beyond_model
async def test_a_worker_needs_no_presence_to_be_reaped(storage: Storage, clock: Clock) -> None:
    """Recovery reads the leases and not the list of workers (PJ-D4, WQ-D15)."""
    await storage.beat("w", HOUR)
    await put1(storage, "q", "a")
    await claim1(storage, worker="w")
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


@pytest.mark.beyond_model
async def test_a_reap_is_bounded(storage: Storage, clock: Clock) -> None:
    """A reap takes at most its limit of a queue, and calling it again takes the rest (QZ-D18)."""
    await storage.put([new("q", f"j{n}") for n in range(25)])
    await claim_all(storage, limit=25)
    clock.advance(ms=LEASE)
    sizes = [len(await storage.reap(["q"], 10)) for _ in range(4)]
    assert sizes == [10, 10, 5, 0]
    assert await storage.counts("q") == tally(queued=25)


async def test_two_reapers_take_a_job_once(storage: Storage, clock: Clock) -> None:
    """Reapers at the same moment share the expired runs and count each stall once (PJ-D9)."""
    await storage.put([new("q", f"j{n}") for n in range(20)])
    await claim_all(storage)
    clock.advance(ms=LEASE)
    answers = await asyncio.gather(*(storage.reap(["q"]) for _ in range(4)))
    assert sorted(job.id for reaped in answers for job in reaped) == sorted(f"j{n}" for n in range(20))
    assert {job.stalls for job in await claim_all(storage)} == {1}


async def test_several_queues_are_reaped_at_once(storage: Storage, clock: Clock) -> None:
    """One reap sweeps queues of any family and no queue that is not named."""
    await storage.put([new("q", "a"), new("r", "b"), new("q/x", "c"), new("s", "d")])
    for queue in ("q", "r", "q/x", "s"):
        await claim1(storage, queue)
    clock.advance(ms=LEASE)
    reaped = await storage.reap(["q", "r", "q/x", "none"])
    assert {(job.queue, job.id) for job in reaped} == {("q", "a"), ("r", "b"), ("q/x", "c")}
    assert await state_of(storage, "d", "s") == State.RUNNING


async def test_a_reaped_run_that_was_asked_to_cancel_is_cancelled(storage: Storage, clock: Clock) -> None:
    """A run that was to end is not started again after its worker died (WQ-D10)."""
    await put1(storage, "q", "a")
    await claim1(storage, worker="dead")
    await storage.cancel("q", ["a"], running="signal", ttl=HOUR)
    clock.advance(ms=LEASE)
    assert await storage.reap(["q"]) == [Reaped("q", "a", State.CANCELLED, "dead", 1)]
    job = await get1(storage)
    assert (job.state, job.stalls) == (State.CANCELLED, 1)


async def test_a_reaped_forgotten_run_leaves_nothing(storage: Storage, clock: Clock) -> None:
    """A run that was cancelled with a TTL of 0 is gone when its lease is over."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.cancel("q", ["a"], running="forget")
    clock.advance(ms=LEASE)
    assert [job.state for job in await storage.reap(["q"])] == [State.CANCELLED]
    assert await state_of(storage) is None


async def test_reaping_an_unknown_queue_gives_nothing(storage: Storage) -> None:
    """A reap of queues that are not there takes nothing and creates nothing."""
    assert await storage.reap(["q", "r"]) == []
    assert await storage.reap([]) == []
    assert await storage.queues() == []


async def test_a_paused_queue_is_reaped(storage: Storage, clock: Clock) -> None:
    """Pausing stops the handing out, not the recovery."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.set_paused("q", True)
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_progress_ends_with_the_run(storage: Storage, clock: Clock) -> None:
    """A job taken back shows no progress."""
    await put1(storage, "q", "a")
    await storage.report(held(await claim1(storage)), b"half")
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert (await get1(storage)).progress is None


async def test_a_reap_after_a_new_owner_does_nothing(storage: Storage, clock: Clock) -> None:
    """The deadline that counts is that of the run there is now."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    await claim1(storage)
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []


async def test_a_stalled_job_then_failing_is_lost_nowhere(storage: Storage, clock: Clock) -> None:
    """After a takeover, the stale worker's end and the new worker's retry leave one waiting job (QZ-D4, QZ-D5)."""
    await put1(storage, "q", "a")
    stale = await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    fresh = await claim1(storage)
    await settle1(storage, complete(stale))
    await settle1(storage, retried(fresh, delay=SECOND))
    assert await storage.counts("q") == tally(retrying=1)
    clock.advance(seconds=1)
    assert (await claim1(storage)).attempts == 3


async def test_a_reap_folds_the_successor_in(storage: Storage, clock: Clock) -> None:
    """A lost run with a successor comes back once, as the successor asked."""
    await put1(storage, "q", "a", b"old")
    await claim1(storage)
    await storage.put([update("q", "a", b"new")])
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await storage.counts("q") == tally(queued=1)
    claim = await claim1(storage)
    assert (claim.payload, claim.attempts, claim.stalls) == (b"new", 1, 0)
