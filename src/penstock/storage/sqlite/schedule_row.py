"""A schedule's row in Python: read, checked and written back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.storage.scheduling import ScheduleRecord
from penstock.storage.sqlite.rows import LARGEST, QUARANTINE_MS
from penstock.storage.sqlite.transaction import NeedsWriteLock, QueueRow, Transaction

__all__ = ["ScheduleRow", "drop", "next_version", "read_schedule", "save", "set_aside", "set_tick", "stored"]

_INT, _INT_OR_NONE, _TEXT_OR_NONE = {int}, {int, type(None)}, {str, type(None)}


class ScheduleRow(msgspec.Struct, gc=False):
    """A row of `schedules`, in the order of `SCHEDULE_COLUMNS`."""

    n: int
    name: str
    version: int
    cursor: int
    next: int | None
    last_id: str | None
    last_at: int | None
    fired: int
    skipped: int
    missed: int
    dropped: int
    expires: int | None
    spec: bytes

    @property
    def is_sound(self) -> bool:
        """Whether it has the types and ranges that Penstock writes."""
        counts = self.fired, self.skipped, self.missed, self.dropped
        numbers = (self.version, self.cursor, *counts)
        others = self.next, self.last_at, self.expires
        return (
            type(self.name) is str
            and type(self.spec) is bytes
            and type(self.last_id) in _TEXT_OR_NONE
            and {*map(type, numbers)} == _INT
            and _INT_OR_NONE.issuperset(map(type, others))
            and self.version > 0
            and min(counts) >= 0
            and max(map(abs, (*numbers, *(value or 0 for value in others)))) < LARGEST
        )


def read_schedule(tx: Transaction, queue: QueueRow, values: Sequence[Any]) -> ScheduleRecord | None:
    """Return the record of a row of `schedules`; None if it cannot be read."""
    row = ScheduleRow(*values)
    # Text that was decoded lossily is a name that no other verb would find.
    if not row.is_sound or (tx.damaged and tx.one("schedule_get", queue.k, row.name) is None):
        return None
    fields = {name: getattr(row, name) for name in ScheduleRow.__struct_fields__[1:]}
    return ScheduleRecord(queue=queue.name, **fields)


def stored(tx: Transaction, queue: QueueRow | None, name: str) -> ScheduleRecord | None:
    """Return the schedule of this name; None if there is none, or it has expired or cannot be read."""
    values = tx.one("schedule_get", queue.k, name) if queue is not None else None
    record = read_schedule(tx, queue, values) if queue is not None and values is not None else None
    if record is not None and record.expires is not None and record.expires <= tx.now:
        return None
    return record


def save(tx: Transaction, queue: QueueRow, record: ScheduleRecord) -> None:
    """Write a schedule; the caller calls `set_tick` after its last change of the queue's schedules."""
    tx.run(
        "schedule_save", queue.k, record.name, record.version, record.cursor, record.next, record.last_id,
        record.last_at, record.fired, record.skipped, record.missed, record.dropped, record.expires, record.spec,
    )  # fmt: skip


def drop(tx: Transaction, queue: QueueRow, name: str) -> None:
    """Delete a schedule."""
    tx.run("schedule_drop", tx.one("schedule_get", queue.k, name)[0])
    set_tick(tx, queue)


def set_tick(tx: Transaction, queue: QueueRow) -> None:
    """Write the earliest next tick of a queue's schedules into its row."""
    first = tx.one("schedules_first", queue.k)[0]
    if first != queue.tick:
        queue.tick, queue.marked = first, True


def set_aside(tx: Transaction, queue: QueueRow, n: int) -> None:
    """Set aside a schedule that cannot be read: it ticks no more, and is deleted after a while."""
    if not tx.write:
        raise NeedsWriteLock
    tx.run("schedule_aside", tx.now + QUARANTINE_MS, n)
    queue.note_damage()
    set_tick(tx, queue)


def next_version(tx: Transaction, version: int) -> int:
    """Return the version after this one."""
    return max(version + 1, tx.now)
