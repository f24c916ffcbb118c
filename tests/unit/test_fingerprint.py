"""Fingerprints: errors of one cause have one key."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from penstock.errors import ErrorKind, JobError
from penstock.model.fingerprint import KEY_SIZE, MAX_TEXT, error_of, is_key, key_of, normalize, shorten, with_key
from penstock.model.outcome import stalled_out, timed_out


def fetch(host: int) -> None:
    raise ConnectionError(f"host {host} not reachable")


def parse(text: str) -> None:
    json.loads(text)


def caught(function: object, *args: object) -> JobError:
    """Return the record of the exception that a call raises."""
    assert callable(function)
    try:
        function(*args)
    except Exception as error:
        return error_of(error)
    raise AssertionError("nothing was raised")


def test_errors_of_one_place_have_one_key_whatever_their_message() -> None:
    """The class and the functions count, not the message, not the line, not the frames of libraries."""
    first, second = caught(fetch, 1), caught(fetch, 2)
    assert is_key(first.key)
    assert first.key == second.key
    assert (first.path, first.message) == ("builtins.ConnectionError", "host 1 not reachable")
    assert caught(parse, "{").key == caught(parse, "[1").key
    assert len({caught(parse, "{").key, first.key, caught(lambda: fetch(1)).key}) == 3


def test_an_error_without_a_place_is_known_by_its_message_without_numbers() -> None:
    """Quoted text, digests and numbers vary, and are replaced."""
    assert (
        normalize("job 'a' of 0x7f3a21c9 took 1.5 s, id 3f2a81c0-1111-2222-3333-444455556666")
        == "job … of N took N s, id N"
    )
    one, two = (with_key(JobError("E", f"row {i} is bad"), "q") for i in (1, 22))
    assert one.key == two.key != with_key(JobError("E", "column is bad"), "q").key
    assert with_key(one, "other") is one


def test_timeouts_and_stalls_of_a_queue_have_one_key_each() -> None:
    """The code that ran does not matter, and another queue has another key."""
    keys = [
        with_key(outcome.error, queue).key
        for outcome in (timed_out(1), timed_out(2), stalled_out("9"))
        for queue in "qr"
    ]
    assert len(set(keys)) == 4
    assert keys[:2] == keys[2:4]


def test_the_key_is_found_at_the_end_of_a_stored_error() -> None:
    """Storages read it without decoding the record; bytes that no worker wrote have none."""
    error = JobError("E", "m", ErrorKind.TIMEOUT, "t" * 9_000, "p.E", "0123456789abcdef")
    stored = error.encode()
    assert key_of(stored) == error.key
    assert JobError.decode(stored) == error
    for other in (
        b"",
        None,
        b"x",
        stored[1:],
        stored[:-1],
        replace(error, key="").encode(),
        replace(error, key="X" * KEY_SIZE).encode(),
    ):
        assert key_of(other) is None
    assert JobError.decode(b"\x94\xa1E\xa1m\xa7timeout\xa1t") == JobError("E", "m", ErrorKind.TIMEOUT, "t")


@pytest.mark.parametrize("text", ["", "a" * 300, "\u20ac" * 100, "a" + "\u20ac" * 100, "\U0001f600" * 60])
def test_a_long_text_of_a_group_is_cut_between_characters(text: str) -> None:
    """It stays text, and loses no more than the character that does not fit."""
    cut = shorten(text)
    assert text.startswith(cut)
    assert len(cut.encode()) <= MAX_TEXT
    assert cut == text or len(cut.encode()) > MAX_TEXT - 8


def test_odd_exceptions_have_a_path_and_a_key() -> None:
    """A class that hides its names breaks nothing."""

    class Odd(Exception):
        __module__ = None  # type: ignore[assignment]

        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise Odd

    record = caught(fail)
    assert is_key(record.key)
    assert record.path.endswith("Odd")
