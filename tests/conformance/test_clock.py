"""Time of a storage: its clock counts whole milliseconds and may be set back."""

from __future__ import annotations

import time

import pytest

from penstock.model.job import Claim, State, Update
from penstock.storage.base import Storage
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
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


async def test_order_survives_a_clock_that_is_set_back(storage: Storage, clock: Clock) -> None:
    """Jobs accepted after the clock went back stand behind those before."""
    await put1(storage, "q", "a")
    clock.advance(ms=-5 * SECOND)
    await put1(storage, "q", "b")
    clock.advance(ms=SECOND)
    await put1(storage, "q", "c")
    assert await run_order(storage) == ["a", "b", "c"]


async def test_a_group_keeps_its_order_when_the_clock_is_set_back(storage: Storage, clock: Clock) -> None:
    """A group keeps its order when the clock goes back."""
    await put1(storage, "q", "a", group="g")
    clock.advance(ms=-5 * SECOND)
    await put1(storage, "q", "b", group="g")
    assert await run_order(storage) == ["a", "b"]


async def test_a_queued_job_stays_queued_when_the_clock_is_set_back(storage: Storage, clock: Clock) -> None:
    """A job accepted as queued is still claimed after the clock was set back."""
    await put1(storage, "q", "a")
    clock.advance(ms=-SECOND)
    assert ids(await claim_all(storage)) == ["a"]


@pytest.mark.parametrize("step", ["put", "put with a waiter", "put with options", "settle"])
@pytest.mark.parametrize("how", ["retrying", "scheduled"])
async def test_a_plain_put_or_settlement_does_not_promote_due_jobs(
    storage: Storage, clock: Clock, how: str, step: str
) -> None:
    """A job that fell due before a put or settlement without a group is not queued after the clock was set back."""
    run: Claim | None = None
    if step == "settle":
        await put1(storage, "q", "run")
        run = await claim1(storage)
    await put1(storage, "q", "old", delay=SECOND if how == "scheduled" else None)
    if how == "retrying":
        await settle1(storage, retried(await claim1(storage), delay=SECOND))
    clock.advance(seconds=5)
    if run is not None:
        await settle1(storage, complete(run))
    else:
        options = {"put with a waiter": {"waiter": "w"}, "put with options": {"headers": b"h", "priority": -1}}
        await put1(storage, "q", "new", **options.get(step, {}))
    clock.advance(seconds=-4.5)
    assert await state_of(storage, "old") == how
    assert ids(await claim_all(storage)) == ([] if step == "settle" else ["new"])


async def test_a_failure_without_a_group_does_not_promote_due_jobs(storage: Storage, clock: Clock) -> None:
    """A scheduled job that fell due before a failed run was settled is scheduled again after the clock was set back."""
    await put1(storage, "q", "run")
    run = await claim1(storage)
    await put1(storage, "q", "old", delay=SECOND)
    clock.advance(seconds=5)
    await settle1(storage, fail(run))
    clock.advance(seconds=-4.5)
    assert await state_of(storage, "old") is State.SCHEDULED


@pytest.mark.parametrize("step", ["put with a group", "put of a taken id", "settle with a group"])
async def test_other_puts_and_settlements_promote_due_jobs(storage: Storage, clock: Clock, step: str) -> None:
    """A job that fell due before a call that may give a group its turn stays queued when the clock is set back."""
    await put1(storage, "q", "run", group="g")
    run = await claim1(storage)
    await put1(storage, "q", "old", delay=SECOND)
    clock.advance(seconds=5)
    if step == "settle with a group":
        await settle1(storage, complete(run))
    else:
        await put1(storage, "q", "run" if step == "put of a taken id" else "new", group="h")
    clock.advance(seconds=-4.5)
    assert await state_of(storage, "old") is State.QUEUED


@pytest.mark.parametrize("group", [None, "g"])
async def test_an_update_after_the_clock_was_set_back_begins_no_backoff_again(
    storage: Storage, clock: Clock, group: str | None
) -> None:
    """A backoff that is over stays over: the updated job is scheduled, and the job behind it in its group starts."""
    await put1(storage, "q", "a", group=group)
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    clock.advance(seconds=5)
    assert await state_of(storage, "a") is State.QUEUED
    assert ids((await storage.find("q")).jobs) == ["a"]  # promotes
    clock.advance(seconds=-4.5)
    [answer] = await storage.put([update(flags=Update(run_at=False))])
    assert answer.state is State.SCHEDULED
    assert await storage.counts("q") == tally(scheduled=1)
    await put1(storage, "q", "b", group=group)
    assert ids(await claim_all(storage)) == ["b"]


async def test_all_reads_agree_after_the_clock_was_set_back(storage: Storage, clock: Clock) -> None:
    """After the clock was set back, get, find and counts show the same state of a waiting job."""
    await put1(storage, "q", "a")
    clock.advance(ms=-SECOND)
    state = await state_of(storage)
    assert state is not None
    assert await storage.counts("q") == tally(**{state.value: 1})
    assert [job.state for job in (await storage.find("q")).jobs] == [state]


async def test_a_lease_is_not_ended_by_a_clock_that_is_set_back(storage: Storage, clock: Clock) -> None:
    """A clock that goes back delays the reap and ends no lease early."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=-HOUR)
    assert await storage.reap(["q"]) == []
    clock.advance(ms=HOUR + LEASE)
    assert len(await storage.reap(["q"])) == 1


async def test_a_result_survives_a_clock_that_is_set_back(storage: Storage, clock: Clock) -> None:
    """A clock that goes back purges no result early."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(ms=-HOUR)
    assert await storage.purge(["q"]) == 0
    assert (await get1(storage)).result == b"r"


async def test_jobs_of_one_millisecond_keep_their_order(storage: Storage) -> None:
    """Separate puts within one millisecond are ordered by their sequence."""
    names = [f"{n * 7919 % 100:02}" for n in range(60)]
    for name in names:
        await put1(storage, "q", name)
    assert ids(await claim_all(storage)) == names


@pytest.mark.beyond_model
async def test_every_millisecond_is_exact(storage: Storage, clock: Clock) -> None:
    """No millisecond of the clock is rounded to its neighbour."""
    seen: list[int] = []
    for ms in range(0, 1000, 7):
        clock.ms = T0 + ms
        seen.append(await storage.time() - T0)
    assert seen == list(range(0, 1000, 7))


async def test_every_due_time_is_exact(storage: Storage, clock: Clock) -> None:
    """A scheduled job becomes queued in the very millisecond of its due time."""
    for ms in range(1, 1000, 13):
        clock.ms = T0
        await put1(storage, "q", "a", delay=ms)
        clock.ms = T0 + ms - 1
        assert await state_of(storage) == State.SCHEDULED, ms
        clock.ms = T0 + ms
        assert await state_of(storage) == State.QUEUED, ms
        await storage.cancel("q", ["a"])


@pytest.mark.beyond_model
async def test_two_storage_objects_share_one_clock(storage: Storage, peer: Storage, clock: Clock) -> None:
    """A job that one storage object accepts is due for another at the same moment."""
    await put1(storage, "q", "a", delay=SECOND)
    assert await claim_all(peer) == []
    clock.advance(seconds=1)
    assert ids(await claim_all(peer)) == ["a"]


@pytest.mark.beyond_model
async def test_without_a_clock_the_storages_own_time_counts(backend: Backend) -> None:
    """A storage without a given clock uses the real time in milliseconds (QZ-D15)."""
    storage = backend.build(None)
    await storage.open()
    try:
        before = time.time() * 1000
        assert abs(await storage.time() - before) < 60_000
        await storage.put([new("q", "now"), new("q", "later", delay=HOUR)])
        assert ids(await claim_all(storage)) == ["now"]
        assert abs((await get1(storage, "now")).created - before) < 60_000
        await storage.delete_queue("q")
    finally:
        await storage.close()


async def test_an_update_before_the_clock_was_set_back_does_not_order_later_jobs(
    storage: Storage, clock: Clock
) -> None:
    """A duplicate is put while the clock is ahead: jobs accepted afterwards are ordered by their own time."""
    await storage.put([new("q", "a", delay=2 * SECOND)])
    clock.advance(seconds=3)
    await storage.put([update("q", "a", flags=Update(run_at=True))])
    clock.advance(seconds=-2.5)
    await storage.put([new("q", "b")])
    assert ids(await claim_all(storage)) == ["b", "a"]
