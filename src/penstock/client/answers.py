"""The answers that a producer gets: to an enqueue, to a cancel, and about the status of a job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from penstock.client.flow_answers import ChildCounts, count_children
from penstock.errors import InvalidPayload, JobError
from penstock.model.clock import as_datetime
from penstock.model.context import Progress
from penstock.model.durability import DurabilityReport
from penstock.model.flow import GenerationRef
from penstock.model.headers import decode_headers, user_headers
from penstock.model.job import Snapshot, State
from penstock.model.serde import Codec, Serde, decode
from penstock.model.tick import Tick, read_tick
from penstock.storage.base import CancelAnswer, PutStatus

__all__ = ["CancelStatus", "Cancelled", "DiscardStatus", "Discarded", "Enqueued", "JobStatus", "Page", "status_of"]

T = TypeVar("T")


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an enqueue; falsy only when the id was taken and nothing was changed.

    `durability` is the level that was reached, if `Penstock(durability=…)` asks for one. `until` is, of a duplicate,
    when the window ends that holds its id.
    """

    id: str
    status: PutStatus
    state: State
    result: Any = None
    durability: DurabilityReport | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return self.status is not PutStatus.DUPLICATE


class CancelStatus(StrEnum):
    """Status of a cancel."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    CANCEL_REQUESTED = "cancel_requested"
    COMPLETED = "completed"
    FAILED = "failed"
    NOT_FOUND = "not_found"


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a cancel; truthy only when this call cancelled a job.

    `running` means that a run of this id goes on. `already` means that the job was cancelled, or its cancel
    requested, before this call.
    """

    id: str
    status: CancelStatus
    running: bool = False
    already: bool = False

    @classmethod
    def of(cls, id: str, answer: CancelAnswer) -> Cancelled:
        """Return the answer for the user from that of a storage."""
        return cls(id=id, status=CancelStatus(answer.status), running=answer.running, already=answer.already)

    def __bool__(self) -> bool:
        return self.status is CancelStatus.CANCELLED and not self.already

    @property
    def requested(self) -> bool:
        """Whether the end of a run was requested."""
        return self.status is CancelStatus.CANCEL_REQUESTED


class DiscardStatus(StrEnum):
    """Status of a discard."""

    DISCARDED = "discarded"
    RUNNING = "running"
    NOT_FOUND = "not_found"


class Discarded(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a discard; truthy only when the job is gone. A running job is refused."""

    id: str
    status: DiscardStatus

    def __bool__(self) -> bool:
        return self.status is DiscardStatus.DISCARDED


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a job at the time of the call. A payload that cannot be decoded is given as its bytes.

    `tick` is that of the schedule which put the job, None for any other job.
    `start_by` is when it expires unless its first run begins before; None if it does not expire, or not any more.
    `progress` is the last report of the run that is under way: None without a report, and once the run has
    ended. A completed job is done, so show 100 % for that state.
    `cost` is what a run takes from rates that count costs.
    `started_at` is when the run was claimed that is under way, or that ended the job; `finished_at` when it ended.
    `parent` is the flow that it belongs to, and `children` are the counts of its own children, None without any.
    A suspended job `waits_for` some jobs, of which up to three are named as (queue, id), and is resumed by the clock at
    `wakes_at`.
    `format` is None, except for a job that newer software wrote in a format that is not known here: its
    payload and headers are empty.
    """

    id: str
    queue: str
    state: State
    payload: Any
    group: str | None
    priority: int
    created_at: datetime
    run_at: datetime
    attempts: int
    retries: int
    stalls: int
    timeouts: int
    progress: Progress | None
    worker: str | None
    result: Any
    error: JobError | None
    headers: dict[str, str]
    start_by: datetime | None = None
    cost: int = 1
    tick: Tick | None = None
    format: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    parent: GenerationRef | None = None
    children: ChildCounts | None = None
    waits_for: tuple[tuple[str, str], ...] = ()
    wakes_at: datetime | None = None

    @property
    def duration(self) -> timedelta | None:
        """The time from the claim of its last run to its end; None if it has not ended, or no run ended it."""
        return None if self.started_at is None or self.finished_at is None else self.finished_at - self.started_at


class Page(list[T]):
    """A page of jobs in queue order, of schedules or of limits; `cursor` leads to the next one, None at the end."""

    def __init__(self, items: Iterable[T] = (), cursor: str | None = None) -> None:
        super().__init__(items)
        self.cursor = cursor


def status_of(snapshot: Snapshot, codec: Codec) -> JobStatus:
    """Return the status for the user from a storage's snapshot."""
    known = snapshot.format is None
    headers = decode_headers(snapshot.headers)
    part = snapshot.flow
    payload = _decode_or_bytes(codec.payload_for(snapshot.id), snapshot.payload) if known else None
    return JobStatus(
        id=snapshot.id,
        queue=snapshot.queue,
        state=snapshot.state,
        payload=payload,
        group=snapshot.group,
        priority=snapshot.priority,
        created_at=as_datetime(snapshot.created),
        run_at=as_datetime(snapshot.run_at),
        attempts=snapshot.attempts,
        retries=snapshot.retries,
        stalls=snapshot.stalls,
        timeouts=snapshot.timeouts,
        progress=_progress(snapshot),
        worker=snapshot.worker,
        result=None if snapshot.result is None else _decode_or_bytes(codec.result_for(snapshot.id), snapshot.result),
        error=None if snapshot.error is None else JobError.decode(snapshot.error),
        headers=user_headers(headers),
        tick=read_tick(headers),
        start_by=None if snapshot.start_by is None else as_datetime(snapshot.start_by),
        cost=snapshot.cost,
        format=snapshot.format,
        started_at=None if snapshot.started is None else as_datetime(snapshot.started),
        finished_at=None if snapshot.finished is None else as_datetime(snapshot.finished),
        parent=None if part is None else part.parent,
        children=None if part is None else count_children(part),
        waits_for=() if part is None else tuple((job.queue, job.id) for job in part.waits_for),
        wakes_at=None if part is None or part.wakes_at is None else as_datetime(part.wakes_at),
    )


def _progress(snapshot: Snapshot) -> Progress | None:
    """Return the progress of a run, or of an unfinished flow: ended children of all."""
    part = snapshot.flow
    if part is not None and part.plan and snapshot.state is State.SUSPENDED:
        ended = sum(part.ends.values())
        return Progress(ended / (ended + part.open) if ended else 0.0)
    return None if snapshot.progress is None else Progress.decode(snapshot.progress)


def _decode_or_bytes(serde: Serde, data: bytes) -> Any:
    try:
        return decode(serde, data)
    except InvalidPayload:
        return data
