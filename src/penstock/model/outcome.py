"""The outcome of a run, and its resolution: the transition that records it, by the rules of its job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from penstock.errors import ErrorKind, JobError, Retry
from penstock.model.clock import milliseconds, span_ms
from penstock.model.failure import failure_payload
from penstock.model.ids import fail_queue_of, new_id
from penstock.model.job import Claim, NewJob
from penstock.model.options import HandlerOptions
from penstock.model.retry_policy import GiveUp, RetryLater, RetryRequest, decide

__all__ = [
    "Cancel",
    "Complete",
    "Fail",
    "Outcome",
    "Raised",
    "Release",
    "Released",
    "Resolution",
    "Retried",
    "Returned",
    "Stall",
    "Stalled",
    "Stopped",
    "Value",
    "raised",
    "resolve",
    "stalled_out",
    "timed_out",
]

# outcomes ------------------------------------------------------------------------------------------


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of a run. A batch handler may return one per payload: `complete`, `fail` or `retry`."""

    @staticmethod
    def complete(value: Any = None) -> Outcome:
        """Return the outcome of a job that completed with this result."""
        return Value(value)

    @staticmethod
    def fail(error: Exception | str) -> Outcome:
        """Return the outcome of a job for which the handler raised this error, to be retried unless it is permanent."""
        if isinstance(error, str):
            error = RuntimeError(error)
        if not isinstance(error, Exception):
            raise TypeError(f"error must be an exception or a str, not {type(error).__name__}")
        return raised(error)

    @staticmethod
    def retry(*, at: datetime | float | None = None, delay: timedelta | float | None = None) -> Outcome:
        """Return the outcome of a job to run again: at a time, after a delay, or after the usual backoff."""
        if at is not None:
            milliseconds(at, "at")
        if delay is not None:
            span_ms(delay, "delay")
        return raised(Retry(at=at, delay=delay))


class Value(Outcome, frozen=True):
    """The handler returned a value that is not encoded yet."""

    value: Any


class Returned(Outcome, frozen=True, gc=False):
    """The run returned; the follow-up jobs in `then` are put if, and only if, this is recorded."""

    result: bytes
    then: tuple[NewJob, ...] = ()


class Raised(Outcome, frozen=True):
    """The run failed, took too long, or was refused; the error's kind distinguishes them.

    `solo` asks that the job, one of a batch, runs alone next time. `shared` means that the whole batch
    failed, perhaps because of another job. `invalid` means that the payload could not be decoded.
    """

    error: JobError
    retry_request: RetryRequest = RetryRequest()
    solo: bool = False
    invalid: bool = False
    shared: bool = False


class Stopped(Outcome, frozen=True):
    """The run ended without a value after its cancellation was requested."""


class Stalled(Outcome, frozen=True):
    """The process of the run died."""


class Released(Outcome, frozen=True):
    """The run was released unfinished; the attempt is not counted."""


def raised(error: BaseException) -> Raised:
    """Return the outcome for an exception of a handler, by its `kind`, `retry_at`, `retry_in` and `count`."""
    record = JobError.from_exception(error)
    try:
        return Raised(record, _retry_request(error))
    except (TypeError, ValueError) as bad:
        message = f"{record.message} (its wish for a retry was ignored: {bad})"
        return Raised(msgspec.structs.replace(record, message=message))


def _retry_request(error: BaseException) -> RetryRequest:
    at, delay = getattr(error, "retry_at", None), getattr(error, "retry_in", None)
    counted = not isinstance(error, Retry) or error.count
    return RetryRequest(
        at=None if at is None else milliseconds(at, "retry_at"),
        delay=None if delay is None else span_ms(delay, "retry_in"),
        counted=counted,
    )


def timed_out(seconds: float, solo: bool = False, shared: bool = False) -> Raised:
    """Return the outcome of a run that took longer than its timeout."""
    text = f"the run took longer than its timeout of {seconds:g} s"
    return Raised(JobError("RunTimeout", text, ErrorKind.TIMEOUT), solo=solo, shared=shared)


def stalled_out(reason: str) -> Raised:
    """Return the outcome of a job that is not run again, because too many of its runs stalled."""
    return Raised(JobError("StallError", reason, ErrorKind.STALL))


# resolutions ---------------------------------------------------------------------------------------


class Complete(msgspec.Struct, frozen=True, gc=False):
    """running → completed, kept `ttl` ms (None: for ever, 0: not at all); `then` jobs are put with it."""

    result: bytes
    ttl: int | None
    then: tuple[NewJob, ...] = ()


class Retried(msgspec.Struct, frozen=True, gc=False):
    """running → retrying, at a time or after a delay (ms); `count` names the counter that grows."""

    at: int | None = None
    delay: int = 0
    count: Literal["retries", "timeouts"] | None = "retries"
    position: Literal["keep", "due"] = "keep"
    solo: bool = False
    error: bytes = b""


class Fail(msgspec.Struct, frozen=True, gc=False):
    """running → failed, kept `ttl` ms; `then` holds the fail job, put in the same step."""

    error: bytes
    ttl: int | None
    count: Literal["timeouts"] | None = None
    then: tuple[NewJob, ...] = ()


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """running → cancelled, kept `ttl` ms."""

    ttl: int | None


class Release(msgspec.Struct, frozen=True, gc=False):
    """running → queued, at its place, the attempt refunded."""


class Stall(msgspec.Struct, frozen=True, gc=False):
    """running → queued, at its place, stalls + 1: its process is known to be dead.

    It runs by itself next time: one job of a batch may have killed the process of them all.
    """


Resolution = Complete | Retried | Fail | Cancel | Release | Stall


def resolve(claim: Claim, rules: HandlerOptions, outcome: Outcome) -> Resolution:
    """Return the transition that records an outcome, by the rules of the job."""
    if isinstance(outcome, Returned):
        return Complete(outcome.result, rules.keep_ms, outcome.then)
    match outcome:
        case Raised(error, wish, solo):
            verdict = decide(claim, rules, error.kind, wish, shared=outcome.shared)
            if isinstance(verdict, RetryLater):
                return Retried(verdict.at, verdict.delay, verdict.count, rules.retry_position, solo, error.encode())
            count = verdict.count if isinstance(verdict, GiveUp) else None
            return Fail(error.encode(), rules.keep_failed_ms, count, _fail_job(claim, rules, error))
        case Stopped():
            return Cancel(rules.keep_ms)
        case Stalled():
            return Stall()
        case Released():
            return Release()
        case _:
            raise AssertionError(f"{outcome!r} is not an outcome of a run")


def _fail_job(claim: Claim, rules: HandlerOptions, error: JobError) -> tuple[NewJob, ...]:
    """Return the fail job for the fail handler, or nothing without a handler."""
    if rules.on_failure is None:
        return ()
    payload = failure_payload(claim, error)
    queue = fail_queue_of(claim.queue)
    return (NewJob(queue=queue, id=new_id(), fresh=True, payload=payload, headers=claim.headers),)
