"""claim: due → running, for several queues; promotes jobs whose time has come, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, repeat
from operator import lt, neg
from typing import Any

from penstock.model.job import MAX_PRIORITY, Claim
from penstock.storage.base import MAX_BATCH, MAX_BYTES, Claimed, Request
from penstock.storage.sqlite.damage import fail_record
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.fast_path import can_claim_plain
from penstock.storage.sqlite.ordering import park, promote, unpark, update_turn
from penstock.storage.sqlite.rows import FOREVER, LANE, LARGEST, PARKED, READY, RUNNING
from penstock.storage.sqlite.transaction import NeedsWriteLock, QueueRow, Transaction

__all__ = ["claim", "next_id"]

#: A row of `claim_ready` or `claim_lane`: rank, time, seq, n, id, payload, grp, headers, limits, created,
#: due, attempts, retries, stalls, timeouts, solo, format, bytes of the record.
Row = tuple[Any, ...]
N, ID, PAYLOAD, GROUP, HEADERS, LIMITS, NUMBERS, SOLO, FORMAT, SIZE = 3, 4, 5, 6, 7, 8, slice(9, 17), 15, 16, 17
COUNTS = slice(11, 15)

#: How many ready jobs one step checks for unknown formats to park, and how many such steps a claim takes at most.
PARK_LOOKAHEAD, MAX_PARK_STEPS = 1_000, 10

_INT = {int}
_BYTES = {bytes}
_TEXT = {str}
_GROUP = {str, type(None)}

Corrupt = list[tuple[str, str]]


def claim(tx: Transaction, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
    """Claim due jobs, queue by queue, in the order of the requests."""
    claims: list[Claim] = []
    corrupt: Corrupt = []
    bounded: list[str] = []
    look_at: int | None = None
    for request in requests:
        queue = tx.queue(request.queue)
        if queue is None or queue.paused is not None:
            continue
        more = unpark(tx, queue, wake=False) | promote(tx, queue, wake=False)
        if expire(tx, queue):
            tx.notify_work(queue)
            continue
        taken = _claim_plain(tx, queue, request, worker, tx.now + lease, token)
        if taken is None:
            batches, left, bound = _select_batches(tx, queue, request.limit, request.batch, corrupt)
            _start_runs(tx, queue, batches, worker, tx.now + lease, token)
            full = len(batches) == request.limit
            for number, batch in enumerate(batches):
                claims += [_claim_of(queue.name, row, token, number) for row in batch]
        else:
            found, left, bound = taken
            full = len(found) == request.limit
            claims += found
        if bound:
            bounded.append(queue.name)
        if left or more:
            tx.notify_work(queue)
        elif not full:
            alarm = _take_alarm(tx, queue)
            look_at = alarm if look_at is None or (alarm is not None and alarm < look_at) else look_at
    return Claimed(claims, look_at, corrupt, more=bounded)


def next_id(tx: Transaction, queue: QueueRow) -> str | None:
    """Return the id of the job that a claim would give next, or None."""
    batches, _, _ = _select_batches(tx, queue, 1, 1, [])
    return batches[0][0][ID] if batches else None


def _claim_plain(
    tx: Transaction, queue: QueueRow, request: Request, worker: str, until: int, token: str
) -> tuple[list[Claim], bool, bool] | None:
    """Claim jobs that never ran from a queue without groups, reading column by column; None if that does not apply.

    The fast path of `_select_batches`, `_start_runs` and `_claim_of`; `tests/conformance/test_model.py`
    proves it equal. True follows the claims if there are more jobs, and True if these reach the bound.
    """
    if not can_claim_plain(tx, queue, request):
        return None
    rows, left, bound = _plain_rows(tx, queue, min(request.limit, MAX_BATCH))
    if not rows:
        return [], left, bound
    numbers, ids, payloads, ranks, headers, limits, created, due, plain, _ = zip(*rows, strict=True)
    if (
        {*map(type, payloads), *map(type, headers), *map(type, limits)} != _BYTES
        or {*map(type, ranks), *map(type, created), *map(type, due)} != _INT
        or {*map(type, ids)} != _TEXT
        or ranks[0] < -MAX_PRIORITY
        or ranks[-1] > MAX_PRIORITY
        or not all(plain)
    ):
        return None
    _mark_running(tx, queue, numbers, worker, until, token)
    queue.count(READY, -len(rows))
    if tx.has_listeners:
        for id in ids:
            tx.emit("started", queue, id, 1, worker)
    priorities = map(neg, ranks)
    claims = map(
        Claim, repeat(queue.name), ids, repeat(token), payloads, count(), repeat(None), priorities, headers, limits,
        created, due,
    )  # fmt: skip
    return list(claims), left, bound


def _plain_rows(tx: Transaction, queue: QueueRow, limit: int) -> tuple[list[Row], bool, bool]:
    """Read the rows of `_claim_plain` one by one, so that no more than the bound is in memory."""
    rows: list[Row] = []
    cursor, room = tx.rows("claim_plain", queue.k, limit + 1, tx.format), MAX_BYTES
    for row in cursor:
        if room <= 0 or len(rows) == limit:
            cursor.close()
            return rows, True, room <= 0 or limit == MAX_BATCH
        rows.append(row)
        room -= row[-1]
    return rows, False, room <= 0 or len(rows) == MAX_BATCH


def _mark_running(
    tx: Transaction, queue: QueueRow, numbers: Sequence[int], worker: str, until: int, token: str
) -> None:
    """Mark rows as running."""
    size = len(numbers)
    # Jobs that were put together and have one priority are neighbours in the table.
    if size > 1 and numbers[-1] - numbers[0] == size - 1 and all(map(lt, numbers, numbers[1:])):
        tx.run("claim_range", token, worker, until, tx.now, numbers[0], numbers[-1])
    else:
        tx.run_with_list("claim_start", (token, worker, until, tx.now), numbers)
    queue.count(RUNNING, size)


class _Bound:
    """The room of one claim: for `MAX_BATCH` jobs, and for records until they reach `MAX_BYTES`."""

    def __init__(self) -> None:
        self.jobs, self.bytes = MAX_BATCH, MAX_BYTES

    @property
    def reached(self) -> bool:
        return self.jobs <= 0 or self.bytes <= 0

    def take(self, rows: list[Row]) -> list[Row]:
        """Return those of the rows that there is room for, which are fewer after this."""
        for i, row in enumerate(rows):
            if self.reached:
                return rows[:i]
            self.jobs, self.bytes = self.jobs - 1, self.bytes - row[SIZE]
        return rows


def _read(tx: Transaction, name: str, *params: object) -> list[Row]:
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


def _select_batches(
    tx: Transaction, queue: QueueRow, limit: int, size: int, corrupt: Corrupt
) -> tuple[list[list[Row]], bool, bool]:
    """Return up to `limit` batches, whether jobs are left, and whether the batches have reached the bound.

    Neighbours without a group are together, a group is by itself. Two sorted streams are merged: the jobs without a
    group, and the groups in the rotation.
    """
    jobs = _ready(tx, queue, limit * size + 1, corrupt)
    turns, heads = _turns(tx, queue, limit + 1, size)
    batches: list[list[Row]] = []
    bound = _Bound()
    open_batch = False
    at = turn = 0
    while at < len(jobs) or turn < len(turns):
        if bound.reached:
            return batches, True, True
        if turn == len(turns) or (at < len(jobs) and jobs[at][:3] < (0, *turns[turn][:2])):
            row = jobs[at]
            if open_batch and not row[SOLO] and not batches[-1][0][SOLO] and len(batches[-1]) < size:
                batches[-1].append(row)
            elif len(batches) == limit:
                return batches, True, False
            else:
                batches.append([row])
                open_batch = True
            bound.take([row])
            at += 1
        else:
            if len(batches) == limit:
                return batches, True, False
            head = [heads[turn]] if heads else _head(tx, queue, turns[turn][2], size, corrupt)
            turn += 1
            if head:
                batches.append(bound.take(head))
                open_batch = False
    return batches, False, bound.reached


def _turns(tx: Transaction, queue: QueueRow, limit: int, size: int) -> tuple[list[Row], list[Row]]:
    """Return the first groups in the rotation, and the first job of each if one is enough and all are readable.

    The second list is empty where `_head` must read the jobs of each group: that is its general path.
    """
    if not queue.has_groups:
        return [], []
    if size > 1 or not tx.fast:
        return _sound_turns(tx, queue, tx.all("claim_turns", queue.k, limit)), []
    rows = _sound_turns(tx, queue, _read(tx, "claim_heads", queue.k, limit))
    heads = [row[3:] for row in rows]
    return rows, [] if _unreadable(tx, queue, heads) else heads


def _sound_turns(tx: Transaction, queue: QueueRow, rows: list[Row]) -> list[Row]:
    """Return the groups whose turn can be read; a claim gives the others a new turn, so that a later one finds them."""
    if all(_has_turn(row) for row in rows):
        return rows
    for row in rows:
        if tx.write and not _has_turn(row):
            tx.run("lane_turn", queue.k, row[2], tx.now, queue.next_seq())
            queue.note_damage()
            tx.notify_work(queue)
    return [row for row in rows if _has_turn(row)]


def _has_turn(row: Row) -> bool:
    return type(row[0]) is int and type(row[1]) is int


def _ready(tx: Transaction, queue: QueueRow, limit: int, corrupt: Corrupt) -> list[Row]:
    """Return the first jobs without a group; unknown formats are parked and unreadable records failed."""
    rows = _read(tx, "claim_ready", queue.k, limit)
    for _ in range(MAX_PARK_STEPS):
        bad = _unreadable(tx, queue, rows)
        newer = [row[FORMAT] for row in bad if _newer(tx, row)]
        if newer:
            parked = tx.run("park_jobs", queue.k, PARK_LOOKAHEAD, tx.format)
            queue.count(READY, -parked)
            queue.count(PARKED, parked)
            park(tx, queue, min(newer))
        if not _quarantine(tx, queue, bad, corrupt) and not newer:
            return rows
        rows = _read(tx, "claim_ready", queue.k, limit)
    bad = _unreadable(tx, queue, rows)
    return [row for row in rows if row not in bad]


def _head(tx: Transaction, queue: QueueRow, group: str, size: int, corrupt: Corrupt) -> list[Row]:
    """Return the first jobs of a group, up to one that must run alone or whose format is unknown.

    If the first of all has an unknown format, its group is parked.
    """
    rows = _read(tx, "claim_lane", queue.k, group, size)
    while _quarantine(tx, queue, _unreadable(tx, queue, rows), corrupt):
        rows = _read(tx, "claim_lane", queue.k, group, size)
    if not rows and tx.write:
        update_turn(tx, queue, group)
    if rows and _newer(tx, rows[0]):
        tx.run("park_lane", rows[0][FORMAT], queue.k, group)
        park(tx, queue, rows[0][FORMAT])
        return []
    cut = next((i for i, row in enumerate(rows) if row[SOLO] or (i and row[FORMAT] > tx.format)), None)
    return rows if cut is None else rows[: max(cut, 1)]


def _start_runs(
    tx: Transaction, queue: QueueRow, batches: list[list[Row]], worker: str, until: int, token: str
) -> None:
    """Mark the selected jobs as running, and their groups as held."""
    rows = [row for batch in batches for row in batch]
    _mark_running(tx, queue, [row[N] for row in rows], worker, until, token)
    held = [(len(batch), queue.k, batch[0][GROUP]) for batch in batches if batch[0][GROUP] is not None]
    grouped = sum(size for size, _, _ in held)
    queue.count(READY, grouped - len(rows))
    queue.count(LANE, -grouped)
    if len(held) == grouped:
        tx.run_with_list("claim_singles", (queue.k,), [group for _, _, group in held])
    else:
        tx.run_each("claim_lanes", held)
    if tx.has_listeners:
        for row in rows:
            tx.emit("started", queue, row[ID], row[11] + 1, worker)


def _claim_of(queue: str, row: Row, token: str, batch: int) -> Claim:
    rank, _, _, _, id, payload, group, headers, limits, created, due, attempts, retries, stalls, timeouts, *_ = row
    return Claim(
        queue=queue, id=id, token=token, payload=payload, batch=batch, group=group, priority=-rank, headers=headers,
        limits=limits, created=created, run_at=due, attempts=attempts + 1, retries=retries, stalls=stalls,
        timeouts=timeouts,
    )  # fmt: skip


def _newer(tx: Transaction, row: Row) -> bool:
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
        and type(row[LIMITS]) is bytes
        and type(row[ID]) is str
        and type(row[GROUP]) in _GROUP
        and {*map(type, row[NUMBERS]), *map(type, row[:3])} == _INT
        and abs(row[0]) <= MAX_PRIORITY
        and min(row[COUNTS]) >= 0
        and max(row[COUNTS]) <= LARGEST
        and row[FORMAT] <= tx.format
    )


def _unreadable(tx: Transaction, queue: QueueRow, rows: list[Row]) -> list[Row]:
    return [row for row in rows if not _readable(tx, queue, row)]


def _quarantine(tx: Transaction, queue: QueueRow, rows: list[Row], corrupt: Corrupt) -> bool:
    """Fail records that no software can read, so that they never block their queue; False if there are none."""
    damaged = [row for row in rows if not _newer(tx, row)]
    if not damaged or not tx.write:
        return False
    for row in damaged:
        slot = READY if row[GROUP] is None else LANE
        corrupt.append((queue.name, fail_record(tx, queue, row[N], row[ID], slot)))
    return True


def _take_alarm(tx: Transaction, queue: QueueRow) -> int | None:
    """Return when this worker must claim again for the next job to fall due; None if another worker will."""
    due = tx.one("claim_next", queue.k)[0] if queue.has_later else FOREVER
    if due == FOREVER or (queue.alarm is not None and tx.now < queue.alarm <= due):
        return None
    queue.alarm, queue.dirty = due, True
    return due
