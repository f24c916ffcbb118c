"""Reads: jobs by id, pages of jobs state by state, counts, queues and workers."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec

from penstock.model.activity import WorkerRequest
from penstock.model.job import Snapshot, State
from penstock.model.pause import Pause
from penstock.storage.base import FIND_ORDER, MAX_BYTES, Page, WorkerRecord
from penstock.storage.sqlite.claim import next_id
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.flow_shown import show
from penstock.storage.sqlite.gates import lane_of
from penstock.storage.sqlite.ordering import promote, unpark
from penstock.storage.sqlite.rows import (
    BLOCKED,
    LANE,
    LATER,
    PARKED,
    READY,
    RETRYING,
    RUNNING,
    SLOT_COUNT,
    Bucket,
    read_job,
)
from penstock.storage.sqlite.sql import JOB_COLUMNS
from penstock.storage.sqlite.transaction import NeedsWriteLock, QueueRow, Transaction

__all__ = [
    "Cursor",
    "are_counts",
    "beat",
    "counts",
    "expire_all",
    "find",
    "get",
    "parse_cursor",
    "paused",
    "peek",
    "queues",
    "workers",
]

_LOW = -(1 << 62)
#: After all integers and texts in the order of SQLite.
_HIGH = b"\xff"

#: A part of a sort key: integers and text, and any value of SQLite in a damaged record.
_Part = int | float | str | bytes
#: Where the next page starts: the section of `SECTIONS`, and the sort key of the last job of this one.
Cursor = tuple[int, tuple[_Part, ...]]

#: The parts of `find`, in the order of `FIND_ORDER`: the state, the statement, its fixed values and the
#: key to start from. `queued` has three: jobs without a group, group by group, parked ones.
SECTIONS: tuple[tuple[State, str, tuple[int, ...], tuple[_Part, ...]], ...] = (
    (State.RUNNING, "find_running", (), (_LOW, _LOW)),
    (State.QUEUED, "find_ready", (), (_LOW, _LOW, _LOW)),
    (State.QUEUED, "find_lanes", (), ("", _LOW, _LOW)),
    (State.QUEUED, "find_parked", (), (_LOW, _LOW, _LOW, _LOW)),
    (State.RETRYING, "find_later", (1,), (_LOW, _LOW)),
    (State.SCHEDULED, "find_later", (0,), (_LOW, _LOW)),
    (State.SUSPENDED, "find_suspended", (), (_LOW, _LOW)),
    (State.BLOCKED, "find_blocked", (), (_LOW, _LOW)),
    (State.COMPLETED, "find_ended", (Bucket.COMPLETED,), (_LOW, _LOW)),
    (State.FAILED, "find_ended", (Bucket.FAILED,), (_LOW, _LOW)),
    (State.CANCELLED, "find_ended", (Bucket.CANCELLED,), (_LOW, _LOW)),
)
#: The same in the opposite order within each state.
NEWEST_SECTIONS = tuple(
    (state, f"{statement}_newest", fixed, tuple(_HIGH for _ in low))
    for state in FIND_ORDER
    for shown, statement, fixed, low in reversed(SECTIONS)
    if shown is state
)
assert tuple(dict.fromkeys(section[0] for section in SECTIONS)) == FIND_ORDER


def get(tx: Transaction, name: str, ids: Sequence[str]) -> list[Snapshot | None]:
    """Return jobs by id; a running job hides its blocked successor."""
    queue = tx.queue(name)
    if queue is None:
        return [None for _ in ids]
    found = {row[2]: read_job(row) for row in tx.run_with_list("get_many", (queue.k,), ids)}
    return [show(tx, queue, job) if (job := found.get(id)) and not job.expired(tx.now) else None for id in ids]


def expire_all(tx: Transaction, name: str | None) -> bool:
    """Expire jobs before a read of one queue, or of all (None); True if there are more, so the caller must repeat."""
    names = [name] if name is not None else [each for (each,) in tx.all("expire_queues", tx.namespace, tx.now)]
    found = [queue for each in names if (queue := tx.queue(each)) is not None]
    more = [expire(tx, queue) for queue in found]
    return any(more)


def promote_all(tx: Transaction, queue: QueueRow) -> bool:
    """Promote and expire jobs before a read and return whether more are due; a read that finds some becomes a write."""
    more = unpark(tx, queue) or promote(tx, queue) or expire(tx, queue)
    if more and not tx.write:
        raise NeedsWriteLock
    tx.must_commit |= more
    return more


def find(
    tx: Transaction, name: str, state: State | None, after: Cursor | None, limit: int, newest: bool = False,
    group: str | None = None,
) -> Page | None:  # fmt: skip
    """Return a page of jobs; None if more jobs are due than one transaction promotes, so the caller must repeat."""
    queue = tx.queue(name)
    if queue is None:
        return Page([])
    if promote_all(tx, queue):
        return None
    jobs: list[Snapshot] = []
    room = MAX_BYTES
    start, after_key = after or (0, None)
    sections = NEWEST_SECTIONS if newest else SECTIONS
    for section in range(start, len(sections)):
        shown, statement, fixed, low = sections[section]
        if state is not None and shown is not state:
            continue
        if group is not None:
            if not statement.startswith("find_lanes"):
                continue
            low = (group, *low[1:])
        key = after_key if section == start and after_key else low
        if statement in ("find_later", "find_ended"):
            # Expired jobs are hidden, and so is a scheduled job that is due.
            key = key if not isinstance(key[0], int) or key[0] > tx.now else max(key, (tx.now, 1 << 62))
        if statement in ("find_later_newest", "find_ended_newest"):
            fixed = (*fixed, tx.now)
        for row in _rows(tx, statement, queue.k, *fixed, *key, limit - len(jobs) + 1):
            if group is not None and row[_GROUP] != group:
                break
            if len(jobs) == limit or (room <= 0 and jobs):
                return Page(jobs, _format_cursor(section, key))
            job = read_job(row)
            jobs.append(show(tx, queue, job))
            key, room = _key(statement, row), room - job.size
    return Page(jobs)


def _rows(tx: Transaction, statement: str, *params: object) -> Iterator[Sequence[Any]]:
    """Yield the rows of one section, each read when it is asked for."""
    if statement.startswith("find_running"):
        for _, n in tx.all(statement, *params):
            yield tx.one("find_row", n)
        return
    with closing(tx.rows(statement, *params)) as rows:
        yield from rows


#: The columns by which each statement of `SECTIONS` sorts.
_SORT_COLUMNS: dict[str, tuple[str, ...]] = {
    "find_running": ("begun", "n"),
    "find_ready": ("rank", "time", "seq"),
    "find_lanes": ("grp", "time", "seq"),
    "find_parked": ("format", "rank", "time", "seq"),
    "find_later": ("due", "seq"),
    "find_suspended": ("until", "seq"),
    "find_blocked": ("begun", "n"),
    "find_ended": ("expires", "number"),
}
_GROUP = JOB_COLUMNS.index("grp")
_SORT_INDEXES = {name: [JOB_COLUMNS.index(each) for each in columns] for name, columns in _SORT_COLUMNS.items()}


def _key(statement: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """Return the sort key of a row as it is stored: the repaired values of a damaged record have another order."""
    return tuple(_LOW if row[at] is None else row[at] for at in _SORT_INDEXES[statement.removesuffix("_newest")])


def _format_cursor(section: int, key: tuple[Any, ...]) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode((section, key))).decode().rstrip("=")


_decode_cursor = msgspec.msgpack.Decoder(tuple[int, tuple[Any, ...]]).decode


def _is_part(value: Any) -> bool:
    """Return whether a part of a cursor is a value of SQLite."""
    return -(1 << 63) <= value < 1 << 63 if isinstance(value, int) else isinstance(value, float | str | bytes)


def parse_cursor(after: str, state: State | None, newest: bool = False) -> Cursor:
    """Decode a cursor that `find` returned; raises `ValueError` if it is none, or of another state."""
    try:
        data = urlsafe_b64decode(after.encode("ascii") + b"=" * (-len(after) % 4))
        section, key = _decode_cursor(data)
        shown, _, _, low = (NEWEST_SECTIONS if newest else SECTIONS)[section]
        fits = section >= 0 and len(key) == len(low) and all(map(_is_part, key))
    except (ValueError, IndexError, msgspec.MsgspecError):
        fits, shown, section, key = False, None, 0, ()
    if not fits or (state is not None and state is not shown):
        raise ValueError(f"after must be a cursor that find gave for the same state, not {after!r}")
    return section, key


def peek(tx: Transaction, name: str) -> Snapshot | None:
    """Return the job that a claim would give next, or None."""
    queue = tx.queue(name)
    if queue is None or queue.live_pause(tx.now) is not None:
        return None
    promote_all(tx, queue)
    id = next_id(tx, queue)
    job = None if id is None else tx.job(queue, id)
    return None if job is None else show(tx, queue, job)


def counts(tx: Transaction, name: str) -> dict[State, int]:
    """Return the number of jobs in each state, by the clock."""
    queue = tx.queue(name)
    if queue is None:
        return dict.fromkeys(State, 0)
    *stored, woken, due, due_again, completed, failed, cancelled = tx.one("counts", queue.k, tx.now)
    if are_counts(stored):
        n = [sum(parts) for parts in zip(stored, queue.deltas, strict=True)]
    else:
        n = count_rows(tx, queue)
    return {
        State.SCHEDULED: n[LATER] - due,
        State.QUEUED: n[READY] + n[LANE] + n[PARKED] + due + due_again + woken,
        State.BLOCKED: n[BLOCKED],
        State.RUNNING: n[RUNNING],
        State.RETRYING: n[RETRYING] - due_again,
        State.COMPLETED: n[Bucket.COMPLETED] - completed,
        State.FAILED: n[Bucket.FAILED] - failed,
        State.CANCELLED: n[Bucket.CANCELLED] - cancelled,
        State.SUSPENDED: n[Bucket.SUSPENDED] - woken,
    }


def are_counts(stored: Sequence[Any]) -> bool:
    """Return whether the stored counts of a queue are such as Penstock writes."""
    return {*map(type, stored)} == {int} and min(stored) >= 0


def count_rows(tx: Transaction, queue: QueueRow) -> list[int]:
    """Return the number of rows in each slot, counted anew."""
    n = [0] * SLOT_COUNT
    for place, retrying, number in tx.all("count_rows", queue.k):
        slot = RETRYING if retrying else place
        if type(slot) is int and PARKED <= slot <= RETRYING:
            n[slot] += number
    return n


def paused(tx: Transaction, name: str, group: str | None = None) -> Pause | None:
    """Return the pause of a queue or a group; None if there is none or it is over."""
    queue = tx.queue(name)
    if queue is None:
        return None
    return queue.live_pause(tx.now) if group is None else lane_of(tx, queue, group).live_pause(tx.now)


def queues(tx: Transaction) -> list[str]:
    """Return the names of the queues that have jobs or schedules or are paused, sorted."""
    return [name for (name,) in tx.all("queue_names", tx.namespace, tx.now) if isinstance(name, str)]


def beat(tx: Transaction, worker: str, ttl: int, info: bytes) -> WorkerRequest | None:
    """Store a worker's heartbeat, or delete it (`ttl` 0); returns what the worker is asked for."""
    if ttl <= 0:
        tx.run("beat_end", tx.namespace, worker)
        return None
    [(request, until)] = tx.all("beat", tx.namespace, worker, tx.now, tx.now + ttl, info)
    return request if request in ("quiet", "stop") and type(until) is int and until > tx.now else None


def workers(tx: Transaction) -> list[WorkerRecord]:
    """Return the workers whose heartbeat has not expired, sorted by id, without unreadable records."""
    rows = tx.all("workers", tx.namespace, tx.now)
    return [WorkerRecord(*row) for row in rows if tuple(map(type, row)) == (str, int, int, bytes)]
