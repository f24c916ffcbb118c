"""Gates that need no row any more, and rows of groups whose numbers are wrong."""

from __future__ import annotations

from penstock.model.gate import NEW_GATE, current
from penstock.model.limit import NO_RULE
from penstock.storage.limiting import Scope
from penstock.storage.sqlite.gates import (
    family_gate,
    family_of_queue,
    gates_of,
    group_rule,
    lane_of,
    look_at_group,
    rule_of,
    save_lane,
)
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["purge_family", "purge_gates", "recount_lane"]


def recount_lane(tx: Transaction, queue: QueueRow, group: str) -> None:
    """Count the jobs that hold a group again, and look at the group."""
    lane = lane_of(tx, queue, group)
    runs, lane.backoffs = tx.one("lane_counts", queue.k, group)
    lane.holds = runs + lane.backoffs
    save_lane(tx, queue, group, lane)
    look_at_group(tx, queue, group)


def purge_family(tx: Transaction, name: str) -> None:
    """Forget the rate of the family of a queue if all its starts are paid; the queue need not exist."""
    family, now = family_of_queue(name), tx.now * 1000
    if family is None:
        return
    state = family_gate(tx, family)
    if state.gate != NEW_GATE and state.gate.tat <= now:
        gate = current(state.gate, rule_of(tx, Scope("family", family)) or NO_RULE, now)
        state.gate, state.dirty = NEW_GATE if gate.tat <= now else gate, True


def purge_gates(tx: Transaction, queue: QueueRow, limit: int) -> None:
    """Forget rates of which all starts are paid and pauses that are over, at most `limit` of each.

    A queue for which no limit is left, and whose groups need none, is not limited any more.
    """
    if queue.paused is not None and queue.live_pause(tx.now) is None:
        queue.set_pause(None)
    if not queue.limited:
        return
    gates, now = gates_of(tx, queue), tx.now * 1000
    if gates.gate != NEW_GATE and gates.gate.tat <= now:
        gate = current(gates.gate, rule_of(tx, Scope("queue", queue.name)) or NO_RULE, now)
        gates.gate, gates.dirty = NEW_GATE if gate.tat <= now else gate, True
    for (group,) in tx.all("gates_unpaid", queue.k, now, limit):
        lane = lane_of(tx, queue, group)
        gate = current(lane.gate, group_rule(tx, queue, group), now)
        lane.gate = NEW_GATE if gate.tat <= now else gate
        save_lane(tx, queue, group, lane)
    for (group,) in tx.all("gates_resumed", queue.k, tx.now, limit):
        lane = lane_of(tx, queue, group)
        lane.set_pause(None)
        save_lane(tx, queue, group, lane)
    found = tx.one("limits_has", tx.namespace, queue.name, family_of_queue(queue.name))
    unused = gates.gate == NEW_GATE and found is None
    if unused and tx.one("gates_used", queue.k) is None:
        tx.run("gates_end", queue.k)
        queue.limited, queue.marked = 0, True
    if gates.dirty:
        tx.run("gates_save", *gates.values(), queue.k)
        gates.dirty = False
