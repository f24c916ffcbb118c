"""The choice of a claim in a limited queue: as `claim._select_batches`, but gates are checked before every start."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from penstock.model.checks import MAX_COST
from penstock.model.gate import charge
from penstock.storage.base import MAX_BYTES
from penstock.storage.limiting import Scope
from penstock.storage.sqlite.claim_rows import (
    COST,
    SOLO,
    Bound,
    Corrupt,
    Row,
    head_rows,
    read_rows,
    ready_rows,
    sound_turns,
    unreadable,
)
from penstock.storage.sqlite.gate_rows import LaneRow, read_lane
from penstock.storage.sqlite.gates import (
    FIRST,
    charge_start,
    close_group,
    group_rule,
    has_rates,
    lane_of,
    look_at_group,
    ms_of,
    opening,
    rates_open,
    room_of,
    rule_of,
    save_lane,
    save_lanes,
)
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["Selection"]

#: Groups of the rotation that are read at once, and closed ones that a claim sets aside at most.
TURNS_AT_ONCE, SET_ASIDE_MAX = 250, 1_000

#: The position of the cost of the second job in a row of `lanes_heads`: after the turn, the group and its row.
COST_OF_NEXT = 19

Turn = tuple[int, int, str]


class Selection:
    """Batches of one claim. The rates are charged and the groups written; the jobs are not yet marked as running.

    With `dry` nothing is written: for `peek`, which asks for one job.
    """

    def __init__(
        self, tx: Transaction, queue: QueueRow, limit: int, size: int, corrupt: Corrupt, dry: bool = False
    ) -> None:
        self.tx, self.queue, self.limit, self.size, self.corrupt, self.dry = tx, queue, limit, size, corrupt, dry
        self.room = room_of(tx, queue)
        self.has_rates = has_rates(tx, queue)
        self.bound = Bound()
        self.batches: list[list[Row]] = []
        #: When the rate of the queue or family opens that has ended the claim.
        self.opens: int | None = None
        self._turns: list[Turn] = []
        #: The last turn that was read, None if all were.
        self._horizon: tuple[int, int] | None = (-1, -1) if queue.has_groups else None
        #: The position of the last job that was taken from each group.
        self._taken: dict[str, tuple[int, int]] = {}
        self._set_aside = 0
        #: Rows of groups to be written, the values of those that were read, and groups whose first job was read too.
        self._lanes: dict[str, LaneRow] = {}
        self._before: dict[str, Row] = {}
        self._heads: dict[str, tuple[LaneRow, Row, int | None]] = {}

    def run(self) -> tuple[list[list[Row]], bool, bool]:
        """Return up to `limit` batches, whether jobs are left that could start, and whether a bound was reached."""
        if self.room < 1:
            return [], False, False
        found = self._select()
        self._flush()
        return found

    def _flush(self) -> None:
        """Write the rows of the groups that have changed."""
        if self._lanes:
            save_lanes(self.tx, self.queue, self._lanes, self._before)
            for group in self._lanes:
                self._before.pop(group, None)
            self._lanes = {}

    def _select(self) -> tuple[list[list[Row]], bool, bool]:
        jobs = self._plain_jobs()
        at, together = 0, False
        while not self.bound.reached and self._set_aside < SET_ASIDE_MAX:
            turn = self._first_turn()
            row = jobs[at] if at < len(jobs) else None
            if row is not None and turn is not None and row[:3] > (0, *turn[:2]):
                row = None
            if row is None and turn is None:
                return self.batches, False, False
            last = self.batches[-1] if together else None
            joins = row is not None and last is not None and not (row[SOLO] or last[0][SOLO]) and len(last) < self.size
            if len(self.batches) == self.limit and not joins:
                return self.batches, True, False
            if self.room < 1:
                return self.batches, False, False
            if row is not None:
                if not self._start(row):
                    return self.batches, False, False
                if not joins:
                    self.batches.append([])
                self.batches[-1].append(row)
                at, together = at + 1, True
            elif turn is not None:
                heappop(self._turns)
                if not self._start_group(turn):
                    return self.batches, False, False
                together = False
        return self.batches, True, True

    def _plain_jobs(self) -> list[Row]:
        """Return the first jobs without a group: no more than may start."""
        most = min(self.limit * self.size, self.room)
        rule = rule_of(self.tx, Scope("queue", self.queue.name))
        if rule is not None and rule.step_us:
            most = min(most, rule.burst)
        return ready_rows(self.tx, self.queue, most + 1, self.corrupt)

    def _first_turn(self) -> Turn | None:
        """Return the first group in the rotation."""
        if not self._turns and self._horizon is not None:
            self._flush()
            many = SET_ASIDE_MAX if self.dry else min(self.limit + 1, TURNS_AT_ONCE)
            if self.size > 1 or self.dry or not self.tx.fast:
                rows = self.tx.all("claim_turns", self.queue.k, many)
                whole = len(rows) < many
            else:
                rows = read_rows(self.tx, "lanes_heads", self.queue.k, many)
                whole = len(rows) < many and sum(row[-1] for row in rows) < MAX_BYTES
                self._keep_heads(rows)
            self._turns = [(row[0], row[1], row[2]) for row in sound_turns(self.tx, self.queue, rows)]
            heapify(self._turns)
            self._horizon = None if whole or self.dry or not self._turns else max(self._turns)[:2]
        return self._turns[0] if self._turns else None

    def _keep_heads(self, rows: list[Row]) -> None:
        """Keep the groups whose rows and first jobs can be read; for others `_start_group` reads them one by one."""
        self._heads = {}
        for row in rows:
            lane, head = read_lane(row[3:COST_OF_NEXT]), row[COST_OF_NEXT + 1 :]
            if lane is not None and head[0] is not None and not unreadable(self.tx, self.queue, [head]):
                self._heads[row[2]] = lane, head, row[COST_OF_NEXT]
                self._before[row[2]] = row[3:COST_OF_NEXT]

    def _start(self, row: Row) -> bool:
        """Charge the start of a job to the queue and the family; False if one of their rates does not allow it."""
        if self.has_rates:
            cost = _cost(row[COST])
            self.opens = rates_open(self.tx, self.queue, cost, self.dry)
            if self.opens is not None:
                return False
            if not self.dry:
                charge_start(self.tx, self.queue, cost)
        self.room -= 1
        self.bound.take([row])
        return True

    def _start_group(self, turn: Turn) -> bool:
        """Start a batch of a group, or close the group; False if the claim ends because the rates allow no start."""
        tx, queue, group = self.tx, self.queue, turn[2]
        kept = self._heads.pop(group, None)
        if kept is not None:
            return self._start_head(turn, *kept)
        self._flush()
        self._before.pop(group, None)
        lane = lane_of(tx, queue, group)
        first = tx.one("lane_first", queue.k, group, *self._taken.get(group, FIRST))
        if first is None:
            if not self.dry:
                look_at_group(tx, queue, group, wake=False)
            return True
        if not (type(first[3]) is int and first[3] > tx.format):
            opens = opening(tx, queue, group, lane, _cost(first[2]), self.dry)
            if opens is not None:
                self._set_aside += 1
                if not self.dry:
                    close_group(tx, queue, lane, opens)
                    save_lane(tx, queue, group, lane)
                return True
        rows = head_rows(tx, queue, group, self.size, self.corrupt, self._taken.get(group))
        started = bool(rows) and self._take_batch(group, lane, rows)
        if started and not self.dry:
            self._after_start(turn, lane)
        elif rows and not self.dry:
            save_lane(tx, queue, group, lane)
        return started or not rows

    def _start_head(self, turn: Turn, lane: LaneRow, row: Row, next_cost: int | None) -> bool:
        """Start the first job of a group that was read with its row.

        The fast path of `_start_group`; the walks of `tests/conformance/test_model.py` prove it equal.
        """
        opens = opening(self.tx, self.queue, turn[2], lane, _cost(row[COST]))
        self._lanes[turn[2]] = lane
        if opens is not None:
            self._set_aside += 1
            close_group(self.tx, self.queue, lane, opens)
            return True
        if not self._take_batch(turn[2], lane, [row]):
            return False
        self._place(turn, lane, next_cost)
        return True

    def _take_batch(self, group: str, lane: LaneRow, rows: list[Row]) -> bool:
        """Start the first of these jobs of a group, and those after it that may join; False if none may start."""
        tx, rule = self.tx, group_rule(self.tx, self.queue, group)
        most = max(rule.concurrency - lane.runs, 1) if rule.concurrency > 1 else len(rows)
        batch: list[Row] = []
        for row in rows[:most]:
            cost = _cost(row[COST])
            if batch and (self.bound.reached or self.room < 1):
                break
            if batch and ms_of(lane.gate, rule, cost, tx.now) > tx.now:
                break
            if not self._start(row):
                break
            if rule.step_us and not self.dry:
                lane.gate = charge(lane.gate, rule, cost, tx.now * 1000)
            batch.append(row)
        if not batch:
            return False
        self.opens = None
        self.batches.append(batch)
        self._taken[group] = (batch[-1][1], batch[-1][2])
        lane.holds += len(batch)
        return True

    def _after_start(self, turn: Turn, lane: LaneRow) -> None:
        """Count a start of a group, which keeps its turn for `weight` starts, and look at its gate again."""
        first = self.tx.one("lane_first", self.queue.k, turn[2], *self._taken[turn[2]])
        self._place(turn, lane, None if first is None else first[2])
        self._lanes[turn[2]] = lane

    def _place(self, turn: Turn, lane: LaneRow, next_cost: int | None) -> None:
        """Move a group after a start; `next_cost` is the cost of its next job, None if it has none."""
        tx, queue, group = self.tx, self.queue, turn[2]
        if next_cost is None:
            lane.leave()
        else:
            used = lane.used + 1
            kept = turn[:2] if used < group_rule(tx, queue, group).weight else None
            lane.keep_turn(kept, used)
            opens = opening(tx, queue, group, lane, _cost(next_cost))
            if opens is not None:
                close_group(tx, queue, lane, opens)
            else:
                lane.turn = lane.stamp or (tx.now, queue.next_seq())
                if self._horizon is None or lane.turn <= self._horizon:
                    heappush(self._turns, (*lane.turn, group))


def _cost(value: object) -> int:
    """Return the cost of a job, 1 if it cannot be read."""
    return value if type(value) is int and 1 <= value <= MAX_COST else 1
