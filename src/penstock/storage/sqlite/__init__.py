"""Penstock's own storage: one SQLite file for many processes, or a private database in memory.

Verbs are functions of a transaction (one module each), run by a writer thread that puts everything
asked since the last commit into the next one. `Engine` runs the same verbs without thread or loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from penstock.errors import StorageError
from penstock.model.clock import Clock
from penstock.model.durability import DurabilityReport
from penstock.model.job import NewJob, Snapshot, State
from penstock.model.storage_info import FileInfo, QueueMeter
from penstock.storage.base import (
    MAX_BATCH,
    CancelAnswer,
    CancelMode,
    Claimed,
    ClaimRef,
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
from penstock.storage.sqlite import (
    admin,
    cancel,
    claim,
    inspection,
    purge,
    put,
    reads,
    reap,
    renew,
    restore,
    revive,
    settle,
    why,
)
from penstock.storage.sqlite.engine import Engine, Synchronous
from penstock.storage.sqlite.notifier import Notifier
from penstock.storage.sqlite.transaction import Transaction
from penstock.storage.sqlite.writer import Writer

__all__ = ["Engine", "SqliteStorage"]

T = TypeVar("T")


class SqliteStorage:
    """The `Storage` protocol over one file; see `penstock.storage.base` for what each verb promises."""

    #: What is said of a put's durability, if anybody asked; a commit is on disk with `synchronous="FULL"`.
    durability_report: DurabilityReport | None = None

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        synchronous: Synchronous = "NORMAL",
        namespace: str = "penstock",
        poll: float = 1.0,
    ) -> None:
        self.engine = Engine(path, clock=clock, synchronous=synchronous, namespace=namespace)
        self._poll = poll
        self._writer: Writer | None = None
        self._notifier: Notifier | None = None
        self._pid = 0
        self._opening: asyncio.Lock | None = None

    @property
    def format(self) -> int:
        """The newest record format that is read here, and the one that is written."""
        return self.engine.format

    @format.setter
    def format(self, format: int) -> None:
        self.engine.format = format

    async def open(self) -> None:
        """Open the file, create what is missing, start the writer. Idempotent."""
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
            self._notifier = Notifier(self.engine, self._submit, self._poll)

    async def close(self) -> None:
        """Wake who waits, end the writer, remove the socket. Idempotent; `open` may follow."""
        writer, waiters = self._writer, self._notifier
        if writer is None or waiters is None:
            return
        await waiters.close()
        self._writer = self._notifier = self._opening = None
        await asyncio.to_thread(writer.close)
        self.engine.close()

    def _submit(self, verb: Callable[[Transaction], T], write: bool) -> Awaitable[T]:
        if self._writer is None:
            raise StorageError("the storage is not open")
        if self._pid != os.getpid():
            self._after_fork()
        return self._writer.submit(verb, write)

    def _after_fork(self) -> None:
        """In a child process: the parent's thread, connection and socket stay the parent's."""
        self._pid = os.getpid()
        self.engine.reset_in_child()
        self._writer = Writer(self.engine)
        if self._notifier is not None:
            self._notifier.reset_in_child()

    def _open_notifier(self) -> Notifier:
        if self._notifier is None:
            raise StorageError("the storage is not open")
        return self._notifier

    async def _write(self, verb: Callable[[Transaction], T]) -> T:
        return await self._submit(verb, True)

    async def _read(self, verb: Callable[[Transaction], T]) -> T:
        return await self._submit(verb, False)

    # transitions ---------------------------------------------------------------------------------

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """nothing → queued / scheduled / blocked, or updated in place, or the existing state."""
        answers = await self._write(lambda tx: put.put(tx, jobs))
        return (
            answers
            if self.durability_report is None
            else [replace(each, durability=self.durability_report) for each in answers]
        )

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        """due → running under `token` for `lease` ms; promotes jobs whose time has come, bounded."""
        return await self._write(lambda tx: claim.claim(tx, requests, worker, lease, token))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """running → completed / retrying / failed / cancelled / queued; fenced by the token."""
        return await self._write(lambda tx: settle.settle(tx, settlements))

    async def renew(self, worker: str, held: Sequence[ClaimRef], lease: int) -> list[Renewal]:
        """running → running: extends the named claims only."""
        return await self._write(lambda tx: renew.renew(tx, held, lease))

    async def reap(self, queues: Sequence[str], limit: int = MAX_BATCH) -> list[Reaped]:
        """running with its lease over → queued at its place with stalls + 1, at most `limit` per queue."""
        return await self._write(lambda tx: reap.reap(tx, queues, limit))

    async def cancel(
        self, queue: str, ids: Sequence[str], running: CancelMode = "refuse", ttl: int | None = 0
    ) -> list[CancelAnswer]:
        """waiting or blocked → cancelled, kept `ttl` ms; a running job is treated as `running` says."""
        return await self._write(lambda tx: cancel.cancel(tx, queue, ids, running, ttl))

    async def revive(self, queue: str, ids: Sequence[str]) -> list[bool]:
        """failed or cancelled → queued at the end of the line, all counts zero."""
        return await self._write(lambda tx: revive.revive(tx, queue, ids))

    async def purge(self, queues: Sequence[str], limit: int = MAX_BATCH) -> int:
        """finished with its TTL over → gone; answers how many, bounded by `limit` per queue."""
        return await self._write(lambda tx: purge.purge(tx, queues, limit))

    async def set_paused(self, queue: str, paused: bool) -> bool:
        """Stop or go on handing out jobs of a queue; answers whether that changed anything."""
        return await self._write(lambda tx: admin.set_paused(tx, queue, paused))

    async def delete_queue(self, queue: str) -> int:
        """Every record of a queue → gone, running claims are lost; answers how many jobs there were."""
        return await self._write(lambda tx: admin.delete_queue(tx, queue))

    async def set_ttl(self, queue: str, id: str, ttl: int | None) -> bool:
        """Keep a finished job for `ttl` ms from now; False when it is not there or not finished."""
        return await self._write(lambda tx: admin.set_ttl(tx, queue, id, ttl))

    async def report(self, held: ClaimRef, progress: bytes) -> bool:
        """Attach progress to a run; False when the claim is lost."""
        return await self._write(lambda tx: renew.report(tx, held, progress))

    # reads ---------------------------------------------------------------------------------------

    async def get(self, queue: str, ids: Sequence[str]) -> list[Snapshot | None]:
        """Jobs by id; a running job hides its blocked successor."""
        return await self._read(lambda tx: reads.get(tx, queue, ids))

    async def find(self, queue: str, state: State | None = None, after: str | None = None, limit: int = 100) -> Page:
        """A page of jobs, state by state, each in its order."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        cursor = None if after is None else reads.parse_cursor(after, state)
        while True:
            page = await self._read(lambda tx: reads.find(tx, queue, state, cursor, limit))
            if page is not None:
                return page

    async def peek(self, queue: str) -> Snapshot | None:
        """The job that a claim would give next."""
        return await self._read(lambda tx: reads.peek(tx, queue))

    async def why(self, queue: str, id: str) -> JobPosition | None:
        """Where a job stands and what stands before it, read at once; None when there is no such job."""
        again = True
        standing: JobPosition | None = None
        while again:
            again, standing = await self._read(lambda tx: why.why(tx, queue, id))
        return standing

    async def counts(self, queue: str) -> dict[State, int]:
        """How many jobs are in each state."""
        return await self._read(lambda tx: reads.counts(tx, queue))

    async def paused(self, queue: str) -> int | None:
        """Since when (ms) a queue is paused, or None."""
        return await self._read(lambda tx: reads.paused(tx, queue))

    async def queues(self) -> list[str]:
        """The names of the queues that hold jobs or are paused, sorted."""
        return await self._read(reads.queues)

    async def beat(self, worker: str, ttl: int, info: bytes = b"") -> None:
        """Say that a worker is there for the next `ttl` ms; a `ttl` of 0 takes it off the list."""
        await self._write(lambda tx: reads.beat(tx, worker, ttl, info))

    async def workers(self) -> list[WorkerRecord]:
        """The workers that are there, sorted by id."""
        return await self._read(reads.workers)

    async def time(self) -> int:
        """The storage's clock, in milliseconds."""
        return self.engine.now()

    # looking after the file ----------------------------------------------------------------------

    @property
    def where(self) -> str:
        """Its URL."""
        return "memory:" if self.engine.memory else f"sqlite:{self.engine.path}"

    async def inspect(self, check: bool = True) -> FileInfo:
        """How the file is doing; `check` reads all of it to find damage."""
        return await self._read(lambda tx: inspection.inspect_file(tx, self.engine, check))

    async def meters(self, queues: Sequence[str]) -> list[QueueMeter]:
        """What is counted in each of these queues."""
        return await self._read(lambda tx: inspection.meters(tx, queues))

    async def latest(self, queue: str, state: State, limit: int = 10) -> list[Snapshot]:
        """Ended jobs of one state, those that are kept longest first."""
        return await self._read(lambda tx: inspection.latest(tx, queue, state, limit))

    async def restore(self, jobs: Sequence[Snapshot]) -> list[bool]:
        """nothing → the state of the snapshot, counts and times included; False where the id is taken."""
        return await self._write(lambda tx: restore.restore(tx, jobs))

    async def forget_namespace(self) -> None:
        """Take away what the namespace holds beside its queues."""
        await self._write(inspection.forget_namespace)

    # hints and feeds -----------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until a job may be ready in one of the queues or `timeout` seconds have passed."""
        return await self._open_notifier().wait_work(queues, timeout)

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool:
        """Sleep until a job may have ended or `timeout` seconds have passed."""
        return await self._open_notifier().wait_done(queue, id, timeout)

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Sleep until a run of this worker may have been asked to end or `timeout` seconds have passed."""
        return await self._open_notifier().wait_cancel(worker, timeout)

    def events(self, queue: str | None = None) -> AsyncIterator[EventRecord]:
        """What happens in the storage from this call on, whoever causes it.

        The listener is registered by the call itself: whatever this process asks for afterwards is
        heard, even before the first `__anext__`.
        """
        return self._open_notifier().feed(queue)

    async def announce(self, notes: Sequence[EventRecord]) -> None:
        """Add lines to the feed, at the storage's time, if anybody reads it."""
        await self._read(lambda tx: tx.announce(notes))


def _do_nothing(tx: Transaction) -> None:
    """The first transaction: it opens the file."""
