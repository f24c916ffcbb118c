"""A queue's row while a transaction works on it, and the check of the values that were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.model.clock import MAX_MS
from penstock.storage.sqlite.rows import BLOCKED, LANE, LARGEST, LATER, RETRYING

__all__ = ["QueueRow", "is_sound_queue", "replace_unreadable"]

_INT_OR_NONE = frozenset({int, type(None)})


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
    #: The stored counts of scheduled and retrying jobs, and of blocked ones.
    later: int
    blocked: int
    #: 1 if the table `lanes` has a row of this queue: a group that is held or in the rotation.
    group_rows: int
    #: Whether an idle worker waits for its jobs, and whether a caller waits for the end of one.
    idle: int
    awaited: int
    #: How many damaged records this transaction has found, to be added to the stored count.
    damaged: int = 0
    #: Whether the stored counts are to be replaced by a new count of the rows.
    recount: bool = False
    dirty: bool = False
    #: Whether plain jobs were added. If the row is not also dirty, a shorter statement writes it back.
    ready_added: bool = False
    promoted: bool = False

    def count(self, slot: int, more: int) -> None:
        """Add `more` to the number of job rows in a slot."""
        self.deltas[slot] += more
        self.dirty = True

    def note_damage(self, more: int = 1) -> None:
        """Count damaged records."""
        self.damaged += more
        self.dirty = True

    def next_seq(self) -> int:
        """Return the next sequence number of this queue."""
        self.seq += 1
        self.dirty = True
        return self.seq

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


def is_sound_queue(row: Sequence[Any]) -> bool:
    """Return whether a row of `queue_get` has the types and ranges that Penstock writes."""
    return (
        row[-1] == 1
        and _INT_OR_NONE.issuperset(map(type, row))
        and 0 <= row[1] < LARGEST
        and 0 <= row[2] <= MAX_MS
        and 0 <= row[3] < LARGEST
    )


def replace_unreadable(row: Sequence[Any], seq: int, finished: int, now: int) -> list[Any]:
    """Return a row of `queue_get` in which values that Penstock never writes are replaced.

    A pause of an unreadable time stays a pause. An unreadable `expiry` becomes 0, so that `expire` looks for the
    first start-by time, and an unreadable alarm none, so that the next claim sets it.
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
    fixed[8], fixed[9] = fixed[8] or 0, fixed[9] or 0
    return fixed
