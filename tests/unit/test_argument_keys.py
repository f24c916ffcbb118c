"""`id_by`, `group_by` and `cost_by`: keys and costs from the arguments of a task, or the fields of a payload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.argument_keys import check_by, check_cost_by, computed_cost, computed_key, cost_from, key_from

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=6,
)
pairs = st.fixed_dictionaries({"a": plain, "b": plain})


def test_a_key_shows_names_and_values() -> None:
    """Names in the order of the option, values as compact JSON."""
    arguments = {"day": "mon", "user_id": 7, "rest": object()}
    assert key_from(("user_id", "day"), arguments, "id_by") == 'user_id=7&day="mon"'
    assert key_from(("user",), {"user": None}, "group_by") == "user=null"
    assert key_from(("on",), {"on": date(2030, 5, 1)}, "id_by") == 'on="2030-05-01"'
    assert key_from(("x",), {"x": {"b": [1, 2.5], "a": "é"}}, "id_by") == 'x={"a":"é","b":[1,2.5]}'


def test_a_key_beyond_200_bytes_is_its_digest() -> None:
    """The limit counts bytes, and 200 of them are shown."""
    fits = "é" * 98
    assert key_from(("x",), {"x": fits}, "id_by") == f'x="{fits}"'
    assert key_from(("x",), {"x": fits + "e"}, "id_by") == hashlib.sha256(f'x="{fits}e"'.encode()).hexdigest()


@given(
    st.dictionaries(st.sampled_from("ab"), plain, min_size=2), st.dictionaries(st.sampled_from("ab"), plain, min_size=2)
)
def test_keys_are_equal_if_the_values_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Whatever the order of the keys of a dict; True is not 1."""
    same = key_from("ab", one, "id_by") == key_from("ab", other, "id_by")
    assert same == (repr(ordered(one)) == repr(ordered(other)))


def ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    return [ordered(each) for each in value] if isinstance(value, list) else value


def test_names_and_functions_are_options() -> None:
    """One name is a tuple of one; a function stays what it is."""
    assert check_by("user", "id_by") == check_by(["user"], "id_by") == ("user",)
    assert check_by(("a", "b"), "group_by") == ("a", "b")
    assert check_by(len, "group_by") is len
    assert check_cost_by("size") == "size"
    assert check_cost_by(len) is len


def test_a_computed_key_is_a_text_or_none() -> None:
    """None is no id, or no group."""
    assert computed_key("k", "id_by") == "k"
    assert computed_key(None, "id_by") is None


def test_a_computed_cost_of_0_counts_as_1() -> None:
    """A quarter of three characters rounds to 0; such a job must not be refused."""
    assert [computed_cost(0), computed_cost(1), cost_from("n", {"n": 12})] == [1, 1, 12]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check_by(5, "id_by"), TypeError, "id_by must be names of arguments or a function, not 5"),
        (lambda: check_by(["a", 1], "id_by"), TypeError, "id_by must be names of arguments or a function"),
        (lambda: check_by((), "id_by"), ValueError, "id_by must name at least one argument"),
        (lambda: check_by("", "group_by"), ValueError, "group_by must name at least one argument"),
        (lambda: check_by(("a", "a"), "id_by"), ValueError, "id_by names an argument twice: a, a"),
        (lambda: check_cost_by(("a", "b")), ValueError, "cost_by must be one name or a function, not 2 names"),
        (lambda: key_from(("z",), {"b": 1, "a": 2}, "id_by"), ValueError, r"id_by names 'z', .* \(a, b\)"),
        (lambda: key_from(("z",), {}, "id_by"), ValueError, r"id_by names 'z', .* \(none\)"),
        (lambda: key_from(("a",), {"a": object()}, "id_by"), TypeError, "id_by: the value of 'a' cannot be written"),
        (lambda: key_from(("a",), {"a": "\ud800"}, "id_by"), TypeError, "id_by: the value of 'a' cannot be written"),
        (lambda: computed_key(7, "group_by"), TypeError, "the result of group_by must be a str, not int"),
        (lambda: computed_key("", "group_by"), ValueError, "the result of group_by must be 1 to 512 bytes"),
        (lambda: computed_cost(-1), ValueError, "the result of cost_by must be at least 0, not -1"),
        (lambda: computed_cost(10**10), ValueError, "the result of cost_by must be at most 1000000000"),
        (lambda: cost_from("n", {"n": "12"}), TypeError, "the result of cost_by must be an int, not str"),
        (lambda: cost_from("n", {}), ValueError, "cost_by names 'n', which is not among the arguments"),
    ],
)
def test_a_bad_option_or_value_is_an_error_that_names_the_option(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    """Nothing is enqueued under a key that was not meant."""
    with pytest.raises(error, match=message):
        call()
