"""One transaction: the statements it runs, the queue rows it has read, and the waiters to wake after its commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from penstock.model.gate import NEW_GATE
from penstock.model.ids import FAIL_SUFFIX, family_of
from penstock.storage.base import EventRecord
from penstock.storage.sqlite.gate_rows import FamilyGate, LimitsRead
from penstock.storage.sqlite.queue_row import QueueRow, is_sound_queue, queue_of, replace_unreadable
from penstock.storage.sqlite.rows import FORMAT, READY, RUNNING, JobRow, read_job
from penstock.storage.sqlite.signals import NeedsWriteLock, Wake
from penstock.storage.sqlite.sql import SQL, with_list, with_numbered, with_rows

__all__ = ["CANCEL_QUEUE", "NeedsWriteLock", "QueueRow", "Transaction", "Wake", "reader_key"]

#: Rows are bound in chunks of these sizes, so that few statements are compiled.
CHUNK_SIZES = (100, 30, 10, 3, 1)

#: Statements that ignore NULL rows are padded to one of these sizes, so that few statements are compiled.
PADDED_SIZES = (1, 5, 20, 50, 100)
MAX_CHUNK = PADDED_SIZES[-1]

#: The table `events` keeps about this many events.
MAX_EVENTS = 10_000

#: When a slot of a family becomes free, workers of at most this many of its queues are woken.
MAX_WOKEN = 16

#: The type of `sqlite3.Cursor.execute`.
Execute = Callable[[str, Sequence[object]], sqlite3.Cursor]

#: The queue name under which cancel requests are filed: see `Transaction.notify_cancel`.
CANCEL_QUEUE = ""

_encode = msgspec.msgpack.Encoder().encode


def reader_key(queue: str, id: str) -> str:
    """Return the name under which readers of a job's histories wait; no worker has such an id."""
    return f"\0{queue}\0{id}"


class Transaction:
    """One transaction. Verbs are functions of it; the engine may run a verb again, so verbs keep no state."""

    def __init__(
        self, db: sqlite3.Connection, execute: Execute, namespace: str, now: int, wall: int, write: bool,
        damaged: bool = False, format: int = FORMAT, fast: bool = True,
    ) -> None:  # fmt: skip
        self.db = db
        #: Of one shared cursor: the rows of a statement must be fetched before the next one runs.
        self.execute = execute
        self.namespace = namespace
        #: The storage's time and the real time, in milliseconds.
        self.now = now
        self.wall = wall
        self.write = write
        #: Whether text that is not UTF-8 was found and is decoded lossily: an id read may differ from the stored one.
        self.damaged = damaged
        #: The newest record format that this software reads.
        self.format = format
        #: Whether the fast paths may be used: see `fast_path.py`.
        self.fast = fast
        #: How many runs became available, by queue name: this many idle workers are woken.
        self.work_counts: dict[str, int] = {}
        #: Queue name and id of each job that ended, to wake its waiters; the id None means all jobs of the queue.
        self.finished_jobs: list[tuple[str, str | None]] = []
        self.wakes: list[Wake] = []
        #: Whether a read must be committed to be answered: its caller repeats it until there is nothing to write.
        self.must_commit = False
        #: Name and number of a queue that the fast path of put may use after the commit: see `fast_put.py`.
        self.fast_put_queue: tuple[str, int] | None = None
        #: The limits that were read, None if none was: only limited queues need them.
        self._limits: LimitsRead | None = None
        #: The parts of jobs in flows that were read, by the rows of the jobs, and the effects that are still to be
        #: applied: see `flow_rows.py`.
        self.generations: dict[int, Any] = {}
        self.effects: list[Any] = []
        self._queues: dict[str, QueueRow] = {}
        self._events: list[EventRecord] = []
        #: The listeners, each with its queue and names; those to an event of a queue; and by queue the names they want.
        self._listeners: list[tuple[Wake, str | None, str]] | None = None
        self._wanted: dict[tuple[str, str], list[Wake]] = {}
        self._names: dict[str, str] = {}

    # statements ----------------------------------------------------------------------------------

    def one(self, name: str, *params: object) -> Any:
        """Return the first row of a statement, or None."""
        return self.execute(SQL[name], params).fetchone()

    def all(self, name: str, *params: object) -> list[Any]:
        """Return all rows of a statement."""
        return self.execute(SQL[name], params).fetchall()

    def rows(self, name: str, *params: object) -> sqlite3.Cursor:
        """Return the rows of a statement, each read when it is asked for; close the cursor if some are not."""
        return self.db.execute(SQL[name], params)

    def run(self, name: str, *params: object) -> int:
        """Run a statement and return how many rows it changed."""
        return self.execute(SQL[name], params).rowcount

    def run_each(self, name: str, rows: Iterable[Sequence[object]]) -> int:
        """Run a statement once for each row and return how many rows they changed."""
        return self.db.executemany(SQL[name], rows).rowcount

    def run_with_list(self, name: str, fixed: tuple[object, ...], values: Sequence[object]) -> list[Any]:
        """Run a statement with a `{list}` for all values, a chunk at a time, and return the rows found.

        The list is a set of values: the last one is repeated to fill a chunk.
        """
        found: list[Any] = []
        for start in range(0, len(values), MAX_CHUNK):
            chunk = values[start : start + MAX_CHUNK]
            size = _padded_size(len(chunk))
            params = (*fixed, *chunk, *(chunk[-1],) * (size - len(chunk)))
            found += self.execute(with_list(name, size), params).fetchall()
        return found

    def run_with_numbered(
        self, name: str, fixed: tuple[object, ...], base: int, width: int, flat: list[object], *last: object
    ) -> int:
        """Run a statement with `{numbered}` rows, given as one flat list, and return how many rows it changed.

        Parameters are bound in the order `fixed`, number of the first row, rows, `last`. The statement
        must ignore rows of NULLs, with which the last chunk is padded.
        """
        changed = 0
        for start in range(0, len(flat), MAX_CHUNK * width):
            chunk = flat[start : start + MAX_CHUNK * width]
            size = _padded_size(len(chunk) // width)
            chunk += (None,) * (size * width - len(chunk))
            params = (*fixed, base + start // width, *chunk, *last)
            changed += self.execute(with_numbered(name, width, size), params).rowcount
        return changed

    def run_with_rows(self, name: str, rows: Sequence[tuple[object, ...]]) -> int:
        """Run a statement with `{rows}` for all rows, a chunk at a time, and return how many rows it changed.

        A statement per row would be slower: each releases the interpreter lock and may have to wait for it.
        """
        changed = 0
        for start, size in _chunks(len(rows)):
            flat = [value for row in rows[start : start + size] for value in row]
            changed += self.execute(with_rows(name, len(rows[0]), size), flat).rowcount
        return changed

    def job(self, queue: QueueRow, id: str, twin: int = 0) -> JobRow | None:
        """Return a job by its id, or with `twin=1` its blocked successor; None if there is none."""
        row = self.one("job_get", queue.k, id, twin)
        return read_job(row) if row else None

    def save(self, queue: QueueRow, job: JobRow) -> None:
        """Write a record back, and count it in its new slot."""
        self.run("job_save", *job.values())
        if job.repaired:
            self.note_repaired(queue, job)
        slot = job.slot
        if slot != job.counted_slot:
            queue.count(job.counted_slot, -1)
            queue.count(slot, 1)
            job.counted_slot = slot
        if job.backoff != job.counted_backoff:
            self.count_backoff(queue, job, job.backoff)

    def delete(self, queue: QueueRow, job: JobRow) -> None:
        """Delete a record."""
        self.run("job_drop", job.n)
        self.generations.pop(job.n, None)
        if job.repaired:
            self.note_repaired(queue, job)
        queue.count(job.counted_slot, -1)
        self.count_backoff(queue, job, None)

    def count_backoff(self, queue: QueueRow, job: JobRow, group: str | None) -> None:
        """Count a job in the backoffs of this group (None: of none), no longer in those of another."""
        if queue.limited:
            for each, change in ((job.counted_backoff, -1), (group, 1)):
                if each is not None:
                    self.run("lane_backoff", queue.k, each, change)
        job.counted_backoff = group

    def note_repaired(self, queue: QueueRow, job: JobRow) -> None:
        """Count a damaged record that is written or deleted."""
        queue.note_damage()
        queue.recount |= job.uncounted
        job.repaired = False

    # queues --------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueRow | None:
        """Return a queue's row, or None if there is none."""
        queue = self._queues.get(name)
        if queue is None:
            row = self.one("queue_get", self.namespace, name)
            if row is None:
                return None
            self._names[name] = row[-2] if isinstance(row[-2], str) else ""
            sound = is_sound_queue(row)
            if not sound:
                row = self._repair_queue(row)
            queue = self._queues[name] = queue_of(name, row)
            if queue.paused is not None:
                queue.read_pause(self.one("queue_pause", queue.k))
            if not sound:
                queue.note_damage()
                queue.recount = True
        return queue

    def _repair_queue(self, row: Sequence[Any]) -> list[Any]:
        seq, finished, tick = self.one("queue_last", row[0]) if self.write else (0, 0, None)
        return replace_unreadable(row, seq, finished, tick, self.now)

    def ensure_queue(self, name: str) -> QueueRow:
        """Return a queue's row, created if there is none."""
        queue = self.queue(name)
        if queue is None:
            family = None if name.endswith(FAIL_SUFFIX) else family_of(name)
            self.run("queue_add", self.namespace, name, family)
            queue = self.queue(name)
            assert queue is not None
        return queue

    def known_queue(self, name: str) -> QueueRow | None:
        """Return a queue's row if this transaction has read it."""
        return self._queues.get(name)

    @property
    def limits(self) -> LimitsRead:
        """The limits that this transaction has read."""
        if self._limits is None:
            self._limits = LimitsRead()
        return self._limits

    def forget_rules(self) -> None:
        """Read the rules of limits again when they are needed next: one was changed."""
        self.limits.rules.clear()
        self.limits.shared_rules.clear()

    def forget_queue(self, queue: QueueRow) -> None:
        """Drop the row of a deleted queue, so that it is not written back."""
        del self._queues[queue.name]
        self.work_counts.pop(queue.name, None)

    def has_waiter(self, queue: str, id: str) -> bool:
        """Return whether a caller waits for the end of a job."""
        known = self._queues.get(queue)
        if known is not None and not known.awaited:
            return False
        return self.one("wait_has", self.namespace, queue, id, self.wall) is not None

    # waiters added in this transaction, after the queue rows were read ------------------------------

    def mark_idle(self, queue: str) -> None:
        """Record that an idle worker waits for a queue's jobs."""
        if known := self._queues.get(queue):
            known.idle = True

    def mark_awaited(self, queue: str) -> None:
        """Record that a caller waits for the end of one of a queue's jobs."""
        if known := self._queues.get(queue):
            known.awaited = True

    def reread_listeners(self) -> None:
        """Read the listeners again when they are needed next: one was added."""
        self._listeners = None
        self._wanted.clear()
        self._names.clear()

    # wake-ups and events -------------------------------------------------------------------------

    def notify_work(self, queue: QueueRow, count: int = 1) -> None:
        """Wake up to `count` idle workers of a queue after the commit: runs became available."""
        self.work_counts[queue.name] = self.work_counts.get(queue.name, 0) + count

    def notify_due(self, queue: QueueRow, due: int) -> None:
        """Wake one idle worker if a job is due before the queue's alarm: it will set the alarm by its claim."""
        if queue.alarm is None or queue.alarm <= self.now or due < queue.alarm:
            self.work_counts.setdefault(queue.name, 1)

    def notify_cancel(self, worker: str | None) -> None:
        """Wake the waiters for cancel requests to a worker (`Storage.wait_cancel`) after the commit.

        A cancel request is filed as the end of a job with the worker's name as its id, in the queue with the
        empty name. No user's queue has that name, so the table `waits` serves both kinds of waiters.
        The worker's notifier adds a row there (`waiters.add_cancel_waiter`); the request deletes the row and
        wakes the notifier, whose worker then renews its claims. The answer of that renewal names the
        runs to cancel: the wake-up itself carries no more than "renew now".
        """
        self.finished_jobs.append((CANCEL_QUEUE, worker))

    def notify_readers(self, queue: str, id: str) -> None:
        """Wake the readers of the histories of a job after the commit; they are filed as those of cancel requests."""
        self.finished_jobs.append((CANCEL_QUEUE, reader_key(queue, id)))

    def wants(self, name: str, queue: str) -> bool:
        """Return whether an event of this name has a listener: the listeners are read once per transaction."""
        names = self._names.get(queue, "*")
        if not names:
            return False
        wakes = self._wanted.get((name, queue))
        if wakes is None:
            may_want = "*" in names or f",{name}," in names
            wakes = self._wanted[name, queue] = self._listeners_to(name, queue) if may_want else []
        return bool(wakes)

    def _listeners_to(self, name: str, queue: str) -> list[Wake]:
        if self._listeners is None:
            found = self.all("listen_all", self.namespace, self.wall)
            self._listeners = [
                (Wake(address, waiter), of, names)
                for waiter, address, of, names in found
                if _are_text(waiter, address) and type(names) is str
            ]
        marked = f",{name},"
        return [wake for wake, of, names in self._listeners if of in (None, queue) and (not names or marked in names)]

    def emit(
        self, name: str, queue: QueueRow, id: str, attempt: int,
        worker: str | None = None, result: bytes | None = None, error: bytes | None = None,
    ) -> None:  # fmt: skip
        """Store an event about a job after the verbs have run, if there are listeners to it."""
        if self.wants(name, queue.name):
            self._events.append(EventRecord(name, queue.name, id, self.now, attempt, worker, result, error))

    def emit_all(self, events: Iterable[EventRecord]) -> None:
        """Store events of which `wants` is true, as `emit` does."""
        self._events += events

    def announce(self, events: Iterable[EventRecord]) -> None:
        """Store events that are about no transition, if there are listeners to them."""
        wanted = [event for event in events if self.wants(event.name, event.queue)]
        if wanted:
            if not self.write:
                raise NeedsWriteLock
            self.must_commit = True
            self._events += [msgspec.structs.replace(event, at=self.now) for event in wanted]

    # before the commit ---------------------------------------------------------------------------

    def before_commit(self) -> None:
        """Write queue rows and events, and choose the waiters to wake."""
        freed = False
        for generation in self.generations.values():
            if generation is not None and generation.dirty:
                self.run("generation_save", *generation.values())
        for queue in self._queues.values():
            freed |= queue.limited and queue.deltas[RUNNING] < 0
            if queue.gates is not None and queue.gates.dirty:
                self.run("gates_save", *queue.gates.values(), queue.k)
            if queue.totals is not None:
                self.run("queue_totals", *queue.totals.values(), queue.k)
            if queue.dirty:
                self.run("queue_save", queue.seq, queue.time, queue.finished, *queue.deltas, queue.damaged, queue.k)
                if queue.recount:
                    self.run("queue_recount", queue.k)
            elif queue.ready_added:
                self.run("queue_grow", queue.seq, queue.time, queue.deltas[READY], queue.k)
            if queue.marked:
                self.run("queue_marks", *queue.marks, queue.k)
        if self._limits is not None:
            self._save_families(self._limits.family_gates.values())
        if self._events:
            self._publish()
        if freed:
            self._note_slots()
        for name, count in self.work_counts.items():
            queue = self.queue(name)
            if queue is None or (queue.idle and (queue.wake_paused or queue.live_pause(self.now) is None)):
                self._wake_idle(name, count)
        if self.finished_jobs:
            self._wake_waiters()

    def _save_families(self, families: Iterable[FamilyGate]) -> None:
        for family in families:
            if family.dirty and family.gate == NEW_GATE:
                self.run("family_forget", self.namespace, family.name)
            elif family.dirty:
                self.run("family_save", self.namespace, family.name, *msgspec.structs.astuple(family.gate))

    def _note_slots(self) -> None:
        """Wake idle workers of limited queues in which runs have ended, and of their families."""
        for queue in list(self._queues.values()):
            if queue.limited and queue.deltas[RUNNING] < 0:
                self.notify_work(queue, -queue.deltas[RUNNING])
                if not queue.name.endswith(FAIL_SUFFIX):
                    self.notify_family(family_of(queue.name))

    def notify_family(self, family: str) -> None:
        """Wake an idle worker of each of up to `MAX_WOKEN` queues of a family, if it has a limit."""
        if self.one("limit_get", self.namespace, family, "family", "") is not None:
            for (name,) in self.all("family_idle", self.namespace, family, MAX_WOKEN):
                self.work_counts.setdefault(name, 1)

    def _publish(self) -> None:
        """Store the events, those of a queue in one row, and wake the listeners to them."""
        for queue, group in groupby(self._events, lambda event: event.queue):
            events = list(group)
            values = (len(events), self.namespace, queue, self.wall, _encode(events))
            last = self.execute(SQL["event_add"], values).lastrowid or 0
            if last // 1000 != (last - len(events)) // 1000:
                self.run("event_trim", last - MAX_EVENTS)
        kinds = dict.fromkeys((event.name, event.queue) for event in self._events)
        self.wakes += dict.fromkeys(wake for kind in kinds for wake in self._wanted.get(kind, ()))

    def _wake_idle(self, name: str, count: int) -> None:
        for waiter, address in self.all("idle_pick", self.namespace, name, count):
            self.run("idle_drop", waiter)
            wake = Wake(address, waiter, name) if _are_text(waiter, address) else _unreachable(name)
            self.wakes.append(wake)

    def _wake_waiters(self) -> None:
        finished: dict[str, list[str]] = {}
        for name, id in self.finished_jobs:
            if id is None:
                self._add_wakes(self.all("wait_pick_queue", self.namespace, name))
            else:
                finished.setdefault(name, []).append(id)
        for name, ids in finished.items():
            known = self._queues.get(name)
            if known is None or known.awaited:
                for (id,) in self.run_with_list("wait_among", (self.namespace, name), ids):
                    self._add_wakes(self.all("wait_pick", self.namespace, name, id))

    def _add_wakes(self, found: list[tuple[Any, Any]]) -> None:
        self.wakes += [Wake(address, waiter) for waiter, address in found if address and _are_text(waiter, address)]


def _are_text(waiter: Any, address: Any) -> bool:
    """Return whether a waiter's row can be read."""
    return type(waiter) is str and type(address) is str


def _unreachable(queue: str) -> Wake:
    """Return a wake-up that reaches no waiter, so that another one is woken for the work of the queue."""
    return Wake("", "", queue)


def _padded_size(count: int) -> int:
    """Return the size to which a chunk is padded."""
    return next(size for size in PADDED_SIZES if size >= count)


def _chunks(count: int) -> list[tuple[int, int]]:
    """Return the start and the size of each chunk."""
    chunks: list[tuple[int, int]] = []
    at = 0
    for size in CHUNK_SIZES:
        while count - at >= size:
            chunks.append((at, size))
            at += size
    return chunks
