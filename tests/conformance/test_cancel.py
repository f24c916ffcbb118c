"""cancel: waiting or blocked → cancelled; a running job is treated as asked."""

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
    cancel_end,
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

MODES = ("refuse", "forget", "signal", "kill")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delay", [None, HOUR])
async def test_a_waiting_job_is_cancelled(storage: Storage, mode: CancelMode, delay: int | None) -> None:
    """A queued or scheduled job is cancelled at once, whatever the mode, and never runs (PJ-D11)."""
    await put1(storage, "q", "a", delay=delay)
    assert await storage.cancel("q", ["a"], mode) == [CancelAnswer("cancelled")]
    assert await claim_all(storage) == []
    assert await state_of(storage) is None


async def test_a_retrying_job_is_cancelled(storage: Storage) -> None:
    """A job in its backoff is cancelled at once (QF-D6)."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    assert await storage.cancel("q", ["a"]) == [CancelAnswer("cancelled")]
    assert await storage.counts("q") == tally()


async def test_a_cancelled_job_is_kept_for_its_ttl(storage: Storage) -> None:
    """A cancel with a TTL leaves a record of it."""
    await put1(storage, "q", "a", b"p")
    await storage.cancel("q", ["a"], ttl=SECOND)
    job = await get1(storage)
    assert (job.state, job.payload, job.finished, job.expires) == (State.CANCELLED, b"p", T0, T0 + SECOND)
    assert (job.worker, job.result, job.error) == (None, None, None)


async def test_a_cancelled_job_may_be_kept_for_ever(storage: Storage, clock: Clock) -> None:
    """A cancel with a TTL of None leaves a record that stays."""
    await put1(storage, "q", "a")
    await storage.cancel("q", ["a"], ttl=None)
    clock.advance(ms=1000 * HOUR)
    assert (await get1(storage)).expires is None


async def test_an_unknown_job_is_not_found(storage: Storage) -> None:
    """A cancel of what is not there says so and creates nothing."""
    assert await storage.cancel("q", ["a", "b"]) == [CancelAnswer("not_found"), CancelAnswer("not_found")]
    assert await storage.queues() == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_finished_job_stays_as_it_ended(storage: Storage, mode: CancelMode) -> None:
    """A cancel of a finished job answers with its end and changes nothing."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, c = await claim_all(storage)
    await storage.settle([complete(a), fail(b), cancel_end(c)])
    answers = await storage.cancel("q", ["a", "b", "c"], mode)
    assert answers == [CancelAnswer("completed"), CancelAnswer("failed"), CancelAnswer("cancelled")]
    assert await storage.counts("q") == tally(completed=1, failed=1, cancelled=1)


async def test_a_forgotten_job_is_not_found(storage: Storage, clock: Clock) -> None:
    """A finished job whose TTL is over is not found, though nothing has swept it yet."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=1)
    assert await storage.cancel("q", ["a"]) == [CancelAnswer("not_found")]


async def test_refuse_leaves_a_run_alone(storage: Storage) -> None:
    """By default a running job is not touched."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await storage.cancel("q", ["a"]) == [CancelAnswer("running", running=True)]
    assert (await get1(storage)).cancel is None
    assert await settle1(storage, retried(claim)) == Settled(State.QUEUED)


@pytest.mark.parametrize("mode", ["signal", "kill"])
async def test_a_run_is_asked_to_end(storage: Storage, mode: CancelMode) -> None:
    """Signal and kill mark the run, which goes on until it ends itself."""
    await put1(storage, "q", "a")
    await claim1(storage)
    assert await storage.cancel("q", ["a"], mode) == [CancelAnswer("cancel_requested", running=True)]
    job = await get1(storage)
    assert (job.state, job.cancel) == (State.RUNNING, mode)


async def test_forget_makes_a_run_its_last(storage: Storage) -> None:
    """Forget lets a run go on and answers running."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await storage.cancel("q", ["a"], "forget", HOUR) == [CancelAnswer("running", running=True)]
    assert (await get1(storage)).cancel == "forget"
    assert await settle1(storage, retried(claim)) == Settled(State.CANCELLED)


@pytest.mark.parametrize("mode", ["forget", "signal", "kill"])
@pytest.mark.parametrize("ending", [retried, fail, cancel_end, release, stall])
async def test_a_run_that_was_asked_to_end_does_not_come_back(storage: Storage, mode: CancelMode, ending: Any) -> None:
    """However such a run ends, short of completing, it is cancelled for good (WQ-D10)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], mode, ttl=SECOND)
    assert await settle1(storage, ending(claim)) == Settled(State.CANCELLED)
    job = await get1(storage)
    assert (job.state, job.expires) == (State.CANCELLED, T0 + SECOND)
    assert await claim_all(storage) == []


@pytest.mark.parametrize("mode", ["forget", "signal", "kill"])
async def test_a_run_that_completes_after_all_is_completed(storage: Storage, mode: CancelMode) -> None:
    """A result that came in spite of the request is kept."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], mode)
    assert await settle1(storage, complete(claim, b"done")) == Settled(State.COMPLETED)
    assert (await get1(storage)).result == b"done"


async def test_a_cancelled_run_puts_no_fail_job(storage: Storage) -> None:
    """A failure that ends as cancelled has no fail job."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], "kill")
    await settle1(storage, fail(claim, then=[new("q/failures", "f")]))
    assert await storage.queues() == []


async def test_a_repeated_settlement_of_a_cancelled_run_is_answered_as_before(storage: Storage) -> None:
    """A retry that ended as cancelled is answered so the second time too."""
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
async def test_a_weaker_request_does_not_undo_a_stronger(
    storage: Storage, first: CancelMode, then: CancelMode, shown: str
) -> None:
    """Of two requests the stronger one stands."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.cancel("q", ["a"], first)
    await storage.cancel("q", ["a"], then)
    assert (await get1(storage)).cancel == shown


async def test_the_last_request_decides_how_long_it_is_kept(storage: Storage) -> None:
    """A second request replaces the TTL of the first."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], "kill", ttl=HOUR)
    await storage.cancel("q", ["a"], "signal", ttl=SECOND)
    await settle1(storage, release(claim))
    assert (await get1(storage)).expires == T0 + SECOND


@pytest.mark.parametrize("mode", MODES)
async def test_the_successor_goes_and_the_run_goes_on(storage: Storage, mode: CancelMode) -> None:
    """With a successor behind a run, the successor is cancelled and the answer says that a run goes on."""
    await put1(storage, "q", "a", b"old")
    claim = await claim1(storage)
    await storage.put([update("q", "a", b"new")])
    assert await storage.cancel("q", ["a"], mode) == [CancelAnswer("cancelled", running=True)]
    assert await find_all(storage, state=State.BLOCKED) == []
    assert await storage.counts("q") == tally(running=1)
    await settle1(storage, complete(claim))
    assert await claim_all(storage) == []


async def test_many_are_cancelled_in_one_call(storage: Storage) -> None:
    """One cancel answers for each of its ids, in their order."""
    await storage.put([new("q", "a"), new("q", "b"), new("q", "c")])
    await claim1(storage)
    answers = await storage.cancel("q", ["c", "none", "a"])
    assert answers == [CancelAnswer("cancelled"), CancelAnswer("not_found"), CancelAnswer("running", running=True)]
    assert await run_order(storage) == ["b"]


async def test_cancelling_an_id_spares_its_namesakes(storage: Storage) -> None:
    """A cancel in one queue leaves the same id in another alone (QF-D12)."""
    await storage.put([new("q", "a"), new("q/x", "a"), new("r", "a")])
    await storage.cancel("q", ["a"])
    assert [await state_of(storage, "a", queue) for queue in ("q/x", "r")] == [State.QUEUED] * 2


async def test_a_cancelled_head_frees_its_place(storage: Storage) -> None:
    """The job behind a cancelled one is the next."""
    await storage.put([new("q", id) for id in "abc"])
    await storage.cancel("q", ["a"])
    assert await run_order(storage) == ["b", "c"]
