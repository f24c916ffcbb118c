"""due: the schedules whose next tick has come go to the holder of the alarm, and to others when it is late."""

from __future__ import annotations

import pytest

from penstock.storage.base import Storage
from penstock.storage.scheduling import DueSchedules
from tests.schedules import fire1, record, scheduling, set1, stored, tick
from tests.support import DAY, MINUTE, SECOND, T0, Clock, put1

pytestmark = pytest.mark.one_per_engine

NOTHING = DueSchedules([], None)


async def due(storage: Storage, worker: str = "w", *queues: str) -> tuple[list[str], int | None]:
    """Return the names of the due schedules, and when to look again."""
    answer = await scheduling(storage).due(queues or ("q",), worker)
    return [each.name for each in answer.schedules], answer.look_at


async def test_due_of_queues_without_ticks_is_nothing(storage: Storage) -> None:
    """Nothing to fire, and no time to look."""
    assert await scheduling(storage).due(["q"], "w") == NOTHING
    assert await scheduling(storage).due([], "w") == NOTHING
    await put1(storage, "q", "a")
    await set1(storage, next=None)
    assert await scheduling(storage).due(["q"], "w") == NOTHING


async def test_due_gives_a_schedule_at_its_next_tick_and_not_before(storage: Storage, clock: Clock) -> None:
    """The holder of the alarm looks at the next tick; when it has come, the whole record is given."""
    version = await set1(storage)
    assert await due(storage) == ([], T0 + MINUTE)
    clock.advance(ms=MINUTE - 1)
    assert await due(storage) == ([], T0 + MINUTE)
    clock.advance(ms=1)
    assert await scheduling(storage).due(["q"], "w") == DueSchedules([record(version=version)], clock.ms)
    await fire1(storage, version, tick(1))
    assert await due(storage) == ([], T0 + 2 * MINUTE)


async def test_due_gives_the_earliest_first_and_a_hundred_at_most(storage: Storage, clock: Clock) -> None:
    """By next tick and name; the rest when these have moved on."""
    names = [f"n{number:03}" for number in range(105)]
    for number, name in enumerate(names):
        await set1(storage, name, next=T0 + 200 - number // 2)
    await set1(storage, "later", next=T0 + 201)
    clock.advance(ms=200)
    expected = sorted(names, key=lambda name: (-(int(name[1:]) // 2), name))
    found, look_at = await due(storage)
    assert (found, look_at) == (expected[:100], clock.ms)
    for name in found:
        await fire1(storage, (await stored(storage, name)).version, name=name, next=None)
    assert await due(storage) == (expected[100:], clock.ms)


async def test_due_gives_the_schedules_of_several_queues(storage: Storage, clock: Clock) -> None:
    """Each queue has its own alarm; the earliest time to look counts."""
    await set1(storage, "a", next=T0 + 5)
    await set1(storage, "b", queue="other", next=T0 + 3)
    assert await due(storage, "w", "q", "other", "r") == ([], T0 + 3)
    clock.advance(ms=3)
    assert await due(storage, "w", "q", "other", "r") == (["b"], clock.ms)
    clock.advance(ms=2)
    assert await due(storage, "w", "q", "other") == (["a", "b"], clock.ms)


async def test_due_keeps_other_workers_away_for_a_second(storage: Storage, clock: Clock) -> None:
    """The holder alone gets what is due; another one gets it when it is a second late, and holds the alarm then."""
    await set1(storage)
    assert await due(storage, "holder") == ([], T0 + MINUTE)
    clock.advance(ms=MINUTE)
    assert await due(storage, "other") == ([], clock.ms + SECOND)
    assert await due(storage, "holder") == (["s"], clock.ms)
    clock.advance(ms=SECOND - 1)
    assert await due(storage, "other") == ([], clock.ms + 1)
    clock.advance(ms=1)
    assert await due(storage, "other") == (["s"], clock.ms)
    version = (await stored(storage)).version
    await fire1(storage, version, tick(1))
    assert await due(storage, "other") == ([], T0 + 2 * MINUTE)
    assert await due(storage, "holder") == ([], clock.ms + 5 * SECOND)


async def test_due_makes_other_workers_look_every_five_seconds(storage: Storage, clock: Clock) -> None:
    """A worker that does not hold the alarm looks again soon, since the holder may have died."""
    await set1(storage, next=T0 + DAY)
    assert await due(storage, "holder") == ([], T0 + DAY)
    assert await due(storage, "other") == ([], T0 + 5 * SECOND)
    clock.advance(ms=DAY - SECOND)
    assert await due(storage, "other") == ([], T0 + DAY + SECOND)


async def test_an_earlier_tick_takes_the_alarm_from_its_holder(storage: Storage, clock: Clock) -> None:
    """The holder looks later than the tick of a schedule that was made since, so the next worker holds the alarm."""
    await set1(storage, "far", next=T0 + DAY)
    assert await due(storage, "holder") == ([], T0 + DAY)
    version = await set1(storage, "near", next=T0 + SECOND)
    assert await due(storage, "other") == ([], T0 + SECOND)
    assert await due(storage, "holder") == ([], T0 + 2 * SECOND)
    assert await scheduling(storage).set_schedule(record("near", next=T0 + MINUTE), version) is not None
    assert await due(storage, "other") == ([], T0 + MINUTE)
    assert await due(storage, "holder") == ([], T0 + 5 * SECOND)


async def test_due_does_not_give_an_expired_schedule(storage: Storage, clock: Clock) -> None:
    """It ticks no more, and does not make the worker look without a pause."""
    await set1(storage, next=T0 + SECOND, expires=T0 + SECOND)
    clock.advance(ms=SECOND)
    assert await due(storage) == ([], clock.ms + 5 * SECOND)
    assert await storage.purge(["q"]) == 1
    assert await due(storage) == ([], None)


async def test_due_gives_nothing_when_the_clock_was_set_back(storage: Storage, clock: Clock) -> None:
    """A tick that was due is due again when its time has come."""
    await set1(storage)
    clock.advance(ms=MINUTE)
    assert await due(storage) == (["s"], clock.ms)
    clock.advance(ms=-1)
    assert await due(storage) == ([], clock.ms + 1)
    clock.advance(ms=1)
    assert await due(storage) == (["s"], clock.ms)


@pytest.mark.beyond_model
async def test_due_gives_fewer_schedules_if_they_are_large(storage: Storage, clock: Clock) -> None:
    """The records of one answer reach the bound of bytes with the last one."""
    for name in "abc":
        await set1(storage, name, spec=b"x" * 2_500_000)
    clock.advance(ms=MINUTE)
    assert await due(storage) == (["a", "b"], clock.ms)
