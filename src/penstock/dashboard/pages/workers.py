"""The pages Workers and Worker: live workers with their load and runs, and those that are gone."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.aio import gather_each
from penstock.client.answers import status_of
from penstock.dashboard.context import NotThere, PageContext
from penstock.dashboard.protocols import auditing_of
from penstock.model.clock import as_datetime
from penstock.model.context import Progress
from penstock.model.worker_info import RunInfo, WorkerInfo

__all__ = ["RunRow", "WorkerPage", "WorkerRow", "WorkersPage", "view", "view_worker"]


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a worker: its job, its age and, if the handler is known here, the part of its timeout that is used."""

    queue: str
    id: str
    attempt: int
    started_at: datetime
    seconds: float
    timeout: float | None
    share: float | None
    #: The progress that the handler reported, in percent.
    percent: float | None


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker in a table. Shares are parts of the capacity, 0 to 1."""

    id: str
    host: str
    pid: int
    children: int
    queues: list[str]
    busy: int
    allowed: int
    capacity: int
    slots: int
    slots_used: int
    busy_share: float
    allowed_share: float
    running: int
    memory: int
    lease_age: float | None
    started_at: datetime | None
    seen_at: datetime
    release: str
    duplicate: bool
    quiet: bool


class GoneRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is gone, and the jobs that it ran when it was last seen."""

    id: str
    host: str
    missed_at: datetime
    running: int


class WorkersPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the list of workers."""

    at: datetime
    workers: list[WorkerRow]
    gone: list[GoneRow]
    can_ask: bool
    outage: str = ""


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of one worker."""

    at: datetime
    worker: WorkerRow
    runs: list[RunRow]
    can_ask: bool
    outage: str = ""


async def view(context: PageContext) -> WorkersPage:
    """Return the view model of the list."""
    reading = await context.reading()
    gone = [
        GoneRow(
            id=each.info.id, host=each.info.host, missed_at=as_datetime(int(each.missed_at * 1000)),
            running=each.info.running,
        )
        for each in reading.gone
    ]  # fmt: skip
    return WorkersPage(
        at=reading.overview.at, workers=[worker_row(worker) for worker in reading.overview.workers], gone=gone,
        can_ask=auditing_of(context.app.storage) is not None, outage=reading.error,
    )  # fmt: skip


async def view_worker(context: PageContext) -> WorkerPage:
    """Return the view model of one worker; raises `NotThere` if it is not alive."""
    id = context.needed("id")
    reading = await context.reading()
    found = next((worker for worker in reading.overview.workers if worker.id == id), None)
    if found is None:
        raise NotThere(f"There is no live worker {id!r}.")
    return WorkerPage(
        at=reading.overview.at, worker=worker_row(found),
        runs=await run_rows(context, found, reading.overview.at),
        can_ask=auditing_of(context.app.storage) is not None, outage=reading.error,
    )  # fmt: skip


def worker_row(worker: WorkerInfo) -> WorkerRow:
    """Return the row of a worker."""
    capacity = max(worker.capacity, 1)
    return WorkerRow(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        children=len(worker.processes),
        queues=worker.queues,
        busy=worker.busy,
        allowed=worker.allowed,
        capacity=worker.capacity,
        slots=worker.slots,
        slots_used=worker.slots_used,
        busy_share=min(1.0, worker.busy / capacity),
        allowed_share=min(1.0, worker.allowed / capacity),
        running=worker.running,
        memory=worker.memory,
        lease_age=worker.lease_age,
        started_at=worker.started_at,
        seen_at=worker.seen_at,
        release=worker.release,
        duplicate=worker.duplicate,
        quiet=worker.quiet,
    )


async def run_rows(context: PageContext, worker: WorkerInfo, now: datetime) -> list[RunRow]:
    """Return the rows of a worker's runs; their jobs are read in one call for each queue, for their progress."""
    storage = await context.storage()
    queues = list(dict.fromkeys(run.queue for run in worker.runs))
    pages = await gather_each(
        lambda queue: storage.get(queue, [run.id for run in worker.runs if run.queue == queue]), queues
    )
    found = [status_of(job, context.app.codec(job.queue)) for page in pages for job in page if job is not None]
    jobs = {(job.queue, job.id): job.progress for job in found if job.worker == worker.id}
    return [run_row(context, run, now, jobs.get((run.queue, run.id))) for run in worker.runs]


def run_row(context: PageContext, run: RunInfo, now: datetime, progress: Progress | None) -> RunRow:
    """Return the row of a run."""
    timeout = context.app.options(run.queue).timeout if run.queue in context.app.handlers else None
    seconds = max(0.0, (now - run.started_at).total_seconds())
    return RunRow(
        queue=run.queue, id=run.id, attempt=run.attempt, started_at=run.started_at, seconds=seconds, timeout=timeout,
        share=None if not timeout else min(1.0, seconds / timeout),
        percent=None if progress is None else round(progress.fraction * 100, 1),
    )  # fmt: skip
