"""Outcomes of exceptions and of batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock import ErrorKind, Outcome, PermanentError, Retry
from penstock.model.job import Claim
from penstock.model.options import HandlerOptions
from penstock.model.outcome import (
    Cancel,
    Fail,
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


def test_a_bad_retry_request_is_ignored_and_logged() -> None:
    """A wish that makes no sense leaves the usual backoff, and a note in the message."""
    outcome = raised(Retry(at=datetime(2030, 1, 1)))
    assert outcome.retry_request == RetryRequest()
    assert "retry_at must be an aware datetime" in outcome.error.message


def test_batch_outcomes() -> None:
    """complete, fail and retry are what a handler would have returned or raised."""
    assert Outcome.complete(3) == Value(3)
    failed = Outcome.fail(PermanentError("no"))
    assert isinstance(failed, Raised)
    assert failed.error.kind is ErrorKind.PERMANENT
    assert isinstance(Outcome.fail("text"), Raised)
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
