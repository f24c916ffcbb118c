"""`Limit`, `Rate` and `Rule`: what users give, what is refused, and the packed form that storages read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.limit import EVERY, NO_RULE, Limit, Rate, Rule

#: For arguments that a type checker refuses.
untyped: Any = Limit
untyped_rate: Any = Rate

rates = st.builds(Rate, st.integers(1, 1000), st.integers(1, 86_400))


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    """Return any limit that may be built."""
    rate = draw(st.none() | rates)
    concurrency = draw(st.none() | st.integers(1, 10**9))
    return Limit(
        concurrency=concurrency,
        rate=rate,
        burst=draw(st.integers(1, 10**9)) if rate else 1,
        by=draw(st.sampled_from(["starts", "cost"])) if rate else "starts",
        weight=draw(st.integers(1, 10**6)),
        ordered=draw(st.none() | st.just(False) | st.just(concurrency in (None, 1))),
    )


@pytest.mark.parametrize(
    ("text", "count", "per"),
    [
        ("10/s", 10, 1),
        ("10/sec", 10, 1),
        ("10/second", 10, 1),
        (" 10 / seconds ", 10, 1),
        ("500/m", 500, 60),
        ("100000/min", 100_000, 60),
        ("1/minute", 1, 60),
        ("1/2minutes", 1, 120),
        ("5000/h", 5000, 3600),
        ("5000/hour", 5000, 3600),
        ("7/d", 7, 86_400),
        ("1/31days", 1, 31 * 86_400),
        ("10/30s", 10, 30),
        ("1000000/s", 1_000_000, 1),
    ],
)
def test_a_rate_in_text(text: str, count: int, per: int) -> None:
    """A number, a slash, and a unit with or without a number before it."""
    assert Rate.parse(text) == Rate(count, per) == Rate(count, timedelta(seconds=per))
    assert Limit(rate=text) == Limit(rate=Rate(count, per))
    assert Rate.parse(str(Rate(count, per))) == Rate(count, per)


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "10/", "/s", "10/x", "10/S", "ten/s", "-1/s", "1.5/s", "10/1.5s", "10/ms", "10 per s", "١/s"),
        *("0/s", "1/0s", "1000001/s", "1/32d", "1/745h", "9" * 19 + "/s"),
    ],
)
def test_a_rate_that_cannot_be_read_is_a_value_error_that_names_it(text: str) -> None:
    """Zero, more than a million in a second and more than 31 days are refused as other texts are."""
    with pytest.raises(ValueError, match=r"^rate "):
        Limit(rate=text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped_rate(0, 1), "count must be at least 1, not 0"),
        (lambda: untyped_rate(1, 0), "per must be more than 0"),
        (lambda: untyped_rate(1, -1), "per must not be negative"),
        (lambda: untyped_rate(1, timedelta(days=32)), "per must be at most 31 days, not 32"),
        (lambda: untyped_rate(1001, 0.001), "count must be at most 1000000 per second"),
        (lambda: untyped(concurrency=0), "concurrency must be at least 1, not 0; to stop the jobs, pause"),
        (lambda: untyped(concurrency=-1), "concurrency must be at least 1, not -1"),
        (lambda: untyped(concurrency=10**9 + 1), "concurrency must be at most 1000000000"),
        (lambda: untyped(rate="1/s", burst=0), "burst must be at least 1, not 0"),
        (lambda: untyped(burst=5), "burst is of a rate, but rate is not given"),
        (lambda: untyped(by="cost"), "by is of a rate, but rate is not given"),
        (lambda: untyped(rate="1/s", by="size"), "by must be one of 'starts', 'cost', not 'size'"),
        (lambda: untyped(weight=0), "weight must be at least 1, not 0"),
        (lambda: untyped(weight=10**6 + 1), "weight must be at most 1000000"),
        (lambda: untyped(concurrency=2, ordered=True), "ordered needs concurrency=1, not 2"),
        (lambda: untyped(weight=2).check_scope("queue"), "weight is for groups, not for a queue"),
        (lambda: untyped(ordered=False).check_scope("family"), "ordered is for groups, not for a family"),
        (lambda: untyped(weight=2).rule("queue", 0), "weight is for groups"),
        (lambda: Rule.unpack(b"x"), "a packed rule has 30 bytes, not 1"),
    ],
)
def test_a_bad_value_is_a_value_error_that_names_the_argument(call: Callable[[], Any], message: str) -> None:
    """Nothing is corrected silently."""
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped(concurrency=True), "concurrency must be an int or None, not bool"),
        (lambda: untyped(concurrency=False), "concurrency must be an int or None, not bool"),
        (lambda: untyped(concurrency=1.5), "concurrency must be an int or None, not float"),
        (lambda: untyped(rate=10), 'rate must be a text like "10/s", a Rate or None, not int'),
        (lambda: untyped(rate="1/s", burst="5"), "burst must be an int, not str"),
        (lambda: untyped(ordered=1), "ordered must be True, False or None, not int"),
        (lambda: untyped_rate("1", 1), "count must be an int, not str"),
        (lambda: untyped_rate(1, "s"), "per must be seconds or a timedelta, not str"),
    ],
)
def test_a_value_of_another_type_is_a_type_error_that_names_the_argument(call: Callable[[], Any], message: str) -> None:
    """Arguments are checked at run time too."""
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("limit", "scope", "concurrency", "ordered"),
    [
        (Limit(), "queue", 0, False),
        (Limit(concurrency=1), "queue", 1, False),
        (Limit(concurrency=3), "family", 3, False),
        (Limit(), "group", 1, True),
        (Limit(rate="1/s"), "group", 1, True),
        (Limit(ordered=True), "group", 1, True),
        (Limit(concurrency=1), "group", 1, True),
        (Limit(concurrency=1, ordered=False), "group", 1, False),
        (Limit(ordered=False), "group", 1, False),
        (Limit(concurrency=2), "group", 2, False),
    ],
)
def test_a_group_runs_one_at_a_time_in_order_unless_the_limit_gives_more(
    limit: Limit, scope: Literal["family", "queue", "group"], concurrency: int, ordered: bool
) -> None:
    """Outside of groups nothing is limited that is not given, and there is no order to keep."""
    rule = limit.rule(scope, 5)
    assert (rule.concurrency, rule.ordered, rule.changed_at) == (concurrency, ordered, 5)


def test_the_step_of_a_rate_is_rounded_up() -> None:
    """So a span never holds more than the count, not even by a share of a microsecond."""
    assert Rate(10, 1).step_us == 100_000
    assert Rate(3, 1).step_us == 333_334
    assert Rate(1_000_000, 1).step_us == 1
    assert Rate(1, timedelta(days=31)).step_us == 31 * 86_400 * 10**6
    assert Rate(7, 0.001).step_us == 143


def test_a_limit_is_a_value() -> None:
    """Equal limits are equal, hash equally, show themselves and cannot be changed."""
    assert {Limit(rate="60/min"), Limit(rate=Rate(60, 60))} == {Limit(rate="60/m")}
    assert "Rate(count=60, per=60.0)" in repr(Limit(rate="60/min"))
    assert repr(EVERY) == "EVERY"
    with pytest.raises(AttributeError):
        Limit().burst = 2  # type: ignore[misc]


@given(limits())
def test_a_limit_is_read_as_it_was_stored(limit: Limit) -> None:
    """Its stored form gives an equal limit."""
    assert Limit.decode(limit.encode()) == limit


def test_a_stored_limit_of_newer_software_is_read_without_its_new_fields() -> None:
    """Unknown fields are left out; other bytes and refused values are no limit."""
    newer = msgspec.msgpack.encode({"concurrency": 2, "rate": [5, 1000], "colour": "red"})
    assert Limit.decode(newer) == Limit(concurrency=2, rate="5/s")
    for data in (
        b"",
        b"\xc1",
        b"\x93",
        msgspec.msgpack.encode({"concurrency": 0}),
        msgspec.msgpack.encode({"rate": [0, 1]}),
    ):
        assert Limit.decode(data) is None


@given(limits(), st.integers(0, 253_402_300_799_000))
def test_a_rule_is_unpacked_as_it_was_packed(limit: Limit, changed_at: int) -> None:
    """Thirty bytes, big-endian, without padding, as Lua reads them; all numbers fit into a double."""
    rule = limit.rule("group", changed_at)
    packed = rule.pack()
    assert Rule.unpack(packed) == rule
    assert len(packed) == 30
    assert struct.unpack(">IQIBIBQ", packed) == tuple(map(int, msgspec.structs.astuple(rule)))
    assert max(map(int, msgspec.structs.astuple(rule))) < 2**53


def test_no_rule_limits_nothing() -> None:
    """The rule of a scope without a limit is that of an empty limit."""
    assert Limit().rule("queue", 0) == NO_RULE
    assert NO_RULE.price(7) == 1
    assert Limit(rate="1/s", by="cost").rule("queue", 0).price(7) == 7
