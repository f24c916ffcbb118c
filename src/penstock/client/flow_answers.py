"""Answers about flows and durable jobs: what became of a signal, children, and what the runs of a job recorded."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from penstock.errors import InvalidPayload, JobError
from penstock.host import AppHost
from penstock.model import flow
from penstock.model.clock import as_datetime
from penstock.model.durable import Signal, decode_range
from penstock.model.flow import CheckpointKind, DependencyEntry, End, FlowSnapshot
from penstock.model.job import State
from penstock.model.serde import Serde, decode
from penstock.storage.base import Storage

__all__ = [
    "Checkpoint",
    "Child",
    "ChildCounts",
    "Signalled",
    "as_number",
    "checkpoint_of",
    "children_of",
    "count_children",
]


class Signalled(StrEnum):
    """Answer to a signal; true for the first two.

    "delivered": the job waited for it. "kept": it is there for a later wait, also before the first run. "full": there
    are 1,000 unread ones. "finished" and "not_found": there is no such job any more.
    """

    DELIVERED = "delivered"
    KEPT = "kept"
    FULL = "full"
    FINISHED = "finished"
    NOT_FOUND = "not_found"

    def __bool__(self) -> bool:
        return self in (Signalled.DELIVERED, Signalled.KEPT)

    @property
    def status(self) -> str:
        """The answer as a word."""
        return self.value


class ChildCounts(msgspec.Struct, frozen=True):
    """How many children a flow has, and how many of them ended in each way.

    `cancelled` counts those too that were not run because of another job; `skipped` those that were not needed.
    """

    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A child of a flow. `state` is None if its job is gone; `error` is kept if it made its flow fail."""

    number: int
    queue: str
    id: str
    state: State | None
    error: JobError | None = None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a run has recorded under a name.

    Of a "step" and a "cursor" it is that value, of a "sleep" the wake time, of a "signal" a `Signal` (None if it did
    not come in time), and of a "call" the number of children.
    """

    name: str
    kind: CheckpointKind
    value: Any


def checkpoint_of(stored: flow.Checkpoint, serde: Serde) -> Checkpoint:
    """Return a checkpoint for the user; a value that cannot be decoded is given as its bytes."""
    return Checkpoint(name=stored.name, kind=stored.kind, value=_recorded(stored, serde))


def _recorded(stored: flow.Checkpoint, serde: Serde) -> Any:
    data = stored.value
    try:
        if stored.kind == "sleep":
            return as_datetime(int(data))
        if stored.kind == "call":
            return decode_range(data)[1]
        if stored.kind != "signal":
            return decode(serde, data)
        if not data:
            return None
        name, _, value = data.partition(b"\0")
        return Signal(name.decode(), decode(serde, value) if value else None)
    except (InvalidPayload, ValueError, msgspec.DecodeError):
        return data


_STATES = {End.COMPLETED: State.COMPLETED, End.FAILED: State.FAILED}


async def children_of(host: AppHost, storage: Storage, entries: Sequence[DependencyEntry]) -> list[Child]:
    """Return children with their states; those of unfinished ones are looked up."""
    waiting: dict[str, list[str]] = {}
    for entry in entries:
        if entry.end is None:
            waiting.setdefault(entry.queue, []).append(entry.id)
    states: dict[tuple[str, str], State] = {}
    for queue, ids in waiting.items():
        for found in await storage.get(queue, ids):
            if found is not None:
                states[queue, found.id] = found.state
    children: list[Child] = []
    for entry in entries:
        error = None
        if entry.end not in (None, End.COMPLETED) and entry.value is not None:
            error = JobError.decode(entry.value)
        ended = None if entry.end is None else _STATES.get(entry.end, State.CANCELLED)
        state = ended or states.get((entry.queue, entry.id))
        children.append(Child(number=entry.number, queue=entry.queue, id=entry.id, state=state, error=error))
    return children


def count_children(part: FlowSnapshot) -> ChildCounts | None:
    """Return the counts of the children of a job; None if it has none.

    A node of a plan that calls children itself has none here: its counts include the jobs that it waited for.
    """
    total = part.open + sum(part.ends.values())
    if not total or (part.needs and not part.plan):
        return None
    ends = part.ends
    cancelled = sum(ends.get(end, 0) for end in (End.CANCELLED, End.UPSTREAM, End.DROPPED))
    return ChildCounts(
        total, ends.get(End.COMPLETED, 0), ends.get(End.FAILED, 0), cancelled, ends.get(End.SKIPPED, 0)
    )  # fmt: skip


def as_number(cursor: str) -> int:
    """Return the number that a cursor stands for; raises `ValueError` for another text."""
    if not cursor.isdecimal():
        raise ValueError(f"after must be the cursor of a page before, not {cursor!r}")
    return int(cursor)
