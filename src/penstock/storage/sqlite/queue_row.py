"""A queue's row while a transaction works on it, and the check of the values that were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.model.clock import MAX_MS
from penstock.model.pause import Pause
from penstock.storage.sqlite.gate_rows import QueueGates
from penstock.storage.sqlite.rows import BLOCKED, LANE, LARGEST, LATER, RETRYING, SLOT_COUNT

__all__ = ["TOTALS", "QueueRow", "is_sound_queue", "queue_of", "replace_unreadable"]

_INT_OR_NONE = frozenset({int, type(None)})

#: The transitions that are counted beside `finished`, in the order of the columns.
TOTALS = ("failed", "cancelled", "retried", "stalled", "timed_out")

#: The bits of the last column of `queue_get`.
_LIMITED, _GROUPS, _IDLE, _AWAITED, _DAMAGED, _FLOWS = 1, 2, 4, 8, 16, 32


class QueueRow(msgspec.Struct):
    """A queue's row while a transaction works on it; written back once, before the commit."""

    name: str
    #: By slot (`JobRow.slot`): how many job rows this transaction has added, to be added to the stored counts.
    deltas: list[int]
    k: int
    seq: int
    time: int
    finished: int
    paused: int | None
    parked: int | None
    alarm: int | None
    #: The first start-by time of its jobs, or an earlier time: see `expire.py`.
    expiry: int | None
    #: The earliest next tick of its schedules.
    tick: int | None
    #: The stored counts of scheduled and retrying jobs, and of blocked ones.
    later: int
    blocked: int
    #: 1 if limits may hold for its runs: see `gates.py`.
    limited: int
    #: Whether the table `lanes` has a row of this queue: a group that is held or in the rotation.
    group_rows: int
    #: Whether an idle worker waits for its jobs, and whether a caller waits for the end of one.
    idle: int
    awaited: int
    #: 1 if it may have jobs of flows, or with notices, signals or checkpoints: see `flows.py`.
    flows: int
    #: When its pause ends by itself, and who paused it.
    pause_until: int | None = None
    pause_by: str | None = None
    #: How many damaged records this transaction has found, to be added to the stored count.
    damaged: int = 0
    #: The transitions of this transaction, by the names of `TOTALS`, to be added to the stored numbers.
    totals: dict[str, int] | None = None
    #: Whether the stored counts are to be replaced by a new count of the rows.
    recount: bool = False
    #: Whether its numbers have changed, and whether one of its `marks` has.
    dirty: bool = False
    marked: bool = False
    #: Whether plain jobs were added. If the row is not also dirty, a shorter statement writes it back.
    ready_added: bool = False
    promoted: bool = False
    #: The state of its rate and of its closed groups, read when it is needed first.
    gates: QueueGates | None = None
    #: Whether to wake an idle worker though the queue is paused: to look again when the pause ends.
    wake_paused: bool = False

    def count(self, slot: int, more: int) -> None:
        """Add `more` to the number of job rows in a slot."""
        self.deltas[slot] += more
        self.dirty = True

    def count_total(self, name: str) -> None:
        """Count a transition that is one of `TOTALS`."""
        if self.totals is None:
            self.totals = dict.fromkeys(TOTALS, 0)
        self.totals[name] += 1

    def note_damage(self, more: int = 1) -> None:
        """Count damaged records; the row is written whole."""
        self.damaged += more
        self.dirty = self.marked = True

    def next_seq(self) -> int:
        """Return the next sequence number of this queue."""
        self.seq += 1
        self.dirty = True
        return self.seq

    @property
    def marks(self) -> tuple[object, ...]:
        """The columns that change seldom: the parameters of `queue_marks`."""
        return (
            self.paused, self.pause_until, self.pause_by, self.parked, self.alarm, self.expiry, self.tick, self.limited,
            self.flows,
        )  # fmt: skip

    def live_pause(self, now: int) -> Pause | None:
        """Return its pause, None if there is none or it has ended by itself."""
        if self.paused is None or (self.pause_until is not None and self.pause_until <= now):
            return None
        return Pause(self.paused, self.pause_until, self.pause_by or "")

    def set_pause(self, pause: Pause | None) -> None:
        """Pause or resume the queue."""
        self.paused, self.pause_until, self.pause_by = (
            (None, None, None) if pause is None else (pause.since, pause.until, pause.by)
        )
        self.marked = True

    def read_pause(self, row: Sequence[Any]) -> None:
        """Take the rest of its pause from a row of `queue_pause`; what cannot be read is damage."""
        until, by = row
        self.pause_until = until if type(until) is int else None
        self.pause_by = by if type(by) is str else None
        if (until, by) != (self.pause_until, self.pause_by):
            self.note_damage()

    @property
    def has_later(self) -> bool:
        """Whether there are scheduled or retrying jobs, including due ones that were not promoted yet."""
        return self.later + self.deltas[LATER] + self.deltas[RETRYING] > 0

    @property
    def has_groups(self) -> bool:
        """Whether a group may have a job."""
        return self.group_rows > 0 or self.deltas[LANE] > 0

    @property
    def has_blocked(self) -> bool:
        """Whether a job has a blocked successor."""
        return self.blocked + self.deltas[BLOCKED] > 0


def queue_of(name: str, row: Sequence[Any]) -> QueueRow:
    """Return a queue from a row of `queue_get`."""
    k, seq, time, finished, paused, parked, alarm, expiry, tick, later, blocked, _, bits = row
    return QueueRow(
        name, [0] * SLOT_COUNT, k, seq, time, finished, paused, parked, alarm, expiry, tick, later, blocked,
        bits & _LIMITED, bits & _GROUPS, bits & _IDLE, bits & _AWAITED, int(bits & _FLOWS > 0),
    )  # fmt: skip


def is_sound_queue(row: Sequence[Any]) -> bool:
    """Return whether a row of `queue_get` has the types and ranges that Penstock writes."""
    return (
        not row[-1] & _DAMAGED
        and _INT_OR_NONE.issuperset(map(type, row[:-2]))
        and 0 <= row[1] < LARGEST
        and 0 <= row[2] <= MAX_MS
        and 0 <= row[3] < LARGEST
    )


def replace_unreadable(row: Sequence[Any], seq: int, finished: int, tick: int | None, now: int) -> list[Any]:
    """Return a row of `queue_get` in which values that Penstock never writes are replaced.

    A pause of an unreadable time stays a pause. An unreadable `expiry` becomes 0, so that `expire` looks for the
    first start-by time, and an unreadable alarm none, so that the next claim sets it. The first tick is read anew.
    """
    fixed = [value if type(value) in _INT_OR_NONE else None for value in row]
    if fixed[1] is None or not 0 <= fixed[1] < LARGEST:
        fixed[1] = seq
    if fixed[2] is None or not 0 <= fixed[2] <= MAX_MS:
        fixed[2] = now
    if fixed[3] is None or not 0 <= fixed[3] < LARGEST:
        fixed[3] = finished
    if row[4] is not None and fixed[4] is None:
        fixed[4] = now
    if row[7] is not None and fixed[7] is None:
        fixed[7] = 0
    fixed[8] = tick
    fixed[9], fixed[10] = fixed[9] or 0, fixed[10] or 0
    return fixed
