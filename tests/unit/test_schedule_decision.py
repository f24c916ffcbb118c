"""The decision of a schedule: every nominal time is fired, skipped, missed or dropped, exactly once."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.cron import Cron
from penstock.model.every import Every
from penstock.model.schedule import Schedule, ScheduleSpec
from penstock.model.schedule_decision import MAX_COUNTED, MAX_FIRES, Decision, decide
from tests.support import share_of

T = 1_893_456_000_000  # 2030-01-01
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def spec_of(when: Cron | Every | None = None, **options: Any) -> ScheduleSpec:
    return Schedule(when or Every(60), **options).spec(b"")


def minutes(first: int, last: int) -> tuple[int, ...]:
    return tuple(T + minute * MINUTE for minute in range(first, last + 1))


def test_nothing_is_due_between_two_ticks() -> None:
    """The cursor stays, and the next time is known."""
    assert decide(spec_of(), T, T + 59_999) == Decision((), (), T, T + MINUTE)


def test_a_tick_on_time_fires() -> None:
    """The cursor is the tick."""
    assert decide(spec_of(), T, T + MINUTE) == Decision((T + MINUTE,), (), T + MINUTE, T + 2 * MINUTE)


def test_after_an_hour_the_latest_tick_fires_and_the_others_are_missed() -> None:
    """The tick of this very moment is not late, so no late one fires."""
    assert decide(spec_of(), T, T + HOUR) == Decision((T + HOUR,), minutes(1, 59), T + HOUR, T + HOUR + MINUTE)


def test_the_latest_late_tick_fires_if_no_other_does() -> None:
    """Forty seconds after the hour, its tick is later than the grace of 30 seconds."""
    found = decide(spec_of(), T, T + HOUR + 40_000)
    assert found == Decision((T + HOUR,), minutes(1, 59), T + HOUR, T + HOUR + MINUTE)
    assert decide(spec_of(catch_up="skip"), T, T + HOUR + 40_000).fires == ()
    assert decide(spec_of(catch_up="skip"), T, T + HOUR + 40_000).missed == minutes(1, 60)


def test_all_late_ticks_up_to_most_fire_in_order() -> None:
    """Ten seconds after the hour: the newest ten late ones, and the one that is not late."""
    found = decide(spec_of(catch_up="all", most=10), T, T + HOUR + 10_000)
    assert found == Decision(minutes(50, 60), minutes(1, 49), T + HOUR, T + HOUR + MINUTE)


def test_the_grace_includes_its_end() -> None:
    """A tick that is exactly as late as the grace fires, a millisecond later it is late."""
    spec = spec_of(catch_up="skip", grace=30)
    assert decide(spec, T, T + MINUTE + 30_000).fires == (T + MINUTE,)
    assert decide(spec, T, T + MINUTE + 30_001).missed == (T + MINUTE,)


def test_all_ticks_within_the_grace_fire() -> None:
    """However many there are: a decision fires five hundred, and the next one is due at once."""
    spec = spec_of(Every(1), grace=3600, catch_up="skip")
    now = T + 1_250_000
    first = decide(spec, T, now)
    assert len(first.fires) == MAX_FIRES
    assert (first.cursor, first.next, first.missed) == (T + 500_000, T + 501_000, ())
    second = decide(spec, first.cursor, now)
    third = decide(spec, second.cursor, now)
    assert [*first.fires, *second.fires, *third.fires] == [T + second * 1000 for second in range(1, 1251)]
    assert third.next == T + 1_251_000


def test_counting_stops_and_the_newest_ticks_fire_all_the_same() -> None:
    """A second schedule after a year: ten thousand are counted, the newest ones fire, and the cursor is the last."""
    now = T + 365 * DAY
    for when, last in ((Every(1), now), (Cron("* * * * * *"), now), (Cron("*/5 * * * *"), now)):
        found = decide(spec_of(when, grace=0, catch_up="all", most=20), T, now)
        assert len(found.missed) == MAX_COUNTED - 20
        assert len(found.fires) == 21
        assert (found.fires[-1], found.cursor) == (last, last)
        assert list(found.fires) == sorted(found.fires)
        assert not set(found.fires) & set(found.missed)
    assert decide(spec_of(Every(1), grace=0), T, now + 500).fires == (now,)
    late = decide(spec_of(Every(1), grace=0, catch_up="skip"), T, now + 500)
    assert (late.fires, len(late.missed), late.cursor) == ((), MAX_COUNTED, now)


def test_a_clock_set_back_repeats_nothing() -> None:
    """The next tick is the one after the cursor."""
    assert decide(spec_of(), T + HOUR, T) == Decision((), (), T + HOUR, T + HOUR + MINUTE)


def test_after_its_end_a_schedule_has_no_next_tick() -> None:
    """The last one is at the end, if it is a nominal time."""
    spec = spec_of(end=(T + 2 * MINUTE) / 1000)
    assert decide(spec, T, T + MINUTE).next == T + 2 * MINUTE
    assert decide(spec, T + MINUTE, T + 2 * MINUTE) == Decision((T + 2 * MINUTE,), (), T + 2 * MINUTE, None)
    assert decide(spec, T + 2 * MINUTE, T + DAY) == Decision((), (), T + 2 * MINUTE, None)


def test_before_its_start_a_schedule_has_a_next_tick() -> None:
    """The start itself, for an interval."""
    assert decide(spec_of(start=T / 1000 + 90), T, T + MINUTE) == Decision((), (), T, T + 90_000)


WHENS: list[Cron | Every] = [
    Every(1), Every(7), Every(60), Every(3600, phase=30), Cron("*/5 * * * *"), Cron("30 2 * * *", tz="Europe/Paris"),
    Cron("*/20 * * * * *", tz="America/New_York"), Cron("0 9 * * 1-5"),
]  # fmt: skip


@settings(max_examples=share_of(200), deadline=None)
@given(
    when=st.sampled_from(WHENS),
    catch_up=st.sampled_from(["skip", "latest", "all"]),
    grace=st.sampled_from([0, 30, 600]),
    most=st.integers(1, 12),
    bounds=st.tuples(st.none() | st.integers(0, 9000), st.none() | st.integers(9000, 20_000)),
    seed=st.integers(0, 2**32),
)
def test_each_nominal_time_is_decided_exactly_once_whatever_the_split_of_the_calls(
    when: Cron | Every, catch_up: Any, grace: int, most: int, bounds: tuple[Any, Any], seed: int
) -> None:
    """Fired and missed ones together are all nominal times up to the cursor; fired ones ascend."""
    start, end = ((None if part is None else T / 1000 + part) for part in bounds)
    spec = spec_of(when, catch_up=catch_up, grace=grace, most=most, start=start, end=end)
    draw, cursor, now = random.Random(seed), T, T
    fired: list[int] = []
    decided: list[int] = []
    for _ in range(draw.randint(1, 8)):
        now += draw.choice([0, 1, 999, 1000, 20_000, 90_000, 1_000_000, 4_000_000])
        found = decide(spec, cursor, now)
        assert list(found.fires) == sorted(set(found.fires))
        assert all(tick <= now for tick in found.fires)
        assert found.cursor >= cursor
        fired += found.fires
        decided += [*found.missed, *found.fires]
        cursor = found.cursor
        if found.next is not None:
            assert next(spec.following(cursor)) == found.next
            assert found.next > now or len(found.fires) == MAX_FIRES
        left = up_to(spec, cursor, now)
        assert not left or len(found.fires) == MAX_FIRES
    assert sorted(decided) == up_to(spec, T, cursor)
    assert fired == sorted(fired)


def up_to(spec: ScheduleSpec, after: int, until: int) -> list[int]:
    found: list[int] = []
    for tick in spec.following(after):
        if tick > until:
            break
        found.append(tick)
    return found
