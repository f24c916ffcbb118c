"""The stored state of gates while a transaction works on it: that of a queue, a family and a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from penstock.model.gate import LATEST, NEW_GATE, Gate
from penstock.model.limit import Rule
from penstock.model.pause import Pause
from penstock.storage.limiting import Scope
from penstock.storage.sqlite.rows import LARGEST

__all__ = ["FamilyGate", "LaneRow", "LimitsRead", "QueueGates", "read_family", "read_gates", "read_lane"]

_INT_OR_NONE = frozenset({int, type(None)})


class QueueGates(msgspec.Struct):
    """The state of the rate of a queue, and of the looks at its closed groups."""

    gate: Gate = NEW_GATE
    #: The number of changes that all closed groups must be looked at for, and when the last of any change was.
    epoch: int = 0
    changed: int = 0
    #: When a group was last closed until a time.
    looked: int = 0
    #: The stored number of running jobs.
    running: int = 0
    dirty: bool = False

    def values(self) -> tuple[object, ...]:
        """Return the parameters of `gates_save`."""
        gate = (None, None, None) if self.gate == NEW_GATE else astuple(self.gate)
        return (*gate, self.epoch, self.changed, self.looked)


class FamilyGate(msgspec.Struct):
    """The state of the rate of a family."""

    name: str
    gate: Gate = NEW_GATE
    dirty: bool = False


class LimitsRead:
    """The limits that a transaction has read."""

    def __init__(self) -> None:
        self.rules: dict[Scope, Rule | None] = {}
        #: By queue: whether single groups have a rule, and that of the others.
        self.shared_rules: dict[str, tuple[bool, Rule]] = {}
        #: The rates of families.
        self.family_gates: dict[str, FamilyGate] = {}


class LaneRow(msgspec.Struct):
    """The row of a group, in the order of `lane_read`."""

    holds: int = 0
    backoffs: int = 0
    turn_time: int | None = None
    turn_seq: int | None = None
    parked: int | None = None
    tat: int | None = None
    step: int | None = None
    at: int | None = None
    used: int = 0
    stamp_time: int | None = None
    stamp_seq: int | None = None
    opens: int | None = None
    epoch: int | None = None
    paused: int | None = None
    pause_until: int | None = None
    pause_by: str | None = None

    @property
    def gate(self) -> Gate:
        """The state of its rate."""
        return NEW_GATE if self.tat is None else Gate(self.tat, self.step or 0, self.at or 0)

    @gate.setter
    def gate(self, gate: Gate) -> None:
        self.tat, self.step, self.at = (None, None, None) if gate == NEW_GATE else (gate.tat, gate.step, gate.at)

    @property
    def runs(self) -> int:
        """The number of its running jobs."""
        return max(self.holds - self.backoffs, 0)

    @property
    def turn(self) -> tuple[int, int] | None:
        """Its turn in the rotation, or None."""
        return None if self.turn_time is None else (self.turn_time, self.turn_seq or 0)

    @turn.setter
    def turn(self, turn: tuple[int, int] | None) -> None:
        self.turn_time, self.turn_seq = turn or (None, None)

    @property
    def stamp(self) -> tuple[int, int] | None:
        """The turn that it keeps, or None."""
        return None if self.stamp_time is None else (self.stamp_time, self.stamp_seq or 0)

    def keep_turn(self, turn: tuple[int, int] | None, used: int) -> None:
        """Keep a turn for the next starts, of which it has used some; None to forget it."""
        self.stamp_time, self.stamp_seq = turn or (None, None)
        self.used = used if turn else 0

    def live_pause(self, now: int) -> Pause | None:
        """Return its pause, None if there is none or it has ended by itself."""
        if self.paused is None or (self.pause_until is not None and self.pause_until <= now):
            return None
        return Pause(self.paused, self.pause_until, self.pause_by or "")

    def set_pause(self, pause: Pause | None) -> None:
        """Pause or resume the group."""
        self.paused, self.pause_until, self.pause_by = (
            (None, None, None) if pause is None else (pause.since, pause.until, pause.by)
        )

    def leave(self) -> None:
        """Leave the rotation, and the closed groups: it has no ready job."""
        self.turn, self.opens, self.epoch, self.parked = None, None, None, None
        self.keep_turn(None, 0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be lost without its row."""
        return (
            self.holds == 0 and self.turn_time is None and self.opens is None and self.tat is None
            and self.paused is None and self.parked is None
        )  # fmt: skip


def read_lane(values: Sequence[Any]) -> LaneRow | None:
    """Return the row of a group; None if it has values that Penstock never writes."""
    holds, backoffs, turn_time, turn_seq, _, tat, step, at, used, _, _, opens, *_, by = values
    sound = (
        _INT_OR_NONE.issuperset(map(type, values[:-1]))
        and (by is None or type(by) is str)
        and not (holds is None or backoffs is None or used is None)
        and 0 <= holds <= LARGEST
        and 0 <= backoffs <= LARGEST
        and 0 <= used <= LARGEST
        and (turn_seq is None) == (turn_time is None)
        and (opens is None or opens <= LARGEST)
        and (tat is None or (0 <= tat <= LATEST and 0 <= (step or 0) <= LATEST and 0 <= (at or 0) <= LATEST))
    )
    return LaneRow(*values) if sound else None


def read_gates(values: Sequence[Any]) -> QueueGates:
    """Return the state of a queue's gates; values that Penstock never writes are taken for those of a new one."""
    tat, step, at, *others = values
    numbers = [value if type(value) is int and 0 <= value <= LARGEST else 0 for value in others]
    epoch, changed, looked, running = numbers
    return QueueGates(_gate(tat, step, at), epoch, changed, looked, running)


def read_family(name: str, values: Sequence[Any] | None) -> FamilyGate:
    """Return the state of a family's rate, as `read_gates` does."""
    return FamilyGate(name, NEW_GATE if values is None else _gate(*values))


def _gate(tat: Any, step: Any, at: Any) -> Gate:
    sound = all(type(value) is int and 0 <= value <= LATEST for value in (tat, step, at))
    return Gate(tat, step, at) if sound else NEW_GATE
