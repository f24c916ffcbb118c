"""cancel: waiting or blocked → cancelled; a running job is treated by the mode of the call."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.job import State
from penstock.storage.base import CancelAnswer, CancelMode, Settled, Storage
from tests.support import (
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
    new,
    put1,
    release,
    retried,
    run_order,
    settle1,
    stall,
    state_of,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine

MODES = ("refuse", "forget", "signal", "kill")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delay", [None, HOUR])
async def test_cancel_of_a_queued_or_scheduled_job(storage: Storage, mode: CancelMode, delay: int | None) -> None:
    """A cancel of a queued or scheduled job cancels it at once in every mode, and it never runs (PJ-D11)."""
    await put1(storage, "q", "a", delay=delay)
    assert await storage.cancel("q", ["a"], mode) == [CancelAnswer("cancelled")]
    assert await claim_all(storage) == []
    assert await state_of(storage) is None


async def test_cancel_of_a_retrying_job(storage: Storage) -> None:
    """A cancel of a job in its backoff cancels it at once (QF-D6)."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    assert await storage.cancel("q", ["a"]) == [CancelAnswer("cancelled")]
    assert await storage.counts("q") == tally()


async def test_a_cancelled_job_is_kept_for_its_ttl(storage: Storage) -> None:
    """A cancel with a TTL keeps the job as cancelled, with its payload."""
    await put1(storage, "q", "a", b"p")
    await storage.cancel("q", ["a"], ttl=SECOND)
    job = await get1(storage)
    assert (job.state, job.payload, job.finished, job.expires) == (State.CANCELLED, b"p", T0, T0 + SECOND)
    assert (job.worker, job.result, job.error) == (None, None, None)


async def test_a_cancelled_job_may_be_kept_for_ever(storage: Storage, clock: Clock) -> None:
    """A cancel with a TTL of None keeps the job as cancelled for ever."""
    await put1(storage, "q", "a")
    await storage.cancel("q", ["a"], ttl=None)
    clock.advance(ms=1000 * HOUR)
    assert (await get1(storage)).expires is None


async def test_cancel_of_an_unknown_job_answers_not_found(storage: Storage) -> None:
    """A cancel of an unknown id answers not_found and creates no queue."""
    assert await storage.cancel("q", ["a", "b"]) == [CancelAnswer("not_found"), CancelAnswer("not_found")]
    assert await storage.queues() == []


@pytest.mark.parametrize("mode", MODES)
async def test_cancel_of_a_finished_job_changes_nothing(storage: Storage, mode: CancelMode) -> None:
    """A cancel of a completed, failed or cancelled job answers its state, with `already`, and changes nothing."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, c = await claim_all(storage)
    await storage.settle([complete(a), fail(b), cancel_run(c)])
    answers = await storage.cancel("q", ["a", "b", "c"], mode)
    already = CancelAnswer("cancelled", already=True)
    assert answers == [CancelAnswer("completed"), CancelAnswer("failed"), already]
    assert await storage.counts("q") == tally(completed=1, failed=1, cancelled=1)


async def test_cancel_of_an_expired_job_answers_not_found(storage: Storage, clock: Clock) -> None:
    """A cancel of a finished job after its TTL answers not_found, though it was not purged yet."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=1)
    assert await storage.cancel("q", ["a"]) == [CancelAnswer("not_found")]


async def test_cancel_refuse_leaves_a_running_job_alone(storage: Storage) -> None:
    """By default (mode refuse) a cancel of a running job changes nothing."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await storage.cancel("q", ["a"]) == [CancelAnswer("running", running=True)]
    assert (await get1(storage)).cancel is None
    assert await settle1(storage, retried(claim)) == Settled(State.QUEUED)


@pytest.mark.parametrize("mode", ["signal", "kill"])
async def test_cancel_of_a_running_job_by_signal_or_kill_requests_it(storage: Storage, mode: CancelMode) -> None:
    """Signal and kill mark the running job, which stays running until its run is settled."""
    await put1(storage, "q", "a")
    await claim1(storage)
    assert await storage.cancel("q", ["a"], mode) == [CancelAnswer("cancel_requested", running=True)]
    job = await get1(storage)
    assert (job.state, job.cancel) == (State.RUNNING, mode)


async def test_cancel_forget_makes_a_run_the_last_one(storage: Storage) -> None:
    """Forget answers running, and the job is cancelled when its run would be retried."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await storage.cancel("q", ["a"], "forget", HOUR) == [CancelAnswer("running", running=True)]
    assert (await get1(storage)).cancel == "forget"
    assert await settle1(storage, retried(claim)) == Settled(State.CANCELLED)


@pytest.mark.parametrize("mode", ["forget", "signal", "kill"])
@pytest.mark.parametrize("ending", [retried, fail, cancel_run, release, stall])
async def test_settle_of_a_run_with_a_cancel_request_cancels_it(
    storage: Storage, mode: CancelMode, ending: Any
) -> None:
    """A run with a cancel request is settled as cancelled by every resolution but complete (WQ-D10)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], mode, ttl=SECOND)
    assert await settle1(storage, ending(claim)) == Settled(State.CANCELLED)
    job = await get1(storage)
    assert (job.state, job.expires) == (State.CANCELLED, T0 + SECOND)
    assert await claim_all(storage) == []


@pytest.mark.parametrize("mode", ["forget", "signal", "kill"])
async def test_settle_complete_of_a_run_with_a_cancel_request_keeps_the_result(
    storage: Storage, mode: CancelMode
) -> None:
    """A run that completes in spite of a cancel request is completed, and its result is kept."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], mode)
    assert await settle1(storage, complete(claim, b"done")) == Settled(State.COMPLETED)
    assert (await get1(storage)).result == b"done"


async def test_a_cancelled_run_puts_no_fail_job(storage: Storage) -> None:
    """A failure that is recorded as cancelled puts no fail job."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], "kill")
    await settle1(storage, fail(claim, then=[new("q/failures", "f")]))
    assert await storage.queues() == []


async def test_a_repeated_settlement_of_a_cancelled_run_is_answered_as_before(storage: Storage) -> None:
    """A repeated settlement of a run that was cancelled is answered as cancelled again."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], "signal", ttl=HOUR)
    assert await storage.settle([retried(claim), retried(claim)]) == [Settled(State.CANCELLED)] * 2


@pytest.mark.parametrize(
    ("first", "then", "shown"),
    [
        ("kill", "signal", "kill"),
        ("forget", "kill", "kill"),
        ("signal", "forget", "signal"),
        ("kill", "refuse", "kill"),
    ],
)
async def test_a_weaker_cancel_request_does_not_replace_a_stronger_one(
    storage: Storage, first: CancelMode, then: CancelMode, shown: str
) -> None:
    """Of two cancel requests to one run the stronger mode stays."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.cancel("q", ["a"], first)
    await storage.cancel("q", ["a"], then)
    assert (await get1(storage)).cancel == shown


@pytest.mark.parametrize(
    ("first", "then", "already"),
    [
        ("signal", "signal", True),
        ("kill", "signal", True),
        ("kill", "kill", True),
        ("signal", "kill", False),
        ("forget", "signal", False),
    ],
)
async def test_a_cancel_request_after_the_same_or_a_stronger_one_answers_already(
    storage: Storage, first: CancelMode, then: CancelMode, already: bool
) -> None:
    """A second cancel request to a run answers `already` unless its mode is stronger than that of the first."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.cancel("q", ["a"], first)
    assert await storage.cancel("q", ["a"], then) == [CancelAnswer("cancel_requested", True, already)]


async def test_cancel_of_a_cancelled_job_answers_already_in_one_call_too(storage: Storage) -> None:
    """An id that is named twice in one cancel is cancelled once: the second answer is `already`."""
    await put1(storage, "q", "a")
    already = CancelAnswer("cancelled", already=True)
    assert await storage.cancel("q", ["a", "a"], ttl=HOUR) == [CancelAnswer("cancelled"), already]
    assert await storage.cancel("q", ["a"], ttl=HOUR) == [already]
    assert await storage.counts("q") == tally(cancelled=1)


async def test_the_last_cancel_request_sets_the_ttl(storage: Storage) -> None:
    """A second cancel request replaces the TTL of the first."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], "kill", ttl=HOUR)
    await storage.cancel("q", ["a"], "signal", ttl=SECOND)
    await settle1(storage, release(claim))
    assert (await get1(storage)).expires == T0 + SECOND


@pytest.mark.parametrize("mode", MODES)
async def test_cancel_of_a_running_job_with_a_successor_cancels_the_successor(
    storage: Storage, mode: CancelMode
) -> None:
    """With a successor behind a running job, cancel takes the successor, and the answer shows that the run goes on."""
    await put1(storage, "q", "a", b"old")
    claim = await claim1(storage)
    await storage.put([update("q", "a", b"new")])
    assert await storage.cancel("q", ["a"], mode) == [CancelAnswer("cancelled", running=True)]
    assert await find_all(storage, state=State.BLOCKED) == []
    assert await storage.counts("q") == tally(running=1)
    await settle1(storage, complete(claim))
    assert await claim_all(storage) == []


async def test_cancel_of_many_ids_answers_in_their_order(storage: Storage) -> None:
    """One cancel answers for each of its ids, in their order."""
    await storage.put([new("q", "a"), new("q", "b"), new("q", "c")])
    await claim1(storage)
    answers = await storage.cancel("q", ["c", "none", "a"])
    assert answers == [CancelAnswer("cancelled"), CancelAnswer("not_found"), CancelAnswer("running", running=True)]
    assert await run_order(storage) == ["b"]


async def test_cancel_leaves_the_same_id_in_other_queues_alone(storage: Storage) -> None:
    """A cancel in one queue leaves the same id in another alone (QF-D12)."""
    await storage.put([new("q", "a"), new("q/x", "a"), new("r", "a")])
    await storage.cancel("q", ["a"])
    assert [await state_of(storage, "a", queue) for queue in ("q/x", "r")] == [State.QUEUED] * 2


async def test_the_job_behind_a_cancelled_one_is_claimed_next(storage: Storage) -> None:
    """After a cancel of the first job the one behind it is the next."""
    await storage.put([new("q", id) for id in "abc"])
    await storage.cancel("q", ["a"])
    assert await run_order(storage) == ["b", "c"]
