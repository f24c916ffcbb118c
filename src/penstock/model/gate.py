"""Gates: when a rate allows the next start (GCRA), in integers below 2**53 so that Lua computes the same.

`opens_at` and `charge` are the arithmetic of every storage. Times are microseconds since 1970.
"""

from __future__ import annotations

import math

import msgspec

from penstock.model.limit import Rule

__all__ = ["LATEST", "NEW_GATE", "Gate", "charge", "current", "opens_at"]

#: The latest time of a gate: the largest integer that a double holds exactly, in the year 2255.
LATEST = 2**53 - 1


class Gate(msgspec.Struct, frozen=True):
    """The state of a rate.

    `tat` is the time at which all starts are paid (theoretical arrival time), `step` the step of the rule at the last
    start, `at` the time of the last start; 0 before the first.
    """

    tat: int = 0
    step: int = 0
    at: int = 0


#: A gate before its first start.
NEW_GATE = Gate()


def current(gate: Gate, rule: Rule, now: int) -> Gate:
    """Return the state that holds now: after a clock that was set back, and after a change of the rule's step.

    If now is before the last start, the clock went back, and `tat` goes back with it. After a change of the step the
    starts that were not paid at the time of the change are kept, each at the price of the new step. A rule that
    changed twice since the last start counts from its last change.

    A claim that meets a gate stores the result if it differs: while `at` lies ahead of the clock, `tat` would move with
    every look, and the gate would stay closed until the clock has caught up.
    """
    tat, step, at = gate.tat, gate.step, gate.at
    if now < at:
        tat = max(tat - (at - now), 0)
        at = now
    if step != 0 and rule.step_us != 0 and step != rule.step_us:
        since = max(at, min(rule.changed_at * 1000, now))
        if tat > since:
            starts = (tat - since) / step
            tat = min(since + math.ceil(starts * rule.step_us), LATEST)
        step, at = rule.step_us, since  # the next change counts from here, also one back to an older rule
    return Gate(tat, step, at)


def opens_at(gate: Gate, rule: Rule, cost: int, now: int) -> int:
    """Return the time from which a start of this cost is allowed: `now` if the gate is open.

    A job dearer than `burst` waits until all starts before it are paid.
    """
    if rule.step_us == 0:
        return now
    price = rule.price(cost)
    saved = (rule.burst - min(price, rule.burst)) * rule.step_us
    return max(current(gate, rule, now).tat - saved, now)


def charge(gate: Gate, rule: Rule, cost: int, now: int) -> Gate:
    """Return the state after a start of this cost; without a rate it is unchanged."""
    if rule.step_us == 0:
        return gate
    tat = max(current(gate, rule, now).tat, now) + rule.price(cost) * rule.step_us
    return Gate(min(tat, LATEST), rule.step_us, now)
