"""The formats JSON, msgpack and raw: values to bytes and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import InvalidPayload
from penstock.model.formats import JsonSerde, MsgpackSerde, RawSerde, check_type, codec_for, resolve_serde, serde_named
from penstock.model.serde import Serde

JSON, MSGPACK, RAW = JsonSerde(), MsgpackSerde(), RawSerde()

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@dataclass
class Point:
    x: int
    y: int


@given(plain)
def test_plain_values_survive(value: Any) -> None:
    """Every value that JSON can express comes back equal, from JSON and from msgpack."""
    assert JSON.loads(JSON.dumps(value), Any) == value
    assert MSGPACK.loads(MSGPACK.dumps(value), Any) == value


class Text(str):
    def __str__(self) -> str:
        return "another text"


class Number(int):
    def __int__(self) -> int:
        return -1


class Part(float): ...


class Color(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Mapping(dict[str, Any]): ...


class Items(list[Any]): ...


@pytest.mark.parametrize("serde", [JSON, MSGPACK])
@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Text("x"), "x"),
        (Number(5), 5),
        (Part(1.5), 1.5),
        (Color.RED, "red"),
        (Size.SMALL, 1),
        (Mapping({Text("k"): Items([Number(5), Size.SMALL])}), {"k": [5, 1]}),
        ({Color.RED: Text("x")}, {"red": "x"}),
    ],
)
def test_a_value_of_a_subclass_is_encoded_as_its_base(serde: Serde, value: Any, stored: Any) -> None:
    """Subclasses of str, int, float, dict and list, and enums, are stored as plain values, at any depth."""
    assert serde.dumps(value) == serde.dumps(stored)


def test_json_refuses_nan_and_bytes_of_a_subclass() -> None:
    """A subclass does not hide a value that JSON cannot express."""

    class Data(bytes): ...

    for value in (Part("nan"), [Data(b"x")]):
        with pytest.raises(InvalidPayload, match="JSON"):
            JSON.dumps(value)
    assert MSGPACK.loads(MSGPACK.dumps(Data(b"x")), Any) == b"x"


@pytest.mark.parametrize("serde", [JSON, MSGPACK])
def test_tuples_and_sets_are_lists_unless_annotated(serde: Serde) -> None:
    """Both are stored as lists; an annotation brings them back."""
    for value, annotation in (((1, 2), tuple[int, ...]), ({1, 2}, set[int]), (frozenset({1}), frozenset[int])):
        data = serde.dumps(value)
        assert serde.loads(data, Any) == list(value)
        assert serde.loads(data, annotation) == value


@pytest.mark.parametrize("serde", [JSON, MSGPACK])
def test_the_annotation_decides_the_type(serde: Serde) -> None:
    """A dataclass or a datetime comes back as itself if that is the annotation."""
    assert serde.loads(serde.dumps(Point(1, 2)), Point) == Point(1, 2)
    assert serde.loads(serde.dumps({"x": 1, "y": 2}), Point) == Point(1, 2)
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert serde.loads(serde.dumps(moment), datetime) == moment


@pytest.mark.parametrize("serde", [JSON, MSGPACK])
def test_the_wrong_type_is_an_invalid_payload(serde: Serde) -> None:
    """Bytes that do not fit the annotation, or are no such format, are refused."""
    with pytest.raises(InvalidPayload):
        serde.loads(serde.dumps("text"), Point)
    with pytest.raises(InvalidPayload):
        serde.loads(b"\xc1{", Any)


@pytest.mark.parametrize("value", [b"x", {"deep": [b"x"]}, [bytearray(b"x")]])
def test_json_refuses_bytes_with_a_hint(value: Any) -> None:
    """JSON refuses bytes at any depth, and the message names the alternatives."""
    with pytest.raises(InvalidPayload, match="msgpack"):
        JSON.dumps(value)
    assert MSGPACK.loads(MSGPACK.dumps(value), Any) == value


@pytest.mark.parametrize("value", [math.nan, {"a": [math.inf]}])
def test_json_refuses_what_would_come_back_as_something_else(value: Any) -> None:
    """NaN and infinity are not silently turned into null."""
    with pytest.raises(InvalidPayload, match="JSON"):
        JSON.dumps(value)


def test_values_without_a_form_are_refused() -> None:
    """An object that no format knows is an InvalidPayload, which is also a ValueError."""
    for serde in (JSON, MSGPACK, RAW):
        with pytest.raises(ValueError):
            serde.dumps(object())


def test_a_value_that_holds_itself_is_refused() -> None:
    """Endless nesting ends in an exception, not in a crash."""
    endless: list[Any] = []
    endless.append((endless,))
    with pytest.raises(InvalidPayload):
        MSGPACK.dumps(endless)


def test_raw_passes_bytes_and_text() -> None:
    """Raw bytes come back unchanged; text comes back as text if the annotation is str."""
    assert RAW.loads(RAW.dumps(b"\x00\xff"), Any) == b"\x00\xff"
    assert RAW.loads(RAW.dumps("é"), str) == "é"
    assert RAW.loads(RAW.dumps("é"), bytes) == "é".encode()
    with pytest.raises(InvalidPayload):
        RAW.loads(b"\xff", str)


def test_serdes_by_name() -> None:
    """The three serdes have names; anything else must be an object with dumps and loads."""
    assert [serde_named(name) for name in ("json", "msgpack", "raw")] == [JSON, MSGPACK, RAW]
    with pytest.raises(ValueError, match="'json', 'msgpack', 'raw'"):
        serde_named("pickle")
    with pytest.raises(TypeError, match="dumps and loads"):
        resolve_serde(5)  # type: ignore[arg-type]


def test_results_of_raw_queues_can_be_none() -> None:
    """Raw has no None, so the results of raw queues are msgpack unless asked otherwise."""
    assert codec_for(RAW, None).result == MSGPACK
    assert codec_for(JSON, None).result == JSON
    assert codec_for(RAW, RAW).result == RAW


def test_an_annotation_that_cannot_be_decoded_is_refused_early() -> None:
    """A type that msgspec cannot build is a TypeError that names the alternatives."""
    with pytest.raises(TypeError, match="dataclass"):
        check_type(JSON, complex)
    with pytest.raises(TypeError, match="dataclass"):
        check_type(MSGPACK, Point | dict[str, int])
    check_type(RAW, complex)
    check_type(JSON, Point)
