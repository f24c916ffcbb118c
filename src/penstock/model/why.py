"""The reason why a job is not running: one of several, the one that must change first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from penstock.model.clock import as_datetime
from penstock.model.job import FINISHED, State
from penstock.model.options import HandlerOptions
from penstock.model.worker_info import WorkerInfo

__all__ = ["MAX_AHEAD", "JobPosition", "Reason", "Why", "explain"]

#: Jobs ahead of a job are counted up to this number.
MAX_AHEAD = 1000


class Reason(StrEnum):
    """Why a job is not running. If several reasons hold, the first in this order is given.

    First the states of the job itself: `finished`, `blocked` behind the run of its id, `running`,
    `scheduled` or `retrying` until its time. Then the obstacles, in the order in which to remove them:
    `paused` (its queue), `behind_group` (the jobs before it in its group), `unknown_format` (its record
    is for newer software), `no_worker` and `workers_full`. At last `ready`: there is no obstacle.
    """

    FINISHED = "finished"
    BLOCKED = "blocked"
    RUNNING = "running"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    PAUSED = "paused"
    BEHIND_GROUP = "behind_group"
    UNKNOWN_FORMAT = "unknown_format"
    NO_WORKER = "no_worker"
    WORKERS_FULL = "workers_full"
    READY = "ready"


class JobPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a job in its queue, read at one moment.

    Times are milliseconds of the storage's clock, which shows `at`. `lease` is when the lease of its run
    expires. `successor` is True if a blocked job with its id waits for its run to end. `paused` is when
    its queue was paused. `format` is that of its record if only newer software can read it, and `known`
    the newest format that this software reads. `ahead` is how many jobs and groups are before it in the
    order, up to `MAX_AHEAD`; None if it is not in the order. `head` is the job of its group that must end
    before it.
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
    paused: int | None = None
    format: int | None = None
    known: int | None = None
    ahead: int | None = None
    head: JobPosition | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running, as of `at`; `str()` of it is a sentence.

    `until` is when it may run (scheduled, retrying) or when its lease expires (running, blocked). `since`
    is when that began, where it is known. `behind` is the job of its group, or the run of its own id, that
    must end first, and `head` is the reason why that has not ended yet. `worker` holds its run.
    `needed` and `free` are units, or runs of a handler with `concurrency`; `needed` is None where the
    handler is not known. `format` is that of its record, `known` the newest that this software reads.
    `ahead` is how many jobs and groups are before it in the order, `MAX_AHEAD` at most.
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

    def __str__(self) -> str:
        return _sentence(self, "It")


def explain(
    queue: str, position: JobPosition, workers: Sequence[WorkerInfo] = (), options: HandlerOptions | None = None
) -> Why:
    """Return the first reason, from the job's position, the live workers, and its handler's options if known."""
    at = as_datetime(position.at)
    why = Why(id=position.id, queue=queue, reason=Reason.READY, state=position.state, at=at)
    if position.state in FINISHED:
        since = None if position.finished is None else as_datetime(position.finished)
        return replace(why, reason=Reason.FINISHED, since=since, worker=position.worker)
    if position.state is State.RUNNING:
        return _running(why, position, workers)
    if position.state in (State.SCHEDULED, State.RETRYING):
        return replace(why, reason=Reason(position.state.value), until=as_datetime(position.run_at))
    if position.paused is not None:
        return replace(why, reason=Reason.PAUSED, since=as_datetime(position.paused))
    if position.head is not None:
        head = explain(queue, replace(position.head, successor=False), workers, options)
        return replace(why, reason=Reason.BEHIND_GROUP, behind=head.id, head=head, worker=head.worker)
    if position.format is not None:
        return replace(why, reason=Reason.UNKNOWN_FORMAT, format=position.format, known=position.known)
    return _waiting(why, position, [worker for worker in workers if queue in worker.queues], options)


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
        case Reason.PAUSED:
            return f"Queue {why.queue!r} is paused{_since(why)}: nothing runs until it is resumed."
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
