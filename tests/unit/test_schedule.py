"""`Schedule`, its stored form, `Tick` and its headers, and the errors of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.cron import Cron
from penstock.model.every import Every
from penstock.model.headers import MAX_HEADERS, decode_headers, encode_user_headers, user_headers
from penstock.model.options import JobBounds
from penstock.model.schedule import Schedule, ScheduleSpec, WhenSpec
from penstock.model.tick import Tick, check_schedule_name, jitter_ms, read_tick, tick_headers, tick_id, trigger_id

MAY = datetime(2030, 5, 1, tzinfo=UTC)
MAY_MS = int(MAY.timestamp()) * 1000
#: For arguments that a type checker refuses.
untyped: Any = Schedule


def test_the_defaults_of_a_schedule() -> None:
    """Overlap skips, late ticks give the latest one, and 30 seconds are not late."""
    schedule = Schedule(Every(60))
    assert (schedule.overlap, schedule.catch_up, schedule.grace, schedule.most) == ("skip", "latest", 30_000, 100)
    assert schedule.spec(b"p") == ScheduleSpec(when=WhenSpec(every=60), payload=b"p")


def test_a_schedule_keeps_the_options_of_its_jobs() -> None:
    """Times and spans become milliseconds; bounds and headers are encoded as those of any job."""
    schedule = Schedule(
        Cron("0 2 * * *", tz="Europe/Paris"), name="n", payload=5, start=MAY, end=MAY + timedelta(days=1), jitter=1.5,
        overlap="allow", catch_up="all", grace=timedelta(minutes=1), most=7, at_once=True, priority=3, timeout=9,
        max_retries=1, max_attempts=None, result_ttl=60, headers={"a": "b"}, cost=4,
    )  # fmt: skip
    spec = schedule.spec(b"5")
    assert spec == ScheduleSpec(
        when=WhenSpec(cron="0 2 * * *", tz="Europe/Paris"), start=MAY_MS, end=MAY_MS + 86_400_000, jitter=1500,
        overlap="allow", catch_up="all", grace=60_000, most=7, payload=b"5", headers=encode_user_headers({"a": "b"}),
        bounds=JobBounds.of(9, None, 1, 60).encode(), priority=3, cost=4,
    )  # fmt: skip
    assert (schedule.at_once, spec.tz, spec.when.value()) == (True, "Europe/Paris", schedule.when)
    assert JobBounds.decode(spec.bounds).timeout == 9000
    assert ScheduleSpec.decode(spec.encode()) == spec


def test_a_payload_may_be_a_function_of_the_tick() -> None:
    """A function is not stored; a value is no function."""
    assert Schedule(Every(60), payload=len).payload_function() is len
    assert Schedule(Every(60), payload=5).payload_function() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "name must be 1 to 480 bytes of UTF-8, not 0"),
        ({"name": "é" * 241}, "name must be 1 to 480 bytes of UTF-8, not 482"),
        ({"name": "\ud800"}, "name must be valid Unicode"),
        ({"payload": 1, "kwargs": {}}, "give payload or kwargs, not both"),
        ({"start": datetime(2030, 1, 1)}, "start must be an aware datetime"),
        ({"end": -1}, "end must be a Unix timestamp"),
        ({"start": 2, "end": 1}, "end must not be before start"),
        ({"jitter": -1}, "jitter must not be negative"),
        ({"overlap": "drop"}, "overlap must be one of 'allow', 'skip', 'queue', 'replace', 'kill', not 'drop'"),
        ({"catch_up": True}, "catch_up must be one of 'skip', 'latest', 'all', not True"),
        ({"grace": float("nan")}, "grace must not be negative"),
        ({"most": 0}, "most must be at least 1"),
        ({"most": 1001}, "most must be at most 1000, not 1001"),
        ({"priority": 2**31}, "priority must be between"),
        ({"group": ""}, "group must be 1 to 512 bytes"),
        ({"group": "g", "priority": 1}, "priority does not reorder a group: give group or priority, not both"),
        ({"overlap": "queue", "priority": 1}, "priority does not reorder a group: overlap='queue' puts them into one"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"max_retries": -1}, "max_retries must be at least 0"),
        ({"max_attempts": 0}, "max_attempts must be at least 1"),
        ({"result_ttl": -1}, "result_ttl must not be negative"),
        ({"headers": {"penstock.x": "1"}}, "headers must not begin with 'penstock.'"),
        ({"headers": {"a": "x" * MAX_HEADERS}}, "headers are 327.. bytes together"),
        ({"cost": 0}, "cost must be at least 1, not 0"),
        ({"cost": 10**9 + 1}, "cost must be at most 1000000000"),
    ],
)
def test_a_bad_value_is_a_value_error_that_names_the_argument(arguments: dict[str, Any], message: str) -> None:
    """Every argument is checked before anything is stored."""
    with pytest.raises(ValueError, match=message):
        Schedule(Every(60), **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped("* * * * *"), "when must be a Cron or an Every, not str"),
        (lambda: untyped(60), "when must be a Cron or an Every, not int"),
        (lambda: untyped(Every(60), name=5), "name must be a str, not int"),
        (lambda: untyped(Every(60), kwargs=[1]), "kwargs must be a mapping of the task's arguments by name"),
        (lambda: untyped(Every(60), kwargs={1: 1}), "kwargs must be a mapping of the task's arguments by name"),
        (lambda: untyped(Every(60), start="now"), "start must be an aware datetime or a Unix timestamp"),
        (lambda: untyped(Every(60), jitter="1"), "jitter must be seconds or a timedelta"),
        (lambda: untyped(Every(60), most="1"), "most must be an int"),
        (lambda: untyped(Every(60), at_once=1), "at_once must be True or False, not int"),
        (lambda: untyped(Every(60), priority="1"), "priority must be an int"),
        (lambda: untyped(Every(60), headers={"a": 1}), "headers must map str to str"),
        (lambda: untyped(Every(60), cost=1.5), "cost must be an int"),
        (lambda: untyped(Every(60), delay=5), "delay"),
    ],
)
def test_a_value_of_another_type_is_a_type_error_that_names_the_argument(call: Callable[[], Any], message: str) -> None:
    """Arguments are checked at run time too."""
    with pytest.raises(TypeError, match=message):
        call()


def test_nominal_times_are_from_start_to_end_both_included() -> None:
    """An interval counts from its start, a cron does not."""
    spec = Schedule(Every(60), start=MAY + timedelta(seconds=7), end=MAY + timedelta(seconds=127)).spec(b"")
    assert list(spec.following(0)) == [MAY_MS + 7000, MAY_MS + 67_000, MAY_MS + 127_000]
    assert list(spec.following(MAY_MS + 7000)) == [MAY_MS + 67_000, MAY_MS + 127_000]
    cron = Schedule(Cron("* * * * *"), start=MAY, end=MAY + timedelta(seconds=119)).spec(b"")
    assert list(cron.following(0)) == [MAY_MS, MAY_MS + 60_000]
    assert next(Schedule(Every(60, phase=5)).spec(b"").following(MAY_MS)) == MAY_MS + 5000
    assert list(islice(Schedule(Every(1)).spec(b"").following(MAY_MS), 2)) == [MAY_MS + 1000, MAY_MS + 2000]


def test_the_group_of_a_schedules_jobs() -> None:
    """Policies that keep jobs in order need one: the template's, else one of the schedule's name."""
    assert Schedule(Every(60)).spec(b"").group_of("n") is None
    assert Schedule(Every(60), group="g").spec(b"").group_of("n") == "g"
    for overlap in ("queue", "replace", "kill"):
        assert Schedule(Every(60), overlap=overlap).spec(b"").group_of("n") == "schedule n"
        assert Schedule(Every(60), overlap=overlap, group="g").spec(b"").group_of("n") == "g"


def test_a_stored_schedule_of_newer_software_is_read_without_its_new_fields() -> None:
    """Unknown fields are left out; other bytes and unknown policies are no schedule."""
    plain = {"format": 2, "when": {"cron": "@daily", "tz": "Mars/X", "hue": 1}, "payload": b"1", "colour": "red"}
    spec = ScheduleSpec.decode(msgspec.msgpack.encode(plain))
    assert spec == ScheduleSpec(format=2, when=WhenSpec(cron="@daily", tz="Mars/X"), payload=b"1")
    for data in (b"", b"\xc1", msgspec.msgpack.encode({**plain, "overlap": "merge"}), msgspec.msgpack.encode({})):
        assert ScheduleSpec.decode(data) is None


def test_nominal_times_that_this_machine_cannot_compute_are_a_value_error() -> None:
    """A zone that is unknown here, or a kind of newer software."""
    with pytest.raises(ValueError, match="tz must be the name of a time zone"):
        next(ScheduleSpec(when=WhenSpec(cron="@daily", tz="Mars/X")).following(0))
    with pytest.raises(ValueError, match="of a kind that this version"):
        next(ScheduleSpec(when=WhenSpec()).following(0))


def test_a_stored_schedule_is_small() -> None:
    """Defaults take no bytes."""
    assert len(Schedule(Every(60)).spec(b"{}").encode()) < 40


def test_the_ids_of_ticks_and_triggers() -> None:
    """They are the name and the time, and fit into an id for the longest name."""
    assert tick_id("nightly", MAY_MS) == "nightly@2030-05-01T00:00:00Z"
    assert trigger_id("nightly", MAY_MS + 23) == "nightly@2030-05-01T00:00:00.023Z!"
    assert len(trigger_id(check_schedule_name("n" * 480), MAY_MS)) <= 512


ticks = st.builds(
    Tick,
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.integers(0, 4 * 10**9).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    st.none() | st.integers(0, 4 * 10**12).map(lambda ms: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)),
    st.booleans(),
    st.sampled_from(["UTC", "Europe/Paris"]),
)


@given(ticks)
def test_a_tick_travels_in_reserved_headers(tick: Tick) -> None:
    """It is read as it was written; the user's headers stay apart."""
    headers = {"trace": "1", **tick_headers(tick)}
    assert read_tick(headers) == tick
    assert user_headers(headers) == {"trace": "1"}


@pytest.mark.parametrize(
    "change",
    [{"penstock.nominal": text} for text in ("", "x", "-1", "1.5", "9" * 15, "9" * 5000, "٣")]
    + [{"penstock.schedule": None}, {"penstock.nominal": None}],
)
def test_headers_without_a_readable_tick_carry_none(change: dict[str, str | None]) -> None:
    """Another program may have written them; a job does not fail for its labels."""
    headers: dict[str, str | None] = {**tick_headers(Tick("n", MAY)), **change}
    assert read_tick({key: value for key, value in headers.items() if value is not None}) is None


def test_a_job_without_headers_has_no_tick() -> None:
    """Most jobs are put by an enqueue."""
    assert read_tick(decode_headers(b"")) is None


def test_a_tick_is_local_in_the_zone_of_its_schedule() -> None:
    """A zone that this machine does not know is a `ValueError` of the property alone."""
    assert Tick("n", MAY, tz="Europe/Paris").local.isoformat() == "2030-05-01T02:00:00+02:00"
    with pytest.raises(ValueError, match="tz must be the name of a time zone"):
        _ = Tick("n", MAY, tz="Mars/X").local


def test_the_share_of_the_jitter_follows_from_queue_name_and_time() -> None:
    """The same on every machine, from 0 to below the jitter, different from tick to tick."""
    shares = [jitter_ms("q", "n", MAY_MS + minute * 60_000, 30_000) for minute in range(200)]
    assert shares[:3] == [jitter_ms("q", "n", MAY_MS + minute * 60_000, 30_000) for minute in range(3)]
    assert min(shares) >= 0
    assert max(shares) < 30_000
    assert len(set(shares)) > 150
    assert jitter_ms("q", "n", MAY_MS, 0) == 0
    assert jitter_ms("q", "n", MAY_MS, 30_000) == 10_328
