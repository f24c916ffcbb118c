"""One transaction: the statements it runs, the queues it has looked at, and whom it must wake after its commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from penstock.storage.base import EventRecord
from penstock.storage.sqlite.rows import BLOCKED, FORMAT, LANE, LATER, READY, RETRYING, SLOTS, Job
from penstock.storage.sqlite.sql import SQL, with_list, with_numbered, with_rows

__all__ = ["Queue", "Tx", "Upgrade", "Wake"]

#: Rows are bound in pieces of these sizes, so that a handful of statements serves all.
PIECES = (100, 30, 10, 3, 1)

#: Where nothing may stand for nothing, the last piece is filled up to one of these.
FILLED = (1, 5, 20, 50, 100)
MOST = FILLED[-1]

#: The feed keeps about this many lines.
MAX_EVENTS = 10_000

#: A cursor's method of this name.
Execute = Callable[[str, Sequence[object]], sqlite3.Cursor]

_encode = msgspec.msgpack.Encoder().encode


class Upgrade(Exception):
    """A reading transaction found that it must write; it is run again with the write lock."""


class Wake(msgspec.Struct, frozen=True):
    """Somebody to wake after the commit; `queue` names the work that another may take if this one is dead."""

    path: str
    waiter: str
    queue: str | None = None


class Queue(msgspec.Struct):
    """A queue's row while a transaction works on it; written back once, at the end."""

    name: str
    #: How many more rows there are in each place than the file says.
    tally: list[int]
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
    laned: int
    #: Whether somebody is idle who would take its jobs, and whether somebody waits for the end of one.
    idle: int
    awaited: int
    dirty: bool = False
    #: Whether jobs came that may run: all there is to write back of a queue that is not dirty.
    grown: bool = False
    promoted: bool = False

    def count(self, slot: int, more: int) -> None:
        """So many more rows of jobs are in a place (`RETRYING`: later, for a further try)."""
        self.tally[slot] += more
        self.dirty = True

    def next_seq(self) -> int:
        self.seq += 1
        self.dirty = True
        return self.seq

    @property
    def has_later(self) -> bool:
        """Whether jobs wait out their time, or did so until now, unseen."""
        return self.later + self.tally[LATER] + self.tally[RETRYING] > 0

    @property
    def has_lanes(self) -> bool:
        """Whether a lane may have a job."""
        return self.laned > 0 or self.tally[LANE] > 0

    @property
    def has_blocked(self) -> bool:
        """Whether a job has a blocked successor."""
        return self.blocked + self.tally[BLOCKED] > 0


class Tx:
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
        self.ready: dict[str, int] = {}
        self.ended: list[tuple[str, str | None]] = []
        self.wakes: list[Wake] = []
        #: A queue that takes plain jobs without anybody else having to hear of them, and its number.
        self.quiet: tuple[str, int] | None = None
        self._queues: dict[str, Queue] = {}
        self._notes: list[EventRecord] = []
        self._listeners: list[Wake] | None = None

    # statements ----------------------------------------------------------------------------------

    def one(self, name: str, *params: object) -> Any:
        """The first row of a statement, or None."""
        return self.execute(SQL[name], params).fetchone()

    def all(self, name: str, *params: object) -> list[Any]:
        """All rows of a statement."""
        return self.execute(SQL[name], params).fetchall()

    def do(self, name: str, *params: object) -> int:
        """Run a statement; answers how many rows it changed."""
        return self.execute(SQL[name], params).rowcount

    def many(self, name: str, rows: Iterable[Sequence[object]]) -> int:
        """Run a statement for each row."""
        return self.db.executemany(SQL[name], rows).rowcount

    def among(self, name: str, fixed: tuple[object, ...], values: Sequence[object]) -> list[Any]:
        """Run a statement with a `{list}` for all values, a piece at a time."""
        found: list[Any] = []
        for start in range(0, len(values), MOST):
            piece = values[start : start + MOST]
            size = _filled(len(piece))
            params = (*fixed, *piece, *(None,) * (size - len(piece)))
            found += self.execute(with_list(name, size), params).fetchall()
        return found

    def numbered(
        self, name: str, fixed: tuple[object, ...], base: int, width: int, flat: list[object], *last: object
    ) -> int:
        """Run a statement with `{numbered}` rows, given as one list of values; answers how many it changed.

        The parameters: what is fixed, the number of the first row, the rows, what is last. A row of
        nothing but NULL must be nothing to the statement.
        """
        changed = 0
        for start in range(0, len(flat), MOST * width):
            piece = flat[start : start + MOST * width]
            size = _filled(len(piece) // width)
            piece += (None,) * (size * width - len(piece))
            params = (*fixed, base + start // width, *piece, *last)
            changed += self.execute(with_numbered(name, width, size), params).rowcount
        return changed

    def rows(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Run a statement with `{rows}` for all rows, a piece at a time; answers how many it changed.

        Faster than a statement per row, and each statement is a moment at which the thread lets go
        of the interpreter and may have to wait for it.
        """
        changed = 0
        for start, size in _pieces(len(rows)):
            flat = [value for row in rows[start : start + size] for value in row]
            changed += self.execute(with_rows(name, len(rows[0]), size), flat).rowcount
        return changed

    def job(self, queue: Queue, id: str, twin: int = 0) -> Job | None:
        """A whole record by its id."""
        row = self.one("job_get", queue.k, id, twin)
        return Job(*row) if row else None

    def save(self, queue: Queue, job: Job) -> None:
        """Write a record back."""
        self.do("job_save", *job.values())
        slot = job.slot
        if slot != job.counted:
            queue.count(job.counted, -1)
            queue.count(slot, 1)
            job.counted = slot

    def drop(self, queue: Queue, job: Job) -> None:
        """Forget a record."""
        self.do("job_drop", job.n)
        queue.count(job.counted, -1)

    # queues --------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue | None:
        """A queue that exists, or None."""
        queue = self._queues.get(name)
        if queue is None:
            row = self.one("queue_get", self.namespace, name)
            if row is None:
                return None
            queue = self._queues[name] = Queue(name, [0] * SLOTS, *row[:-1])
            if self._listeners is None and not row[-1]:
                self._listeners = []
        return queue

    def need(self, name: str) -> Queue:
        """A queue, made if it is not there."""
        queue = self.queue(name)
        if queue is None:
            self.do("queue_add", self.namespace, name)
            queue = self.queue(name)
            assert queue is not None
        return queue

    def forget(self, queue: Queue) -> None:
        """A deleted queue is not written back."""
        del self._queues[queue.name]
        self.ready.pop(queue.name, None)

    def waited(self, queue: str, id: str) -> bool:
        """Whether anybody waits for the end of a job."""
        known = self._queues.get(queue)
        if known is not None and not known.awaited:
            return False
        return self.one("wait_has", self.namespace, queue, id, self.wall) is not None

    # who has come to wait since the queues were read ----------------------------------------------

    def rests(self, queue: str) -> None:
        """Somebody has become idle who would take a queue's jobs."""
        if known := self._queues.get(queue):
            known.idle = True

    def awaits(self, queue: str) -> None:
        """Somebody has come to wait for the end of one of a queue's jobs."""
        if known := self._queues.get(queue):
            known.awaited = True

    def hears(self) -> None:
        """Somebody has come to read the feed."""
        self._listeners = None

    # what others must hear of --------------------------------------------------------------------

    def work(self, queue: Queue, count: int = 1) -> None:
        """This many more runs of a queue may be handed out (or its alarm must be taken)."""
        self.ready[queue.name] = self.ready.get(queue.name, 0) + count

    def later(self, queue: Queue, due: int) -> None:
        """A job falls due before anybody has promised to look: somebody must take the alarm."""
        if queue.alarm is None or queue.alarm <= self.now or due < queue.alarm:
            self.ready.setdefault(queue.name, 1)

    @property
    def listening(self) -> bool:
        """Whether anybody reads the feed: asked once per transaction."""
        if self._listeners is None:
            found = self.all("listen_all", self.namespace, self.wall)
            self._listeners = [Wake(path, waiter) for waiter, path in found]
        return bool(self._listeners)

    def note(
        self, name: str, queue: Queue, id: str, attempt: int,
        worker: str | None = None, result: bytes | None = None, error: bytes | None = None,
    ) -> None:  # fmt: skip
        """A line for the feed, if anybody reads it."""
        if self.listening:
            self._notes.append(EventRecord(name, queue.name, id, self.now, attempt, worker, result, error))

    def announce(self, notes: Iterable[EventRecord]) -> None:
        """Lines that are about no transition, if anybody reads the feed."""
        if self.listening:
            if not self.write:
                raise Upgrade
            self._notes += [msgspec.structs.replace(note, at=self.now) for note in notes]

    # the end -------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The last things before the commit: queue rows, the feed, and whom to wake."""
        for queue in self._queues.values():
            if queue.dirty:
                kept = (queue.seq, queue.time, queue.finished, queue.paused, queue.parked, queue.alarm)
                self.do("queue_save", *kept, *queue.tally, queue.k)
            elif queue.grown:
                self.do("queue_grow", queue.seq, queue.time, queue.tally[READY], queue.k)
        if self._notes:
            self._publish()
        for name, count in self.ready.items():
            queue = self.queue(name)
            if queue is None or (queue.paused is None and queue.idle):
                self._wake_idle(name, count)
        if self.ended:
            self._wake_waiting()

    def _publish(self) -> None:
        rows = [(self.namespace, note.queue, self.wall, _encode(note)) for note in self._notes]
        self.many("event_add", rows)
        last = self.one("event_last")[0]
        if last // 1000 != (last - len(rows)) // 1000:
            self.do("event_trim", last - MAX_EVENTS)
        self.wakes += self._listeners or ()

    def _wake_idle(self, name: str, count: int) -> None:
        for waiter, path in self.all("idle_pick", self.namespace, name, count):
            self.do("idle_drop", waiter)
            self.wakes.append(Wake(path, waiter, name))

    def _wake_waiting(self) -> None:
        ended: dict[str, list[str]] = {}
        for name, id in self.ended:
            if id is None:
                self._wake_found(self.all("wait_pick_queue", self.namespace, name))
            else:
                ended.setdefault(name, []).append(id)
        for name, ids in ended.items():
            known = self._queues.get(name)
            if known is None or known.awaited:
                for (id,) in self.among("wait_among", (self.namespace, name), ids):
                    self._wake_found(self.all("wait_pick", self.namespace, name, id))

    def _wake_found(self, found: list[tuple[str, str]]) -> None:
        self.wakes += [Wake(path, waiter) for waiter, path in found if path]


def _filled(count: int) -> int:
    """The size to which a piece is filled up."""
    return next(size for size in FILLED if size >= count)


def _pieces(count: int) -> list[tuple[int, int]]:
    """Where each piece starts and how long it is."""
    pieces: list[tuple[int, int]] = []
    at = 0
    for size in PIECES:
        while count - at >= size:
            pieces.append((at, size))
            at += size
    return pieces
