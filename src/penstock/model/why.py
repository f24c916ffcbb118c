"""The reason why a job is not running: one of several, the one that must change first."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from penstock.model.flow import FlowSnapshot, JobRef
from penstock.model.ids import family_of
from penstock.model.job import State
from penstock.model.limit import Limit, LimitScope, Rule
from penstock.model.pause import Pause

__all__ = [
    "MAX_AHEAD",
    "MAX_HOLDERS",
    "GatePosition",
    "Holder",
    "HolderRun",
    "JobPosition",
    "Reason",
    "Why",
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
