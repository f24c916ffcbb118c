"""Export and import of jobs as lines of JSON, to move them between storages.

The first line is a header; each other line is one whole job: payload, counts, times, and result or
error. Running jobs belong to their workers and are left out, as are jobs blocked behind them. The attempts and logs of
jobs stay behind: they are about runs of the other storage, and no verb restores them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import IO

import msgspec

from penstock.client.app import Penstock
from penstock.errors import MAX_ERROR, UNREADABLE, ErrorKind, JobError, StorageUnusable
from penstock.model.clock import as_datetime, span_ms
from penstock.model.headers import MAX_HEADERS, decode_headers, encode_headers
from penstock.model.job import WAITING, NewJob, Snapshot, State
from penstock.model.options import JobBounds
from penstock.model.storage_info import MAX_COUNT, Restorable, check_restorable
from penstock.ops.rebind import Mover
from penstock.storage.base import PutStatus, Storage

__all__ = [
    "ExportHeader",
    "ExportedJob",
    "ImportReport",
    "LeftOut",
    "count_jobs",
    "export_jobs",
    "import_jobs",
    "read_lines",
]

FORMAT = 1

#: Most jobs that are read or written in one round trip.
BATCH_SIZE = 200

#: A batch ends when its payloads and results exceed this many bytes.
MAX_BYTES = 4_000_000

#: Retrying jobs come first: a group whose head waits for its retry is then blocked before its other jobs are stored.
EXPORTED_STATES = (State.RETRYING, State.QUEUED, State.SCHEDULED, State.COMPLETED, State.FAILED, State.CANCELLED)
SKIPPED_STATES = (State.RUNNING, State.BLOCKED, State.SUSPENDED)


class ExportHeader(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The first line of an export."""

    penstock_export: int
    exported_at: datetime | None = None
    queues: list[str] = []
    #: The namespace, to which signed and encrypted jobs are bound.
    namespace: str | None = None


class ExportedError(msgspec.Struct, kw_only=True):
    """The error of a job, in an export."""

    type: str
    message: str
    kind: ErrorKind = ErrorKind.RETRIABLE
    traceback: str = ""
    path: str = ""
    key: str = ""


class ExportedJob(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One job, in an export. Payload and result are text if they are UTF-8, else base64."""

    queue: str
    id: str
    state: State
    created_at: datetime
    run_at: datetime
    payload: str | None = None
    payload_base64: bytes | None = None
    group: str | None = None
    priority: int = 0
    headers: dict[str, str] = {}
    bounds: JobBounds = JobBounds()
    attempts: int = 0
    retries: int = 0
    stalls: int = 0
    timeouts: int = 0
    worker: str | None = None
    result: str | None = None
    result_base64: bytes | None = None
    error: ExportedError | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    start_by: datetime | None = None
    cost: int = 1
    #: In seconds.
    window: float | None = None
    started_at: datetime | None = None

    @classmethod
    def of(cls, job: Snapshot) -> ExportedJob:
        """Return the exported form of a job of a storage."""
        payload, payload_bytes = _text_or_bytes(job.payload)
        result, result_bytes = (None, None) if job.result is None else _text_or_bytes(job.result)
        error = None if job.error is None else JobError.decode(job.error)
        return cls(
            queue=job.queue, id=job.id, state=job.state, created_at=as_datetime(job.created),
            run_at=as_datetime(job.run_at), payload=payload, payload_base64=payload_bytes, group=job.group,
            priority=job.priority, headers=decode_headers(job.headers), bounds=JobBounds.decode(job.bounds),
            attempts=min(job.attempts, MAX_COUNT), retries=min(job.retries, MAX_COUNT),
            stalls=min(job.stalls, MAX_COUNT), timeouts=min(job.timeouts, MAX_COUNT), worker=job.worker,
            result=result, result_base64=result_bytes,
            error=None if error is None else ExportedError(
                type=error.type, message=error.message, kind=error.kind, traceback=error.traceback, path=error.path,
                key=error.key,
            ),
            finished_at=None if job.finished is None else as_datetime(job.finished),
            expires_at=None if job.expires is None else as_datetime(job.expires),
            start_by=None if job.start_by is None else as_datetime(job.start_by), cost=job.cost,
            window=None if job.window is None else job.window / 1000,
            started_at=None if job.started is None else as_datetime(job.started),
        )  # fmt: skip

    def snapshot(self) -> Snapshot:
        """Return the job in the form in which a storage restores it."""
        completed = self.state is State.COMPLETED
        result = _as_bytes(self.result, self.result_base64)
        e = self.error
        return Snapshot(
            queue=self.queue, id=self.id, state=self.state, group=self.group, priority=self.priority,
            payload=_as_bytes(self.payload, self.payload_base64) or b"",
            headers=encode_headers(self.headers), bounds=self.bounds.encode(), created=_to_ms(self.created_at),
            run_at=_to_ms(self.run_at), attempts=self.attempts, retries=self.retries, stalls=self.stalls,
            timeouts=self.timeouts, worker=self.worker, result=(result or b"") if completed else None,
            error=None if e is None else JobError(e.type, e.message, e.kind, e.traceback, e.path, e.key).encode(),
            finished=None if self.finished_at is None else _to_ms(self.finished_at),
            expires=None if self.expires_at is None else _to_ms(self.expires_at),
            start_by=None if self.start_by is None else _to_ms(self.start_by), cost=self.cost,
            window=None if self.window is None else span_ms(self.window, "window"),
            started=None if self.started_at is None else _to_ms(self.started_at),
        )  # fmt: skip


class ImportReport(msgspec.Struct):
    """Counts of the jobs of an import: stored, or why not."""

    #: Stored jobs, by state.
    stored: Counter[State] = msgspec.field(default_factory=Counter[State])
    #: Jobs whose id existed already.
    known: int = 0
    #: Finished jobs whose TTL was over.
    expired: int = 0
    #: Finished jobs that this storage cannot restore.
    refused: int = 0


async def count_jobs(app: Penstock, queues: Iterable[str]) -> tuple[int, Counter[State]]:
    """Return the number of jobs that an export will write, and those that it will skip by state.

    Queues of a damaged storage that cannot be counted are left out.
    """
    exported, skipped = 0, Counter[State]()
    for name in queues:
        try:
            counts = await app.queue(name).counts()
        except StorageUnusable:
            continue
        exported += sum(counts[state] for state in EXPORTED_STATES)
        skipped += Counter({state: counts[state] for state in SKIPPED_STATES})
    return exported, skipped


class LeftOut(msgspec.Struct):
    """Jobs that an export could not write."""

    #: The ids of jobs that only a newer Penstock can read.
    newer: list[str] = []
    #: The parts of a damaged storage that could not be read to their end, as "queue (state)".
    damaged: list[str] = []


async def export_jobs(app: Penstock, queues: Sequence[str], left_out: LeftOut) -> AsyncIterator[bytes]:
    """Yield the lines of an export, without line ends; jobs that cannot be exported are added to `left_out`."""
    storage = await app.opened()
    at = as_datetime(await storage.time())
    yield _encode(ExportHeader(penstock_export=FORMAT, exported_at=at, queues=list(queues), namespace=app.namespace))
    for name in queues:
        for state in EXPORTED_STATES:
            cursor: str | None = None
            size = BATCH_SIZE
            while True:
                try:
                    page = await storage.find(name, state, cursor, size)
                except StorageUnusable:
                    if size > 1:  # the jobs before the damage can be read one by one
                        size = 1
                        continue
                    left_out.damaged.append(f"{name} ({state})")
                    break
                for job in page.jobs:
                    if job.format is None:
                        yield _encode(ExportedJob.of(job))
                    else:
                        left_out.newer.append(job.id)
                cursor = page.cursor
                if cursor is None:
                    break


async def import_jobs(
    app: Penstock, lines: Iterable[bytes], queue: str | None = None, max_payload: int | None = None
) -> AsyncIterator[ImportReport]:
    """Store the jobs of an export, in their own queue or in `queue`; yields the report after each batch.

    A job whose id exists already is left as it is, so that an interrupted import can be repeated. An invalid line
    raises a `ValueError` with its number; batches before it are stored. `max_payload` bounds the bytes of a payload
    and of a result; by default it is the larger bound of the app. A signed or encrypted job is bound anew if its
    namespace or queue changes; raises `ValueError` without the keys for that.
    """
    report = ImportReport()
    storage = await app.opened()
    mover = Mover(app, queue)
    most = max(app.max_payload, app.max_result) if max_payload is None else max_payload
    for batch in _batches(read_jobs(lines, most, mover)):
        now = await storage.time()
        jobs = [mover.move(job) for job in batch]
        fresh = [job for job in jobs if job.expires is None or job.expires > now]
        report.expired += len(jobs) - len(fresh)
        await _store(storage, fresh, report)
        yield report
    yield report


def read_lines(file: IO[bytes], max_payload: int) -> Iterator[bytes]:
    """Yield the lines of a file; one that is too long for a job raises a `ValueError` before all of it is read."""
    # JSON needs at most six bytes for a byte of text: \u0000.
    longest = 6 * (2 * max_payload + MAX_HEADERS + MAX_ERROR) + 65_536
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        if len(line) > longest:
            raise ValueError(f"line {number}: it is longer than {longest} bytes, too long for a job")
        yield line


def read_jobs(lines: Iterable[bytes], max_payload: int, mover: Mover) -> Iterator[Snapshot]:
    """Yield the jobs of an export; an invalid line raises a `ValueError` with its number.

    The mover gets the namespace in the header.
    """
    number = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if number > 1:
                job = _decode_job(line).snapshot()
                check_restorable(job, max_payload)
                yield job
                continue
            header = _decode_header(line)
            if header.penstock_export > FORMAT:
                raise ValueError("it was written by a newer Penstock; upgrade this one")
            mover.namespace = header.namespace or mover.namespace
        except (*UNREADABLE, ValueError, OverflowError) as error:
            what = "this is not an export of Penstock" if number == 1 else "this is not a job"
            raise ValueError(f"line {number}: {what} ({error})") from None
    if not number:
        raise ValueError("there is nothing to import: the input is empty")


async def _store(storage: Storage, jobs: list[Snapshot], report: ImportReport) -> None:
    if isinstance(storage, Restorable):
        for job, done in zip(jobs, await storage.restore(jobs), strict=True):
            if done:
                report.stored[job.state] += 1
            else:
                report.known += 1
        return
    # A third-party storage may have no `restore`: waiting jobs are put as new ones, finished ones cannot be stored.
    waiting = [job for job in jobs if job.state in WAITING]
    report.refused += len(jobs) - len(waiting)
    for job, put in zip(waiting, await storage.put([_new_job(job) for job in waiting]), strict=True):
        if put.status in (PutStatus.QUEUED, PutStatus.SCHEDULED):
            report.stored[job.state] += 1
        else:
            report.known += 1


def _new_job(job: Snapshot) -> NewJob:
    return NewJob(
        queue=job.queue, id=job.id, payload=job.payload, run_at=job.run_at, priority=job.priority, group=job.group,
        headers=job.headers, bounds=job.bounds, start_by=job.start_by, cost=job.cost,
        window=job.window,
    )  # fmt: skip


def _batches(jobs: Iterator[Snapshot]) -> Iterator[list[Snapshot]]:
    page: list[Snapshot] = []
    size = 0
    for job in jobs:
        page.append(job)
        size += len(job.payload) + len(job.result or b"")
        if len(page) == BATCH_SIZE or size > MAX_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _text_or_bytes(data: bytes) -> tuple[str | None, bytes | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, data


def _as_bytes(text: str | None, data: bytes | None) -> bytes | None:
    return data if text is None else text.encode()


def _to_ms(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ValueError("a time has no zone")
    return round(moment.timestamp() * 1000)


_encode = msgspec.json.Encoder().encode
_decode_job = msgspec.json.Decoder(ExportedJob).decode
_decode_header = msgspec.json.Decoder(ExportHeader, strict=True).decode
