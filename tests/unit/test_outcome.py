"""Outcomes of exceptions and of batches."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import ErrorKind, Outcome, PermanentError, Retry
from penstock.model.job import Claim
from penstock.model.options import HandlerOptions
from penstock.model.outcome import (
    Cancel,
    Fail,
    Failed,
    Raised,
    Stopped,
    Value,
    attempts_after,
    raised,
    resolve,
    stalled_out,
    timed_out,
)
from penstock.model.retry_policy import RetryRequest


def test_an_exception_is_retriable_unless_its_kind_is_permanent() -> None:
    """Only a kind of "permanent" makes an exception final, in any exception class."""

    class OwnError(Exception):
        kind = "permanent"

    assert raised(ValueError("no")).error.kind is ErrorKind.RETRIABLE
    assert raised(PermanentError("no")).error.kind is ErrorKind.PERMANENT
    assert raised(OwnError()).error.kind is ErrorKind.PERMANENT
    assert raised(ValueError("no")).error.type == "ValueError"


def test_a_retry_carries_its_wish() -> None:
    """Retry has the time of the next run, and whether it counts."""
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert raised(Retry(at=moment)).retry_request == RetryRequest(at=round(moment.timestamp() * 1000))
    assert raised(Retry(delay=timedelta(seconds=3), count=False)).retry_request == RetryRequest(
        delay=3000, counted=False
    )
    assert raised(Retry()).retry_request == RetryRequest()


def test_any_exception_may_carry_a_wish() -> None:
    """The attributes retry_at and retry_in count on every exception."""
    error = ConnectionError("busy")
    error.retry_in = 1.5  # type: ignore[attr-defined]
    assert raised(error).retry_request == RetryRequest(delay=1500)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"delay": -1}, "delay must not be negative"),
        ({"delay": math.nan}, "delay must not be negative, infinite"),
        ({"delay": math.inf}, "delay must not be negative, infinite"),
        ({"delay": True}, "delay must be seconds or a timedelta, not bool"),
        ({"delay": "5"}, "delay must be seconds or a timedelta, not str"),
        ({"delay": 10**5000}, "delay must not be .* not an int of 16610 bits"),
        ({"delay": timedelta.max}, "delay must not be .* beyond the year 9999"),
        ({"at": datetime(2030, 1, 1)}, "at must be an aware datetime"),
        ({"at": -1}, "at must be a Unix timestamp"),
        ({"at": math.nan}, "at must be a Unix timestamp"),
        ({"at": False}, "at must be an aware datetime or a Unix timestamp, not bool"),
        ({"at": 10**5000}, "at must be a Unix timestamp"),
        ({"at": 1, "delay": 1}, "not both"),
        ({"count": 1}, "count must be True or False, not int"),
        ({"message": 30}, "message must be a str, not int; delay= takes seconds"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else None,
)
def test_a_retry_with_a_bad_argument_raises_where_it_is_built(arguments: dict[str, Any], words: str) -> None:
    """The error names the argument of Retry; Outcome.retry raises the same."""
    with pytest.raises((TypeError, ValueError), match=words):
        Retry(**arguments)
    if not {"count", "message"} & arguments.keys():
        with pytest.raises((TypeError, ValueError), match=words):
            Outcome.retry(**arguments)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retry_at", datetime(2030, 1, 1), "retry_at must be an aware datetime"),
        ("retry_at", "tomorrow", "retry_at must be an aware datetime or a Unix timestamp, not str"),
        ("retry_in", -1, "retry_in must not be negative"),
        ("retry_in", math.nan, "retry_in must not be negative, infinite"),
        ("retry_in", True, "retry_in must be seconds or a timedelta, not bool"),
        ("retry_in", 10**5000, "retry_in must not be negative, infinite or beyond the year 9999, not an int of"),
        ("retry_in", property(lambda error: 1 / 0), "retry_in cannot be read (ZeroDivisionError)"),
        ("retry_at", property(lambda error: sys.exit()), "retry_at cannot be read (SystemExit)"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_bad_retry_attribute_is_ignored_with_a_note_that_names_it(name: str, value: Any, words: str) -> None:
    """A wish that makes no sense leaves the usual backoff, and a note in the message."""
    outcome = raised(type("OwnError", (Exception,), {name: value})("busy"))
    assert outcome.retry_request == RetryRequest()
    assert outcome.error.message.startswith("busy (its wish for a retry was ignored: ")
    assert words in outcome.error.message


def test_batch_outcomes() -> None:
    """complete, fail and retry are what a handler would have returned or raised."""
    assert Outcome.complete(3) == Value(3)
    error = PermanentError("no")
    assert Outcome.fail(error) == Failed(error)
    text = Outcome.fail("text")
    assert isinstance(text, Failed)
    assert repr(text.error) == "RuntimeError('text')"
    again = Outcome.retry(delay=2)
    assert isinstance(again, Raised)
    assert again.retry_request.delay == 2000


def test_batch_outcomes_check_their_arguments() -> None:
    """A bad argument is refused where it is written."""
    with pytest.raises(TypeError, match="error"):
        Outcome.fail(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at"):
        Outcome.retry(at=datetime(2030, 1, 1))
    with pytest.raises(ValueError, match="not both"):
        Outcome.retry(at=1, delay=1)


def test_timeouts_and_stalls_name_themselves() -> None:
    """A fail handler meets RunTimeout and StallError as error types."""
    assert (timed_out(5).error.type, timed_out(5).error.kind) == ("RunTimeout", ErrorKind.TIMEOUT)
    assert (stalled_out("why").error.type, stalled_out("why").error.kind) == ("StallError", ErrorKind.STALL)


@pytest.mark.parametrize(
    ("outcome", "attempts"),
    [
        (stalled_out("why"), 1),
        (Stopped(ran=False), 1),
        (Stopped(), 2),
        (raised(PermanentError("no")), 2),
    ],
)
def test_an_outcome_without_a_call_of_the_handler_is_no_attempt(outcome: Outcome, attempts: int) -> None:
    """A job that is failed or cancelled before its handler is called has the attempts of its earlier runs."""
    claim = Claim(queue="q", id="a", token="t", payload=b"p", attempts=2, stalls=1)
    resolution = resolve(claim, HandlerOptions(), outcome)
    assert isinstance(resolution, Fail | Cancel)
    assert (attempts_after(claim, resolution), resolution.ran) == (attempts, attempts == 2)


class RefusedError(Exception):
    """An error of a mail server."""


class AddressError(RefusedError):
    """One kind of it."""


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (RefusedError("no"), True),
        (AddressError("no"), True),
        (KeyError("no"), True),
        (ValueError("no"), False),
        (Retry("later"), False),
        (ExceptionGroup("all", [AddressError("a"), ExceptionGroup("inner", [KeyError("b")])]), True),
        (ExceptionGroup("some", [AddressError("a"), ValueError("b")]), False),
        (ExceptionGroup("later", [AddressError("a"), Retry("b")]), False),
        (BaseExceptionGroup("exit", [AddressError("a"), SystemExit()]), False),
    ],
    ids=repr,
)
def test_an_exception_of_a_permanent_class_is_permanent(error: BaseException, permanent: bool) -> None:
    """Subclasses count; a group counts if all exceptions in it do; a Retry asks for a retry itself."""
    kind = raised(error, (RefusedError, LookupError)).error.kind
    assert (kind is ErrorKind.PERMANENT) is permanent


def test_a_permanent_class_counts_before_the_retry_attributes() -> None:
    """An exception of a permanent class has no wish for a retry."""
    error = RefusedError("no")
    error.retry_in = 5  # type: ignore[attr-defined]
    outcome = raised(error, (RefusedError,))
    assert (outcome.error.kind, outcome.retry_request) == (ErrorKind.PERMANENT, RetryRequest())
