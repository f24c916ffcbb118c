"""Gates: the bound of a rate in any window, with costs, bursts, changes of the rate, and a clock that goes back."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.gate import LATEST, NEW_GATE, Gate, charge, current, opens_at
from penstock.model.limit import NO_RULE, Limit, Rate, Rule
from tests.support import share_of

NOW = 1_900_000_000_000_000  # µs: the year 2030
SECOND = 1_000_000


def rule_of(rate: str, burst: int = 1, by: str = "starts", changed_at: int = 0) -> Rule:
    return Limit(rate=rate, burst=burst, by=by).rule("queue", changed_at)  # type: ignore[arg-type]


def taken(gate: Gate, rule: Rule, now: int, most: int = 100) -> tuple[int, Gate]:
    """Start as many jobs of cost 1 as the gate allows at one moment."""
    count = 0
    while count < most and opens_at(gate, rule, 1, now) <= now:
        gate, count = charge(gate, rule, 1, now), count + 1
    return count, gate


def test_a_rate_of_burst_1_saves_nothing_up() -> None:
    """10/s gives 1 start, 1 more after 0.1 s, and 1 after 10 idle seconds."""
    rule, gate, counts = rule_of("10/s"), NEW_GATE, []
    for now in (NOW, NOW + 100_000, NOW + 10_100_000):
        count, gate = taken(gate, rule, now)
        counts.append(count)
    assert counts == [1, 1, 1]


def test_a_burst_is_saved_up() -> None:
    """10/s with burst 5 gives 5, then 1, then 5 after an idle time."""
    rule, gate, counts = rule_of("10/s", burst=5), NEW_GATE, []
    for now in (NOW, NOW + 100_000, NOW + 10_100_000):
        count, gate = taken(gate, rule, now)
        counts.append(count)
    assert counts == [5, 1, 5]


def test_a_closed_gate_names_the_time_at_which_it_opens() -> None:
    """It is open at that time, and closed a microsecond before."""
    rule = rule_of("10/s", burst=5)
    _, gate = taken(NEW_GATE, rule, NOW)
    opens = opens_at(gate, rule, 1, NOW)
    assert opens == NOW + 100_000
    assert opens_at(gate, rule, 1, opens - 1) == opens_at(gate, rule, 1, opens) == opens


def test_a_job_dearer_than_the_burst_waits_for_a_full_bucket_and_is_paid_off_afterwards() -> None:
    """Cost 20 at 10/s with burst 5: it starts when all is saved up, and the next waits until it is paid."""
    rule = rule_of("10/s", burst=5, by="cost")
    gate = charge(NEW_GATE, rule, 1, NOW)
    assert opens_at(gate, rule, 20, NOW) == opens_at(gate, rule, 5, NOW) == NOW + 100_000
    gate = charge(gate, rule, 20, NOW + 100_000)
    assert opens_at(gate, rule, 5, NOW + 100_000) == NOW + 100_000 + 20 * 100_000
    assert opens_at(gate, rule, 1, NOW + 100_000) == NOW + 100_000 + 16 * 100_000


def test_a_gate_without_a_rate_is_open_and_charges_nothing() -> None:
    """Only a concurrency is limited then."""
    gate = Gate(NOW + SECOND, 5, NOW)
    assert opens_at(gate, NO_RULE, 7, NOW) == NOW
    assert charge(gate, NO_RULE, 7, NOW) == gate


def test_a_raised_rate_opens_at_once() -> None:
    """1/h to 100/s: the start that was not paid is one at the new price."""
    slow = rule_of("1/hour")
    gate = charge(NEW_GATE, slow, 1, NOW)
    change = NOW + 60 * SECOND
    fast = rule_of("100/s", changed_at=change // 1000)
    assert opens_at(gate, slow, 1, change) == NOW + 3600 * SECOND
    assert change < opens_at(gate, fast, 1, change) <= change + 10_000


def test_a_lowered_rate_keeps_what_was_used() -> None:
    """Ten starts at 100/s that are not paid are ten hours at 1/h, from the change on."""
    fast = rule_of("100/s", burst=10)
    _, gate = taken(NEW_GATE, fast, NOW)
    slow = rule_of("1/hour", burst=10, changed_at=NOW // 1000)
    assert current(gate, slow, NOW + SECOND).tat == NOW + 10 * 3600 * SECOND


def test_a_clock_set_back_takes_the_gate_with_it() -> None:
    """The next start is a step after the corrected time, not an hour later."""
    rule = rule_of("10/s")
    gate = charge(NEW_GATE, rule, 1, NOW)
    back = NOW - 3600 * SECOND
    gate = current(gate, rule, back)
    assert gate == Gate(back + 100_000, 100_000, back)
    assert opens_at(gate, rule, 1, back + 100_000) == back + 100_000


def test_no_number_leaves_the_range_that_doubles_hold_exactly() -> None:
    """The dearest job at the slowest rate is clamped to the latest time, in every function."""
    rule = Limit(rate=Rate(1, 31 * 86_400), by="cost", burst=10**9).rule("queue", 0)
    gate = charge(NEW_GATE, rule, 10**9, NOW)
    assert gate.tat == LATEST == opens_at(gate, rule, 10**9, NOW)
    slower = Limit(rate="1/31d", by="cost").rule("queue", NOW // 1000)
    assert current(Gate(NOW + 10**15, 1, NOW), slower, NOW).tat == LATEST


def test_an_expired_gate_equals_a_new_one() -> None:
    """When all is paid, a storage may forget the state: later starts are allowed as from a new gate."""
    rule = rule_of("10/s", burst=3)
    _, gate = taken(NEW_GATE, rule, NOW)
    free = current(gate, rule, NOW).tat
    assert free == NOW + 3 * 100_000
    assert taken(gate, rule, free)[0] == taken(NEW_GATE, rule, free)[0] == 3


@dataclass
class Run:
    """Starts through one gate in real time, by a clock that may be behind."""

    draw: random.Random
    gate: Gate = NEW_GATE
    real: int = NOW
    behind: int = 0
    starts: list[tuple[int, int]] = field(default_factory=list)

    def follow(self, rule: Rule, events: int, costs: int, back: float) -> None:
        """Try to start jobs as early as possible, or a random time later."""
        for _ in range(events):
            if self.draw.random() < back:
                self.behind += self.draw.randint(1, 3 * rule.step_us)
            cost, now = self.draw.randint(1, costs), self.real - self.behind
            self.gate = current(self.gate, rule, now)
            opens = opens_at(self.gate, rule, cost, now)
            if opens <= now:
                self.gate = charge(self.gate, rule, cost, now)
                self.starts.append((self.real, rule.price(cost)))
            elif self.draw.random() < 0.7:
                self.real += opens - now
            else:
                self.real += self.draw.randint(0, 2 * rule.step_us)


def most_in_a_window(starts: list[tuple[int, int]], span: int) -> int:
    """Return the largest sum of costs in a half-open window of this length."""
    sums = [sum(cost for at, cost in starts[i:] if at < first + span) for i, (first, _) in enumerate(starts)]
    return max(sums, default=0)


@settings(max_examples=share_of(150), deadline=None)
@given(
    rates=st.lists(
        st.tuples(st.integers(1, 50), st.sampled_from([1, 7, 60, 3600]), st.integers(1, 20), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    costs=st.integers(1, 30),
    back=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 2**32),
)
def test_the_costs_in_any_window_are_bounded(
    rates: list[tuple[int, int, int, bool]], costs: int, back: float, seed: int
) -> None:
    """At most count + max(burst, largest cost) - 1 in a span, between changes of the rate, in real time."""
    run = Run(random.Random(seed))
    for count, per, burst, by_cost in rates:
        limit = Limit(rate=Rate(count, per), burst=burst, by="cost" if by_cost else "starts")
        run.starts.clear()
        run.follow(limit.rule("queue", (run.real - run.behind) // 1000), 60, costs, back)
        dearest = max((cost for _, cost in run.starts), default=1)
        assert most_in_a_window(run.starts, per * SECOND) <= count + max(burst, dearest) - 1
        if burst == 1 and not by_cost:
            gaps = [b - a for (a, _), (b, _) in zip(run.starts, run.starts[1:], strict=False)]
            assert all(gap >= per * SECOND // count for gap in gaps)


@given(
    used=st.integers(0, 40),
    old=st.tuples(st.integers(1, 10**6), st.integers(1, 86_400)),
    new=st.tuples(st.integers(1, 10**6), st.integers(1, 86_400)),
    later=st.integers(0, 10**9),
)
def test_a_change_of_the_rate_keeps_the_starts_that_are_not_paid(
    used: int, old: tuple[int, int], new: tuple[int, int], later: int
) -> None:
    """Counted in starts there are as many after the change as before, rounded up to a microsecond."""
    before, after = (Limit(rate=Rate(min(count, per * 10**6), per)).rule("queue", 0) for count, per in (old, new))
    changed = moved(after, NOW // 1000)
    gate = Gate(NOW + used * before.step_us, before.step_us, NOW)
    found = current(gate, changed, NOW + later)
    assert found.step == after.step_us
    if before.step_us == after.step_us:
        assert found == gate
    else:
        assert used * after.step_us <= found.tat - NOW <= used * after.step_us + 1
    assert current(found, changed, NOW + later) == found


def moved(rule: Rule, changed_at: int) -> Rule:
    return Rule(rule.concurrency, rule.step_us, rule.burst, rule.by_cost, rule.weight, rule.ordered, changed_at)


def test_a_change_back_to_an_older_rule_keeps_what_was_used() -> None:
    """A limit of one group is set and removed at once: the next start is not earlier than without that."""
    older = Rule(concurrency=1, step_us=666_667, changed_at=10)
    slower = Rule(concurrency=1, step_us=2_000_000, changed_at=43_697)
    started = charge(NEW_GATE, older, 1, 43_110_000)
    met = current(started, slower, 43_705_000)
    assert opens_at(met, older, 1, 43_746_000) >= 43_776_667
