"""expire: waiting or blocked → cancelled, if the first run of a job has not begun by its start-by time."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import JobError
from penstock.model.job import State, Update
from penstock.storage.base import EXPIRED, EXPIRED_MS, EndNotice, PutStatus, Storage
from tests.conformance.test_events import EventScenario, listening
from tests.support import (
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    Backend,
    Clock,
    RedisBackend,
    claim1,
    claim_all,
    complete,
    eventually,
    find_all,
    get1,
    ids,
    new,
    put1,
    release,
    retried,
    run_order,
    settle1,
    state_of,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine


async def test_a_job_that_has_not_begun_in_time_is_never_claimed(storage: Storage, clock: Clock) -> None:
    """From the millisecond of its start-by time on a job is not claimed, and the next one is."""
    await storage.put([new("q", "a", start_within=MINUTE), new("q", "b")])
    clock.advance(ms=MINUTE - 1)
    assert ids([await storage.peek("q")]) == ["a"]
    clock.advance(ms=1)
    assert await run_order(storage) == ["b"]


async def test_a_job_claimed_in_its_last_millisecond_runs(storage: Storage, clock: Clock) -> None:
    """A claim before the start-by time begins the run, and the job no longer expires."""
    await put1(storage, "q", "a", start_by=clock.ms + MINUTE)
    assert (await get1(storage)).start_by == clock.ms + MINUTE
    clock.advance(ms=MINUTE - 1)
    claim = await claim1(storage, lease=HOUR)
    clock.advance(ms=MINUTE)
    assert (await get1(storage)).start_by is None
    assert (await settle1(storage, complete(claim))).state is State.COMPLETED


async def test_an_expired_job_is_cancelled_with_the_error_and_kept_for_an_hour(storage: Storage, clock: Clock) -> None:
    """Its error has the type Expired; the hour begins when the storage decides it."""
    await put1(storage, "q", "a", start_within=MINUTE)
    clock.advance(ms=2 * MINUTE)
    found = await get1(storage)
    assert found.state is State.CANCELLED
    assert found.error == EXPIRED
    assert JobError.decode(EXPIRED).type == "Expired"
    assert (found.finished, found.expires, found.start_by) == (clock.ms, clock.ms + EXPIRED_MS, None)
    clock.advance(ms=EXPIRED_MS)
    assert await state_of(storage) is None
    assert await storage.purge(["q"]) == 1
    assert await storage.queues() == []


@pytest.mark.parametrize("verb", ["get", "find", "counts", "why", "peek", "purge", "queues", "claim"])
async def test_every_read_finds_an_expired_job_cancelled(storage: Storage, clock: Clock, verb: str) -> None:
    """Whichever call comes first decides it, and all others agree."""
    await put1(storage, "q", "a", start_within=MINUTE)
    await put1(storage, "q", "later", delay=HOUR, start_within=MINUTE)
    clock.advance(ms=MINUTE)
    match verb:
        case "get":
            assert await state_of(storage) is State.CANCELLED
        case "find":
            assert ids((await storage.find("q", State.CANCELLED)).jobs) == ["a", "later"]
        case "counts":
            assert await storage.counts("q") == tally(cancelled=2)
        case "why":
            position = await storage.why("q", "a")
            assert position is not None
            assert position.state is State.CANCELLED
        case "peek":
            assert await storage.peek("q") is None
        case "purge":
            assert await storage.purge(["q"]) == 0
        case "queues":
            assert await storage.queues() == ["q"]
        case _:
            assert await claim_all(storage) == []
    decided = clock.ms
    clock.advance(ms=SECOND)
    assert await storage.counts("q") == tally(cancelled=2)
    assert {job.finished for job in await find_all(storage)} == {decided}


async def test_a_retrying_job_does_not_expire(storage: Storage, clock: Clock) -> None:
    """After the first run has begun the retries go on, whatever the start-by time was."""
    await put1(storage, "q", "a", start_within=MINUTE)
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    clock.advance(ms=HOUR)
    assert ids(await claim_all(storage)) == ["a"]


async def test_a_released_job_does_not_expire(storage: Storage, clock: Clock) -> None:
    """A release gives the attempt back, but the run had begun: the job is run to its end."""
    await put1(storage, "q", "a", start_within=MINUTE)
    await settle1(storage, release(await claim1(storage)))
    assert (await get1(storage)).attempts == 0
    clock.advance(ms=HOUR)
    assert ids(await claim_all(storage)) == ["a"]


async def test_a_stalled_job_does_not_expire(storage: Storage, clock: Clock) -> None:
    """A job whose worker vanished is queued again, and does not expire."""
    await put1(storage, "q", "a", start_within=MINUTE)
    await claim1(storage, lease=LEASE)
    clock.advance(ms=HOUR)
    await storage.reap(["q"])
    assert ids(await claim_all(storage)) == ["a"]


async def test_an_expired_head_gives_its_group_to_the_next_job(storage: Storage, clock: Clock) -> None:
    """The group of an expired job goes on with the next one, and keeps its order."""
    await storage.put(
        [new("q", "a", group="g", start_within=MINUTE), new("q", "b", group="g"), new("q", "c", group="h")]
    )
    clock.advance(ms=MINUTE)
    assert ids(await claim_all(storage)) == ["b", "c"]


async def test_an_expired_job_behind_a_run_of_its_group_does_not_hold_it(storage: Storage, clock: Clock) -> None:
    """A group whose only waiting job has expired has none; a later job of it runs at once."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g", start_within=MINUTE)])
    claim = await claim1(storage, lease=HOUR)
    clock.advance(ms=MINUTE)
    assert await storage.counts("q") == tally(running=1, cancelled=1)
    await settle1(storage, complete(claim))
    assert await claim_all(storage) == []
    await put1(storage, "q", "c", group="g")
    assert ids(await claim_all(storage)) == ["c"]


async def test_a_reset_head_in_backoff_that_expires_frees_its_group(storage: Storage, clock: Clock) -> None:
    """An update that resets the counts of a job in backoff may give it a start-by time; its group goes on then."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    await storage.put([update("q", "a", flags=Update(run_at=False), start_within=MINUTE)])
    clock.advance(ms=MINUTE)
    assert ids(await claim_all(storage)) == ["b"]
    assert await state_of(storage) is State.CANCELLED


async def test_a_blocked_successor_expires_and_the_run_goes_on(storage: Storage, clock: Clock) -> None:
    """The successor is gone after its start-by time, and the run ends as if there had been none."""
    await put1(storage, "q", "a")
    claim = await claim1(storage, lease=HOUR)
    await storage.put([update("q", "a", start_within=MINUTE)])
    clock.advance(ms=MINUTE - 1)
    assert await storage.counts("q") == tally(running=1, blocked=1)
    clock.advance(ms=1)
    assert await storage.counts("q") == tally(running=1)
    await settle1(storage, complete(claim))
    assert await storage.counts("q") == tally(completed=1)


async def test_a_successor_keeps_its_start_by_time_when_it_is_released(storage: Storage, clock: Clock) -> None:
    """The run ends, the successor becomes the job of the id, and expires at its own time."""
    await put1(storage, "q", "a")
    claim = await claim1(storage, lease=HOUR)
    await storage.put([update("q", "a", start_within=MINUTE)])
    await settle1(storage, complete(claim))
    assert await state_of(storage) is State.QUEUED
    clock.advance(ms=MINUTE)
    assert await state_of(storage) is State.CANCELLED


async def test_a_successor_merged_into_a_run_that_began_does_not_make_it_expire(storage: Storage, clock: Clock) -> None:
    """The counts of the run are kept, so its job has begun; with a reset it is new work and may expire."""
    await storage.put([new("q", "a"), new("q", "b")])
    for claim, resets in zip(await claim_all(storage), (False, True), strict=True):
        await storage.put([update("q", claim.id, flags=Update(reset_counts=resets), start_within=MINUTE)])
        await settle1(storage, retried(claim))
    clock.advance(ms=MINUTE)
    assert await state_of(storage, "a") is State.QUEUED
    assert await state_of(storage, "b") is State.CANCELLED


async def test_an_update_gives_its_own_start_by_time_or_leaves_the_old_one(storage: Storage, clock: Clock) -> None:
    """An update with a start-by time moves it, one without keeps it."""
    await storage.put([new("q", id, start_within=MINUTE) for id in "ab"])
    await storage.put([update("q", "a", start_within=2 * MINUTE), update("q", "b", b"other")])
    assert (await get1(storage, "a")).start_by == clock.ms + 2 * MINUTE
    clock.advance(ms=MINUTE)
    assert await state_of(storage, "a") is State.QUEUED
    assert await state_of(storage, "b") is State.CANCELLED


async def test_the_id_of_an_expired_job_is_free(storage: Storage, clock: Clock) -> None:
    """A put finds the expired job cancelled, so it starts a new job in its place."""
    await put1(storage, "q", "a", b"old", start_within=MINUTE)
    clock.advance(ms=MINUTE)
    assert (await put1(storage, "q", "a", b"new")).status is PutStatus.QUEUED
    assert (await claim1(storage)).payload == b"new"


async def test_a_follow_up_finds_the_id_of_an_expired_job_free(storage: Storage, clock: Clock) -> None:
    """The same holds for a job that a settlement puts."""
    await storage.put([new("q", "a"), new("q", "b", b"old", start_within=MINUTE)])
    claim = await claim1(storage, lease=HOUR)
    clock.advance(ms=MINUTE)
    await settle1(storage, complete(claim, then=[new("q", "b", b"new")]))
    assert (await claim1(storage)).payload == b"new"


async def test_a_revived_expired_job_does_not_expire_again(storage: Storage, clock: Clock) -> None:
    """`revive` queues an expired job without a start-by time."""
    await put1(storage, "q", "a", start_within=MINUTE)
    clock.advance(ms=MINUTE)
    assert await storage.revive("q", ["a"]) == [True]
    clock.advance(ms=HOUR)
    assert ids(await claim_all(storage)) == ["a"]


async def test_a_cancelled_job_does_not_expire(storage: Storage, clock: Clock) -> None:
    """A job that was cancelled before its start-by time keeps that end, without an error."""
    await put1(storage, "q", "a", start_within=MINUTE)
    await storage.cancel("q", ["a"], ttl=HOUR)
    clock.advance(ms=MINUTE)
    found = await get1(storage)
    assert (found.error, found.finished) == (None, clock.ms - MINUTE)


async def test_a_job_of_a_paused_queue_expires(storage: Storage, clock: Clock) -> None:
    """A pause stops claims, not the clock."""
    await storage.set_pause("q", True)
    await put1(storage, "q", "a", start_within=MINUTE)
    clock.advance(ms=MINUTE)
    assert await storage.purge(["q"]) == 0
    assert await state_of(storage) is State.CANCELLED


async def test_more_jobs_expire_than_one_call_ends(storage: Storage, clock: Clock) -> None:
    """Each call ends a bounded number of jobs, and none of them is shown or claimed as waiting."""
    await storage.put([new("q", f"late{n}", start_within=MINUTE) for n in range(2100)])
    await put1(storage, "q", "a")
    clock.advance(ms=MINUTE)
    assert await storage.counts("q") == tally(queued=1, cancelled=2100)
    assert ids(await claim_all(storage)) == ["a"]


@pytest.mark.beyond_model
async def test_a_claim_passes_over_more_expired_jobs_than_one_call_ends(storage: Storage, clock: Clock) -> None:
    """A worker claims until the expired jobs are ended, and gets none of them."""
    await storage.put([new("q", f"late{n}", start_within=MINUTE) for n in range(1100)])
    await put1(storage, "q", "a")
    clock.advance(ms=MINUTE)

    async def claimed() -> list[str]:
        return ids(await claim_all(storage))

    assert await eventually(claimed) == ["a"]


@pytest.mark.beyond_model
async def test_expiry_emits_cancelled_with_the_error(storage: Storage, clock: Clock) -> None:
    """The event of an expired job, and of an expired successor, is `cancelled`, once, with the error."""
    async with listening(storage) as delivered:
        scenario = EventScenario(storage, clock, delivered)
        await scenario.do("put", [new("q", "a"), new("q", "b", start_within=MINUTE)])
        await scenario.claim()
        await scenario.do("put", [update("q", "a", start_within=MINUTE)])
        await scenario.expect("enqueued", "enqueued", "started", "enqueued")
        clock.advance(ms=MINUTE)
        await scenario.do("purge", ["q"])
        await scenario.do("purge", ["q"])
        await scenario.expect("cancelled", "cancelled")


@pytest.mark.beyond_model
async def test_the_waiter_of_an_expired_job_is_notified_when_a_call_decides_it(storage: Storage, clock: Clock) -> None:
    """`wait_done` ends at once; an end notice has the state and the error."""
    await put1(storage, "q", "a", fresh=True, start_within=MINUTE, waiter="waiter")
    waiting = asyncio.create_task(storage.wait_done("q", "a", 30))
    await asyncio.sleep(0)
    clock.advance(ms=MINUTE)
    await storage.purge(["q"])
    hint = await asyncio.wait_for(waiting, 10)
    assert hint
    assert not isinstance(hint, EndNotice) or (hint.state, hint.error) == (State.CANCELLED, EXPIRED)
    assert (await get1(storage)).error == EXPIRED


@pytest.mark.beyond_model
async def test_nothing_is_left_of_jobs_that_could_expire(storage: Storage, backend: Backend, clock: Clock) -> None:
    """After all jobs have run, were cancelled or expired, and their TTLs are over, no record is left."""
    await storage.put([new("q", id, start_within=HOUR) for id in "abc"])
    await settle1(storage, complete(await claim1(storage), ttl=0))
    await storage.cancel("q", ["b"], ttl=0)
    clock.advance(ms=HOUR)
    await storage.purge(["q"])
    clock.advance(ms=EXPIRED_MS)
    while await storage.purge(["q"]):
        pass
    assert backend.leftovers() == []


async def test_a_plain_put_after_the_start_by_time_of_another_job_ends_it(storage: Storage, clock: Clock) -> None:
    """Every put looks for expired jobs first: the time of their end is that of the put."""
    await put1(storage, "q", "a", start_within=MINUTE)
    clock.advance(ms=MINUTE)
    await put1(storage, "q", "b", fresh=True)
    decided = clock.ms
    clock.advance(ms=MINUTE)
    assert (await get1(storage)).finished == decided


@pytest.mark.only("redis")
@pytest.mark.beyond_model
async def test_a_run_leaves_no_expiry_behind(storage: Storage, backend: Backend) -> None:
    """A claim removes its job from the key of the jobs that may expire, and the queue is as fast as before."""
    assert isinstance(backend, RedisBackend)
    await storage.put([new("q", "a", start_within=HOUR), new("q", "b", group="g", start_within=HOUR)])
    await claim_all(storage)
    left = backend.keys()
    assert not any(key.endswith(b":expiring") for key in left)
    with backend.clients()[0] as client:
        [meta] = [key for key in left if key.endswith(b":meta")]
        assert client.hget(meta, "expiry") is None
