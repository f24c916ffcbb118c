"""Rows of jobs, for every page that lists jobs."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.client.answers import JobStatus, status_of
from penstock.dashboard.context import PageContext
from penstock.dashboard.values import preview
from penstock.model.job import FINISHED, Snapshot, State

__all__ = ["JobRow", "job_row", "row_of_status"]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a table. `at` is the time that matters in its state: its end, its due time, or its acceptance."""

    queue: str
    id: str
    state: State
    group: str | None
    priority: int
    attempts: int
    at: datetime
    created_at: datetime
    error: str
    error_type: str
    payload: str
    worker: str | None
    percent: float | None


def job_row(context: PageContext, snapshot: Snapshot) -> JobRow:
    """Return the row of a job."""
    return row_of_status(context, status_of(snapshot, context.app.codec(snapshot.queue)))


def row_of_status(context: PageContext, status: JobStatus) -> JobRow:
    """Return the row of a job from its status."""
    codec, error = context.app.codec(status.queue), status.error
    if status.finished_at is not None and status.state in FINISHED:
        at = status.finished_at
    else:
        at = status.run_at if status.state in (State.SCHEDULED, State.RETRYING, State.QUEUED) else status.created_at
    return JobRow(
        queue=status.queue,
        id=status.id,
        state=status.state,
        group=status.group,
        priority=status.priority,
        attempts=status.attempts,
        at=at,
        created_at=status.created_at,
        error="" if error is None else context.text(error.message)[:300],
        error_type="" if error is None else error.type,
        payload=preview(status.payload, codec.payload_for(status.id), context.redactor, admin=context.admin),
        worker=status.worker,
        percent=None if status.progress is None else round(status.progress.fraction * 100, 1),
    )
