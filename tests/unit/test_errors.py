"""Records of exceptions: whatever an exception does, its record can be built, encoded and decoded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from penstock import ErrorKind
from penstock.errors import MAX_TRACEBACK, JobError
from penstock.model.context import Progress
from penstock.model.headers import encode_headers
from penstock.model.outcome import raised

BAD = os.fsdecode(b"\xff.txt")


def explode(*arguments: object) -> Any:
    raise SystemExit("from inside")


class OddMeta(type):
    """A class of classes whose name raises."""

    def __getattribute__(cls, name: str) -> Any:
        return explode() if name == "__name__" else super().__getattribute__(name)


class OddText(str):
    """A text that refuses to be cut or encoded."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        return explode()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return explode()

    def __len__(self) -> int:
        return explode()


def odd(**members: Any) -> BaseException:
    return type("OddError", (Exception,), members)("text")


def with_cause() -> BaseException:
    error = ValueError("outer")
    error.__cause__ = ValueError(BAD)
    return error


def with_note(note: Any) -> BaseException:
    error = ValueError("noted")
    error.__notes__ = [note]
    return error


def in_a_cycle() -> BaseException:
    error = ValueError("cycle")
    error.__cause__ = error
    return error


def nested_groups() -> BaseException:
    error: Any = ValueError(BAD)
    for _ in range(2000):
        error = ExceptionGroup(BAD, [error])
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "surrogate": lambda: ValueError("cannot read " + BAD),
    "cause": with_cause,
    "note": lambda: with_note(BAD),
    "note that is no text": lambda: with_note(explode),
    "notes that are no list": lambda: odd(__notes__=property(explode)),
    "group": lambda: ExceptionGroup(BAD, [ValueError(BAD)]),
    "2000 nested groups": nested_groups,
    "cycle": in_a_cycle,
    "str raises": lambda: odd(__str__=explode),
    "str gives no text": lambda: odd(__str__=lambda error: 5),
    "str gives an odd text": lambda: odd(__str__=lambda error: OddText("text")),
    "repr raises": lambda: odd(__repr__=explode),
    "kind raises": lambda: odd(kind=property(explode)),
    "kind compares oddly": lambda: odd(kind=type("Odd", (), {"__eq__": explode})()),
    "class raises": lambda: odd(__class__=property(explode)),
    "class has an odd name": lambda: OddMeta("OddError", (Exception,), {})("text"),
    "long class name": lambda: type("E" * 100_000, (Exception,), {})("text"),
    "long message": lambda: ValueError(BAD * 1_000_000),
    "every attribute raises": lambda: odd(__getattr__=explode),
}


@pytest.mark.parametrize("name", ODD)
def test_every_exception_has_a_record_that_can_be_stored(name: str) -> None:
    """The record of an odd exception survives encoding, and its type is that of the exception."""
    error = ODD[name]()
    try:
        raise error
    except BaseException as caught:
        record = raised(caught).error
    assert JobError.decode(record.encode()) == record
    assert record.kind is ErrorKind.RETRIABLE
    assert record.type
    assert len(record.type) <= 200
    assert len(record.traceback) < 7 * MAX_TRACEBACK  # an escape has six characters
    assert "test_errors.py" in record.traceback


def test_surrogates_are_escaped_and_everything_else_stays() -> None:
    """Umlauts stay; only lone surrogates become backslash escapes."""
    record = JobError.from_exception(ValueError("Größe " + BAD))
    assert record.message == "Größe \\udcff.txt"
    assert record.traceback.endswith("ValueError: Größe \\udcff.txt\n")


def test_a_note_a_cause_and_a_group_are_in_the_traceback() -> None:
    """Their texts are escaped as the message is."""
    for error in (with_cause(), with_note(BAD), ExceptionGroup("group", [ValueError(BAD)])):
        assert "\\udcff.txt" in JobError.from_exception(error).traceback


def test_progress_with_a_surrogate_is_stored_escaped() -> None:
    """A progress message is text for people, so it is escaped and not refused."""
    stored = Progress.decode(Progress(0.5, "reading " + BAD).encode())
    assert stored == Progress(0.5, "reading \\udcff.txt")


@pytest.mark.parametrize("headers", [{BAD: "x"}, {"x": BAD}])
def test_headers_with_a_surrogate_are_refused_by_name(headers: dict[str, str]) -> None:
    """The error names the argument."""
    with pytest.raises(ValueError, match="headers must be valid Unicode"):
        encode_headers(headers)
