"""Gates: whether the limits of a family, a queue and a group allow a start now, and when they do.

Only queues with `queues.limited` come here. A group of such a queue that has ready jobs is either in the rotation or
closed, with the time of its opening in `lanes.opens`: `FOREVER` while its limit is reached or it is paused without an
end. `look_at_group` decides; it is called whenever a group has changed. Groups in the rotation are looked at again when
a claim meets them. A change of a rule or a pause, and a clock that was set back, make closed groups stale; `promote`
looks at those, and at the ones whose time has come, a bounded number per call. What a change means is in
`tests/model_limits.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from penstock.model.checks import MAX_COST
from penstock.model.gate import NEW_GATE, Gate, charge, current, opens_at
from penstock.model.ids import FAIL_SUFFIX, family_of
from penstock.model.limit import Rule
from penstock.storage.limiting import Scope
from penstock.storage.sqlite.gate_rows import FamilyGate, LaneRow, QueueGates, read_family, read_gates, read_lane
from penstock.storage.sqlite.rows import FOREVER, LARGEST, RUNNING
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = [
    "ORDERED",
    "begin_limits",
    "charge_start",
    "close_group",
    "family_gate",
    "family_of_queue",
    "family_queues",
    "family_rule",
    "gates_of",
    "group_rule",
    "has_rates",
    "lane_of",
    "look_at_group",
    "mark_changed",
    "ms_of",
    "next_opening",
    "open_gates",
    "opening",
    "rates_open",
    "release_limited",
    "room_of",
    "rule_of",
    "runs_of",
    "save_lane",
    "save_lanes",
]

#: The rule of a group without a limit: strict order.
ORDERED = Rule(concurrency=1, ordered=True)

#: Closed groups of each kind that one call looks at.
LOOK_MAX = 1_000

#: Before every position in a group.
FIRST = (-(1 << 62), -(1 << 62))


# rules ---------------------------------------------------------------------------------------------


def rule_of(tx: Transaction, scope: Scope) -> Rule | None:
    """Return the rule of a scope, None if it has none that can be read."""
    if scope not in (rules := tx.limits.rules):
        row = tx.one("limit_get", tx.namespace, scope.name, scope.kind, scope.group or "")
        packed = None if row is None else row[1]
        try:
            rules[scope] = Rule.unpack(packed) if type(packed) is bytes else None
        except ValueError:
            rules[scope] = None
    return rules[scope]


def group_rule(tx: Transaction, queue: QueueRow, group: str) -> Rule:
    """Return the rule of a group: its own, that of every group, or else strict order."""
    found = (shared_rules := tx.limits.shared_rules).get(queue.name)
    if found is None:
        own = tx.one("limits_own", tx.namespace, queue.name) is not None
        found = shared_rules[queue.name] = own, rule_of(tx, Scope("groups", queue.name)) or ORDERED
    own, shared = found
    return (rule_of(tx, Scope("group", queue.name, group)) or shared) if own else shared


def family_of_queue(name: str) -> str | None:
    """Return the family whose limit holds for a queue; None for a fail queue."""
    return None if name.endswith(FAIL_SUFFIX) else family_of(name)


def family_rule(tx: Transaction, name: str) -> Rule | None:
    """Return the rule of a queue's family, or None."""
    family = family_of_queue(name)
    return None if family is None else rule_of(tx, Scope("family", family))


def has_rates(tx: Transaction, queue: QueueRow) -> bool:
    """Return whether a rate of the queue or its family may hold up a start."""
    rules = rule_of(tx, Scope("queue", queue.name)), family_rule(tx, queue.name)
    return any(rule is not None and rule.step_us for rule in rules)


# family and queue ----------------------------------------------------------------------------------


def gates_of(tx: Transaction, queue: QueueRow) -> QueueGates:
    """Return the state of a queue's gates, read once per transaction."""
    if queue.gates is None:
        queue.gates = read_gates(tx.one("gates_get", queue.k))
    return queue.gates


def runs_of(tx: Transaction, queue: QueueRow) -> int:
    """Return the number of running jobs of a queue, with the changes of this transaction."""
    return gates_of(tx, queue).running + queue.deltas[RUNNING]


def family_gate(tx: Transaction, family: str) -> FamilyGate:
    """Return the state of a family's rate, read once per transaction."""
    if family not in (gates := tx.limits.family_gates):
        gates[family] = read_family(family, tx.one("family_gate", tx.namespace, family))
    return gates[family]


def family_queues(tx: Transaction, family: str) -> list[QueueRow]:
    """Return the queues that a family's limit is for."""
    names = [name for name, _, _ in tx.all("family_queues", tx.namespace, family) if isinstance(name, str)]
    found = [tx.queue(name) for name in names if not name.endswith(FAIL_SUFFIX)]
    return [queue for queue in found if queue is not None]


def _family_runs(tx: Transaction, family: str) -> int:
    """Return the number of running jobs of a family, with the changes of this transaction."""
    runs = 0
    for name, _, running in tx.all("family_queues", tx.namespace, family):
        if isinstance(name, str) and not name.endswith(FAIL_SUFFIX):
            runs += running if type(running) is int and 0 <= running <= LARGEST else 0
            runs += known.deltas[RUNNING] if (known := tx.known_queue(name)) else 0
    return runs


def room_of(tx: Transaction, queue: QueueRow) -> int:
    """Return how many more runs the limits of the family and the queue allow."""
    room = FOREVER
    rule = family_rule(tx, queue.name)
    if rule is not None and rule.concurrency:
        room = rule.concurrency - _family_runs(tx, family_of(queue.name))
    rule = rule_of(tx, Scope("queue", queue.name))
    if rule is not None and rule.concurrency:
        room = min(room, rule.concurrency - runs_of(tx, queue))
    return room


def ms_of(gate: Gate, rule: Rule, cost: int, now: int) -> int:
    """Return when (ms) a rate allows a start, `now` if it does."""
    return -(-opens_at(gate, rule, cost, now * 1000) // 1000) if rule.step_us else now


def rates_open(tx: Transaction, queue: QueueRow, cost: int, dry: bool = False) -> int | None:
    """Return when the rates of the family and the queue allow a start, None for now.

    What is looked at is corrected by the clock and the rule, and stored unless `dry`.
    """
    rule = family_rule(tx, queue.name)
    if rule is not None and rule.step_us:
        state = family_gate(tx, family_of(queue.name))
        opens = _look(state, rule, cost, tx.now, dry)
        if opens is not None:
            return opens
    rule = rule_of(tx, Scope("queue", queue.name))
    return None if rule is None or not rule.step_us else _look(gates_of(tx, queue), rule, cost, tx.now, dry)


def _look(state: QueueGates | FamilyGate, rule: Rule, cost: int, now: int, dry: bool) -> int | None:
    if state.gate != NEW_GATE and not dry:
        gate = current(state.gate, rule, now * 1000)
        state.dirty, state.gate = state.dirty or gate != state.gate, gate
    opens = ms_of(state.gate, rule, cost, now)
    return opens if opens > now else None


def charge_start(tx: Transaction, queue: QueueRow, cost: int) -> None:
    """Charge a start to the rates of the family and the queue."""
    rule = family_rule(tx, queue.name)
    if rule is not None and rule.step_us:
        state = family_gate(tx, family_of(queue.name))
        state.gate, state.dirty = charge(state.gate, rule, cost, tx.now * 1000), True
    rule = rule_of(tx, Scope("queue", queue.name))
    if rule is not None and rule.step_us:
        gates = gates_of(tx, queue)
        gates.gate, gates.dirty = charge(gates.gate, rule, cost, tx.now * 1000), True


# groups --------------------------------------------------------------------------------------------


def lane_of(tx: Transaction, queue: QueueRow, group: str) -> LaneRow:
    """Return the row of a group, a new one if it has none; a damaged one is replaced."""
    row = tx.one("lane_read", queue.k, group)
    lane = LaneRow() if row is None else read_lane(row)
    if lane is None:
        runs, backoffs = tx.one("lane_counts", queue.k, group)
        lane = LaneRow(holds=runs + backoffs, backoffs=backoffs)
        if tx.write:
            tx.run("lane_write", queue.k, group, *astuple(lane))
            queue.note_damage()
    return lane


def save_lane(tx: Transaction, queue: QueueRow, group: str, lane: LaneRow) -> None:
    """Write the row of a group, or delete it if it is empty."""
    if lane.is_empty:
        tx.run("lane_drop", queue.k, group)
    else:
        tx.run("lane_write", queue.k, group, *astuple(lane))


def opening(tx: Transaction, queue: QueueRow, group: str, lane: LaneRow, cost: int, dry: bool = False) -> int | None:
    """Return when a group may start a job of this cost: None for now, `FOREVER` if that takes an event.

    The rate is corrected in the row, and a pause that is over is removed from it, unless `dry`.
    """
    rule = group_rule(tx, queue, group)
    if lane.holds > 0 if rule.ordered else lane.runs >= max(rule.concurrency, 1):
        return FOREVER
    if lane.paused is None and lane.tat is None and not rule.step_us:
        return None
    pause = lane.live_pause(tx.now)
    if pause is not None and pause.until is None:
        return FOREVER
    gate = lane.gate
    if not dry:
        if pause is None:
            lane.set_pause(None)
        if gate != NEW_GATE:
            lane.gate = gate = current(gate, rule, tx.now * 1000)
    opens = ms_of(gate, rule, cost if type(cost) is int and 1 <= cost <= MAX_COST else 1, tx.now)
    if pause is not None and pause.until is not None:
        opens = max(opens, pause.until)
    return opens if opens > tx.now else None


def close_group(tx: Transaction, queue: QueueRow, lane: LaneRow, opens: int) -> None:
    """Move a group to the closed ones; `save_lane` must follow."""
    gates = gates_of(tx, queue)
    lane.turn, lane.opens, lane.epoch = None, opens, gates.epoch
    if opens != FOREVER and gates.looked != tx.now:
        gates.looked, gates.dirty = tx.now, True


def look_at_group(
    tx: Transaction, queue: QueueRow, group: str, turn: tuple[int, int | None] | None = None, wake: bool = True
) -> None:
    """Put a group that has changed into the rotation, or close it, depending on its ready jobs and its gate.

    A group that enters takes the turn that it has kept, or else the given one, or else the last; a turn without its
    second part takes that of the first job.
    """
    lane = lane_of(tx, queue, group)
    before = astuple(lane)
    _place_group(tx, queue, group, lane, tx.one("lane_first", queue.k, group, *FIRST), turn, wake)
    if astuple(lane) != before or lane.is_empty:
        save_lane(tx, queue, group, lane)


def _place_group(
    tx: Transaction, queue: QueueRow, group: str, lane: LaneRow, first: Sequence[Any] | None,
    turn: tuple[int, int | None] | None, wake: bool,
) -> None:  # fmt: skip
    """Change the row of a group as `look_at_group` does; `first` is its first ready job, as `lane_first`."""
    if lane.parked is not None:
        lane.parked = None  # the next claim checks the format of its first job again
        tx.notify_work(queue)
    if first is None:
        lane.leave()
        return
    _, seq, cost, _ = first
    opens = opening(tx, queue, group, lane, cost)
    if opens is not None:
        close_group(tx, queue, lane, opens)
        if wake and opens != FOREVER:
            tx.notify_due(queue, opens)
    elif lane.turn_time is None:
        time, second = turn or (tx.now, queue.next_seq() if lane.stamp is None else 0)
        lane.turn = lane.stamp or (time, seq if second is None else second)
        lane.opens = lane.epoch = None
        if wake:
            tx.notify_work(queue)


def release_limited(tx: Transaction, queue: QueueRow, groups: Sequence[str]) -> bool:
    """Take one hold from each of these groups, one after the other, with few statements; False if a row is damaged.

    The general path is `change_holds` and `look_at_group` for each.
    """
    lanes: dict[str, LaneRow] = {}
    before: dict[str, Sequence[Any]] = {}
    first: dict[str, Sequence[Any] | None] = {}
    for group, *values in tx.run_with_list("lanes_read", (queue.k,), list(dict.fromkeys(groups))):
        lane = read_lane(values[:-4])
        if lane is None or lane.holds == 0:
            return False
        lanes[group], before[group] = lane, tuple(values[:-4])
        first[group] = None if values[-4] is None else values[-4:]
    if len(lanes) < len(set(groups)):
        return False
    for group in groups:
        lane = lanes[group]
        lane.holds = max(lane.holds - 1, 0)
        _place_group(tx, queue, group, lane, first[group], None, wake=True)
    save_lanes(tx, queue, lanes, before)
    return True


def save_lanes(
    tx: Transaction, queue: QueueRow, lanes: dict[str, LaneRow], before: Mapping[str, Sequence[Any]]
) -> None:
    """Write the rows of groups, or delete those that are empty; `before` has the values of those that were read.

    Of most only the holds or the turn have changed: then no other column is written, and no other index.
    """
    empty: list[str] = []
    held: list[tuple[Any, ...]] = []
    moved: list[tuple[Any, ...]] = []
    changed: list[tuple[Any, ...]] = []
    for group, lane in lanes.items():
        old, new = before.get(group), astuple(lane)
        if lane.is_empty:
            empty.append(group)
        elif old is None or new[1] != old[1] or new[4:] != old[4:]:
            changed.append((queue.k, group, *new))
        elif new[2:4] != old[2:4]:
            moved.append((queue.k, group, new[0], new[2], new[3]))
        elif new[0] != old[0]:
            held.append((queue.k, group, new[0]))
    tx.run_with_list("lanes_drop", (queue.k,), empty)
    tx.run_with_rows("lanes_hold", held)
    tx.run_with_rows("lanes_move", moved)
    if changed:
        tx.run_each("lane_write", changed)


def open_gates(tx: Transaction, queue: QueueRow, wake: bool) -> bool:
    """Look at closed groups that have changed, and at those whose time has come, `LOOK_MAX` of each at most.

    If the clock was set back since the last look, all count as changed: rates go back with it. True if there are more.
    """
    gates = gates_of(tx, queue)
    if tx.now < gates.looked:
        gates.looked = tx.now
        mark_changed(tx, queue)
    stale = tx.all("gates_stale", queue.k, gates.epoch, LOOK_MAX)
    for (group,) in stale:
        look_at_group(tx, queue, group, (gates.changed, None), wake)
    due = tx.all("gates_due", queue.k, tx.now, LOOK_MAX)
    for group, opens in due:
        look_at_group(tx, queue, group, (opens, None), wake)
    return len(stale) == LOOK_MAX or len(due) == LOOK_MAX


def next_opening(tx: Transaction, queue: QueueRow, opens: int | None) -> int | None:
    """Return the earlier one of a time and the next opening of a closed group, or None."""
    if not queue.limited:
        return opens
    row = tx.one("gates_next", queue.k)
    found = row[0] if row is not None and type(row[0]) is int and row[0] < FOREVER else None
    return min((each for each in (opens, found) if each is not None), default=None)


# changes -------------------------------------------------------------------------------------------


def begin_limits(tx: Transaction, queue: QueueRow) -> None:
    """Make a queue limited: the groups that are held become closed ones."""
    if not queue.limited:
        queue.limited, queue.marked = 1, True
        tx.run("gates_begin", queue.k, gates_of(tx, queue).epoch)


def mark_changed(tx: Transaction, queue: QueueRow, group: str | None = None) -> None:
    """Make the closed groups of a queue stale, or one of them: the next `promote` looks at them."""
    gates = gates_of(tx, queue)
    gates.changed, gates.dirty = tx.now, True
    queue.promoted = False
    if group is None:
        gates.epoch += 1
        return
    lane = lane_of(tx, queue, group)
    if lane.opens is not None:
        lane.epoch = -1
        save_lane(tx, queue, group, lane)
