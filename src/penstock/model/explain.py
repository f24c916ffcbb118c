"""Explanations: the first reason why a job is not running, from its position and the live workers."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.clock import as_datetime
from penstock.model.flow import FlowSnapshot
from penstock.model.job import FINISHED, State
from penstock.model.limit import Limit
from penstock.model.options import HandlerOptions
from penstock.model.pause import Pause
from penstock.model.why import GatePosition, Holder, HolderRun, JobPosition, Reason, Why
from penstock.model.worker_info import WorkerInfo

__all__ = ["explain"]


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
    if not flow.final:
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
