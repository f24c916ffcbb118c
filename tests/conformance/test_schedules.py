"""set_schedule, get_schedule, drop_schedule, schedules: a schedule is created, changed, listed and deleted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.model.job import State
from penstock.storage.base import Request, Storage
from penstock.storage.scheduling import SchedulePage
from tests.schedules import fire1, firing, record, scheduling, set1, stored, tick
from tests.support import (
    DAY,
    LEASE,
    MINUTE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_answer,
    complete,
    ids,
    put1,
    state_of,
    tally,
)

pytestmark = pytest.mark.one_per_engine


async def test_set_schedule_creates_a_record_that_get_schedule_returns(storage: Storage) -> None:
    """A schedule is stored with all its fields; a new one begins with the counters and the last job given."""
    given = record(
        spec=b"\x00\xffspec", last_id="s@0", last_at=T0 - 1, fired=3, skipped=4, missed=5, dropped=6, expires=T0 + DAY
    )
    version = await scheduling(storage).set_schedule(given, 0)
    assert version is not None
    assert version > 0
    assert await stored(storage) == replace(given, version=version)
    assert await scheduling(storage).get_schedule("q", "other") is None
    assert await scheduling(storage).get_schedule("other", "s") is None


async def test_set_schedule_with_another_version_changes_nothing(storage: Storage, clock: Clock) -> None:
    """Only who knows the version of the stored schedule replaces it: 0 if there is none."""
    verbs = scheduling(storage)
    assert await verbs.set_schedule(record(), 7) is None
    assert await verbs.get_schedule("q", "s") is None
    version = await set1(storage)
    for other in (0, version - 1, version + 1):
        late = firing(other, tick(1))
        assert await verbs.set_schedule(record(spec=b"new"), other, late) is None
    assert (await stored(storage)).spec == b"x"
    assert await storage.counts("q") == tally()
    newer = await verbs.set_schedule(record(spec=b"new"), version)
    assert newer is not None
    assert newer > version
    clock.advance(ms=5)
    newest = await verbs.set_schedule(record(spec=b"newest"), newer)
    assert newest is not None
    assert newest > newer
    assert await stored(storage) == record(spec=b"newest", version=newest)


async def test_set_schedule_keeps_the_counters_and_the_last_job(storage: Storage) -> None:
    """A changed schedule goes on counting, whatever counters are given."""
    version = await set1(storage)
    version = (await fire1(storage, version, tick(1), missed=2)).version
    edited = record(spec=b"new", cursor=T0 + 5, next=None, fired=99, missed=99, last_id="no", last_at=1)
    version = await scheduling(storage).set_schedule(edited, version)
    assert version is not None
    expected = record(
        spec=b"new", cursor=T0 + 5, next=None, version=version, fired=1, missed=2, last_id="s@1", last_at=T0 + MINUTE
    )
    assert await stored(storage) == expected


async def test_set_schedule_fires_the_ticks_that_were_due_before_the_change(storage: Storage, clock: Clock) -> None:
    """The firing is carried out in the same step; cursor and next tick are those of the new record."""
    version = await set1(storage)
    clock.advance(seconds=120)
    late = firing(version, tick(1), tick(2), overlap="allow", missed=1)
    version = await scheduling(storage).set_schedule(record(cursor=clock.ms, next=clock.ms + 7), version, late)
    assert version is not None
    found = await stored(storage)
    assert (found.fired, found.missed, found.last_id, found.last_at) == (2, 1, "s@2", T0 + 2 * MINUTE)
    assert (found.cursor, found.next) == (clock.ms, clock.ms + 7)
    assert await storage.counts("q") == tally(queued=2)


async def test_set_schedule_creates_one_with_a_tick_by_hand(storage: Storage) -> None:
    """A manual firing of a new schedule puts its job, which is the last one from then on."""
    by_hand = firing(0, tick(0), manual=True)
    version = await scheduling(storage).set_schedule(record(), 0, by_hand)
    assert version is not None
    expected = record(version=version, last_id="s@0", last_at=T0)
    assert await stored(storage) == expected
    assert (await fire1(storage, version, tick(1))).skipped == 1


async def test_a_schedule_that_is_dropped_and_created_again_has_another_version(storage: Storage, clock: Clock) -> None:
    """A firing that was decided for the dropped one is stale."""
    version = await set1(storage)
    version = (await fire1(storage, version)).version
    assert await scheduling(storage).drop_schedule("q", "s", version)
    clock.advance(ms=2)
    again = await set1(storage)
    assert again != version
    assert (await fire1(storage, version, tick(1))).stale


async def test_drop_schedule_needs_the_version_and_leaves_the_jobs(storage: Storage) -> None:
    """A schedule is deleted by who knows its version; the jobs of its ticks stay."""
    verbs = scheduling(storage)
    assert not await verbs.drop_schedule("q", "s", 0)
    version = await set1(storage)
    assert not await verbs.drop_schedule("q", "s", version + 1)
    version = (await fire1(storage, version, tick(1))).version
    assert await verbs.drop_schedule("q", "s", version)
    assert not await verbs.drop_schedule("q", "s", version)
    assert await verbs.get_schedule("q", "s") is None
    assert (await verbs.schedules("q")).schedules == []
    assert await state_of(storage, "s@1") is State.QUEUED


async def test_schedules_are_listed_page_by_page_in_the_order_of_their_bytes(storage: Storage) -> None:
    """Pages follow each other by name, of one queue only."""
    names = ["a", "Z", "ä", "€", "𝄞", "nul\0", "a b", "zz"]
    for name in names:
        await set1(storage, name)
    await set1(storage, "elsewhere", queue="other")
    expected = sorted(names, key=str.encode)
    found: list[str] = []
    page = await scheduling(storage).schedules("q", limit=3)
    while page.cursor is not None:
        assert len(page.schedules) == 3
        found += [each.name for each in page.schedules]
        page = await scheduling(storage).schedules("q", page.cursor, 3)
    found += [each.name for each in page.schedules]
    assert found == expected
    assert [each.name for each in (await scheduling(storage).schedules("q", "a")).schedules] == expected[2:]
    whole = await scheduling(storage).schedules("q", limit=len(names))
    assert whole.cursor is None
    assert len(whole.schedules) == len(names)
    assert await scheduling(storage).schedules("nothing") == SchedulePage([])


@pytest.mark.beyond_model
async def test_a_page_of_schedules_ends_with_the_record_that_reaches_the_bound_of_bytes(storage: Storage) -> None:
    """Large records make short pages, of one at least."""
    for name in "abc":
        await set1(storage, name, spec=b"x" * 2_500_000, next=None)
    page = await scheduling(storage).schedules("q")
    assert [each.name for each in page.schedules] == ["a", "b"]
    assert page.cursor == "b"
    rest = await scheduling(storage).schedules("q", page.cursor)
    assert [each.name for each in rest.schedules] == ["c"]
    assert rest.cursor is None
    with pytest.raises(ValueError, match="limit"):
        await scheduling(storage).schedules("q", limit=0)


async def test_a_schedule_is_forgotten_when_it_expires(storage: Storage, clock: Clock) -> None:
    """From then on no verb returns it, its name is free, and purge deletes it."""
    verbs = scheduling(storage)
    version = await set1(storage, expires=T0 + SECOND, next=None)
    await set1(storage, "kept", next=None)
    clock.advance(ms=SECOND - 1)
    assert await storage.purge(["q"]) == 0
    assert (await stored(storage)).version == version
    clock.advance(ms=1)
    assert await verbs.get_schedule("q", "s") is None
    assert [each.name for each in (await verbs.schedules("q")).schedules] == ["kept"]
    assert (await fire1(storage, version, tick(1))).stale
    assert not await verbs.drop_schedule("q", "s", version)
    assert await storage.purge(["q"]) == 1
    assert await storage.purge(["q"]) == 0
    assert await verbs.set_schedule(record(), 0) is not None


async def test_an_expired_schedule_is_replaced_without_its_counters(storage: Storage, clock: Clock) -> None:
    """One that has expired and was not purged yet is as if it were not there."""
    version = await set1(storage, expires=T0 + SECOND)
    await fire1(storage, version, tick(1))
    clock.advance(ms=SECOND)
    version = await set1(storage, next=None)
    assert await stored(storage) == record(version=version, next=None)
    assert await storage.purge(["q"]) == 0


async def test_fire_sets_the_expiry_of_the_last_tick(storage: Storage, clock: Clock) -> None:
    """A firing may also set when the schedule is forgotten."""
    version = await set1(storage)
    await fire1(storage, version, tick(1), next=None, expires=T0 + DAY)
    assert (await stored(storage)).expires == T0 + DAY
    clock.advance(ms=DAY)
    assert await scheduling(storage).get_schedule("q", "s") is None


async def test_queues_lists_a_queue_with_a_schedule(storage: Storage, clock: Clock) -> None:
    """A queue without jobs is listed while it has a schedule, also after a purge."""
    assert await storage.queues() == []
    version = await set1(storage, next=None)
    await set1(storage, queue="other", expires=T0 + SECOND)
    assert await storage.purge(["q", "other"]) == 0
    assert await storage.queues() == ["other", "q"]
    clock.advance(ms=SECOND)
    assert await storage.queues() == ["q"]
    assert await scheduling(storage).drop_schedule("q", "s", version)
    assert await storage.queues() == []


async def test_delete_queue_leaves_the_schedules(storage: Storage, clock: Clock) -> None:
    """The jobs of a deleted queue go, its schedules stay as they were and go on ticking."""
    verbs = scheduling(storage)
    version = (await fire1(storage, await set1(storage), tick(1))).version
    before = await stored(storage)
    assert await storage.delete_queue("q") == 1
    assert await stored(storage) == before
    assert await storage.queues() == ["q"]
    assert await storage.counts("q") == tally()
    assert (await claim_answer(storage)).tick_at == T0 + 2 * MINUTE
    clock.advance(ms=2 * MINUTE)
    assert (await verbs.due(["q"], "w")).schedules == [before]
    assert (await fire1(storage, version, tick(2))).fired == 1
    assert (await claim1(storage)).id == "s@2"


async def test_delete_queue_with_settings_takes_the_schedules(storage: Storage) -> None:
    """With `settings` nothing of a queue is left."""
    await set1(storage)
    await set1(storage, queue="other")
    await put1(storage, "q", "a")
    assert await storage.delete_queue("q", settings=True) == 1
    assert await scheduling(storage).get_schedule("q", "s") is None
    assert await storage.queues() == ["other"]
    assert (await claim_answer(storage)).tick_at is None
    assert await storage.delete_queue("other", settings=True) == 0
    assert await storage.queues() == []


async def test_claim_answers_the_earliest_next_tick_of_its_queues(storage: Storage) -> None:
    """`tick_at` is that of the queues asked for, paused and empty ones too."""
    assert (await claim_answer(storage)).tick_at is None
    await set1(storage, "a", next=T0 + 5)
    version = await set1(storage, "b", next=T0 + 3)
    await set1(storage, queue="other", next=T0 + 4)
    await set1(storage, queue="r", next=None)
    assert (await claim_answer(storage)).tick_at == T0 + 3
    requests = [Request("other", 1), Request("r", 1), Request("q", 1)]
    assert (await storage.claim(requests, "w", LEASE, "t")).tick_at == T0 + 3
    assert (await storage.claim(requests[:2], "w", LEASE, "t")).tick_at == T0 + 4
    assert (await storage.claim(requests[1:2], "w", LEASE, "t")).tick_at is None
    await storage.set_pause("q", True)
    assert (await claim_answer(storage)).tick_at == T0 + 3
    await storage.set_pause("q", False)
    assert await scheduling(storage).drop_schedule("q", "b", version)
    await put1(storage, "q", "j")
    answer = await claim_answer(storage)
    assert (ids(answer.claims), answer.tick_at) == (["j"], T0 + 5)
    await storage.settle([complete(answer.claims[0])])
    await storage.put([replace(tick(1).job, id="g", group="g"), replace(tick(1).job, id="h", run_at=T0 - 5)])
    answer = await claim_answer(storage, batch=2)
    assert (sorted(ids(answer.claims)), answer.tick_at) == (["g", "h"], T0 + 5)
