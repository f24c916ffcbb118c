"""settle: running → completed / retrying / failed / cancelled / queued; fenced by the token."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.job import Claim, Snapshot, State
from penstock.storage.base import Cancel, Fail, Settled, Settlement, Storage
from tests.support import (
    DAY,
    HOUR,
    LEASE,
    LOST,
    MINUTE,
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
    release,
    retried,
    run_order,
    settle1,
    settlement,
    stall,
    state_of,
    tally,
    update,
)

Ending = Callable[[Claim], Settlement]

ENDS: dict[str, Ending] = {
    "complete": complete,
    "retried": lambda claim: retried(claim, delay=SECOND),
    "retried now": retried,
    "fail": fail,
    "cancel": cancel_run,
    "release": release,
    "stall": stall,
}


def every_resolution(function: Callable[..., object]) -> object:
    return pytest.mark.parametrize("ending", ENDS.values(), ids=ENDS.keys())(function)


async def test_complete_keeps_the_result(storage: Storage, clock: Clock) -> None:
    """running → completed keeps the result, the worker, the time and the expiry."""
    await put1(storage, "q", "a", b"p")
    claim = await claim1(storage, worker="alice")
    clock.advance(seconds=2)
    assert await settle1(storage, complete(claim, b"result", ttl=HOUR)) == Settled(State.COMPLETED)
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.COMPLETED, payload=b"p", created=T0, run_at=T0, attempts=1, worker="alice",
        started=T0, result=b"result", finished=T0 + 2 * SECOND, expires=T0 + 2 * SECOND + HOUR,
    )  # fmt: skip


async def test_complete_with_a_ttl_of_none_keeps_the_result_for_ever(storage: Storage, clock: Clock) -> None:
    """A TTL of None keeps a result until it is deleted."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=None))
    clock.advance(ms=3650 * DAY)
    assert await storage.purge(["q"]) == 0
    job = await get1(storage)
    assert (job.result, job.expires) == (b"r", None)


async def test_complete_with_a_ttl_of_zero_keeps_nothing(storage: Storage) -> None:
    """A TTL of 0 leaves no record of a completed job."""
    await put1(storage, "q", "a")
    assert await settle1(storage, complete(await claim1(storage), ttl=0)) == Settled(State.COMPLETED)
    assert await state_of(storage) is None
    assert await storage.counts("q") == tally()
    assert await storage.queues() == []


async def test_retried_waits_for_its_delay(storage: Storage) -> None:
    """running → retrying counts the retry, keeps the error and sets the due time."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await settle1(storage, retried(claim, delay=5 * SECOND, error=b"boom")) == Settled(State.RETRYING)
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.RETRYING, payload=b"x", created=T0, run_at=T0 + 5 * SECOND, attempts=1,
        retries=1, error=b"boom",
    )  # fmt: skip


async def test_retried_at_a_given_time(storage: Storage) -> None:
    """A retry may name its time."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), at=T0 + DAY))
    assert (await get1(storage)).run_at == T0 + DAY


@pytest.mark.parametrize("at", [T0, T0 - HOUR, 0])
async def test_retried_at_a_past_time_is_queued(storage: Storage, at: int) -> None:
    """A retry at a time in the past is queued at once."""
    await put1(storage, "q", "a")
    assert await settle1(storage, retried(await claim1(storage), at=at)) == Settled(State.QUEUED)
    assert ids(await claim_all(storage)) == ["a"]


@pytest.mark.parametrize(("count", "retries", "timeouts"), [("retries", 1, 0), ("timeouts", 0, 1), (None, 0, 0)])
async def test_retried_increments_the_named_counter(
    storage: Storage, count: str | None, retries: int, timeouts: int
) -> None:
    """A retry increments the counter it names and no other."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), count=count))
    job = await get1(storage)
    assert (job.attempts, job.retries, job.timeouts, job.stalls) == (1, retries, timeouts, 0)


async def test_fail_keeps_the_error(storage: Storage) -> None:
    """running → failed keeps the error, the worker and the expiry (QZ-D16)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage, worker="alice")
    assert await settle1(storage, fail(claim, b"boom", ttl=7 * DAY)) == Settled(State.FAILED)
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.FAILED, payload=b"x", created=T0, run_at=T0, attempts=1, worker="alice",
            started=T0,
        error=b"boom", finished=T0, expires=T0 + 7 * DAY,
    )  # fmt: skip


async def test_fail_counts_a_timeout(storage: Storage) -> None:
    """A run that failed by its timeout is counted as one."""
    await put1(storage, "q", "a")
    await settle1(storage, fail(await claim1(storage), count="timeouts"))
    assert (await get1(storage)).timeouts == 1


async def test_settle_cancel_keeps_the_job_for_its_ttl(storage: Storage) -> None:
    """running → cancelled keeps the job for its TTL."""
    await put1(storage, "q", "a")
    assert await settle1(storage, cancel_run(await claim1(storage), ttl=SECOND)) == Settled(State.CANCELLED)
    job = await get1(storage)
    assert (job.state, job.expires) == (State.CANCELLED, T0 + SECOND)


@pytest.mark.parametrize("requested", [False, True])
@pytest.mark.parametrize("ending", [Fail(b"e", HOUR, ran=False), Cancel(HOUR, ran=False)])
async def test_a_claim_that_called_no_handler_is_no_attempt(
    storage: Storage, ending: Fail | Cancel, requested: bool
) -> None:
    """A run that failed or was cancelled before its handler was called is not counted, with a cancel request too."""
    await put1(storage, "q", "a")
    await settle1(storage, stall(await claim1(storage)))
    claim = await claim1(storage)
    if requested:
        await storage.cancel("q", ["a"], "signal", HOUR)
    for _ in range(2):
        answer = await settle1(storage, settlement(claim, ending))
        assert answer.state == ("cancelled" if requested or isinstance(ending, Cancel) else "failed")
        assert (await get1(storage)).attempts == 1


async def test_release_refunds_the_attempt(storage: Storage) -> None:
    """running → queued by release leaves the counts as they were before the run (PJ-D1)."""
    await put1(storage, "q", "a")
    assert await settle1(storage, release(await claim1(storage))) == Settled(State.QUEUED)
    job = await get1(storage)
    assert (job.attempts, job.retries, job.stalls, job.worker) == (0, 0, 0, None)
    assert (await claim1(storage)).attempts == 1


async def test_release_keeps_the_position(storage: Storage) -> None:
    """A released job is claimed next again (WQ-D3)."""
    await storage.put([new("q", id) for id in "zma"])
    await settle1(storage, release(await claim1(storage)))
    assert await run_order(storage) == ["z", "m", "a"]


async def test_stall_counts_and_keeps_the_position(storage: Storage) -> None:
    """running → queued by a stall counts it and keeps the position (PJ-D6)."""
    await storage.put([new("q", id) for id in "zma"])
    assert await settle1(storage, stall(await claim1(storage))) == Settled(State.QUEUED)
    job = await get1(storage, "z")
    assert (job.attempts, job.stalls) == (1, 1)
    assert await run_order(storage) == ["z", "m", "a"]


async def test_settle_answers_in_the_order_of_the_settlements(storage: Storage) -> None:
    """The answers of a settle come in the order of its settlements, over queues and families."""
    await storage.put([new("q", "a"), new("r", "b"), new("q/x", "c"), new("q", "d"), new("r", "e")])
    a, d = await claim_all(storage, "q")
    b, e = await claim_all(storage, "r")
    [c] = await claim_all(storage, "q/x")
    answers = await storage.settle([fail(b), complete(a), release(c), retried(e, delay=1), cancel_run(d), complete(a)])
    assert answers == [
        Settled(State.FAILED),
        Settled(State.COMPLETED),
        Settled(State.QUEUED),
        Settled(State.RETRYING),
        Settled(State.CANCELLED),
        Settled(State.COMPLETED),
    ]


async def test_an_empty_settle_changes_nothing(storage: Storage) -> None:
    """A settle without settlements answers an empty list and changes nothing."""
    assert await storage.settle([]) == []


# the fence ---------------------------------------------------------------------------------------


@every_resolution
async def test_settle_with_a_wrong_token_changes_nothing(storage: Storage, ending: Ending) -> None:
    """A settlement with a token that is not the run's answers lost and changes nothing (QZ-D3)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    before = await get1(storage)
    forged = Claim(queue="q", id="a", token="forged", payload=b"")
    assert await settle1(storage, ending(forged)) == LOST
    assert await get1(storage) == before
    assert await settle1(storage, complete(claim)) == Settled(State.COMPLETED)


async def test_completions_beside_a_lost_one_are_counted_once_and_in_order(storage: Storage) -> None:
    """A lost and a repeated settlement among completions change neither their counts nor their order."""
    for id in "abcd":
        await put1(storage, "q", id)
    a, b, c, d = await claim_all(storage)
    forged = Claim(queue="q", id="b", token="forged", payload=b"")
    answers = await storage.settle([complete(d), complete(forged), complete(a), complete(a), complete(c)])
    assert [answer.lost for answer in answers] == [False, True, False, False, False]
    counts = await storage.counts("q")
    assert (counts[State.RUNNING], counts[State.COMPLETED]) == (1, 3)
    assert ids(await find_all(storage, "q", State.COMPLETED)) == ["d", "a", "c"]
    assert await settle1(storage, complete(b)) == Settled(State.COMPLETED)
    assert ids(await find_all(storage, "q", State.COMPLETED)) == ["d", "a", "c", "b"]


@every_resolution
async def test_settle_with_a_stale_token_does_not_end_the_new_run(
    storage: Storage, clock: Clock, ending: Ending
) -> None:
    """A settlement of a reaped run answers lost, and the new run goes on (QZ-D3, QF-D2, PJ-D8, WQ-D8)."""
    await put1(storage, "q", "a")
    stale = await claim1(storage, worker="stale")
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    fresh = await claim1(storage, worker="fresh")
    assert await settle1(storage, ending(stale)) == LOST
    job = await get1(storage)
    assert (job.state, job.worker, job.attempts, job.stalls) == (State.RUNNING, "fresh", 2, 1)
    assert await settle1(storage, complete(fresh, b"fresh")) == Settled(State.COMPLETED)


@every_resolution
async def test_settle_with_a_stale_token_does_not_change_the_result(
    storage: Storage, clock: Clock, ending: Ending
) -> None:
    """The stored result is that of the run that held the job (PJ-D8)."""
    await put1(storage, "q", "a")
    stale = await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    await settle1(storage, complete(await claim1(storage), b"fresh"))
    before = await get1(storage)
    assert await settle1(storage, ending(stale)) == LOST
    assert await get1(storage) == before


@every_resolution
async def test_settle_with_a_stale_token_does_not_end_the_queued_job(
    storage: Storage, clock: Clock, ending: Ending
) -> None:
    """A reaped job that is queued again is not changed by a settlement of its old run."""
    await put1(storage, "q", "a")
    stale = await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await settle1(storage, ending(stale)) == LOST
    assert await storage.counts("q") == tally(queued=1)


@every_resolution
async def test_settle_of_an_unknown_job_answers_lost(storage: Storage, ending: Ending) -> None:
    """A settlement of an unknown job or queue answers lost and creates nothing."""
    assert await settle1(storage, ending(Claim(queue="q", id="a", token="t", payload=b""))) == LOST
    await put1(storage, "q", "b")
    assert await settle1(storage, ending(Claim(queue="q", id="a", token="t", payload=b""))) == LOST
    assert await storage.counts("q") == tally(queued=1)


@every_resolution
async def test_settle_in_a_deleted_queue_answers_lost(storage: Storage, ending: Ending) -> None:
    """A settlement in a deleted queue answers lost and creates nothing (WQ-D10)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.delete_queue("q")
    assert await settle1(storage, ending(claim)) == LOST
    assert await storage.queues() == []


async def test_settle_after_the_lease_and_before_the_reap_is_accepted(storage: Storage, clock: Clock) -> None:
    """A run that is settled after its lease but before a reap is accepted."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    clock.advance(ms=LEASE + HOUR)
    assert await settle1(storage, complete(claim)) == Settled(State.COMPLETED)
    assert await storage.reap(["q"]) == []


# twice -------------------------------------------------------------------------------------------


@every_resolution
async def test_a_repeated_settlement_is_applied_once(storage: Storage, ending: Ending) -> None:
    """A settlement sent twice gives the same answer twice and is applied once (PJ-D16)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    first = await settle1(storage, ending(claim))
    after = await get1(storage)
    assert await settle1(storage, ending(claim)) == first
    assert await get1(storage) == after


@every_resolution
async def test_a_settlement_repeated_in_one_call_is_applied_once(storage: Storage, ending: Ending) -> None:
    """A settlement repeated within one call is applied once."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    first, second = await storage.settle([ending(claim), ending(claim)])
    assert first == second
    assert sum((await storage.counts("q")).values()) == 1


async def test_a_second_resolution_of_a_finished_run_answers_lost(storage: Storage) -> None:
    """After a run was settled, a different resolution answers lost."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, complete(claim))
    for other in (retried(claim), fail(claim), cancel_run(claim), release(claim), stall(claim)):
        assert await settle1(storage, other) == LOST
    assert await state_of(storage) == State.COMPLETED


async def test_a_second_resolution_of_a_retried_run_answers_lost(storage: Storage) -> None:
    """After a run was retried, complete and release answer lost."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, retried(claim, delay=SECOND))
    for other in (complete(claim), fail(claim), release(claim), stall(claim)):
        assert await settle1(storage, other) == LOST
    assert (await get1(storage)).retries == 1


@pytest.mark.parametrize("ending", [complete, fail, cancel_run])
async def test_a_settlement_with_a_ttl_of_zero_is_remembered_for_a_minute(
    storage: Storage, clock: Clock, ending: Callable[..., Settlement]
) -> None:
    """A settlement whose job was not kept is answered the same for a minute, and then as lost."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    first = await settle1(storage, ending(claim, ttl=0))
    clock.advance(ms=MINUTE - 1)
    assert await settle1(storage, ending(claim, ttl=0)) == first
    clock.advance(ms=1)
    assert await settle1(storage, ending(claim, ttl=0)) == LOST


async def test_a_repeated_settlement_of_an_expired_result_answers_lost(storage: Storage, clock: Clock) -> None:
    """A settlement repeated after its job's TTL answers lost."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, complete(claim, ttl=SECOND))
    clock.advance(seconds=1)
    assert await settle1(storage, complete(claim, ttl=SECOND)) == LOST


async def test_a_remembered_settlement_does_not_take_the_id(storage: Storage) -> None:
    """While a settlement with a TTL of 0 is remembered, a put of the id starts a new job."""
    await put1(storage, "q", "a", b"1")
    first = await claim1(storage)
    await settle1(storage, complete(first, ttl=0))
    await put1(storage, "q", "a", b"2")
    assert await settle1(storage, complete(first, ttl=0)) == Settled(State.COMPLETED)
    assert (await claim1(storage)).payload == b"2"


PAIRS = [
    (ENDS[first], second)
    for first in ("complete", "retried", "retried now", "fail", "release", "stall")
    for second in (complete, fail, release, retried)
    if ENDS[first] is not second and not (first.startswith("retried") and second is retried)
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_of_two_resolutions_in_one_call_the_first_counts(storage: Storage, first: Ending, second: Ending) -> None:
    """Of two different resolutions of one run in one call the first is recorded and the second is lost."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    answers = await storage.settle([first(claim), second(claim)])
    assert (answers[0].lost, answers[1]) == (False, LOST)
    [job] = await find_all(storage)
    assert job.state == answers[0].state
    assert sum((await storage.counts("q")).values()) == 1


# follow-ups --------------------------------------------------------------------------------------


async def test_complete_puts_its_follow_ups(storage: Storage) -> None:
    """Follow-up jobs given with a completion are put in the same step."""
    await put1(storage, "q", "a")
    then = [new("q", "b", b"next"), new("q/x", "c", delay=SECOND)]
    await settle1(storage, complete(await claim1(storage), then=then))
    assert (await claim1(storage)).payload == b"next"
    assert await storage.counts("q/x") == tally(scheduled=1)


async def test_follow_ups_are_put_once(storage: Storage) -> None:
    """A completion sent twice puts its follow-up jobs once."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    done = complete(claim, ttl=0, then=[new("q", "b")])
    await settle1(storage, done)
    assert await run_order(storage) == ["b"]
    await settle1(storage, done)
    assert await claim_all(storage) == []


async def test_a_lost_completion_puts_no_follow_ups(storage: Storage) -> None:
    """A completion that is answered as lost puts no follow-up jobs."""
    await put1(storage, "q", "a")
    await claim1(storage)
    forged = Claim(queue="q", id="a", token="forged", payload=b"")
    await settle1(storage, complete(forged, then=[new("q", "b"), new("q/x", "c")]))
    assert await state_of(storage, "b") is None
    assert await storage.queues() == ["q"]


async def test_the_fail_job_is_put_with_the_failure(storage: Storage) -> None:
    """A failure and its fail job are one step, and happen once (invariant 5)."""
    await put1(storage, "q", "a")
    failed = fail(await claim1(storage), then=[new("q/failures", "f", b"why")])
    assert await storage.settle([failed, failed]) == [Settled(State.FAILED)] * 2
    assert await storage.counts("q/failures") == tally(queued=1)
    assert (await claim1(storage, "q/failures")).payload == b"why"


async def test_a_follow_up_of_its_own_id_replaces_the_job(storage: Storage) -> None:
    """A follow-up update with the id of its own run replaces the completed job."""

    await put1(storage, "q", "a", b"1")
    await settle1(storage, complete(await claim1(storage), then=[update("q", "a", b"2")]))
    assert await storage.counts("q") == tally(queued=1)
    assert (await claim1(storage)).payload == b"2"


async def test_a_follow_up_that_is_a_duplicate_changes_nothing(storage: Storage) -> None:
    """A follow-up whose id is taken leaves the existing job alone."""
    await storage.put([new("q", "a"), new("q", "b", b"old")])
    await settle1(storage, complete(await claim1(storage), then=[new("q", "b", b"new")]))
    assert (await claim1(storage)).payload == b"old"


async def test_settled_jobs_are_listed_in_their_state(storage: Storage) -> None:
    """After settling, each job is in exactly one state (rule 5)."""
    await storage.put([new("q", id) for id in "abcdef"])
    claims = await claim_all(storage)
    await storage.settle([end(claim) for end, claim in zip(ENDS.values(), claims, strict=False)])
    found = {job.id: job.state.value for job in await find_all(storage)}
    assert found == {
        "a": "completed", "b": "retrying", "c": "queued", "d": "failed", "e": "cancelled", "f": "queued",
    }  # fmt: skip
    assert await storage.counts("q") == tally(completed=1, retrying=1, queued=2, failed=1, cancelled=1)


async def test_a_follow_up_behind_a_run_that_ends_in_the_same_call(storage: Storage) -> None:
    """A follow-up that is blocked by a run is released when that run is settled later in the same call."""
    await storage.put([new("q", "a"), new("q", "b", b"old")])
    first, second = await claim_all(storage)
    await storage.settle([complete(first, then=[update("q", "b", b"new")]), complete(second)])
    assert await storage.counts("q") == tally(completed=1, queued=1)
    assert (await claim1(storage)).payload == b"new"
