"""Penstock's own storage: one SQLite file for many processes, or a private database in memory.

Verbs are functions of a transaction, one module each. A writer thread runs the verbs submitted since
the last commit in the next transaction. `Engine` runs the same verbs without thread or loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from msgspec.structs import replace

from penstock.errors import QueueFull, StorageError
from penstock.model.activity import WorkerRequest
from penstock.model.clock import Clock
from penstock.model.durability import DurabilityReport
from penstock.model.job import NewJob, Snapshot, State
from penstock.model.pause import Pause
from penstock.model.storage_info import FileInfo, QueueMeter
from penstock.storage.base import (
    MAX_BATCH,
    CancelAnswer,
    CancelMode,
    Claimed,
    ClaimRef,
    DiscardAnswer,
    EventRecord,
    JobPosition,
    Page,
    Put,
    Reaped,
    Renewal,
    Request,
    Settled,
    Settlement,
    WorkerRecord,
)
from penstock.storage.flowing import check_flows
from penstock.storage.observing import check_find
from penstock.storage.sqlite import (
    admin,
    cancel,
    claim,
    discard,
    inspection,
    purge,
    put,
    reads,
    reap,
    renew,
    restore,
    settle,
    why,
)
from penstock.storage.sqlite.auditing import SqliteAuditing
from penstock.storage.sqlite.engine import BUSY_TIMEOUT, Engine, Synchronous
from penstock.storage.sqlite.event_feed import EventFeed
from penstock.storage.sqlite.flowing import SqliteFlowing
from penstock.storage.sqlite.limiting import SqliteLimiting
from penstock.storage.sqlite.notifier import Notifier
from penstock.storage.sqlite.observing import SqliteObserving
from penstock.storage.sqlite.recording import SqliteRecording
from penstock.storage.sqlite.scheduling import SqliteScheduling
from penstock.storage.sqlite.transaction import Transaction
from penstock.storage.sqlite.writer import Writer

__all__ = ["Engine", "SqliteStorage"]

T = TypeVar("T")


class SqliteStorage(SqliteScheduling, SqliteLimiting, SqliteObserving, SqliteRecording, SqliteAuditing, SqliteFlowing):
    """The `Storage` protocol over one file; see `penstock.storage.base` for the contract of each verb.

    `poll` is the pause (s) between two reads of a waiter that no wake-up reaches. `fast=False` is for tests, as
    in `Engine`.
    """

    #: The durability reported with each put, if the app asked for one; `synchronous="FULL"` commits are on disk.
    durability_report: DurabilityReport | None = None

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        synchronous: Synchronous = "NORMAL",
        namespace: str = "penstock",
        poll: float = 1.0,
        fast: bool = True,
    ) -> None:
        self.engine = Engine(path, clock=clock, synchronous=synchronous, namespace=namespace, fast=fast)
        self._poll = poll
        self._writer: Writer | None = None
        self._notifier: Notifier | None = None
        self._pid = 0
        self._opening: asyncio.Lock | None = None

    @property
    def format(self) -> int:
        """The newest record format that this storage reads, and the one that it writes."""
        return self.engine.format

    @format.setter
    def format(self, format: int) -> None:
        self.engine.format = format

    async def open(self) -> None:
        """Open the file, create missing tables, start the writer. Idempotent."""
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._writer is not None:
                return
            self._pid = os.getpid()
            writer = Writer(self.engine)
            try:
                await writer.submit(_do_nothing, False)
            except BaseException:
                await asyncio.to_thread(writer.close)
                self.engine.close()
                raise
            self._writer = writer
            self._notifier = Notifier(self.engine, self.submit, self._poll)

    async def close(self) -> None:
        """Wake all waiters, end the writer, remove the socket. Idempotent; `open` may follow."""
        writer, notifier = self._writer, self._notifier
        if writer is None or notifier is None:
            return
        await notifier.close()
        self._writer = self._notifier = self._opening = None
        await asyncio.to_thread(writer.close)
        self.engine.close()

    def bounded(self, timeout: float) -> SqliteStorage:
        """Return this storage for producers: a request waits at most `timeout` seconds for the lock of the file."""
        return BoundedSqliteStorage(self, timeout)

    def submit(self, verb: Callable[[Transaction], T], write: bool, within: float = BUSY_TIMEOUT) -> Awaitable[T]:
        """Run a verb in a transaction of the writer, which waits at most these seconds for the lock of the file."""
        if self._writer is None:
            raise StorageError("the storage is not open")
        if self._pid != os.getpid():
            self._after_fork()
        return self._writer.submit(verb, write, within)

    def _after_fork(self) -> None:
        """Start a writer of its own in a child process: thread, connection and socket stay with the parent."""
        self._pid = os.getpid()
        self.engine.reset_in_child()
        self._writer = Writer(self.engine)
        if self._notifier is not None:
            self._notifier.reset_in_child()

    def open_notifier(self) -> Notifier:
        """Return the notifier of the open storage."""
        if self._notifier is None:
            raise StorageError("the storage is not open")
        return self._notifier

    async def _write(self, verb: Callable[[Transaction], T]) -> T:
        return await self.submit(verb, True)

    async def _read(self, verb: Callable[[Transaction], T]) -> T:
        return await self.submit(verb, False)

    async def _read_current(self, queue: str | None, verb: Callable[[Transaction], T]) -> T:
        """Read after the jobs of a queue, or of all (None), whose start-by time has passed were ended."""
        while True:
            read = await self._read(lambda tx: () if reads.expire_all(tx, queue) else (verb(tx),))
            if read:
                return read[0]

    # transitions ---------------------------------------------------------------------------------

    async def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        """Put jobs: nothing → queued / scheduled / blocked, or updated in place, or the existing state."""
        check_flows(jobs)
        if max_queued is None or not jobs:
            answers = await self._write(lambda tx: put.put(tx, jobs))
        else:  # the error is returned: raised in the transaction, it would end those of other callers
            answers = await self._write(lambda tx: put.put_bounded(tx, jobs, max_queued))
        if isinstance(answers, QueueFull):
            raise answers
        return (
            answers
            if self.durability_report is None
            else [replace(each, durability=self.durability_report) for each in answers]
        )

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        """Claim jobs: due → running under `token` for `lease` ms; promotes due jobs first, bounded."""
        return await self._write(lambda tx: claim.claim(tx, requests, worker, lease, token))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle runs: running → completed / retrying / failed / cancelled / queued, fenced by the token."""
        return await self._write(lambda tx: settle.settle(tx, settlements))

    async def renew(self, worker: str, held: Sequence[ClaimRef], lease: int) -> list[Renewal]:
        """Renew claims: running → running with a longer lease, for the named claims only."""
        return await self._write(lambda tx: renew.renew(tx, held, lease))

    async def reap(self, queues: Sequence[str], limit: int = MAX_BATCH) -> list[Reaped]:
        """Reap runs: running with an expired lease → queued at the old position, stalls + 1; `limit` per queue."""
        return await self._write(lambda tx: reap.reap(tx, queues, limit))

    async def cancel(
        self, queue: str, ids: Sequence[str], running: CancelMode = "refuse", ttl: int | None = 0
    ) -> list[CancelAnswer]:
        """Cancel jobs: waiting or blocked → cancelled, kept `ttl` ms; `running` is the mode for running jobs."""
        return await self._write(lambda tx: cancel.cancel(tx, queue, ids, running, ttl))

    async def discard(
        self, queue: str, ids: Sequence[str], state: State | None = None, before: int | None = None
    ) -> list[DiscardAnswer]:
        """Discard jobs: waiting, blocked or finished → gone; running ones are refused."""
        return await self._write(lambda tx: discard.discard(tx, queue, ids, state, before))

    async def purge(self, queues: Sequence[str], limit: int = MAX_BATCH) -> int:
        """Purge records: finished with the TTL over → gone; returns how many, at most `limit` per queue."""
        return await self._write(lambda tx: purge.purge(tx, queues, limit))

    async def set_pause(
        self, queue: str, paused: bool, until: int | None = None, by: str = "", group: str | None = None
    ) -> bool:
        """Pause or resume claims from a queue or one of its groups; returns whether that changed anything."""
        return await self._write(lambda tx: admin.set_pause(tx, queue, paused, until, by, group))

    async def delete_queue(self, queue: str, settings: bool = False) -> int:
        """Delete a queue with all its records; running claims are lost. Returns how many jobs it had."""
        return await self._write(lambda tx: admin.delete_queue(tx, queue, settings))

    async def set_ttl(self, queue: str, id: str, ttl: int | None) -> bool:
        """Keep a finished job for `ttl` ms from now; False if it does not exist or is not finished."""
        return await self._write(lambda tx: admin.set_ttl(tx, queue, id, ttl))

    # reads ---------------------------------------------------------------------------------------

    async def get(self, queue: str, ids: Sequence[str]) -> list[Snapshot | None]:
        """Return jobs by id; a running job hides its blocked successor."""
        return await self._read_current(queue, lambda tx: reads.get(tx, queue, ids))

    async def find(
        self, queue: str, state: State | None = None, after: str | None = None, limit: int = 100, newest: bool = False,
        group: str | None = None,
    ) -> Page:  # fmt: skip
        """Return a page of jobs, state by state, each in its order, or with `newest` in the opposite one.

        With a `group`, return its queued jobs.
        """
        check_find(state, limit, group)
        cursor = None if after is None else reads.parse_cursor(after, state, newest)
        while True:
            page = await self._read(lambda tx: reads.find(tx, queue, state, cursor, limit, newest, group))
            if page is not None:
                return page

    async def peek(self, queue: str) -> Snapshot | None:
        """Return the job that a claim would give next, or None."""
        return await self._read(lambda tx: reads.peek(tx, queue))

    async def why(self, queue: str, id: str) -> JobPosition | None:
        """Return the position of a job and the jobs before it, in one read; None if there is no such job."""
        again = True
        position: JobPosition | None = None
        while again:
            again, position = await self._read(lambda tx: why.why(tx, queue, id))
        return position

    async def counts(self, queue: str) -> dict[State, int]:
        """Return the number of jobs in each state."""
        return await self._read_current(queue, lambda tx: reads.counts(tx, queue))

    async def paused(self, queue: str, group: str | None = None) -> Pause | None:
        """Return the pause of a queue or one of its groups; None if there is none or it has ended by itself."""
        return await self._read(lambda tx: reads.paused(tx, queue, group))

    async def queues(self) -> list[str]:
        """Return the names of the queues that have jobs or schedules or are paused, sorted."""
        return await self._read_current(None, reads.queues)

    async def beat(self, worker: str, ttl: int, info: bytes = b"") -> WorkerRequest | None:
        """Store a worker's heartbeat for the next `ttl` ms, or delete it (0); returns a request to the worker."""
        return await self._write(lambda tx: reads.beat(tx, worker, ttl, info))

    async def workers(self) -> list[WorkerRecord]:
        """Return the workers whose heartbeat has not expired, sorted by id."""
        return await self._read(reads.workers)

    async def time(self) -> int:
        """Return the storage's time in milliseconds."""
        return self.engine.now()

    async def _read_whole(self, verb: Callable[[Transaction], T | None]) -> T:
        """Repeat a read that answers None while more jobs are due than one transaction promotes."""
        while True:
            answer = await self._read(verb)
            if answer is not None:
                return answer

    # inspection and restore ----------------------------------------------------------------------

    @property
    def where(self) -> str:
        """URL of this storage."""
        return "memory:" if self.engine.memory else f"sqlite:{self.engine.path}"

    async def inspect(self, check: bool = True) -> FileInfo:
        """Return facts about the file; `check` reads all of it to find damage."""
        return await self._read(lambda tx: inspection.inspect_file(tx, self.engine, check))

    async def meters(self, queues: Sequence[str]) -> list[QueueMeter]:
        """Return the counters of each of these queues."""
        return await self._read(lambda tx: inspection.meters(tx, queues))

    async def latest(self, queue: str, state: State, limit: int = 10) -> list[Snapshot]:
        """Return finished jobs of one state, those that are kept longest first."""
        return await self._read(lambda tx: inspection.latest(tx, queue, state, limit))

    async def restore(self, jobs: Sequence[Snapshot]) -> list[bool]:
        """Restore jobs: nothing → the state of the snapshot, its counts and times; False for an id that is taken."""
        return await self._write(lambda tx: restore.restore(tx, jobs))

    async def forget_namespace(self) -> None:
        """Delete the workers and events of the namespace; its queues are deleted one by one."""
        await self._write(inspection.forget_namespace)

    # waiting and events --------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until a job may be ready in one of the queues or `timeout` seconds have passed."""
        return await self.open_notifier().wait_work(queues, timeout)

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool:
        """Sleep until a job may have ended or `timeout` seconds have passed."""
        return await self.open_notifier().wait_done(queue, id, timeout)

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Sleep until a run of this worker may have been asked to cancel or `timeout` seconds have passed."""
        return await self.open_notifier().wait_cancel(worker, timeout)

    def events(self, queue: str | None = None, names: Collection[str] | None = None) -> AsyncIterator[EventRecord]:
        """Return an iterator over the events of all processes, from this call on.

        The call itself registers the listener: events caused by later calls of this process are
        included, even before the first `__anext__`.
        """
        return EventFeed(self.open_notifier(), self.submit, queue, names, self._poll)

    async def announce(self, notes: Sequence[EventRecord]) -> None:
        """Store events at the storage's time, if there are listeners to them."""
        await self._read(lambda tx: tx.announce(notes))


class BoundedSqliteStorage(SqliteStorage):
    """Another storage with its writer and notifier, whose requests wait less for the lock of the file."""

    def __init__(self, storage: SqliteStorage, timeout: float) -> None:
        self.engine = storage.engine
        self.durability_report = storage.durability_report
        self._storage = storage
        self._poll = storage._poll
        self._timeout = timeout

    def submit(self, verb: Callable[[Transaction], T], write: bool, within: float | None = None) -> Awaitable[T]:
        return self._storage.submit(verb, write, self._timeout)

    def open_notifier(self) -> Notifier:
        return self._storage.open_notifier()

    async def open(self) -> None:
        await self._storage.open()

    async def close(self) -> None:
        await self._storage.close()


def _do_nothing(tx: Transaction) -> None:
    """Change nothing: the first transaction, which opens the file."""
