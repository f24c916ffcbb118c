"""The reason why a job is not running: one of several, the one that must change first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.model.clock import as_datetime
from penstock.model.flow import FlowSnapshot, JobRef
from penstock.model.ids import family_of
from penstock.model.job import FINISHED, State
from penstock.model.limit import Limit, LimitScope, Rule
from penstock.model.options import HandlerOptions
from penstock.model.pause import Pause
from penstock.model.worker_info import WorkerInfo

__all__ = [
    "MAX_AHEAD",
    "MAX_HOLDERS",
    "GatePosition",
    "Holder",
    "HolderRun",
    "JobPosition",
    "Reason",
    "Why",
    "explain",
]

#: Jobs ahead of a job are counted up to this number.
MAX_AHEAD = 1000

#: Runs that hold a limit are named up to this number, those that began first.
MAX_HOLDERS = 10


class Reason(StrEnum):
    """Why a job is not running. If several reasons hold, the first in this order is given.

    First the states of the job itself: `finished`, `blocked` behind the run of its id, `running`,
    `scheduled` or `retrying` until its time; suspended, `flow_open` while its producer adds to it, `waits_for_jobs`,
    `waits_for_signal`, or `sleeping`. Then the obstacles, in the order in which to remove them:
    `paused` (its queue), `limit_reached` or `rate_limited` (a limit of its family or queue), `behind_group`
    (the jobs before it in its group), `paused`, `limit_reached` or `rate_limited` (its group),
    `unknown_format` (its record is for newer software), `no_worker` and `workers_full`. At last `ready`:
    there is no obstacle.
    """

    FINISHED = "finished"
    BLOCKED = "blocked"
    RUNNING = "running"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    FLOW_OPEN = "flow_open"
    WAITS_FOR_JOBS = "waits_for_jobs"
    WAITS_FOR_SIGNAL = "waits_for_signal"
    SLEEPING = "sleeping"
    PAUSED = "paused"
    LIMIT_REACHED = "limit_reached"
    RATE_LIMITED = "rate_limited"
    BEHIND_GROUP = "behind_group"
    UNKNOWN_FORMAT = "unknown_format"
    NO_WORKER = "no_worker"
    WORKERS_FULL = "workers_full"
    READY = "ready"


class Holder(msgspec.Struct, frozen=True, gc=False):
    """A run that counts for a limit: its job, the worker that holds it, and when (ms) it began."""

    id: str
    worker: str
    since: int
    queue: str


class GatePosition(msgspec.Struct, frozen=True, kw_only=True):
    """A closed gate that a job waits for, of its family, its queue or its group.

    `name` is the family or the queue. By the reason `limit`, `used` runs are live of the `rule.concurrency` that may
    be, and `holders` are the first of them, by the begin of their runs. By the reason `rate`, it opens at `until` (ms)
    for a job of this cost.
    """

    kind: Literal["family", "queue", "group"]
    name: str
    rule: Rule
    reason: Literal["limit", "rate"]
    group: str | None = None
    used: int = 0
    holders: tuple[Holder, ...] = ()
    until: int | None = None


class JobPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a job in its queue, read at one moment.

    Times are milliseconds of the storage's clock, which shows `at`. `lease` is when the lease of its run
    expires. `successor` is True if a blocked job with its id waits for its run to end. `pause` is that of
    its queue, `group_pause` that of its group. `format` is that of its record if only newer software can read it, and
    `known` the newest format that this software reads. `ahead` is how many jobs and groups are before it in the
    order, up to `MAX_AHEAD`; None if it is not in the order. `head` is the job of its group that must start or end
    before it. `gate` is the first closed gate of a queued job: that of its family, its queue, or, if it has no head
    and its group is not paused, its group. `flow` is the part of a suspended job in flows.
    """

    id: str
    state: State
    at: int
    run_at: int = 0
    worker: str | None = None
    lease: int | None = None
    finished: int | None = None
    successor: bool = False
    group: str | None = None
    pause: Pause | None = None
    group_pause: Pause | None = None
    format: int | None = None
    known: int | None = None
    ahead: int | None = None
    head: JobPosition | None = None
    gate: GatePosition | None = None
    flow: FlowSnapshot | None = None


class HolderRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that counts for a limit; `since` is when it began."""

    id: str
    queue: str
    worker: str
    since: datetime


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running, as of `at`; `str()` of it is a sentence.

    `until` is when it may run (scheduled, retrying) or when its lease expires (running, blocked). `since`
    is when that began, where it is known. `behind` is the job of its group, or the run of its own id, that
    must end first, and `head` is the reason why that has not ended yet. `worker` holds its run.
    `needed` and `free` are units, or runs of a handler with `concurrency`; `needed` is None where the
    handler is not known. `format` is that of its record, `known` the newest that this software reads.
    `ahead` is how many jobs and groups are before it in the order, `MAX_AHEAD` at most.

    Of a limit, `scope` is "family", "queue" or "group", `limit` the one in force, and `used` the number of its
    runs, of which `holders` are up to ten ids and `runs` the same with queue, worker and begin; `here` is the number of
    those in this queue. `until` is when its rate allows the start of the job. Of a pause, `until` is when it ends, None
    for when it is resumed, and `by` who paused it. `group` is the group that a pause or a limit is for.

    Of a suspended job, `open` of `total` jobs that it waits for are unfinished, `waits_for` are the first of them, and
    `signals` the signals; `until` is when the clock resumes it.
    """

    id: str
    queue: str
    reason: Reason
    state: State
    at: datetime
    until: datetime | None = None
    since: datetime | None = None
    behind: str | None = None
    head: Why | None = None
    worker: str | None = None
    needed: int | None = None
    free: int | None = None
    format: int | None = None
    known: int | None = None
    ahead: int | None = None
    scope: LimitScope | None = None
    group: str | None = None
    limit: Limit | None = None
    used: int | None = None
    here: int | None = None
    holders: list[str] = []
    runs: list[HolderRun] = []
    by: str | None = None
    open: int | None = None
    total: int | None = None
    waits_for: tuple[JobRef, ...] = ()
    signals: tuple[str, ...] = ()

    def __str__(self) -> str:
        return _sentence(self, "It")


def explain(
    queue: str,
    position: JobPosition,
    workers: Sequence[WorkerInfo] = (),
    options: HandlerOptions | None = None,
    limit: Limit | None = None,
) -> Why:
    """Return the first reason, from the job's position, the live workers, and its handler's options if known.

    `limit` is that of the closed gate, of the job or of the one before it in its group.
    """
    at = as_datetime(position.at)
    why = Why(id=position.id, queue=queue, reason=Reason.READY, state=position.state, at=at)
    if position.state in FINISHED:
        since = None if position.finished is None else as_datetime(position.finished)
        return replace(why, reason=Reason.FINISHED, since=since, worker=position.worker)
    if position.state is State.RUNNING:
        return _running(why, position, workers)
    if position.state in (State.SCHEDULED, State.RETRYING):
        return replace(why, reason=Reason(position.state.value), until=as_datetime(position.run_at))
    if position.state is State.SUSPENDED and position.flow is not None:
        return _suspended(why, position.flow)
    if position.pause is not None:
        return _paused(why, position.pause, None)
    gate = position.gate
    if gate is not None and gate.kind != "group":
        return _gated(why, gate, limit)
    if position.head is not None:
        head = explain(queue, replace(position.head, successor=False), workers, options, limit)
        return replace(why, reason=Reason.BEHIND_GROUP, behind=head.id, head=head, worker=head.worker)
    if position.group_pause is not None:
        return _paused(why, position.group_pause, position.group)
    if gate is not None:
        return _gated(why, gate, limit)
    if position.format is not None:
        return replace(why, reason=Reason.UNKNOWN_FORMAT, format=position.format, known=position.known)
    return _waiting(why, position, [worker for worker in workers if queue in worker.queues], options)


def _suspended(why: Why, flow: FlowSnapshot) -> Why:
    """Explain a suspended job by what it waits for."""
    until = None if flow.wakes_at is None else as_datetime(flow.wakes_at)
    total = flow.open + sum(flow.ends.values())
    why = replace(why, until=until, open=flow.open, total=total, waits_for=flow.waits_for, signals=flow.signals)
    if not flow.sealed:
        return replace(why, reason=Reason.FLOW_OPEN)
    if flow.waits_for:
        return replace(why, reason=Reason.WAITS_FOR_JOBS)
    return replace(why, reason=Reason.WAITS_FOR_SIGNAL if flow.signals else Reason.SLEEPING)


def _running(why: Why, position: JobPosition, workers: Sequence[WorkerInfo]) -> Why:
    """Explain a running job by the worker that holds it, or a blocked one by the run that it waits for."""
    since = next(
        (
            run.started_at
            for worker in workers
            if worker.id == position.worker
            for run in worker.runs
            if (run.queue, run.id) == (why.queue, why.id)
        ),
        None,
    )
    until = None if position.lease is None else as_datetime(position.lease)
    why = replace(why, reason=Reason.RUNNING, worker=position.worker, since=since, until=until)
    return replace(why, reason=Reason.BLOCKED, state=State.BLOCKED, behind=why.id) if position.successor else why


def _paused(why: Why, pause: Pause, group: str | None) -> Why:
    """Explain a job of a paused queue or group."""
    until = None if pause.until is None else as_datetime(pause.until)
    since = as_datetime(pause.since)
    return replace(why, reason=Reason.PAUSED, since=since, until=until, group=group, by=pause.by or None)


def _gated(why: Why, gate: GatePosition, limit: Limit | None) -> Why:
    """Explain a job by its first closed gate."""
    rated = gate.reason == "rate"
    return replace(
        why,
        reason=Reason.RATE_LIMITED if rated else Reason.LIMIT_REACHED,
        scope=gate.kind,
        group=gate.group,
        limit=gate.rule.as_limit() if limit is None else limit,
        used=gate.used,
        holders=[each.id for each in gate.holders],
        runs=[_holder_run(each) for each in gate.holders],
        until=None if gate.until is None else as_datetime(gate.until),
    )


def _holder_run(holder: Holder) -> HolderRun:
    return HolderRun(id=holder.id, queue=holder.queue, worker=holder.worker, since=as_datetime(holder.since))


def _waiting(why: Why, position: JobPosition, workers: Sequence[WorkerInfo], options: HandlerOptions | None) -> Why:
    """Explain a job that is due by the workers that serve its queue and their free capacity."""
    if not workers:
        return replace(why, reason=Reason.NO_WORKER)
    needed = None if options is None else 1 if options.concurrency is not None else options.size
    free = max(_free(why.queue, worker, options) for worker in workers)
    reason = Reason.WORKERS_FULL if free < (needed or 1) else Reason.READY
    return replace(why, reason=reason, needed=needed, free=free, ahead=position.ahead)


def _free(queue: str, worker: WorkerInfo, options: HandlerOptions | None) -> int:
    """Return the free units of a worker, or its free runs of a handler with `concurrency`."""
    if options is None or options.concurrency is None:
        return max(0, worker.allowed - worker.busy)
    share = worker.allowed / worker.capacity if worker.capacity else 1.0
    slots = max(1, int(options.concurrency * share))
    return max(0, slots - sum(run.queue == queue for run in worker.runs))


# sentences ---------------------------------------------------------------------------------------


def _sentence(why: Why, subject: str) -> str:
    match why.reason:
        case Reason.FINISHED:
            return f"{subject} has ended: it is {why.state}{_at(why.since)}."
        case Reason.BLOCKED:
            return f"{subject} waits for the run of the same id to end: {_holder(why)}."
        case Reason.RUNNING:
            return f"{subject} is running: {_holder(why)}."
        case Reason.SCHEDULED:
            return f"{subject} is scheduled: it may run{_from(why)}."
        case Reason.RETRYING:
            return f"{subject} failed and waits for its next try: it may run{_from(why)}."
        case Reason.FLOW_OPEN | Reason.WAITS_FOR_JOBS | Reason.WAITS_FOR_SIGNAL | Reason.SLEEPING:
            return _suspended_sentence(why, subject)
        case Reason.PAUSED:
            return _pause_sentence(why)
        case Reason.LIMIT_REACHED:
            return _limit_sentence(why)
        case Reason.RATE_LIMITED:
            return f"{subject} is rate limited: {_scope(why)} may start {_rate(why)}; the next may start{_from(why)}."
        case Reason.BEHIND_GROUP:
            assert why.head is not None
            return f"{subject} waits for {why.behind!r}, which is before it in its group. {_sentence(why.head, 'That')}"
        case Reason.UNKNOWN_FORMAT:
            return (
                f"{subject} was written by newer software, in format {why.format}: "
                f"only a worker that knows it can run it, and this one knows {why.known}."
            )
        case _:
            return _waiting_sentence(why, subject)


def _suspended_sentence(why: Why, subject: str) -> str:
    """Return the sentence about a suspended job."""
    if why.reason is Reason.FLOW_OPEN:
        return f"{subject} is not complete: its producer is still adding to it, {why.total} children so far."
    if why.reason is Reason.WAITS_FOR_JOBS:
        first = why.waits_for[0]
        return f"{subject} waits for {why.open} of {why.total} jobs, first {first.id!r} in {first.queue!r}."
    until = "" if why.until is None else f" until {_moment(why.until)}, in {_span(why.until, why.at)}"
    if why.reason is Reason.WAITS_FOR_SIGNAL:
        return f"{subject} waits for signal {' or '.join(map(repr, why.signals))}{until}."
    return f"{subject} sleeps{until}."


def _pause_sentence(why: Why) -> str:
    what = f"Queue {why.queue!r}" if why.group is None else f"Group {why.group!r}"
    by = "" if why.by is None else f" by {why.by!r}"
    if why.until is not None:
        return f"{what} is paused{by} until {_moment(why.until)}, in {_span(why.until, why.at)}."
    return (
        f"{what} is paused{by}{_since(why)}: nothing {'' if why.group is None else 'of it '}runs until it is resumed."
    )


def _limit_sentence(why: Why) -> str:
    most = why.used if why.limit is None else why.limit.concurrency or 1
    text = f"Limit of {_scope(why)} is reached: {why.used} of {most} run"
    if why.scope == "family":
        return f"{text}, {why.here} of them in {why.queue!r}."
    runs = ", ".join(_run(run, why.at) for run in why.runs) if why.scope == "group" else ""
    return f"{text}: {runs}." if runs else f"{text}."


def _run(run: HolderRun, at: datetime) -> str:
    return f"{run.id!r} (worker {run.worker!r}, {_span(at, run.since)})"


def _scope(why: Why) -> str:
    names = {"family": family_of(why.queue), "queue": why.queue, "group": why.group}
    return f"{why.scope} {names[why.scope or 'queue']!r}"


def _rate(why: Why) -> str:
    if why.limit is None or why.limit.rate is None:
        return "no more now"
    rate = why.limit.rate
    return f"{'a cost of ' if why.limit.by == 'cost' else ''}{rate.count} in {rate.span}"


def _waiting_sentence(why: Why, subject: str) -> str:
    """Return the sentence about a job that only waits for a worker."""
    if why.reason is Reason.NO_WORKER:
        return f"{subject} waits for a worker: none that is alive serves queue {why.queue!r}."
    if why.reason is Reason.WORKERS_FULL:
        needs = "" if why.needed is None else f" it needs {why.needed} unit{'s' * (why.needed != 1)}, and"
        return f"{subject} waits for room:{needs} no worker that serves its queue has more than {why.free} free."
    if not why.ahead:
        return f"{subject} is next in line: nothing holds it."
    many = f"{why.ahead} or more" if why.ahead >= MAX_AHEAD else str(why.ahead)
    return f"{subject} is in line: nothing holds it, and {many} {'is' if why.ahead == 1 else 'are'} before it."


def _holder(why: Why) -> str:
    by = f"worker {why.worker!r} holds it{_since(why)}"
    if why.until is not None and why.until <= why.at:
        return f"{by}, but its lease was over {_span(why.at, why.until)} ago, and it will be taken back"
    return by


def _since(why: Why) -> str:
    return "" if why.since is None else f" since {_moment(why.since)} ({_span(why.at, why.since)})"


def _from(why: Why) -> str:
    assert why.until is not None
    return f" from {_moment(why.until)} on, in {_span(why.until, why.at)}"


def _at(moment: datetime | None) -> str:
    return "" if moment is None else f" since {_moment(moment)}"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _span(later: datetime, earlier: datetime) -> str:
    """Return the time between two moments in its largest unit."""
    seconds = max(0.0, (later - earlier).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
