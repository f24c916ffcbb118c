"""`why` for jobs that wait for a limit or a pause: the reason, its fields and its sentence."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.model.clock import as_datetime
from penstock.model.explain import explain
from penstock.model.job import State
from penstock.model.limit import Limit, Rate
from penstock.model.pause import Pause
from penstock.model.why import GatePosition, Holder, JobPosition, Reason

#: 2030-05-01 12:00:00 UTC.
NOW = 1_903_867_200_000


def waiting(**fields: object) -> JobPosition:
    return replace(JobPosition(id="a3", state=State.QUEUED, at=NOW, run_at=NOW - 5000, group="acme"), **fields)


def gate(limit: Limit, kind: str = "group", **fields: object) -> GatePosition:
    name, group = {"family": ("llm", None), "queue": ("llm/ask", None), "group": ("llm/ask", "acme")}[kind]
    rule = limit.rule(kind, 0)  # type: ignore[arg-type]
    reason = "limit" if "used" in fields else "rate"
    return GatePosition(kind=kind, name=name, group=group, rule=rule, reason=reason, **fields)  # type: ignore[arg-type]


def test_a_rate_names_its_numbers_and_its_opening() -> None:
    """A closed rate is `rate_limited`, with the scope, the limit and the time of the opening."""
    limit = Limit(concurrency=2, rate="10/s")
    why = explain("llm/ask", waiting(gate=gate(limit, until=NOW + 400)), limit=limit)
    assert (why.reason, why.scope, why.group, why.limit) == (Reason.RATE_LIMITED, "group", "acme", limit)
    assert why.until == as_datetime(NOW + 400)
    assert str(why) == (
        "It is rate limited: group 'acme' may start 10 in 1 s; "
        "the next may start from 2030-05-01 12:00:00 UTC on, in 0.4 s."
    )


def test_a_rate_by_cost_of_a_family() -> None:
    """The sentence about a rate by cost names the cost."""
    limit = Limit(rate="100000/min", by="cost", burst=20)
    why = explain("llm/ask", waiting(gate=gate(limit, "family", until=NOW + 3000)), limit=limit)
    assert str(why).startswith("It is rate limited: family 'llm' may start a cost of 100000 in 1 min; the next may")


def test_a_full_group_names_its_holders() -> None:
    """A group whose runs are as many as its limit is `limit_reached`, and names the runs, their workers and ages."""
    holders = (Holder("a1", "w1", NOW - 180_000, "llm/ask"), Holder("a2", "w2", NOW - 12_000, "llm/ask"))
    why = explain("llm/ask", waiting(gate=gate(Limit(concurrency=2), used=2, holders=holders)))
    assert (why.reason, why.scope, why.used, why.holders) == (Reason.LIMIT_REACHED, "group", 2, ["a1", "a2"])
    assert why.limit == Limit(concurrency=2)
    assert str(why) == (
        "Limit of group 'acme' is reached: 2 of 2 run: 'a1' (worker 'w1', 3 min), 'a2' (worker 'w2', 12 s)."
    )


def test_full_queues_and_families() -> None:
    """The sentence about a queue has numbers alone; that about a family how many run in the job's queue."""
    why = explain("llm/ask", waiting(gate=gate(Limit(concurrency=20), "queue", used=20)))
    assert str(why) == "Limit of queue 'llm/ask' is reached: 20 of 20 run."
    why = replace(explain("llm/ask", waiting(gate=gate(Limit(concurrency=5), "family", used=5))), here=3)
    assert str(why) == "Limit of family 'llm' is reached: 5 of 5 run, 3 of them in 'llm/ask'."


def test_a_lowered_limit_has_more_runs_than_it_allows() -> None:
    """After a limit was lowered, more may run than it allows."""
    why = explain("llm/ask", waiting(gate=gate(Limit(concurrency=2), "queue", used=10)))
    assert str(why) == "Limit of queue 'llm/ask' is reached: 10 of 2 run."


def test_the_pause_of_a_group() -> None:
    """A paused group is `paused` with its name, and with the end of the pause if it has one."""
    why = explain("llm/ask", waiting(group_pause=Pause(NOW - 60_000, NOW + 58_000)))
    assert (why.reason, why.group, why.until) == (Reason.PAUSED, "acme", as_datetime(NOW + 58_000))
    assert str(why) == "Group 'acme' is paused until 2030-05-01 12:00:58 UTC, in 58 s."
    why = explain("llm/ask", waiting(group_pause=Pause(NOW - 60_000, by="ops")))
    assert (why.until, why.by) == (None, "ops")
    assert str(why) == (
        "Group 'acme' is paused by 'ops' since 2030-05-01 11:59:00 UTC (60 s): nothing of it runs until it is resumed."
    )


def test_the_pause_of_a_queue_with_an_end() -> None:
    """The sentence about a queue that is paused until a time names that time; the reason has no group."""
    why = explain("llm/ask", waiting(pause=Pause(NOW, NOW + 10_000)))
    assert (why.reason, why.group) == (Reason.PAUSED, None)
    assert str(why) == "Queue 'llm/ask' is paused until 2030-05-01 12:00:10 UTC, in 10 s."


def test_the_order_of_the_reasons() -> None:
    """Outside in: pause of the queue, gate of the queue, jobs before it in the group, pause of the group, its gate."""
    outer = gate(Limit(concurrency=1), "queue", used=1)
    inner = gate(Limit(rate="1/s"), until=NOW + 1000)
    head = JobPosition(id="a1", state=State.RUNNING, at=NOW, group="acme", worker="w1")
    position = waiting(pause=Pause(NOW), gate=outer, head=head, group_pause=Pause(NOW))
    assert explain("llm/ask", position).group is None
    position = replace(position, pause=None)
    assert explain("llm/ask", position).reason is Reason.LIMIT_REACHED
    position = replace(position, gate=inner)
    assert explain("llm/ask", position).reason is Reason.BEHIND_GROUP
    position = replace(position, head=None)
    assert explain("llm/ask", position).reason is Reason.PAUSED
    position = replace(position, group_pause=None)
    assert explain("llm/ask", position).reason is Reason.RATE_LIMITED
    assert explain("llm/ask", replace(position, gate=None)).reason is Reason.NO_WORKER


def test_the_head_has_the_limit_of_the_group() -> None:
    """A job behind the first of a closed group is `behind_group`, and `head` has the limit."""
    first = replace(waiting(gate=gate(Limit(rate="1/s"), until=NOW + 1000)), id="a1")
    why = explain("llm/ask", waiting(head=first), limit=Limit(rate="1/s"))
    assert (why.reason, why.behind) == (Reason.BEHIND_GROUP, "a1")
    assert why.head is not None
    assert (why.head.reason, why.head.limit) == (Reason.RATE_LIMITED, Limit(rate="1/s"))
    assert "That is rate limited: group 'acme' may start 1 in 1 s" in str(why)


@pytest.mark.parametrize("rate", ["10/s", "3/s", "100000/min", "7/h", "1/day", "1000000/s", "1/31d"])
def test_a_limit_is_read_back_from_its_rule(rate: str) -> None:
    """The rule of a limit gives a limit with the same rule."""
    for limit in (Limit(rate=rate), Limit(concurrency=3, rate=rate, burst=4, by="cost", weight=2)):
        rule = limit.rule("group", 0)
        assert rule.as_limit().rule("group", 0) == rule
    assert Rate.of_step(Rate.parse(rate).step_us).step_us == Rate.parse(rate).step_us


@pytest.mark.parametrize("limit", [Limit(), Limit(concurrency=1, ordered=False), Limit(concurrency=4, weight=3)])
def test_a_limit_without_a_rate_is_read_back(limit: Limit) -> None:
    """Concurrency, order and weight are read back from a rule."""
    rule = limit.rule("group", 0)
    assert rule.as_limit().rule("group", 0) == rule
