"""The checks of limits and windows: calls and answers that keep the promises pass, others are violations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.model.job import Claim, NewJob, State, Update
from penstock.model.limit import Limit, LimitScope
from penstock.model.outcome import Retried
from penstock.storage.base import Put, PutStatus
from penstock.storage.limiting import LimitRecord, Scope
from sim.limit_checks import LimitChecks

QUEUE, FAMILY, EVERY_GROUP = Scope("queue", "llm/a"), Scope("family", "llm"), Scope("groups", "llm/a")


class Calls:
    """The checks, with a clock and live claims of the test."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.live: dict[tuple[str, str], Any] = {}
        self.violations: list[str] = []
        self.checks = LimitChecks(lambda text, *jobs: self.violations.append(text), lambda: self.now, self.live)

    def set_limit(self, scope: Scope, limit: Limit) -> None:
        kind: LimitScope = "group" if scope.kind in ("group", "groups") else scope.kind
        self.checks.on_set_limit(1, scope, limit.rule(kind, self.now), b"", 0)

    def put(self, id: str, cost: int = 1, **options: Any) -> None:
        new = NewJob(queue="llm/a", id=id, payload=b"", cost=cost, **options)
        self.checks.on_put([Put(PutStatus.QUEUED, State.QUEUED)], [new])

    def claim(self, *ids: str, queue: str = "llm/a", group: str | None = None, batch: int = 0) -> None:
        claims = [Claim(queue, id, f"token {ids[0]}", b"", batch, group) for id in ids]
        self.live.update({(queue, claim.id): SimpleNamespace(claim=claim) for claim in claims})
        self.checks.observe_clock()
        self.checks.check_claims(claims)

    def advance(self, ms: int) -> None:
        self.now += ms
        self.checks.observe_clock()


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_more_live_claims_than_the_limit_of_a_family_are_a_violation(calls: Calls) -> None:
    """The claims of all queues of the family count, those of its fail queues do not."""
    calls.set_limit(FAMILY, Limit(concurrency=2))
    calls.claim("a")
    calls.claim("f", queue="llm/a/failures")
    calls.claim("b", queue="llm/b")
    assert calls.violations == []
    calls.claim("c", queue="llm/b")
    assert calls.violations[0].startswith("more live claims than the limit: 3 of 2")


def test_a_lowered_limit_is_violated_by_the_next_claim_alone(calls: Calls) -> None:
    """Runs from before a lower limit are no violation; a claim while more than it run is one."""
    calls.claim("a", "b", "c")
    calls.set_limit(QUEUE, Limit(concurrency=2))
    calls.claim("d", queue="other")
    assert calls.violations == []
    calls.claim("e")
    assert calls.violations


def test_a_group_of_one_runs_one_batch(calls: Calls) -> None:
    """The jobs of one batch are claimed together; a second claim of the group is a violation, also without a limit."""
    calls.claim("a", "b", group="g")
    assert calls.violations == []
    calls.claim("c", group="g")
    assert calls.violations[0].startswith("two live claims of one group")


def test_a_rate_allows_its_burst_and_then_its_steps(calls: Calls) -> None:
    """Of 1/s with a burst of 2: two at once, a third after a second; a fourth right after it is a violation."""
    calls.set_limit(QUEUE, Limit(rate="1/s", burst=2))
    calls.claim("a", "b")
    calls.advance(1000)
    calls.claim("c")
    assert calls.violations == []
    calls.claim("d")
    assert calls.violations[0].startswith("more starts than the rate allows: 4 of 3")


def test_a_rate_by_cost_counts_the_costs_of_the_jobs(calls: Calls) -> None:
    """A job of cost 3 is followed by another after three seconds, not after two."""
    calls.set_limit(EVERY_GROUP, Limit(concurrency=5, rate="1/s", by="cost"))
    calls.put("a", cost=3)
    calls.claim("a", group="g")
    calls.advance(3000)
    calls.claim("b", group="g")
    assert calls.violations == []
    calls.put("c", cost=3)
    calls.advance(1000)
    calls.claim("c", group="g")
    calls.advance(2000)
    calls.claim("d", group="g")
    assert calls.violations


def test_starts_before_a_clock_that_was_set_back_do_not_count(calls: Calls) -> None:
    """A rate begins anew when the storage's clock is set back."""
    calls.set_limit(QUEUE, Limit(rate="1/h"))
    calls.claim("a")
    calls.advance(-500)
    calls.claim("b")
    assert calls.violations == []


@pytest.mark.parametrize(("wait", "broken"), [(0, True), (10, False)])
def test_starts_before_a_change_of_the_rate_count_on(calls: Calls, wait: int, broken: bool) -> None:
    """After a raise from 1/h to 100/s the start before it is paid within 10 ms, and not at once."""
    calls.set_limit(EVERY_GROUP, Limit(concurrency=5, rate="1/h"))
    calls.claim("a", group="g")
    calls.set_limit(Scope("group", "llm/a", "g"), Limit(concurrency=5, rate="100/s"))
    calls.advance(wait)
    calls.claim("b", group="g")
    assert bool(calls.violations) == broken


def test_a_limit_without_a_rate_forgets_the_starts(calls: Calls) -> None:
    """Between two rates there was none: what was started before the second one does not count."""
    calls.set_limit(QUEUE, Limit(rate="1/h"))
    calls.claim("a")
    calls.set_limit(QUEUE, Limit(concurrency=9))
    calls.set_limit(QUEUE, Limit(rate="1/h"))
    calls.claim("b")
    assert calls.violations == []


def test_pauses_end_at_their_time_and_retries_prolong_them(calls: Calls) -> None:
    """A pause until a time is over then; a retry with a pause asks for one until it is due."""
    calls.checks.on_set_pause(True, "q", True, calls.now + 1000, "", "g")
    assert calls.checks.is_paused("q", "g")
    assert not calls.checks.is_paused("q")
    assert calls.checks.on_retried("q", "g", Retried(delay=3000, pause="group")) == calls.now + 3000
    calls.advance(2000)
    assert calls.checks.is_paused("q", "g")
    calls.advance(1000)
    assert not calls.checks.is_paused("q", "g")


def test_a_read_that_counts_other_runs_is_a_violation(calls: Calls) -> None:
    """A limit that is read has the rule that was set, and the number of live claims."""
    calls.set_limit(QUEUE, Limit(concurrency=2))
    calls.claim("a")
    rule = Limit(concurrency=2).rule("queue", 7)
    calls.checks.on_get_limit(LimitRecord(scope=QUEUE, rule=rule, running=1), QUEUE)
    assert calls.violations == []
    calls.checks.on_get_limit(LimitRecord(scope=QUEUE, rule=rule, running=0), QUEUE)
    calls.checks.on_get_limit(LimitRecord(scope=QUEUE, rule=None, running=1), QUEUE)
    assert len(calls.violations) == 2


def test_an_id_that_is_free_within_its_window_is_a_violation(calls: Calls) -> None:
    """After the window, after a failure, or with an update it may be put again."""
    calls.put("a", window=5000)
    calls.advance(5000)
    calls.put("a", window=5000)
    calls.checks.free_window(("llm/a", "a"))
    calls.put("a", window=5000)
    calls.put("a", window=5000, update=Update())
    assert calls.violations == []
    calls.put("b", window=5000)
    calls.advance(4999)
    calls.put("b", window=5000)
    assert calls.violations == ["an id was free 1 ms before the end of its window"]
