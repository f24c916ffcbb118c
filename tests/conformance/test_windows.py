"""Windows: an id is taken for a time from the acceptance of its job, even if the job has completed and is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.job import NewJob, State, Update
from penstock.storage.base import Put, PutStatus, Storage
from tests.support import (
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    T0,
    TTL,
    Clock,
    cancel_run,
    claim1,
    claim_all,
    complete,
    fail,
    get1,
    new,
    put1,
    release,
    retried,
    settle1,
    update,
)

QUEUED = Put(PutStatus.QUEUED, State.QUEUED)
SCHEDULED = Put(PutStatus.SCHEDULED, State.SCHEDULED)


def windowed(payload: bytes = b"x", window: int = MINUTE, **options: Any) -> NewJob:
    return new("q", "a", payload, window=window, **options)


def updating(payload: bytes = b"new", window: int = MINUTE, **options: Any) -> NewJob:
    return update(payload=payload, window=window, **options)


async def put_one(storage: Storage, job: NewJob) -> Put:
    [answer] = await storage.put([job])
    return answer


async def run_now(storage: Storage, ttl: int | None = 0) -> None:
    await settle1(storage, complete(await claim1(storage), b"r", ttl))


def held(until: int, state: State = State.COMPLETED) -> Put:
    return Put(PutStatus.DUPLICATE, state, until=until)


async def test_a_put_within_the_window_of_a_forgotten_job_is_a_duplicate(storage: Storage, clock: Clock) -> None:
    """After completion with a TTL of 0 the id is taken until the window ends, then it is free."""
    assert await put_one(storage, windowed()) == QUEUED
    await run_now(storage)
    clock.advance(seconds=30)
    assert await put_one(storage, windowed()) == held(T0 + MINUTE)
    assert await storage.get("q", ["a"]) == [None]
    clock.advance(seconds=30)
    assert await put_one(storage, windowed()) == QUEUED


async def test_a_put_within_the_window_of_a_kept_job_returns_its_result(storage: Storage) -> None:
    """A completed job that is kept answers with its result, as without a window."""
    await put_one(storage, windowed())
    await run_now(storage, TTL)
    assert await put_one(storage, windowed()) == Put(PutStatus.COMPLETED, State.COMPLETED, b"r")


async def test_a_duplicate_of_an_unfinished_job_names_the_end_of_its_window(storage: Storage) -> None:
    """While the job waits or runs, a duplicate has its state and the end of the window."""
    await put_one(storage, windowed())
    assert await put_one(storage, windowed()) == held(T0 + MINUTE, State.QUEUED)
    await claim1(storage)
    assert await put_one(storage, windowed()) == held(T0 + MINUTE, State.RUNNING)


async def test_a_put_without_a_window_looks_at_none(storage: Storage) -> None:
    """Only a put with a window is held up by one; the job of another put starts, and leaves the window as it is."""
    await put_one(storage, windowed())
    await run_now(storage)
    assert await put1(storage, "q", "a") == QUEUED
    assert await put1(storage, "q", "a") == Put(PutStatus.DUPLICATE, State.QUEUED)
    await settle1(storage, fail(await claim1(storage), ttl=0))
    assert await put_one(storage, windowed()) == held(T0 + MINUTE)


@pytest.mark.parametrize("ttl", [0, TTL])
async def test_a_failed_job_frees_its_id(storage: Storage, ttl: int) -> None:
    """After a failure the next put is accepted at once."""
    await put_one(storage, windowed())
    await settle1(storage, fail(await claim1(storage), ttl=ttl))
    assert await put_one(storage, windowed()) == QUEUED


async def test_a_cancelled_job_frees_its_id(storage: Storage) -> None:
    """A job that is cancelled while it waits, runs, or by its own run frees its id."""
    await put_one(storage, windowed())
    await storage.cancel("q", ["a"])
    assert await put_one(storage, windowed()) == QUEUED
    await settle1(storage, cancel_run(await claim1(storage)))
    assert await put_one(storage, windowed()) == QUEUED
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], "signal")
    await settle1(storage, release(claim))
    assert await put_one(storage, windowed()) == QUEUED


async def test_a_cancelled_job_whose_lease_expires_frees_its_id(storage: Storage, clock: Clock) -> None:
    """A reap that ends a run as cancelled frees the id."""
    await put_one(storage, windowed())
    await claim1(storage)
    await storage.cancel("q", ["a"], "signal")
    clock.advance(seconds=LEASE // SECOND + 1)
    await storage.reap(["q"])
    assert await put_one(storage, windowed()) == QUEUED


async def test_an_expired_job_frees_its_id(storage: Storage, clock: Clock) -> None:
    """A job whose first run has not begun in time frees its id."""
    await put_one(storage, windowed(start_within=SECOND))
    clock.advance(seconds=1)
    assert await put_one(storage, windowed()) == QUEUED


async def test_a_discarded_job_frees_its_id(storage: Storage) -> None:
    """A discard frees the id, of a waiting job and of a completed one."""
    await put_one(storage, windowed())
    await storage.discard("q", ["a"])
    assert await put_one(storage, windowed()) == QUEUED
    await run_now(storage, TTL)
    await storage.discard("q", ["a"])
    assert await put_one(storage, windowed()) == QUEUED


async def test_a_completed_job_keeps_its_window_when_its_ttl_is_set_to_0(storage: Storage) -> None:
    """Forgetting a result early frees no id."""
    await put_one(storage, windowed())
    await run_now(storage, TTL)
    await storage.set_ttl("q", "a", 0)
    assert await put_one(storage, windowed()) == held(T0 + MINUTE)


async def test_a_window_begins_when_a_job_for_later_is_due(storage: Storage, clock: Clock) -> None:
    """The window of a job with a run-at in the future counts from that time."""
    assert await put_one(storage, windowed(delay=10 * SECOND)) == SCHEDULED
    clock.advance(seconds=10)
    await run_now(storage)
    clock.advance(seconds=59)
    assert await put_one(storage, windowed()) == held(T0 + 10 * SECOND + MINUTE)
    clock.advance(seconds=1)
    assert await put_one(storage, windowed()) == QUEUED


async def test_an_update_after_completion_starts_one_job_at_the_end_of_the_window(
    storage: Storage, clock: Clock
) -> None:
    """Leading and trailing: the first put runs at once, all further ones become one job, due when the window ends."""
    await put_one(storage, updating(b"1"))
    await run_now(storage)
    clock.advance(seconds=10)
    assert await put_one(storage, updating(b"2")) == SCHEDULED
    assert (await get1(storage)).run_at == T0 + MINUTE
    clock.advance(seconds=10)
    assert await put_one(storage, updating(b"3")) == Put(PutStatus.UPDATED, State.SCHEDULED)
    found = await get1(storage)
    assert (found.run_at, found.payload, found.created) == (T0 + MINUTE, b"3", T0 + 10 * SECOND)
    assert await claim_all(storage) == []
    clock.advance(seconds=40)
    await run_now(storage)
    assert await put_one(storage, windowed()) == held(T0 + 2 * MINUTE)


async def test_no_update_moves_a_job_before_the_end_of_the_window(storage: Storage, clock: Clock) -> None:
    """An update may move the trailing job later and back again, never before the window's end; one without a window
    neither."""
    await put_one(storage, updating())
    await run_now(storage)
    await put_one(storage, updating())
    moves: list[tuple[Update, dict[str, Any], int]] = [
        (Update(run_at=True), {"delay": HOUR}, T0 + HOUR),
        (Update(run_at=True), {}, T0 + MINUTE),
        (Update(run_at="if_earlier"), {"run_at": T0}, T0 + MINUTE),
        (Update(run_at=True), {"window": None}, T0 + MINUTE),
    ]
    for flags, options, due in moves:
        answer = await put_one(storage, updating(flags=flags, **options))
        assert answer == Put(PutStatus.UPDATED, State.SCHEDULED)
        assert (await get1(storage)).run_at == due
    clock.advance(seconds=59)
    assert await claim_all(storage) == []
    clock.advance(seconds=1)
    assert len(await claim_all(storage)) == 1


async def test_a_job_put_for_later_than_the_end_of_the_window_keeps_its_time(storage: Storage) -> None:
    """A put with a run-at after the window's end is due at its own time, and its window counts from there."""
    await put_one(storage, updating())
    await run_now(storage)
    await put_one(storage, updating(delay=HOUR))
    assert (await get1(storage)).run_at == T0 + HOUR
    assert await put_one(storage, windowed()) == held(T0 + HOUR + MINUTE, State.SCHEDULED)


async def test_updates_of_a_waiting_job_do_not_extend_its_window(storage: Storage, clock: Clock) -> None:
    """The window counts from the acceptance of the job, not from its last update."""
    await put_one(storage, updating())
    clock.advance(seconds=30)
    await put_one(storage, updating(window=HOUR))
    await run_now(storage)
    assert await put_one(storage, windowed()) == held(T0 + MINUTE)


async def test_a_trailing_job_that_is_cancelled_leaves_the_window_in_which_it_was_put(
    storage: Storage, clock: Clock
) -> None:
    """Cancelling the trailing job frees its own window; that of the completed one goes on."""
    await put_one(storage, updating())
    await run_now(storage)
    await put_one(storage, updating())
    await storage.cancel("q", ["a"])
    assert await put_one(storage, windowed()) == held(T0 + MINUTE)
    clock.advance(seconds=60)
    assert await put_one(storage, windowed()) == QUEUED


async def test_a_successor_waits_for_the_end_of_the_window(storage: Storage, clock: Clock) -> None:
    """An update during the run starts its job when the window ends, not when the run does."""
    await put_one(storage, updating(b"1"))
    claim = await claim1(storage)
    assert await put_one(storage, updating(b"2")) == Put(PutStatus.BLOCKED, State.BLOCKED)
    await settle1(storage, complete(claim))
    found = await get1(storage)
    assert (found.state, found.run_at, found.payload) == (State.SCHEDULED, T0 + MINUTE, b"2")
    clock.advance(seconds=60)
    await run_now(storage)
    assert await put_one(storage, windowed()) == held(T0 + 2 * MINUTE)


async def test_the_successor_of_a_failed_run_starts_at_once(storage: Storage) -> None:
    """A failed run frees the id, so its successor is due at once and takes a window of its own."""
    await put_one(storage, updating())
    claim = await claim1(storage)
    await put_one(storage, updating())
    await settle1(storage, fail(claim))
    assert (await get1(storage)).state is State.QUEUED
    await run_now(storage)
    assert await put_one(storage, windowed()) == held(T0 + MINUTE)


async def test_a_successor_merged_into_its_run_leaves_the_window_as_it_is(storage: Storage, clock: Clock) -> None:
    """A run that is retried takes the payload of its successor and keeps its own window."""
    await put_one(storage, updating(b"1"))
    claim = await claim1(storage)
    clock.advance(seconds=5)
    await put_one(storage, updating(b"2", window=HOUR))
    await settle1(storage, retried(claim, delay=0))
    found = await get1(storage)
    assert (found.state, found.payload, found.window) == (State.QUEUED, b"2", MINUTE)
    await run_now(storage)
    assert await put_one(storage, windowed()) == held(T0 + MINUTE)


async def test_a_revived_job_takes_its_window_again(storage: Storage, clock: Clock) -> None:
    """A failed job that is revived takes its id for the window from now on."""
    await put_one(storage, windowed())
    await settle1(storage, fail(await claim1(storage)))
    clock.advance(seconds=10)
    assert await storage.revive("q", ["a"]) == [True]
    await run_now(storage)
    assert await put_one(storage, windowed()) == held(T0 + 10 * SECOND + MINUTE)


async def test_puts_of_one_call_see_the_windows_of_the_earlier_ones(storage: Storage) -> None:
    """Two puts of an id in one call are a job and its duplicate."""
    assert await storage.put([windowed(), windowed()]) == [QUEUED, held(T0 + MINUTE, State.QUEUED)]


async def test_a_put_held_by_a_window_adds_nothing_to_a_bounded_queue(storage: Storage) -> None:
    """A full queue answers a put within a window as a duplicate, not with an error."""
    await put_one(storage, windowed())
    await run_now(storage)
    await put1(storage, "q", "b")
    assert await storage.put([windowed()], 1) == [held(T0 + MINUTE)]


async def test_a_follow_up_job_obeys_windows(storage: Storage) -> None:
    """A job that a completion puts is held by an open window as any other."""
    await put_one(storage, windowed())
    await run_now(storage)
    await put1(storage, "q", "b")
    await settle1(storage, complete(await claim1(storage), then=[windowed()]))
    assert await storage.get("q", ["a"]) == [None]


async def test_delete_queue_drops_windows(storage: Storage) -> None:
    """A deleted queue holds no id."""
    await put_one(storage, windowed())
    await run_now(storage)
    await storage.delete_queue("q")
    assert await put_one(storage, windowed()) == QUEUED


async def test_purge_removes_windows_that_have_ended(storage: Storage, clock: Clock) -> None:
    """A window is a record for purge when it has ended, not before, and a queue without others is not listed."""
    await put_one(storage, windowed(window=HOUR))
    await run_now(storage)
    assert await storage.queues() == []
    clock.advance(seconds=120)
    await storage.purge(["q"])
    assert await put_one(storage, windowed()) == held(T0 + HOUR)
    clock.advance(seconds=3480)
    assert await storage.purge(["q"]) == 1
    assert await storage.purge(["q"]) == 0


async def test_a_waiter_of_a_job_that_is_not_there_is_not_stored(storage: Storage, clock: Clock) -> None:
    """A put with a waiter that a window refuses leaves no waiter: the next job with a TTL of 0 is gone at its end."""
    await put_one(storage, windowed())
    await run_now(storage)
    assert await put_one(storage, windowed(waiter="w" * 40)) == held(T0 + MINUTE)
    clock.advance(seconds=60)
    await put_one(storage, windowed())
    await run_now(storage)
    assert await storage.get("q", ["a"]) == [None]
