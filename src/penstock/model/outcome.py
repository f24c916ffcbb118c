"""The outcome of a run, and its resolution: the transition that records it, by the rules of its job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from penstock.errors import ErrorKind, JobError, Retry, attempted
from penstock.model.clock import milliseconds, span_ms
from penstock.model.failure import failure_payload
from penstock.model.fingerprint import error_of, with_key
from penstock.model.history import brief_error
from penstock.model.ids import fail_queue_of, new_id
from penstock.model.job import Claim, NewJob
from penstock.model.options import HandlerOptions
from penstock.model.retry_policy import GiveUp, RetryLater, RetryRequest, decide
from penstock.model.suspend import Suspend

__all__ = [
    "Cancel",
    "Complete",
    "Fail",
    "Failed",
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
    "Suspend",
    "Suspended",
    "Value",
    "attempts_after",
    "is_permanent",
    "raised",
    "resolve",
    "stalled_out",
    "timed_out",
    "unrecordable",
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
        return Failed(error)

    @staticmethod
    def retry(
        *,
        at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        pause: Literal["group", "queue"] | None = None,
    ) -> Outcome:
        """Return the outcome of a job to run again: at a time, after a delay, or after the usual backoff.

        With `pause` no other job of its group, or of its queue, starts until then.
        """
        return raised(Retry(at=at, delay=delay, pause=pause))


class Value(Outcome, frozen=True):
    """The handler returned a value that is not encoded yet."""

    value: Any


class Failed(Outcome, frozen=True):
    """The handler returned an error that is not judged yet: its class may be `permanent` by the handler's options."""

    error: Exception


class Returned(Outcome, frozen=True, gc=False):
    """The run returned; the follow-up jobs in `then` are put if, and only if, this is recorded."""

    result: bytes
    then: tuple[NewJob, ...] = ()


class Raised(Outcome, frozen=True):
    """The run failed, took too long, or was refused; the error's kind distinguishes them.

    `solo` asks that the job, one of a batch, runs alone next time. `shared` means that the whole batch
    failed, perhaps because of another job. `invalid` means that the payload could not be decoded. `ran` False
    means that the handler was not called, because the job is over its bounds. `culprits` as in `Fail`.
    """

    error: JobError
    retry_request: RetryRequest = RetryRequest()
    solo: bool = False
    invalid: bool = False
    shared: bool = False
    ran: bool = True
    culprits: tuple[int, ...] = ()


class Stopped(Outcome, frozen=True):
    """The run ended without a value after a cancel was requested; `ran` False: before the handler was called."""

    ran: bool = True


class Stalled(Outcome, frozen=True):
    """The process of the run died; `reason` is its exit code or signal in words."""

    reason: str = ""


class Released(Outcome, frozen=True):
    """The run was released unfinished; the attempt is not counted."""


class Suspended(Outcome, frozen=True):
    """The run waits for other jobs, a signal or a time; the job goes on in another run, and no attempt is counted."""

    suspend: Suspend


def raised(error: BaseException, permanent: tuple[type[BaseException], ...] = ()) -> Raised:
    """Return the outcome for an exception of a handler, by its `kind`, `retry_at`, `retry_in` and `count`.

    Exceptions of the classes in `permanent` are permanent, except `Retry`, which asks for a retry itself.
    Whatever the attributes of the exception do, there is an outcome.
    """
    if permanent and attempted(lambda: is_permanent(error, permanent), otherwise=False):
        return Raised(error_of(error, ErrorKind.PERMANENT))
    record = error_of(error)
    try:
        found: Any = attempted(lambda: getattr(error, "culprits", ()), otherwise=())
        culprits = cast("tuple[int, ...]", found) if isinstance(found, tuple) else ()
        return Raised(record, _retry_request(error), culprits=culprits)
    except BaseException as bad:
        reason = JobError.from_exception(bad).message
        message = f"{record.message} (its wish for a retry was ignored: {reason})"
        return Raised(replace(record, message=message))


def is_permanent(error: BaseException, permanent: tuple[type[BaseException], ...]) -> bool:
    """Return whether an exception is of these classes; so is a group if all exceptions in it are."""
    kind = type(error)
    if issubclass(kind, Retry):
        return False
    if issubclass(kind, permanent):
        return True
    if not issubclass(kind, BaseExceptionGroup):
        return False
    group = cast("BaseExceptionGroup[BaseException]", error)
    return all(is_permanent(each, permanent) for each in group.exceptions)


def _retry_request(error: BaseException) -> RetryRequest:
    at, delay = _wish(error, "retry_at", milliseconds), _wish(error, "retry_in", span_ms)
    if not isinstance(error, Retry):
        return RetryRequest(at=at, delay=delay)
    if error.pause not in (None, "group", "queue"):
        raise ValueError("pause must be 'group', 'queue' or None")
    return RetryRequest(at=at, delay=delay, counted=bool(error.count), pause=error.pause)


def _wish(error: BaseException, name: str, convert: Callable[[Any, str], int]) -> int | None:
    """Return an attribute of an exception in milliseconds, None if it has none; errors name the attribute."""
    try:
        value = getattr(error, name, None)
    except BaseException as bad:
        raise ValueError(f"{name} cannot be read ({type(bad).__name__})") from None
    try:
        return None if value is None else convert(value, name)
    except (TypeError, ValueError):
        raise
    except BaseException as bad:
        raise ValueError(f"{name} cannot be converted ({type(bad).__name__})") from None


def timed_out(seconds: float, solo: bool = False, shared: bool = False, traceback: str = "") -> Raised:
    """Return the outcome of a run that took longer than its timeout; `traceback` has the place where it was."""
    text = f"the run took longer than its timeout of {seconds:g} s"
    return Raised(JobError("RunTimeout", text, ErrorKind.TIMEOUT, traceback), solo=solo, shared=shared)


def stalled_out(reason: str) -> Raised:
    """Return the outcome of a job that is not run again, because too many of its runs stalled."""
    return Raised(JobError("StallError", reason, ErrorKind.STALL), ran=False)


# resolutions ---------------------------------------------------------------------------------------


class Complete(msgspec.Struct, frozen=True, gc=False):
    """running → completed, kept `ttl` ms (None: for ever, 0: not at all); `then` jobs are put with it."""

    result: bytes
    ttl: int | None
    then: tuple[NewJob, ...] = ()


class Retried(msgspec.Struct, frozen=True, gc=False):
    """running → retrying, at a time or after a delay (ms); `count` names the counter that grows.

    `pause` also pauses the group of the run (its queue, if it has none) or its queue until the retry is due. `brief` is
    the error for the history of attempts, if that keeps a shorter one.
    """

    at: int | None = None
    delay: int = 0
    count: Literal["retries", "timeouts"] | None = "retries"
    position: Literal["keep", "due"] = "keep"
    solo: bool = False
    error: bytes = b""
    pause: Literal["group", "queue"] | None = None
    brief: bytes = b""


class Fail(msgspec.Struct, frozen=True, gc=False):
    """running → failed, kept `ttl` ms; `then` holds the fail job, put in the same step.

    `ran` False means that the claim called no handler: its attempt is not counted. `brief` as in `Retried`. `culprits`
    are the dependencies of the run whose failures are its error: `revive` revives their jobs too.
    """

    error: bytes
    ttl: int | None
    count: Literal["timeouts"] | None = None
    then: tuple[NewJob, ...] = ()
    ran: bool = True
    brief: bytes = b""
    culprits: tuple[int, ...] = ()


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """running → cancelled, kept `ttl` ms; `ran` as in `Fail`."""

    ttl: int | None
    ran: bool = True


class Release(msgspec.Struct, frozen=True, gc=False):
    """running → queued, at its place, the attempt refunded."""


class Stall(msgspec.Struct, frozen=True, gc=False):
    """running → queued, at its place, stalls + 1: its process is known to be dead.

    It runs by itself next time: one job of a batch may have killed the process of them all.
    """


Resolution = Complete | Retried | Fail | Cancel | Release | Stall | Suspend


def resolve(claim: Claim, rules: HandlerOptions, outcome: Outcome) -> Resolution:
    """Return the transition that records an outcome, by the rules of the job."""
    if isinstance(outcome, Returned):
        return Complete(outcome.result, rules.keep_ms, outcome.then)
    match outcome:
        case Raised(error, wish, solo):
            error = with_key(error, claim.queue)
            verdict = decide(claim, rules, error.kind, wish, shared=outcome.shared)
            if isinstance(verdict, RetryLater):
                return Retried(
                    verdict.at, verdict.delay, verdict.count, rules.retry_position, solo, error.encode(), wish.pause,
                    brief_error(error),
                )  # fmt: skip
            count = verdict.count if isinstance(verdict, GiveUp) else None
            if not outcome.ran:
                claim = replace(claim, attempts=claim.attempts - 1)
            then = _fail_job(claim, rules, error)
            brief = brief_error(error)
            return Fail(error.encode(), rules.keep_failed_ms, count, then, outcome.ran, brief, outcome.culprits)
        case Stopped(ran):
            return Cancel(rules.keep_ms, ran)
        case Stalled():
            return Stall()
        case Released():
            return Release()
        case Suspended(suspend):
            return suspend
        case _:
            raise AssertionError(f"{type(outcome).__name__} is not an outcome of a run")


def attempts_after(claim: Claim, resolution: Resolution) -> int:
    """Return the attempts of a job after a failed or cancelled run: without this one if it called no handler."""
    ran = resolution.ran if isinstance(resolution, Fail | Cancel) else True
    return claim.attempts if ran else claim.attempts - 1


def unrecordable(
    claim: Claim, rules: HandlerOptions, why: BaseException, refused: Resolution | None = None
) -> tuple[Raised, Fail]:
    """Return the outcome and its transition for a job whose own outcome cannot be recorded: it fails for good.

    `refused` is the resolution that the storage did not accept; the error names the size of its result.
    """
    record = error_of(why, ErrorKind.PERMANENT)
    message = f"the outcome of the run cannot be recorded: {record.type}: {record.message}"
    if isinstance(refused, Complete):
        follow_ups = sum(len(new.payload) for new in refused.then)
        message += f"; its result has {len(refused.result)} bytes"
        message += f", its follow-up jobs {follow_ups}" if refused.then else ""
    error = with_key(replace(record, message=message), claim.queue)
    return Raised(error), Fail(error.encode(), rules.keep_failed_ms, None, _fail_job(claim, rules, error))


def _fail_job(claim: Claim, rules: HandlerOptions, error: JobError) -> tuple[NewJob, ...]:
    """Return the fail job for the fail handler, or nothing without a handler."""
    if rules.on_failure is None:
        return ()
    payload = failure_payload(claim, error)
    queue = fail_queue_of(claim.queue)
    return (NewJob(queue=queue, id=new_id(), fresh=True, payload=payload, headers=claim.headers),)
