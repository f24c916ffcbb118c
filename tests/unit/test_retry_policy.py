"""Bounds and backoff: the decision after a failed run, and before a run begins."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock import ErrorKind, HandlerOptions
from penstock.model.retry_policy import GiveUp, Proceed, RetryLater, RetryRequest, backoff, decide


@dataclass
class Counted:
    attempts: int = 1
    retries: int = 0
    stalls: int = 0
    timeouts: int = 0


def failures_until_given_up(rules: HandlerOptions, kind: ErrorKind) -> int:
    counts = Counted()
    for run in range(1, 1000):
        counts.attempts = run
        decision = decide(counts, rules, kind)
        if isinstance(decision, GiveUp):
            return run
        assert isinstance(decision, RetryLater)
        if decision.count is not None:
            setattr(counts, decision.count, getattr(counts, decision.count) + 1)
    raise AssertionError("never given up")


def test_max_retries_are_the_runs_after_the_first() -> None:
    """max_retries=10 means eleven runs, and 0 means one."""
    assert failures_until_given_up(HandlerOptions(), ErrorKind.RETRIABLE) == 11
    assert failures_until_given_up(HandlerOptions(max_retries=0), ErrorKind.RETRIABLE) == 1


def test_the_nth_timeout_is_terminal() -> None:
    """max_timeouts=3 means three runs that take too long."""
    assert failures_until_given_up(HandlerOptions(), ErrorKind.TIMEOUT) == 3
    assert failures_until_given_up(HandlerOptions(max_timeouts=1), ErrorKind.TIMEOUT) == 1


def test_a_terminal_timeout_is_still_counted() -> None:
    """The last timeout grows its counter like the others."""
    assert decide(Counted(timeouts=2), HandlerOptions(), ErrorKind.TIMEOUT) == GiveUp(count="timeouts")


def test_a_shared_failure_is_not_the_last() -> None:
    """Over its limit it is not counted and the job runs again, unless nothing is repeated or attempts are used up."""
    shared = [
        decide(Counted(retries=10), HandlerOptions(min_backoff=0), ErrorKind.RETRIABLE, shared=True),
        decide(Counted(timeouts=2), HandlerOptions(min_backoff=0), ErrorKind.TIMEOUT, shared=True),
    ]
    assert shared == [RetryLater(None, 0, None)] * 2
    assert decide(Counted(), HandlerOptions(max_retries=0), ErrorKind.RETRIABLE, shared=True) == GiveUp()
    assert decide(Counted(), HandlerOptions(max_timeouts=1), ErrorKind.TIMEOUT, shared=True) == GiveUp(count="timeouts")
    used_up = decide(Counted(attempts=3, retries=2), HandlerOptions(max_attempts=3), ErrorKind.RETRIABLE, shared=True)
    assert used_up == GiveUp()


def test_max_attempts_ends_whatever_comes_first() -> None:
    """max_attempts=n makes the nth run the last, for failures and timeouts alike."""
    rules = HandlerOptions(max_attempts=2)
    assert failures_until_given_up(rules, ErrorKind.RETRIABLE) == 2
    assert failures_until_given_up(rules, ErrorKind.TIMEOUT) == 2


def test_no_limit_is_no_limit() -> None:
    """None means that a job is never given up for that reason."""
    rules = HandlerOptions(max_retries=None, max_timeouts=None, max_stalls=None)
    busy = Counted(attempts=500, retries=500, stalls=500, timeouts=500)
    assert isinstance(decide(busy, rules, ErrorKind.RETRIABLE), RetryLater)
    assert isinstance(decide(busy, rules, ErrorKind.TIMEOUT), RetryLater)
    assert decide(busy, rules, None) == Proceed()


def test_a_permanent_error_is_final() -> None:
    """A permanent error needs no limit."""
    assert isinstance(decide(Counted(), HandlerOptions(), ErrorKind.PERMANENT), GiveUp)


def test_the_nth_stall_ends_a_job_before_it_is_called_again() -> None:
    """max_stalls=3 lets a job begin after two stalls and not after three."""
    assert decide(Counted(stalls=2), HandlerOptions(), None) == Proceed()
    decision = decide(Counted(stalls=3), HandlerOptions(), None)
    assert isinstance(decision, GiveUp)
    assert "max_stalls=3" in decision.reason


def test_no_stalls_allowed_still_lets_a_job_begin() -> None:
    """max_stalls=0 allows no stall, which a fresh job has not had."""
    rules = HandlerOptions(max_stalls=0)
    assert decide(Counted(), rules, None) == Proceed()
    assert isinstance(decide(Counted(stalls=1), rules, None), GiveUp)


def test_at_most_once_does_not_begin_after_a_stall() -> None:
    """A job that must not run twice is given up after its first lost lease."""
    decision = decide(Counted(stalls=1), HandlerOptions(at_most_once=True), None)
    assert isinstance(decision, GiveUp)
    assert "at_most_once" in decision.reason


def test_stalls_use_up_max_attempts() -> None:
    """Runs that vanished count as attempts, so the run after the last is not begun."""
    rules = HandlerOptions(max_attempts=2, max_stalls=None)
    assert decide(Counted(attempts=2, stalls=1), rules, None) == Proceed()
    assert isinstance(decide(Counted(attempts=3, stalls=2), rules, None), GiveUp)


def test_a_requested_retry_replaces_the_backoff() -> None:
    """A time or a delay that the handler asked for replaces the backoff."""
    assert decide(Counted(), HandlerOptions(), ErrorKind.RETRIABLE, RetryRequest(at=77)) == RetryLater(77, 0, "retries")
    assert decide(Counted(), HandlerOptions(), ErrorKind.RETRIABLE, RetryRequest(delay=5)) == RetryLater(
        None, 5, "retries"
    )


def test_an_uncounted_retry_leaves_the_counter_alone() -> None:
    """Retry(count=False) is granted beyond max_retries, but not beyond max_attempts."""
    request = RetryRequest(delay=0, counted=False)
    assert decide(Counted(retries=10), HandlerOptions(), ErrorKind.RETRIABLE, request) == RetryLater(None, 0, None)
    rules = HandlerOptions(max_attempts=4)
    assert isinstance(decide(Counted(attempts=4), rules, ErrorKind.RETRIABLE, request), GiveUp)


def test_backoff_doubles_up_to_its_maximum() -> None:
    """The delay is min·2^(n-1), and never more than the maximum, however large n is."""
    rules = HandlerOptions(min_backoff=2, max_backoff=300)
    assert [backoff(n, rules) for n in (1, 2, 3, 8, 9, 10_000)] == [2, 4, 8, 256, 300, 300]
    assert backoff(5, HandlerOptions(min_backoff=0)) == 0


@given(n=st.integers(1, 200), jitter=st.floats(0, 1), drawn=st.floats(0, 1, exclude_max=True))
def test_jitter_only_shortens(n: int, jitter: float, drawn: float) -> None:
    """With jitter j a delay is between (1-j) and all of what it would have been."""
    full = backoff(n, HandlerOptions())
    got = backoff(n, HandlerOptions(jitter=jitter), lambda: drawn)
    assert full * (1 - jitter) - 1e-9 <= got <= full
