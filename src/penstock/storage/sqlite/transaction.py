"""One transaction: the statements it runs, the queues it has looked at, and whom it must wake after its commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from penstock.storage.base import EventRecord
from penstock.storage.sqlite.rows import BLOCKED, FORMAT, LANE, LATER, READY, RETRYING, SLOT_COUNT, JobRow
from penstock.storage.sqlite.sql import SQL, with_list, with_numbered, with_rows

__all__ = ["NeedsWriteLock", "QueueRow", "Transaction", "Wake"]

#: Rows are bound in pieces of these sizes, so that a handful of statements serves all.
CHUNK_SIZES = (100, 30, 10, 3, 1)

#: Where nothing may stand for nothing, the last piece is filled up to one of these.
PADDED_SIZES = (1, 5, 20, 50, 100)
MAX_CHUNK = PADDED_SIZES[-1]

#: The feed keeps about this many lines.
MAX_EVENTS = 10_000

#: A cursor's method of this name.
Execute = Callable[[str, Sequence[object]], sqlite3.Cursor]

_encode = msgspec.msgpack.Encoder().encode


class NeedsWriteLock(Exception):
    """A reading transaction found that it must write; it is run again with the write lock."""


class Wake(msgspec.Struct, frozen=True):
    """Somebody to wake after the commit; `queue` names the work that another may take if this one is dead."""

    path: str
    waiter: str
    queue: str | None = None


class QueueRow(msgspec.Struct):
    """A queue's row while a transaction works on it; written back once, at the end."""

    name: str
    #: How many more rows there are in each place than the file says.
    deltas: list[int]
    k: int
    seq: int
    time: int
    finished: int
    paused: int | None
    parked: int | None
    alarm: int | None
    #: How many jobs the file says wait out their time, and are blocked.
    later: int
    blocked: int
    #: Whether any group is held or in the rotation.
    group_rows: int
    #: Whether somebody is idle who would take its jobs, and whether somebody waits for the end of one.
    idle: int
    awaited: int
    dirty: bool = False
    #: Whether jobs came that may run: all there is to write back of a queue that is not dirty.
    ready_added: bool = False
    promoted: bool = False

    def count(self, slot: int, more: int) -> None:
        """So many more rows of jobs are in a place (`RETRYING`: later, for a further try)."""
        self.deltas[slot] += more
        self.dirty = True

    def next_seq(self) -> int:
        self.seq += 1
        self.dirty = True
        return self.seq

    @property
    def has_later(self) -> bool:
        """Whether jobs wait out their time, or did so until now, unseen."""
        return self.later + self.deltas[LATER] + self.deltas[RETRYING] > 0

    @property
    def has_groups(self) -> bool:
        """Whether a lane may have a job."""
        return self.group_rows > 0 or self.deltas[LANE] > 0

    @property
    def has_blocked(self) -> bool:
        """Whether a job has a blocked successor."""
        return self.blocked + self.deltas[BLOCKED] > 0


class Transaction:
    """The inside of one transaction. Verbs are functions of it; they may be run again, so they keep no state."""

    def __init__(
        self, db: sqlite3.Connection, execute: Execute, namespace: str, now: int, wall: int, write: bool,
        damaged: bool = False, format: int = FORMAT,
    ) -> None:  # fmt: skip
        self.db = db
        #: Of one cursor for all: whatever a statement found is taken before the next is run.
        self.execute = execute
        self.namespace = namespace
        self.now = now
        self.wall = wall
        self.write = write
        #: Text that is not UTF-8 was met: an id may not be what is stored.
        self.damaged = damaged
        #: The newest record format that is known here.
        self.format = format
        self.work_counts: dict[str, int] = {}
        self.finished_jobs: list[tuple[str, str | None]] = []
        self.wakes: list[Wake] = []
        #: A queue that takes plain jobs without anybody else having to hear of them, and its number.
        self.fast_put_queue: tuple[str, int] | None = None
        self._queues: dict[str, QueueRow] = {}
        self._events: list[EventRecord] = []
        self._listeners: list[Wake] | None = None

    # statements ----------------------------------------------------------------------------------

    def one(self, name: str, *params: object) -> Any:
        """The first row of a statement, or None."""
        return self.execute(SQL[name], params).fetchone()

    def all(self, name: str, *params: object) -> list[Any]:
        """All rows of a statement."""
        return self.execute(SQL[name], params).fetchall()

    def run(self, name: str, *params: object) -> int:
        """Run a statement; answers how many rows it changed."""
        return self.execute(SQL[name], params).rowcount

    def run_each(self, name: str, rows: Iterable[Sequence[object]]) -> int:
        """Run a statement for each row."""
        return self.db.executemany(SQL[name], rows).rowcount

    def run_with_list(self, name: str, fixed: tuple[object, ...], values: Sequence[object]) -> list[Any]:
        """Run a statement with a `{list}` for all values, a piece at a time."""
        found: list[Any] = []
        for start in range(0, len(values), MAX_CHUNK):
            piece = values[start : start + MAX_CHUNK]
            size = _padded_size(len(piece))
            params = (*fixed, *piece, *(None,) * (size - len(piece)))
            found += self.execute(with_list(name, size), params).fetchall()
        return found

    def run_with_numbered(
        self, name: str, fixed: tuple[object, ...], base: int, width: int, flat: list[object], *last: object
    ) -> int:
        """Run a statement with `{numbered}` rows, given as one list of values; answers how many it changed.

        The parameters: what is fixed, the number of the first row, the rows, what is last. A row of
        nothing but NULL must be nothing to the statement.
        """
        changed = 0
        for start in range(0, len(flat), MAX_CHUNK * width):
            piece = flat[start : start + MAX_CHUNK * width]
            size = _padded_size(len(piece) // width)
            piece += (None,) * (size * width - len(piece))
            params = (*fixed, base + start // width, *piece, *last)
            changed += self.execute(with_numbered(name, width, size), params).rowcount
        return changed

    def run_with_rows(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Run a statement with `{rows}` for all rows, a piece at a time; answers how many it changed.

        Faster than a statement per row, and each statement is a moment at which the thread lets go
        of the interpreter and may have to wait for it.
        """
        changed = 0
        for start, size in _chunks(len(rows)):
            flat = [value for row in rows[start : start + size] for value in row]
            changed += self.execute(with_rows(name, len(rows[0]), size), flat).rowcount
        return changed

    def job(self, queue: QueueRow, id: str, twin: int = 0) -> JobRow | None:
        """A whole record by its id."""
        row = self.one("job_get", queue.k, id, twin)
        return JobRow(*row) if row else None

    def save(self, queue: QueueRow, job: JobRow) -> None:
        """Write a record back."""
        self.run("job_save", *job.values())
        slot = job.slot
        if slot != job.counted_slot:
            queue.count(job.counted_slot, -1)
            queue.count(slot, 1)
            job.counted_slot = slot

    def delete(self, queue: QueueRow, job: JobRow) -> None:
        """Forget a record."""
        self.run("job_drop", job.n)
        queue.count(job.counted_slot, -1)

    # queues --------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRow | None:
        """A queue that exists, or None."""
        queue = self._queues.get(name)
        if queue is None:
            row = self.one("queue_get", self.namespace, name)
            if row is None:
                return None
            queue = self._queues[name] = QueueRow(name, [0] * SLOT_COUNT, *row[:-1])
            if self._listeners is None and not row[-1]:
                self._listeners = []
        return queue

    def ensure_queue(self, name: str) -> QueueRow:
        """A queue, made if it is not there."""
        queue = self.queue(name)
        if queue is None:
            self.run("queue_add", self.namespace, name)
            queue = self.queue(name)
            assert queue is not None
        return queue

    def forget_queue(self, queue: QueueRow) -> None:
        """A deleted queue is not written back."""
        del self._queues[queue.name]
        self.work_counts.pop(queue.name, None)

    def has_waiter(self, queue: str, id: str) -> bool:
        """Whether anybody waits for the end of a job."""
        known = self._queues.get(queue)
        if known is not None and not known.awaited:
            return False
        return self.one("wait_has", self.namespace, queue, id, self.wall) is not None

    # who has come to wait since the queues were read ----------------------------------------------

    def mark_idle(self, queue: str) -> None:
        """Somebody has become idle who would take a queue's jobs."""
        if known := self._queues.get(queue):
            known.idle = True

    def mark_awaited(self, queue: str) -> None:
        """Somebody has come to wait for the end of one of a queue's jobs."""
        if known := self._queues.get(queue):
            known.awaited = True

    def reread_listeners(self) -> None:
        """Somebody has come to read the feed."""
        self._listeners = None

    # what others must hear of --------------------------------------------------------------------

    def notify_work(self, queue: QueueRow, count: int = 1) -> None:
        """This many more runs of a queue may be handed out (or its alarm must be taken)."""
        self.work_counts[queue.name] = self.work_counts.get(queue.name, 0) + count

    def notify_due(self, queue: QueueRow, due: int) -> None:
        """A job falls due before anybody has promised to look: somebody must take the alarm."""
        if queue.alarm is None or queue.alarm <= self.now or due < queue.alarm:
            self.work_counts.setdefault(queue.name, 1)

    @property
    def has_listeners(self) -> bool:
        """Whether anybody reads the feed: asked once per transaction."""
        if self._listeners is None:
            found = self.all("listen_all", self.namespace, self.wall)
            self._listeners = [Wake(path, waiter) for waiter, path in found]
        return bool(self._listeners)

    def emit(
        self, name: str, queue: QueueRow, id: str, attempt: int,
        worker: str | None = None, result: bytes | None = None, error: bytes | None = None,
    ) -> None:  # fmt: skip
        """A line for the feed, if anybody reads it."""
        if self.has_listeners:
            self._events.append(EventRecord(name, queue.name, id, self.now, attempt, worker, result, error))

    def announce(self, notes: Iterable[EventRecord]) -> None:
        """Lines that are about no transition, if anybody reads the feed."""
        if self.has_listeners:
            if not self.write:
                raise NeedsWriteLock
            self._events += [msgspec.structs.replace(note, at=self.now) for note in notes]

    # the end -------------------------------------------------------------------------------------

    def before_commit(self) -> None:
        """The last things before the commit: queue rows, the feed, and whom to wake."""
        for queue in self._queues.values():
            if queue.dirty:
                kept = (queue.seq, queue.time, queue.finished, queue.paused, queue.parked, queue.alarm)
                self.run("queue_save", *kept, *queue.deltas, queue.k)
            elif queue.ready_added:
                self.run("queue_grow", queue.seq, queue.time, queue.deltas[READY], queue.k)
        if self._events:
            self._publish()
        for name, count in self.work_counts.items():
            queue = self.queue(name)
            if queue is None or (queue.paused is None and queue.idle):
                self._wake_idle(name, count)
        if self.finished_jobs:
            self._wake_waiters()

    def _publish(self) -> None:
        rows = [(self.namespace, note.queue, self.wall, _encode(note)) for note in self._events]
        self.run_each("event_add", rows)
        last = self.one("event_last")[0]
        if last // 1000 != (last - len(rows)) // 1000:
            self.run("event_trim", last - MAX_EVENTS)
        self.wakes += self._listeners or ()

    def _wake_idle(self, name: str, count: int) -> None:
        for waiter, path in self.all("idle_pick", self.namespace, name, count):
            self.run("idle_drop", waiter)
            self.wakes.append(Wake(path, waiter, name))

    def _wake_waiters(self) -> None:
        ended: dict[str, list[str]] = {}
        for name, id in self.finished_jobs:
            if id is None:
                self._add_wakes(self.all("wait_pick_queue", self.namespace, name))
            else:
                ended.setdefault(name, []).append(id)
        for name, ids in ended.items():
            known = self._queues.get(name)
            if known is None or known.awaited:
                for (id,) in self.run_with_list("wait_among", (self.namespace, name), ids):
                    self._add_wakes(self.all("wait_pick", self.namespace, name, id))

    def _add_wakes(self, found: list[tuple[str, str]]) -> None:
        self.wakes += [Wake(path, waiter) for waiter, path in found if path]


def _padded_size(count: int) -> int:
    """The size to which a piece is filled up."""
    return next(size for size in PADDED_SIZES if size >= count)


def _chunks(count: int) -> list[tuple[int, int]]:
    """Where each piece starts and how long it is."""
    pieces: list[tuple[int, int]] = []
    at = 0
    for size in CHUNK_SIZES:
        while count - at >= size:
            pieces.append((at, size))
            at += size
    return pieces
