"""reap: running with its lease over → queued at its place, stalls + 1."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.job import State
from penstock.storage.base import Reaped, Settled, Storage
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
    report_progress,
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
    """A run whose lease expired is queued, and the answer names it, its worker and the attempt (PJ-D4, PJ-D5)."""
    await put1(storage, "q", "a")
    await claim1(storage, worker="dead")
    clock.advance(ms=LEASE)
    assert await storage.reap(["q"]) == [Reaped("q", "a", State.QUEUED, "dead", 1)]
    job = await get1(storage)
    assert (job.state, job.worker, job.attempts, job.stalls, job.retries) == (State.QUEUED, None, 1, 1, 0)


async def test_a_stall_is_counted_every_time(storage: Storage, clock: Clock) -> None:
    """Each reap of a job counts one more stall (PJ-D6, WQ-D13)."""
    await put1(storage, "q", "a")
    for stalls in range(4):
        claim = await claim1(storage)
        assert (claim.attempts, claim.stalls) == (stalls + 1, stalls)
        clock.advance(ms=LEASE)
        assert len(await storage.reap(["q"])) == 1


async def test_a_reaped_job_keeps_its_position(storage: Storage, clock: Clock) -> None:
    """A reaped job is claimed next again (WQ-D3, QF-D1)."""
    await storage.put([new("q", id) for id in "zma"])
    await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await run_order(storage) == ["z", "m", "a"]


async def test_reap_takes_the_runs_of_the_dead_worker_only(storage: Storage, clock: Clock) -> None:
    """Only the expired runs are reaped; those of another worker go on (WQ-D1)."""
    await storage.put([new("q", "a"), new("q", "b")])
    await claim1(storage, worker="dead")
    alive = await claim1(storage, worker="alive", lease=2 * LEASE)
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]
    assert await state_of(storage, "b") == State.RUNNING
    assert (await settle1(storage, complete(alive))).lost is False


@pytest.mark.beyond_model
async def test_reap_does_not_depend_on_worker_heartbeats(storage: Storage, clock: Clock) -> None:
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
    """Two reaps at the same moment share the expired runs and count each stall once (PJ-D9)."""
    await storage.put([new("q", f"j{n}") for n in range(20)])
    await claim_all(storage)
    clock.advance(ms=LEASE)
    answers = await asyncio.gather(*(storage.reap(["q"]) for _ in range(4)))
    assert sorted(job.id for reaped in answers for job in reaped) == sorted(f"j{n}" for n in range(20))
    assert {job.stalls for job in await claim_all(storage)} == {1}


async def test_several_queues_are_reaped_at_once(storage: Storage, clock: Clock) -> None:
    """One reap takes queues of any family and no queue that is not named."""
    await storage.put([new("q", "a"), new("r", "b"), new("q/x", "c"), new("s", "d")])
    for queue in ("q", "r", "q/x", "s"):
        await claim1(storage, queue)
    clock.advance(ms=LEASE)
    reaped = await storage.reap(["q", "r", "q/x", "none"])
    assert {(job.queue, job.id) for job in reaped} == {("q", "a"), ("r", "b"), ("q/x", "c")}
    assert await state_of(storage, "d", "s") == State.RUNNING


async def test_a_reaped_run_that_was_asked_to_cancel_is_cancelled(storage: Storage, clock: Clock) -> None:
    """A reaped run with a cancel request is cancelled instead of queued (WQ-D10)."""
    await put1(storage, "q", "a")
    await claim1(storage, worker="dead")
    await storage.cancel("q", ["a"], running="signal", ttl=HOUR)
    clock.advance(ms=LEASE)
    assert await storage.reap(["q"]) == [Reaped("q", "a", State.CANCELLED, "dead", 1)]
    job = await get1(storage)
    assert (job.state, job.stalls) == (State.CANCELLED, 1)


async def test_a_reaped_run_cancelled_with_a_ttl_of_zero_leaves_nothing(storage: Storage, clock: Clock) -> None:
    """A run with a cancel request and a TTL of 0 is gone when it is reaped."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.cancel("q", ["a"], running="forget")
    clock.advance(ms=LEASE)
    assert [job.state for job in await storage.reap(["q"])] == [State.CANCELLED]
    assert await state_of(storage) is None


async def test_reaping_an_unknown_queue_gives_nothing(storage: Storage) -> None:
    """A reap of unknown queues answers an empty list and creates nothing."""
    assert await storage.reap(["q", "r"]) == []
    assert await storage.reap([]) == []
    assert await storage.queues() == []


async def test_a_paused_queue_is_reaped(storage: Storage, clock: Clock) -> None:
    """Expired runs of a paused queue are reaped."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.set_pause("q", True)
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_a_reaped_job_shows_no_progress(storage: Storage, clock: Clock) -> None:
    """A reaped job shows no progress."""
    await put1(storage, "q", "a")
    await report_progress(storage, held(await claim1(storage)), b"half")
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert (await get1(storage)).progress is None


async def test_a_reap_leaves_a_newer_run_alone(storage: Storage, clock: Clock) -> None:
    """After a job was claimed again, only the deadline of the new run counts."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    await claim1(storage)
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []


async def test_a_stale_settle_and_a_retry_leave_one_waiting_job(storage: Storage, clock: Clock) -> None:
    """After a reap, the stale settlement and the new run's retry leave one waiting job (QZ-D4, QZ-D5)."""
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
    """A reaped run with a successor is queued once, changed by the successor's flags."""
    await put1(storage, "q", "a", b"old")
    await claim1(storage)
    await storage.put([update("q", "a", b"new")])
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await storage.counts("q") == tally(queued=1)
    claim = await claim1(storage)
    assert (claim.payload, claim.attempts, claim.stalls) == (b"new", 1, 0)


async def test_a_retry_repeated_after_the_next_run_stalled_is_answered_again(storage: Storage, clock: Clock) -> None:
    """A settlement that arrives again after the next run was reaped gives its first answer and changes nothing."""
    await put1(storage, "q", "a")
    settlement = retried(await claim1(storage))
    await settle1(storage, settlement)
    clock.advance(seconds=60)
    await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    before = await get1(storage)
    assert await settle1(storage, settlement) == Settled(State.QUEUED)
    assert await get1(storage) == before
