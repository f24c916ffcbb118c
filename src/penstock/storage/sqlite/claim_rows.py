"""The rows that a claim reads: checked, bounded, and without those that this software cannot run."""

from __future__ import annotations

from typing import Any

from penstock.model.job import MAX_PRIORITY
from penstock.storage.base import MAX_BATCH, MAX_BYTES
from penstock.storage.sqlite.damage import fail_record
from penstock.storage.sqlite.ordering import park, update_turn
from penstock.storage.sqlite.rows import LANE, LARGEST, PARKED, READY
from penstock.storage.sqlite.transaction import NeedsWriteLock, QueueRow, Transaction

__all__ = ["Bound", "Corrupt", "Row", "head_rows", "is_newer", "read_rows", "ready_rows", "sound_turns", "unreadable"]

#: A row of `claim_ready` or `claim_lane`: rank, time, seq, n, id, payload, grp, headers, bounds, created,
#: due, attempts, retries, stalls, timeouts, solo, format, cost, bytes of the record.
Row = tuple[Any, ...]
N, ID, PAYLOAD, GROUP, HEADERS, BOUNDS, NUMBERS = 3, 4, 5, 6, 7, 8, slice(9, 17)
SOLO, FORMAT, COST, SIZE = 15, 16, 17, 18
COUNTS = slice(11, 15)

#: How many ready jobs one step checks for unknown formats to park, and how many such steps a claim takes at most.
PARK_LOOKAHEAD, MAX_PARK_STEPS = 1_000, 10

_INT = {int}
_GROUP = {str, type(None)}

#: Queue and id of jobs whose records could not be read.
Corrupt = list[tuple[str, str]]


class Bound:
    """The room of one claim: for `MAX_BATCH` jobs, and for records until they reach `MAX_BYTES`."""

    def __init__(self) -> None:
        self.jobs, self.bytes = MAX_BATCH, MAX_BYTES
        self.reached = False

    def take(self, rows: list[Row]) -> list[Row]:
        """Return those of the rows that there is room for, which are fewer after this."""
        for i, row in enumerate(rows):
            if self.reached:
                return rows[:i]
            self.jobs -= 1
            self.bytes -= row[SIZE]
            self.reached = self.jobs <= 0 or self.bytes <= 0
        return rows


def read_rows(tx: Transaction, name: str, *params: object) -> list[Row]:
    """Return the rows of a statement up to the one that reaches the bound, and one more, if there is one."""
    rows: list[Row] = []
    cursor, room = tx.rows(name, *params), MAX_BYTES
    for row in cursor:
        rows.append(row)
        if room <= 0 or len(rows) > MAX_BATCH:
            cursor.close()
            break
        room -= row[-1]
    return rows


def ready_rows(tx: Transaction, queue: QueueRow, limit: int, corrupt: Corrupt) -> list[Row]:
    """Return the first jobs without a group; unknown formats are parked and unreadable records failed."""
    rows = read_rows(tx, "claim_ready", queue.k, limit)
    for _ in range(MAX_PARK_STEPS):
        bad = unreadable(tx, queue, rows)
        newer = [row[FORMAT] for row in bad if is_newer(tx, row)]
        if newer:
            parked = tx.run("park_jobs", queue.k, PARK_LOOKAHEAD, tx.format)
            queue.count(READY, -parked)
            queue.count(PARKED, parked)
            park(tx, queue, min(newer))
        if not quarantine(tx, queue, bad, corrupt) and not newer:
            return rows
        rows = read_rows(tx, "claim_ready", queue.k, limit)
    bad = unreadable(tx, queue, rows)
    return [row for row in rows if row not in bad]


def head_rows(
    tx: Transaction, queue: QueueRow, group: str, size: int, corrupt: Corrupt, after: tuple[int, int] | None = None
) -> list[Row]:
    """Return the first jobs of a group, up to one that must run alone or whose format is unknown.

    If the first of all has an unknown format, its group is parked. `after` is the position of the last job that the
    same claim has taken from the group before.
    """
    name, params = ("claim_lane", ()) if after is None else ("claim_lane_after", after)
    rows = read_rows(tx, name, queue.k, group, *params, size)
    while quarantine(tx, queue, unreadable(tx, queue, rows), corrupt):
        rows = read_rows(tx, name, queue.k, group, *params, size)
    if not rows and tx.write:
        update_turn(tx, queue, group)
    if rows and is_newer(tx, rows[0]):
        tx.run("park_lane", rows[0][FORMAT], queue.k, group)
        park(tx, queue, rows[0][FORMAT])
        return []
    cut = next((i for i, row in enumerate(rows) if row[SOLO] or (i and row[FORMAT] > tx.format)), None)
    return rows if cut is None else rows[: max(cut, 1)]


def sound_turns(tx: Transaction, queue: QueueRow, rows: list[Row]) -> list[Row]:
    """Return the groups whose turn can be read; a claim gives the others a new turn, so that a later one finds them."""
    if all(type(row[0]) is int and type(row[1]) is int for row in rows):
        return rows
    for row in rows:
        if tx.write and not _has_turn(row):
            tx.run("lane_turn", queue.k, row[2], tx.now, queue.next_seq())
            queue.note_damage()
            tx.notify_work(queue)
    return [row for row in rows if _has_turn(row)]


def _has_turn(row: Row) -> bool:
    return type(row[0]) is int and type(row[1]) is int


def is_newer(tx: Transaction, row: Row) -> bool:
    """Return whether only newer software can run a job; a read asks for the write lock, to park it."""
    newer = type(row[FORMAT]) is int and tx.format < row[FORMAT] <= LARGEST
    if newer and not tx.write:
        raise NeedsWriteLock
    return newer


def _readable(tx: Transaction, queue: QueueRow, row: Row) -> bool:
    """Return whether a row has the types that Penstock writes, and a known format."""
    if tx.damaged:
        found = tx.one("job_get", queue.k, row[ID], 0)
        if found is None or found[0] != row[N]:
            return False  # its id was decoded lossily, so no settle would find it
    return (
        type(row[PAYLOAD]) is bytes
        and type(row[HEADERS]) is bytes
        and type(row[BOUNDS]) is bytes
        and type(row[ID]) is str
        and type(row[GROUP]) in _GROUP
        and {*map(type, row[NUMBERS]), *map(type, row[:3])} == _INT
        and abs(row[0]) <= MAX_PRIORITY
        and min(row[COUNTS]) >= 0
        and max(row[COUNTS]) <= LARGEST
        and row[FORMAT] <= tx.format
    )


def unreadable(tx: Transaction, queue: QueueRow, rows: list[Row]) -> list[Row]:
    return [row for row in rows if not _readable(tx, queue, row)]


def quarantine(tx: Transaction, queue: QueueRow, rows: list[Row], corrupt: Corrupt) -> bool:
    """Fail records that no software can read, so that they never block their queue; False if there are none."""
    damaged = [row for row in rows if not is_newer(tx, row)]
    if not damaged or not tx.write:
        return False
    for row in damaged:
        slot = READY if row[GROUP] is None else LANE
        corrupt.append((queue.name, fail_record(tx, queue, row[N], row[ID], slot)))
    return True
