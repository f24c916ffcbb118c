"""The page Job: state, why, timeline, error, attempts, log, payload, result and the rest of one job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.client.answers import JobStatus, status_of
from penstock.client.job_filter import quote_value
from penstock.dashboard.context import NotThere, PageContext
from penstock.dashboard.formatting import ago, exact_time, number
from penstock.dashboard.pages.activity import ActivityRow, activity_row
from penstock.dashboard.pages.option_rows import OptionRow, bound_rows
from penstock.dashboard.protocols import observing_of, recording_of
from penstock.dashboard.timeline import Run, Timeline, timeline_of
from penstock.dashboard.tracebacks import Piece, pieces_of
from penstock.dashboard.values import Shown, show
from penstock.model.clock import as_datetime
from penstock.model.failure import failed_claim
from penstock.model.history import Attempt, Line, read_attempt, read_line
from penstock.model.ids import fail_queue_of, is_fail_queue
from penstock.model.job import FINISHED, WAITING, Snapshot, State
from penstock.model.why import Reason, Why

__all__ = ["JobPage", "view"]

#: How many lines of the log are shown: the last ones.
MAX_LINES = 500

#: How many error groups of the queue are searched for that of the job.
MAX_SEARCHED = 200


class NamedLink(msgspec.Struct, frozen=True):
    """A link beside the reason."""

    text: str
    href: str


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not complete."""

    number: int
    outcome: str
    started_at: datetime | None
    ended_at: datetime
    seconds: float | None
    worker: str
    error: str


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log."""

    n: int
    at: datetime
    attempt: int
    level: str
    text: str


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a job: type, message, kind, and its traceback in pieces and as text."""

    type: str
    message: str
    kind: str
    pieces: list[Piece]
    text: str


class Can(msgspec.Struct, frozen=True, kw_only=True):
    """The actions that fit the state of the job."""

    retry: bool
    run_now: bool
    cancel: bool
    signal: bool
    delete: bool
    edit: bool


class GroupPlace(msgspec.Struct, frozen=True):
    """The place of a queued job in its group: the job that is before it, or None if it is the first."""

    behind: str | None


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of a job. `place` is None if it is not queued in a group, or if the whole queue is held."""

    at: datetime
    queue: str
    id: str
    state: State
    group: str | None
    place: GroupPlace | None
    priority: int
    cost: int
    created_at: datetime
    run_at: datetime
    ended_at: datetime | None
    expires_at: datetime | None
    start_by: datetime | None
    attempts: int
    retries: int
    stalls: int
    timeouts: int
    worker: str | None
    progress: float | None
    progress_message: str
    why: str
    links: list[NamedLink]
    successor: bool
    timeline: Timeline | None
    error: ErrorView | None
    history: list[AttemptRow]
    log: list[LogRow]
    payload: Shown
    result: Shown | None
    headers: Mapping[str, str]
    options: list[OptionRow]
    schedule: str | None
    trace: str
    activity: list[ActivityRow]
    can: Can
    ended: bool


async def view(context: PageContext) -> JobPage:
    """Return the view model; raises `NotThere` if there is no such job."""
    queue, id = context.needed("queue"), context.needed("id")
    storage = await context.storage()
    [snapshot] = await storage.get(queue, [id])
    if snapshot is None:
        raise NotThere(f"There is no job {id!r} in queue {queue!r}: it was never enqueued, or is not kept any more.")
    status = status_of(snapshot, context.app.codec(queue))
    why, now = await context.app.queue(queue).why(id), await context.now()
    attempts = await attempts_of(context, queue, id)
    ended = None if snapshot.finished is None else as_datetime(snapshot.finished)
    return JobPage(
        at=now,
        queue=queue,
        id=id,
        state=status.state,
        group=status.group,
        place=place_of(status, why),
        priority=status.priority,
        cost=status.cost,
        created_at=status.created_at,
        run_at=status.run_at,
        ended_at=ended,
        expires_at=None if snapshot.expires is None else as_datetime(snapshot.expires),
        start_by=status.start_by,
        attempts=status.attempts,
        retries=status.retries,
        stalls=status.stalls,
        timeouts=status.timeouts,
        worker=status.worker,
        progress=None if status.progress is None else round(status.progress.fraction * 100, 1),
        progress_message="" if status.progress is None else context.text(status.progress.message),
        why=sentence(context, status, why, ended, now),
        links=[*await links_of(context, status, why), *await failure_links(context, snapshot)],
        successor=why is not None and why.state is State.RUNNING and await has_successor(context, queue, id),
        timeline=timeline_of(status.created_at, attempts, last_run(status, why), now),
        error=error_view(context, status),
        history=[attempt_row(context, each) for each in attempts],
        log=await log_of(context, queue, id),
        payload=payload_of(context, status),
        result=None if snapshot.result is None else result_of(context, status),
        headers=context.redactor.value(status.headers),
        options=bound_rows(context.app, queue, snapshot.bounds),
        schedule=None if status.tick is None else status.tick.schedule,
        trace=trace_link(context, status),
        activity=await activity_of(context, queue, id),
        can=can_of(status),
        ended=status.state in FINISHED,
    )


def payload_of(context: PageContext, status: JobStatus) -> Shown:
    """Return the payload without its secrets."""
    serde = context.app.codec(status.queue).payload_for(status.id)
    return show(status.payload, serde, context.redactor, admin=context.admin)


def result_of(context: PageContext, status: JobStatus) -> Shown:
    """Return the result without its secrets."""
    serde = context.app.codec(status.queue).result_for(status.id)
    return show(status.result, serde, context.redactor, admin=context.admin)


def can_of(status: JobStatus) -> Can:
    """Return the actions that fit the state of a job."""
    state = status.state
    return Can(
        retry=state in (State.FAILED, State.CANCELLED),
        run_now=state in (State.SCHEDULED, State.RETRYING),
        cancel=state in WAITING or state in (State.BLOCKED, State.SUSPENDED),
        signal=state is State.RUNNING,
        delete=state is not State.RUNNING,
        edit=state in WAITING and status.format is None,
    )


def sentence(context: PageContext, status: JobStatus, why: Why | None, ended: datetime | None, now: datetime) -> str:
    """Return why the job is not running, in one sentence."""
    if why is None:
        return ""
    error, when = status.error, "" if ended is None else f" {ago(ended, now)}"
    if status.state is State.FAILED and error is not None:
        runs = "1 attempt" if status.attempts == 1 else f"{number(status.attempts)} attempts"
        return f"It failed for good{when}: {error.type} ({error.kind}), after {runs}."
    if status.state is State.COMPLETED:
        return f"It completed{when}."
    return context.text(str(why))


async def links_of(context: PageContext, status: JobStatus, why: Why | None) -> list[NamedLink]:
    """Return links to the things that the reason names."""
    links: list[NamedLink] = []
    if why is not None and why.behind and why.behind != status.id:
        links.append(NamedLink("the job before it", context.link("job", queue=status.queue, id=why.behind)))
    if why is not None and why.worker and status.state is State.RUNNING:
        links.append(NamedLink(f"worker {why.worker}", context.link("worker", id=why.worker)))
    if why is not None and why.by and why.group is None:
        links.append(NamedLink("queue", context.link("queue", name=status.queue)))
    key = "" if status.error is None else status.error.key
    if status.state is State.FAILED and key:
        text = await alike(context, status.queue, key)
        links.append(NamedLink(text, context.link("error-group", queue=status.queue, key=key)))
    return links


async def failure_links(context: PageContext, snapshot: Snapshot) -> list[NamedLink]:
    """Return a link from a failed job to fail jobs, or from a fail job to the failed one.

    A fail job has an id of its own, which the failed job does not know; it was put when that failed.
    """
    fail_queue, ended = fail_queue_of(snapshot.queue), snapshot.finished
    if snapshot.state is State.FAILED and ended is not None and (await context.reading()).queue(fail_queue):
        text = f"queue:{quote_value(fail_queue)} after:{quote_value(exact_time(as_datetime(ended)))}"
        return [NamedLink("fail jobs since then", context.link("jobs", filter=text))]
    claim = failed_claim(snapshot.payload) if is_fail_queue(snapshot.queue) else None
    if claim is not None and fail_queue_of(claim.queue) == snapshot.queue:
        return [NamedLink("the failed job", context.link("job", queue=claim.queue, id=claim.id))]
    return []


def place_of(status: JobStatus, why: Why | None) -> GroupPlace | None:
    """Return the place of a job in its group, None if that is not known."""
    if status.group is None or why is None or why.state is not State.QUEUED:
        return None
    if why.reason is Reason.BEHIND_GROUP:
        return GroupPlace(why.behind)
    whole_queue = why.scope in ("family", "queue") or (why.reason is Reason.PAUSED and why.group is None)
    return None if whole_queue else GroupPlace(None)


async def alike(context: PageContext, queue: str, key: str) -> str:
    """Return how many other jobs of the queue failed alike, in words."""
    storage = observing_of(await context.storage())
    groups = [] if storage is None else (await storage.error_groups(queue, None, MAX_SEARCHED)).groups
    others = next((group.open - 1 for group in groups if group.key == key), 0)
    if others < 1:
        return "its error group"
    return f"{number(others)} other {'job fails' if others == 1 else 'jobs fail'} alike"


async def has_successor(context: PageContext, queue: str, id: str) -> bool:
    """Return whether a blocked job with the same id waits for the end of this run."""
    storage = await context.storage()
    position = await storage.why(queue, id)
    return position is not None and position.successor


def error_view(context: PageContext, status: JobStatus) -> ErrorView | None:
    """Return the error of a job without secrets."""
    error = status.error
    if error is None:
        return None
    text = context.text(error.traceback)
    return ErrorView(
        type=error.type, message=context.text(error.message), kind=str(error.kind), pieces=pieces_of(text), text=text
    )


async def attempts_of(context: PageContext, queue: str, id: str) -> list[Attempt]:
    """Return the attempts that are kept, oldest first."""
    storage = recording_of(await context.storage())
    page = None if storage is None else await storage.read(queue, id, "attempts")
    read = [] if page is None else [read_attempt(entry) for entry in page.entries]
    return [attempt for attempt in read if attempt is not None]


def attempt_row(context: PageContext, attempt: Attempt) -> AttemptRow:
    """Return the row of an attempt."""
    began, error = attempt.started_at, attempt.error
    return AttemptRow(
        number=attempt.number,
        outcome=attempt.outcome,
        started_at=began,
        ended_at=attempt.ended_at,
        seconds=None if began is None else max(0.0, (attempt.ended_at - began).total_seconds()),
        worker=attempt.worker,
        error="" if error is None else context.text(f"{error.type}: {error.message}"),
    )


def last_run(status: JobStatus, why: Why | None) -> Run | None:
    """Return the run that is not among the attempts: one that goes on, or that completed."""
    count = max(status.attempts, 1)
    if status.state is State.RUNNING and why is not None and why.since is not None:
        return Run(count, why.since, None, "running")
    if status.state is State.COMPLETED and status.started_at is not None:
        return Run(count, status.started_at, status.finished_at, "completed")
    return None


async def log_of(context: PageContext, queue: str, id: str) -> list[LogRow]:
    """Return the last lines of the log."""
    storage = recording_of(await context.storage())
    page = None if storage is None else await storage.read(queue, id, "log")
    read: list[Line | None] = [] if page is None else [read_line(entry) for entry in page.entries]
    lines = [line for line in read if line is not None][-MAX_LINES:]
    return [
        LogRow(n=line.n, at=line.at, attempt=line.attempt, level=line.level, text=context.text(line.text))
        for line in lines
    ]


def trace_link(context: PageContext, status: JobStatus) -> str:
    """Return the address of the trace that enqueued the job, if `trace_url` is given and the job has one."""
    given, parent = context.settings.trace_url, status.headers.get("traceparent", "")
    parts = parent.split("-")
    if given is None or len(parts) != 4 or len(parts[1]) != 32:
        return ""
    url = given.replace("{trace_id}", parts[1]) if isinstance(given, str) else given(parts[1])
    return url if url.startswith(("https://", "http://")) else ""


async def activity_of(context: PageContext, queue: str, id: str) -> list[ActivityRow]:
    """Return the last entries of the activity about this job."""
    records = await context.records()
    entries = [] if records is None else (await records.activity(queue, id, None, 20)).entries
    return [activity_row(context, entry) for entry in entries]
