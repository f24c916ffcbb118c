"""fire: the jobs of ticks are put and the cursor moves in one step, if the version is unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.job import State
from penstock.storage.base import Renewal, Settlement, Storage
from penstock.storage.scheduling import Fired, Overlap
from tests.schedules import fire1, firing, record, scheduling, set1, stored, tick
from tests.support import (
    HOUR,
    LEASE,
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
    held,
    ids,
    put1,
    retried,
    run_order,
    state_of,
    tally,
)

pytestmark = pytest.mark.one_per_engine


async def test_fire_puts_the_job_of_a_tick_and_moves_the_cursor(storage: Storage, clock: Clock) -> None:
    """The job has all fields of the tick's job; the record has the new cursor, next tick, last job and counters."""
    version = await set1(storage)
    clock.advance(ms=MINUTE)
    options: dict[str, Any] = {"headers": b"h", "bounds": b"b", "group": "g", "run_at": clock.ms + SECOND}
    answer = await fire1(storage, version, tick(1, payload=b"p", **options), missed=3)
    assert answer == Fired(answer.version, fired=1, ids=("s@1",))
    assert answer.version > version
    expected = record(
        version=answer.version, cursor=T0 + MINUTE, next=T0 + 2 * MINUTE, last_id="s@1", last_at=T0 + MINUTE,
        fired=1, missed=3,
    )  # fmt: skip
    assert await stored(storage) == expected
    job = await get1(storage, "s@1")
    assert (job.state, job.payload, job.headers, job.bounds, job.group) == (State.SCHEDULED, b"p", b"h", b"b", "g")
    assert (job.run_at, job.created) == (clock.ms + SECOND, clock.ms)


async def test_fire_without_ticks_moves_the_cursor(storage: Storage) -> None:
    """Ticks that were all missed put no job."""
    version = await set1(storage)
    answer = await fire1(storage, version, missed=9, cursor=T0 + HOUR, next=None)
    assert answer == Fired(answer.version)
    found = await stored(storage)
    assert (found.missed, found.cursor, found.next, found.last_id) == (9, T0 + HOUR, None, None)
    assert await storage.counts("q") == tally()


async def test_a_repeated_fire_is_stale_and_changes_nothing(storage: Storage) -> None:
    """A firing of an old version has no effect, whatever happened to the answer of the first."""
    version = await set1(storage)
    first = await fire1(storage, version, tick(1))
    before = await stored(storage)
    assert await fire1(storage, version, tick(1)) == Fired(first.version, stale=True)
    assert await fire1(storage, version, tick(1), tick(2), overlap="allow") == Fired(first.version, stale=True)
    assert await fire1(storage, version, tick(3), manual=True) == Fired(first.version, stale=True)
    assert await stored(storage) == before
    assert ids(await find_all(storage)) == ["s@1"]


async def test_fire_of_a_schedule_that_is_not_there_is_stale(storage: Storage) -> None:
    """Neither a job nor a schedule is made of it."""
    assert await fire1(storage, 1, tick(1)) == Fired(0, stale=True)
    await set1(storage, "other")
    assert await fire1(storage, 0, tick(1)) == Fired(0, stale=True)
    assert await storage.counts("q") == tally()
    assert await scheduling(storage).get_schedule("q", "s") is None


async def test_fire_of_several_schedules_answers_each(storage: Storage) -> None:
    """A stale one does not stop the others; a second firing of one schedule is stale."""
    a, b = await set1(storage, "a"), await set1(storage, "b", queue="other")
    firings = [
        firing(a, tick(1, "a"), name="a"),
        firing(b + 1, tick(1, "b", "other"), name="b", queue="other"),
        firing(b, tick(2, "b", "other"), name="b", queue="other"),
        firing(a, tick(2, "a"), name="a"),
    ]
    answers = await scheduling(storage).fire(firings)
    assert [(each.stale, each.ids) for each in answers] == [
        (False, ("a@1",)), (True, ()), (False, ("b@2",)), (True, ()),
    ]  # fmt: skip
    assert await scheduling(storage).fire([]) == []
    assert ids(await find_all(storage)) == ["a@1"]
    assert ids(await find_all(storage, "other")) == ["b@2"]


async def test_fire_puts_jobs_in_the_order_of_their_ticks(storage: Storage) -> None:
    """With the overlap `allow` every tick becomes a job."""
    version = await set1(storage)
    answer = await fire1(storage, version, *[tick(n) for n in range(1, 12)], overlap="allow")
    assert (answer.fired, len(answer.ids)) == (11, 11)
    assert await run_order(storage) == [f"s@{n}" for n in range(1, 12)]


async def test_fire_puts_a_job_by_its_priority(storage: Storage) -> None:
    """The job of a tick is a job as any other."""
    await put1(storage, "q", "a")
    await fire1(storage, await set1(storage), tick(1, priority=5))
    assert (await get1(storage, "s@1")).priority == 5
    assert await run_order(storage) == ["s@1", "a"]


async def test_fire_with_an_id_that_exists_puts_no_job(storage: Storage) -> None:
    """A tick whose id has a record of any state counts as fired and is `known`; the last job stays."""
    version = (await fire1(storage, await set1(storage), tick(1))).version
    claim = await claim1(storage)
    await storage.settle([fail(claim)])
    await put1(storage, "q", "s@3")
    answer = await fire1(storage, version, tick(1), tick(2), tick(3), overlap="allow")
    assert answer == Fired(answer.version, fired=3, known=2, ids=("s@2",))
    found = await stored(storage)
    assert (found.fired, found.last_id, found.last_at) == (4, "s@2", T0 + 2 * MINUTE)
    assert await state_of(storage, "s@1") is State.FAILED
    assert (await get1(storage, "s@3")).created == T0


async def test_fire_with_the_id_of_an_expired_job_puts_a_new_one(storage: Storage, clock: Clock) -> None:
    """A job whose TTL is over is no record, though it was not purged yet."""
    version = (await fire1(storage, await set1(storage), tick(1))).version
    await storage.settle([complete(await claim1(storage), ttl=SECOND)])
    clock.advance(ms=SECOND)
    answer = await fire1(storage, version, tick(1, fresh=True))
    assert (answer.known, answer.ids) == (0, ("s@1",))
    assert await state_of(storage, "s@1") is State.QUEUED


async def unfinished(storage: Storage, state: State) -> int:
    """Bring the job of the first tick into an unfinished state; returns the version of the schedule."""
    version = await set1(storage)
    run_at = T0 + HOUR if state is State.SCHEDULED else None
    version = (await fire1(storage, version, tick(1, run_at=run_at, group="g"))).version
    if state in (State.RUNNING, State.RETRYING):
        claim = await claim1(storage)
        if state is State.RETRYING:
            await storage.settle([retried(claim, delay=HOUR)])
    assert await state_of(storage, "s@1") is state
    return version


UNFINISHED = (State.QUEUED, State.SCHEDULED, State.RUNNING, State.RETRYING)


@pytest.mark.parametrize("state", UNFINISHED)
async def test_overlap_skip_puts_no_job_while_the_last_is_unfinished(storage: Storage, state: State) -> None:
    """The tick is skipped and counted, and the cursor moves."""
    version = await unfinished(storage, state)
    answer = await fire1(storage, version, tick(2), tick(3), overlap="skip")
    assert answer == Fired(answer.version, skipped=2)
    found = await stored(storage)
    assert (found.fired, found.skipped, found.last_id, found.cursor) == (1, 2, "s@1", T0 + 3 * MINUTE)
    assert ids(await find_all(storage)) == ["s@1"]


@pytest.mark.parametrize("ttl", [0, HOUR])
@pytest.mark.parametrize("end", [complete, fail, cancel_run])
async def test_overlap_skip_puts_a_job_when_the_last_has_ended(
    storage: Storage, end: Callable[..., Settlement], ttl: int
) -> None:
    """Completed, failed or cancelled, kept or not: the next tick fires."""
    version = (await fire1(storage, await set1(storage), tick(1))).version
    await storage.settle([end(await claim1(storage), ttl=ttl)])
    assert (await fire1(storage, version, tick(2))).ids == ("s@2",)


async def test_overlap_skip_judges_one_tick_after_the_other(storage: Storage) -> None:
    """The job of the first due tick is unfinished for the second."""
    answer = await fire1(storage, await set1(storage), tick(1), tick(2), tick(3), overlap="skip")
    assert answer == Fired(answer.version, fired=1, skipped=2, ids=("s@1",))


@pytest.mark.parametrize("state", UNFINISHED)
async def test_overlap_allow_puts_the_job_all_the_same(storage: Storage, state: State) -> None:
    """The last job does not matter."""
    version = await unfinished(storage, state)
    assert (await fire1(storage, version, tick(2), overlap="allow")).ids == ("s@2",)
    assert await state_of(storage, "s@1") is state


async def test_overlap_queue_runs_jobs_of_a_group_in_order(storage: Storage) -> None:
    """The job waits behind the last one in its group."""
    version = await unfinished(storage, State.RUNNING)
    answer = await fire1(storage, version, tick(2, group="g"), tick(3, group="g"), overlap="queue")
    assert answer.ids == ("s@2", "s@3")
    assert await claim_all(storage) == []


async def test_overlap_queue_drops_ticks_beyond_the_room(storage: Storage, clock: Clock) -> None:
    """Ticks for which the group has no room are dropped and counted; running jobs and other groups take none."""
    version = await unfinished(storage, State.RUNNING)
    await storage.put([replace(tick(9).job, id="other", group="h"), replace(tick(9).job, id="soon", run_at=T0 + 5)])
    ticks = [tick(n, group="g") for n in range(2, 6)]
    answer = await fire1(storage, version, *ticks, overlap="queue", room=2)
    assert answer == Fired(answer.version, fired=2, dropped=2, ids=("s@2", "s@3"))
    found = await stored(storage)
    assert (found.dropped, found.last_id, found.cursor) == (2, "s@3", T0 + 5 * MINUTE)
    answer = await fire1(storage, answer.version, tick(6, group="g"), overlap="queue", room=3)
    assert (answer.fired, answer.dropped) == (1, 0)
    answer = await fire1(storage, answer.version, tick(7, group="g"), overlap="queue", room=3)
    assert (answer.fired, answer.dropped) == (0, 1)


async def test_overlap_queue_counts_jobs_that_became_due(storage: Storage, clock: Clock) -> None:
    """A job of the group that was put for later counts from its time on."""
    version = await set1(storage)
    later = tick(1, group="g", run_at=T0 + SECOND)
    version = (await fire1(storage, version, later, overlap="queue", room=1)).version
    answer = await fire1(storage, version, tick(2, group="g", run_at=T0 + HOUR), overlap="queue", room=1)
    assert answer.fired == 1
    clock.advance(ms=SECOND)
    answer = await fire1(storage, answer.version, tick(3, group="g"), overlap="queue", room=1)
    assert (answer.fired, answer.dropped) == (0, 1)


@pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED, State.RETRYING])
@pytest.mark.parametrize("overlap", ["replace", "kill"])
async def test_overlap_replace_cancels_a_waiting_job(storage: Storage, state: State, overlap: Overlap) -> None:
    """The last job ends as cancelled and is kept for the TTL of the firing; the next one is put."""
    version = await unfinished(storage, state)
    answer = await fire1(storage, version, tick(2, group="g"), overlap=overlap, cancel_ttl=HOUR)
    assert answer == Fired(answer.version, fired=1, ids=("s@2",))
    gone = await get1(storage, "s@1")
    assert (gone.state, gone.expires) == (State.CANCELLED, T0 + HOUR)
    assert (await stored(storage)).last_id == "s@2"
    assert (await claim1(storage)).id == "s@2"


@pytest.mark.parametrize(("overlap", "mode"), [("replace", "signal"), ("kill", "kill")])
async def test_overlap_replace_requests_the_end_of_a_running_job(storage: Storage, overlap: Overlap, mode: str) -> None:
    """The run is cancelled by `signal` or `kill`, and the next job starts when it has ended."""
    version = await set1(storage)
    version = (await fire1(storage, version, tick(1, group="g"))).version
    claim = await claim1(storage)
    answer = await fire1(storage, version, tick(2, group="g"), overlap=overlap)
    assert answer.ids == ("s@2",)
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(True, mode)]  # type: ignore[arg-type]
    assert await claim_all(storage) == []
    await storage.settle([cancel_run(claim)])
    assert (await claim1(storage)).id == "s@2"


async def test_overlap_replace_of_several_ticks_leaves_the_newest(storage: Storage) -> None:
    """Each tick replaces the one before."""
    version = await set1(storage)
    answer = await fire1(storage, version, tick(1), tick(2), tick(3), overlap="replace", cancel_ttl=HOUR)
    assert (answer.fired, answer.ids) == (3, ("s@1", "s@2", "s@3"))
    assert await storage.counts("q") == tally(queued=1, cancelled=2)
    assert await run_order(storage) == ["s@3"]


async def test_a_manual_firing_changes_neither_counters_nor_cursor(storage: Storage) -> None:
    """A tick by hand puts a job that is the last one from then on, and the version changes."""
    version = await set1(storage)
    answer = await fire1(storage, version, tick(7), manual=True, missed=5, cursor=1, next=2)
    assert (answer.fired, answer.ids) == (1, ("s@7",))
    expected = record(version=answer.version, last_id="s@7", last_at=T0 + 7 * MINUTE)
    assert await stored(storage) == expected
    again = await fire1(storage, answer.version, tick(8), manual=True, overlap="skip")
    assert (again.fired, again.skipped) == (0, 1)
    found = await stored(storage)
    assert (found.fired, found.skipped) == (0, 0)


async def test_fire_ignores_the_pause_of_the_queue(storage: Storage) -> None:
    """Ticks of a paused queue go on being put; their jobs wait."""
    version = await set1(storage)
    await storage.set_pause("q", True)
    assert (await fire1(storage, version, tick(1))).fired == 1
    assert await claim_all(storage) == []
    assert await storage.counts("q") == tally(queued=1)


async def test_fire_ends_jobs_that_have_expired_first(storage: Storage, clock: Clock) -> None:
    """A last job that was not started by its time is finished: the next tick is not skipped."""
    version = await set1(storage)
    version = (await fire1(storage, version, tick(1, start_by=T0 + SECOND))).version
    clock.advance(ms=SECOND)
    assert (await fire1(storage, version, tick(2))).ids == ("s@2",)
    assert await state_of(storage, "s@1") is State.CANCELLED


@pytest.mark.parametrize("steps", [(0, 1, 0), (1, 0, 1)])
async def test_workers_that_fire_the_same_tick_put_one_job(storage: Storage, steps: Sequence[int]) -> None:
    """Of several workers that decided on the same record, one fires; the job does not depend on which."""
    version = await set1(storage)
    mine = [firing(version, tick(1)), firing(version, tick(1), tick(2), overlap="allow")]
    answers = [(await scheduling(storage).fire([mine[step]]))[0] for step in steps]
    assert [each.stale for each in answers] == [False, True, True]
    assert (await stored(storage)).fired == len(answers[0].ids)
