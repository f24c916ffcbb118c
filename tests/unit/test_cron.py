"""`Cron` and `Every`: the instants of a schedule, in every zone, and the errors of their arguments."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.cron import Cron, zone_of
from penstock.model.every import Every
from tests.support import share_of
from tests.unit.cron_by_search import ZONES, instants, random_case

PARIS = "Europe/Paris"
SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)
#: For arguments that a type checker refuses.
untyped: Any = Cron
untyped_every: Any = Every


def upcoming(when: Cron | Every, after: datetime, count: int) -> list[str]:
    """Return the next times, each found from the one before; `between` must give the same."""
    found: list[datetime] = []
    at = after
    while len(found) < count:
        at = when.after(at)
        assert at is not None
        assert at.tzinfo is UTC
        found.append(at)
    assert list(islice(when.between(after, at), count + 1)) == found
    return [f"{each:%m-%d %H:%M}" for each in found]


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("30 2 * * *", SPRING, ["03-29 01:00", "03-30 00:30", "03-31 00:30"]),
        ("0,15,45 2 * * *", SPRING, ["03-29 01:00", "03-30 00:00", "03-30 00:15", "03-30 00:45"]),
        ("30 2 * * *", AUTUMN, ["10-25 00:30", "10-26 01:30", "10-27 01:30"]),
        ("*/30 2 * * *", SPRING, ["03-30 00:00", "03-30 00:30"]),
        ("*/30 2 * * *", AUTUMN, ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30", "10-26 01:00"]),
        ("0 * * * *", datetime(2026, 3, 29, 0, 30, tzinfo=UTC), ["03-29 01:00", "03-29 02:00"]),
        ("0 * * * *", datetime(2026, 10, 24, 23, 30, tzinfo=UTC), ["10-25 00:00", "10-25 01:00", "10-25 02:00"]),
        ("30 2 * * *", datetime(2026, 10, 25, 1, 15, tzinfo=UTC), ["10-26 01:30"]),
        ("*/30 2 25 10 *", SPRING, ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30"]),
        # 2026-03-29 has no 02:00 in Paris, 2027-03-29 has.
        ("*/20 2 29 3 *", datetime(2026, 1, 1, tzinfo=UTC), ["03-29 00:00", "03-29 00:20", "03-29 00:40"]),
        ("*/30 0 2 * * *", SPRING, ["03-29 01:00", "03-30 00:00", "03-30 00:00", "03-31 00:00"]),
    ],
)  # fmt: skip
def test_a_cron_in_a_gap_and_in_a_fold(expression: str, after: datetime, expected: list[str]) -> None:
    """By the wall clock a gap is one tick at its end and a repeated time counts once; by elapsed time both, or none."""
    assert upcoming(Cron(expression, tz=PARIS), after, len(expected)) == expected


def test_days_of_month_and_week_are_alternatives_if_both_are_given() -> None:
    """The 13th and every Friday, as in Debian's cron."""
    found = upcoming(Cron("0 0 13 * 5"), datetime(2026, 1, 1, tzinfo=UTC), 4)
    assert found == ["01-02 00:00", "01-09 00:00", "01-13 00:00", "01-16 00:00"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("@hourly", "01-01 01:00"),
        ("@daily", "01-02 00:00"),
        ("@midnight", "01-02 00:00"),
        ("@weekly", "01-04 00:00"),
        ("@monthly", "02-01 00:00"),
        ("@Yearly", "01-01 00:00"),
        ("@annually", "01-01 00:00"),
        ("0 0 L * *", "01-31 00:00"),
        ("0 0 LW * *", "01-30 00:00"),
        ("0 0 * * 5L", "01-30 00:00"),
        ("0 0 * * 1#2", "01-12 00:00"),
        ("0 0 * feb-MAR sun", "02-01 00:00"),
        ("  5   0 * *  * ", "01-01 00:05"),
        ("15 5 0 * * *", "01-01 00:05"),
    ],
)
def test_the_forms_of_an_expression(expression: str, expected: str) -> None:
    """Names, last days, weekdays of a month, macros, spaces, and a sixth field for seconds are known."""
    assert upcoming(Cron(expression), datetime(2026, 1, 1, tzinfo=UTC), 1) == [expected]


@pytest.mark.parametrize(
    "expression",
    [
        "", "*", "* * * *", "* * * * * * *", "@reboot", "@every", "H * * * *", "? * * * *", "0 0 ? * *", "0 0 * * ?",
        "60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 30 2 *", "0 0 31 4,6 *", "*/0 * * * *", "5-1 * * * *",
        "a * * * *", "0 0 30 2 mon#1,tue#1 x", "0 0 1 1 1#6", "² * * * *", f"{'0,' * 500}0 * * * *",
    ],
)  # fmt: skip
def test_a_bad_expression_is_a_value_error_that_names_it(expression: str) -> None:
    """Fields out of range, unknown letters, other numbers of fields, and expressions without a match are refused."""
    with pytest.raises(ValueError, match=r"^expression "):
        Cron(expression)


def test_an_expression_that_matches_no_day_in_50_years_is_refused() -> None:
    """Day and weekday must both match where one of the fields starts with a star."""
    with pytest.raises(ValueError, match="matches no time in 50 years"):
        Cron("0 0 */31 * 1#5")  # the 1st is no fifth Monday


@pytest.mark.parametrize("tz", ["Mars/X", "", "Europe", "../../etc/passwd", "/etc/localtime", "localtime", "right/UTC"])
def test_a_bad_zone_is_a_value_error_that_names_it(tz: str) -> None:
    """Unknown zones, folders and paths are refused, and so are zones that differ between machines."""
    with pytest.raises(ValueError, match=r"^tz must be the name of a time zone"):
        Cron("* * * * *", tz=tz)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped(5), "expression must be a str, not int"),
        (lambda: untyped("* * * * *", tz=None), "tz must be the name of a time zone, not NoneType"),
        (lambda: untyped("* * * * *").after(0), "moment must be an aware datetime, not int"),
        (lambda: next(untyped("* * * * *").between(SPRING, "b")), "b must be an aware datetime, not str"),
        (lambda: untyped_every("60"), "span must be seconds or a timedelta, not str"),
        (lambda: untyped_every(minutes="1"), "minutes must be seconds or a timedelta, not str"),
    ],
)
def test_an_argument_of_another_type_is_a_type_error_that_names_it(call: Callable[[], Any], message: str) -> None:
    """Arguments are checked at run time too."""
    with pytest.raises(TypeError, match=message):
        call()


def test_a_moment_without_a_zone_is_refused() -> None:
    """A naive datetime could mean any instant."""
    for when in (Cron("* * * * *"), Every(60)):
        with pytest.raises(ValueError, match="moment must be an aware datetime"):
            when.after(datetime(2026, 1, 1))


def test_a_cron_is_a_value() -> None:
    """Equal expressions in equal zones are equal, hash equally, and survive copies; others differ."""
    cron = Cron(" 0  2 * * *", tz=PARIS)
    assert repr(cron) == "Cron('0 2 * * *', tz='Europe/Paris')"
    assert cron == Cron("0 2 * * *", tz=PARIS) == copy.deepcopy(cron) == pickle.loads(pickle.dumps(cron))
    assert len({cron, Cron("0 2 * * *", tz=PARIS), Cron("0 2 * * *")}) == 2
    with pytest.raises(AttributeError):
        cron.tz = "UTC"  # type: ignore[misc]


def test_a_moment_between_seconds_and_in_another_zone() -> None:
    """The next instant is strictly after the moment, whatever its zone and its microseconds."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    tick = timedelta(microseconds=1)
    for when in (Cron("0 12 * * *"), Every(days=1, phase=43_200)):
        assert when.after(noon - tick) == noon
        assert when.after(noon) == when.after(noon + tick) == noon + timedelta(days=1)
        assert when.after((noon - tick).astimezone(timezone(timedelta(hours=5)))) == noon


def test_there_is_nothing_after_the_year_9999() -> None:
    """The last instants of the calendar end the search, without an error."""
    last = datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC)
    for when in (Cron("* * * * *"), Cron("0 5 * * *", tz=PARIS), Cron("0 0 29 2 *"), Every(60)):
        assert when.after(last) is None
        assert list(when.between(last, last + timedelta(seconds=29))) == []


def check(tz: str, draw: random.Random) -> None:
    """Compare a random expression with the search, from a random moment on."""
    fields, after, until = random_case(draw, tz)
    expected = instants(fields, tz, after, until)
    cron = Cron(fields.expression, tz=tz)
    assert list(cron.between(after, until)) == expected, (fields.expression, tz, after, until)
    at, found = after, []
    while (at := cron.after(at)) is not None and at <= until and len(found) < 5:
        assert at > (found[-1] if found else after)
        found.append(at)
    assert found == expected[:5], (fields.expression, tz, after, until)


@settings(max_examples=share_of(150))
@given(tz=st.sampled_from(ZONES), seed=st.integers(0, 2**32))
def test_a_cron_equals_a_search_through_all_instants(tz: str, seed: int) -> None:
    """In any zone from 1990 to 2040, from any moment, inside of gaps and folds too."""
    check(tz, random.Random(seed))


def test_a_cron_equals_a_search_in_every_zone() -> None:
    """Each zone of the database once, near a change of its clock if the year has one."""
    draw = random.Random(2030)
    for tz in ZONES:
        check(tz, draw)


def test_every_zone_of_the_database_is_known() -> None:
    """Zones come from the machine or from the package tzdata."""
    assert len(ZONES) > 400
    assert all(zone_of(tz).key == tz for tz in ZONES)


@settings(max_examples=share_of(300))
@given(text=st.text(alphabet="0123456789*,-/#LWHadefnru ?@", max_size=24))
def test_any_text_is_a_cron_or_a_value_error(text: str) -> None:
    """The parser raises nothing else, and what it accepts has an instant."""
    with contextlib.suppress(ValueError):
        cron = Cron(text)
        assert cron.after(SPRING) is not None


def test_an_interval_counts_from_1970_or_from_a_start() -> None:
    """Restarts do not shift it; a phase does, and a start is the first time itself, rounded up to a second."""
    noon = datetime(2030, 1, 1, 12, 0, 7, tzinfo=UTC)
    assert upcoming(Every(minutes=15), noon, 2) == ["01-01 12:15", "01-01 12:30"]
    assert upcoming(Every(timedelta(minutes=15), phase=300), noon, 2) == ["01-01 12:05", "01-01 12:20"]
    assert Every(hours=1, minutes=30) == Every(5400)
    late = noon + timedelta(milliseconds=500)
    assert Every(60).after(noon, start=late) == noon + timedelta(seconds=1)
    assert Every(60).after(noon + timedelta(seconds=1), start=late) == noon + timedelta(seconds=61)
    assert list(Every(60).between(noon, noon + timedelta(seconds=60), start=noon)) == [noon + timedelta(seconds=60)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Every(), "span must be given"),
        (lambda: Every(60, minutes=1), "give span or minutes, not both"),
        (lambda: Every(0.5), "span must be whole seconds, not 0.5"),
        (lambda: Every(1.0000001), "span must be whole seconds"),
        (lambda: Every(timedelta(microseconds=1_000_001)), "span must be whole seconds"),
        (lambda: Every(0), "span must be at least 1 second, not 0"),
        (lambda: Every(-5), "span must not be negative"),
        (lambda: Every(hours=-1), "hours must not be negative"),
        (lambda: Every(float("inf")), "span must not be negative, infinite"),
        (lambda: Every(60, phase=60), "phase must be less than the span of 60 s, not 60"),
        (lambda: Every(60, phase=0.5), "phase must be whole seconds"),
    ],
)
def test_a_bad_interval_is_a_value_error_that_names_the_argument(call: Callable[[], Any], message: str) -> None:
    """At least a second, in whole seconds."""
    with pytest.raises(ValueError, match=message):
        call()


def test_an_interval_is_a_value() -> None:
    """Equal spans and phases are equal."""
    assert repr(Every(60)) == "Every(60)"
    assert repr(Every(60, phase=5)) == "Every(60, phase=5)"
    assert {Every(60), Every(minutes=1)} == {Every(seconds=60)}
