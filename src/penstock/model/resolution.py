"""How a run's outcome is recorded: the transition it asks for, by the rules that hold for its job."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.errors import JobError
from penstock.model.failure import failure_payload
from penstock.model.ids import fail_queue_of, new_id
from penstock.model.job import Claim, NewJob
from penstock.model.options import HandlerOptions
from penstock.model.outcome import Outcome, Raised, Released, Returned, Stalled, Stopped
from penstock.model.retry_policy import GiveUp, RetryLater, decide

__all__ = ["Cancel", "Complete", "Fail", "Release", "Resolution", "Retried", "Stall", "resolve"]


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
    """The transition that an outcome asks for, by the rules that hold for the job."""
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
            raise AssertionError(f"{outcome!r} is no outcome of a run")


def _fail_job(claim: Claim, rules: HandlerOptions, error: JobError) -> tuple[NewJob, ...]:
    """The job that tells the fail handler, if there is one."""
    if rules.on_failure is None:
        return ()
    payload = failure_payload(claim, error)
    queue = fail_queue_of(claim.queue)
    return (NewJob(queue=queue, id=new_id(), fresh=True, payload=payload, headers=claim.headers),)
