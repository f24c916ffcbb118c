"""The retry policy: whether a job may run, is retried after a backoff, or has failed for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from penstock.errors import ErrorKind
from penstock.model.options import HandlerOptions
from penstock.model.printing import count
from penstock.model.source import source

__all__ = [
    "NO_REQUEST",
    "Counts",
    "GiveUp",
    "Proceed",
    "RetryDecision",
    "RetryLater",
    "RetryRequest",
    "backoff",
    "decide",
]


class Counts(Protocol):
    """The counts of a job; `attempts` includes the run that is being decided."""

    @property
    def attempts(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def stalls(self) -> int: ...
    @property
    def timeouts(self) -> int: ...


class RetryRequest(msgspec.Struct, frozen=True):
    """When a failed run asks to be repeated (ms): at a time, after a delay, or after the backoff.

    `pause` asks that the other jobs of its group, or of its queue, wait until then.
    """

    at: int | None = None
    delay: int | None = None
    counted: bool = True
    pause: Literal["group", "queue"] | None = None


class Proceed(msgspec.Struct, frozen=True):
    """The run may begin."""


class RetryLater(msgspec.Struct, frozen=True):
    """The job is run again, at a time or after a delay (ms); `count` names the counter that grows."""

    at: int | None = None
    delay: int = 0
    count: Literal["retries", "timeouts"] | None = "retries"


class GiveUp(msgspec.Struct, frozen=True):
    """The job has failed for good."""

    reason: str = ""
    count: Literal["timeouts"] | None = None


RetryDecision = Proceed | RetryLater | GiveUp

NO_REQUEST = RetryRequest()
PROCEED = Proceed()


def backoff(n: int, rules: HandlerOptions, draw: Callable[[], float] | None = None) -> float:
    """Return the seconds to wait after the nth failure; jitter only shortens them."""
    doublings = min(max(n, 1) - 1, 64)
    delay = min(rules.max_backoff, rules.min_backoff * 2**doublings)
    return delay * (1 - rules.jitter * (draw or source.draw)()) if rules.jitter else delay


def decide(
    counts: Counts,
    rules: HandlerOptions,
    kind: ErrorKind | None,
    request: RetryRequest = NO_REQUEST,
    draw: Callable[[], float] | None = None,
    shared: bool = False,
) -> RetryDecision:
    """Decide about a job whose run failed with this kind of error; `kind` None decides whether a run may begin.

    `max_attempts` bounds every claim, so it also ends a job whose retries are not counted. A `shared`
    failure, that of a whole batch, does not use up the last retry of a job that may be retried at all:
    the job runs alone next time.
    """
    if kind is None:
        return _before(counts, rules)
    if kind in (ErrorKind.PERMANENT, ErrorKind.STALL):
        return GiveUp()
    count: Literal["retries", "timeouts"] | None
    if kind is ErrorKind.TIMEOUT:
        n, count = counts.timeouts + 1, "timeouts"
        over = _reached(n, rules.max_timeouts)
    else:
        n, count = counts.retries + 1, "retries" if request.counted else None
        over = request.counted and rules.max_retries is not None and n > rules.max_retries
    if over and shared and n > 1:
        over, count = False, None
    if over or _reached(counts.attempts, rules.max_attempts):
        return GiveUp(count="timeouts" if count == "timeouts" else None)
    if request.at is not None:
        return RetryLater(request.at, 0, count)
    delay = round(backoff(n, rules, draw) * 1000) if request.delay is None else request.delay
    return RetryLater(None, delay, count)


def _before(counts: Counts, rules: HandlerOptions) -> RetryDecision:
    """Decide whether a run may begin. Stalls show only when the job is claimed again, so they are judged here."""
    if counts.stalls and rules.at_most_once:
        return GiveUp("its worker stopped answering, and it must not be run twice (at_most_once)")
    if counts.stalls and _reached(counts.stalls, rules.max_stalls):
        return GiveUp(f"its worker stopped answering {count(counts.stalls, 'time')} (max_stalls={rules.max_stalls})")
    if rules.max_attempts is not None and counts.attempts > rules.max_attempts:
        return GiveUp(f"it was claimed {count(counts.attempts, 'time')} (max_attempts={rules.max_attempts})")
    return PROCEED


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit
