"""What a worker says of itself while it is there."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import nsmallest

import msgspec

from penstock.errors import UNREADABLE
from penstock.model.clock import as_datetime

__all__ = ["Heartbeat", "RunInfo", "RunSummary", "WorkerInfo", "oldest", "worker_info"]

#: How many of its runs a worker names: those that began first.
MAX_RUNS = 100


class RunSummary(msgspec.Struct, frozen=True, array_like=True):
    """A job that is running, and for how long (ms) when that was said."""

    queue: str
    id: str
    attempt: int
    age: int


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own words, sent with each beat. What an older or newer worker leaves out has its default.

    `started` is in milliseconds of the storage's clock; all other times are ages, so that nobody's clock
    need be right.
    """

    host: str = ""
    pid: int = 0
    processes: list[int] = []
    queues: list[str] = []
    started: int = 0
    capacity: int = 0
    allowed: int | None = None
    busy: int = 0
    memory: int = 0
    lease_age: int | None = None
    running: int = 0
    runs: list[RunSummary] = []

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Heartbeat:
        """Read a worker's words back; what cannot be read is silence."""
        try:
            return _decode(data) if data else EMPTY
        except UNREADABLE:
            return EMPTY

    @property
    def shape(self) -> tuple[object, ...]:
        """What is worth saying at once when it changes."""
        return self.processes, self.capacity, self.allowed, self.busy, self.running


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker is running."""

    queue: str
    id: str
    attempt: int
    started_at: datetime


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is there: who and where, what it serves, and how it fared at `seen_at`, when it last spoke.

    A busy worker speaks every few seconds (half its lease, at least 2 and at most 5), an idle one every
    ten. It is taken off the list at `until` unless it is heard of again. `started_at` is None if it did
    not say.

    `processes` are the ids of its child processes, none if handlers run in `pid` itself. Of its `capacity`
    in units, over all processes, `busy` are in use; an adaptive worker that cannot keep up allows itself
    fewer, `allowed`. `memory` is the resident bytes of all its processes, 0 where that is not known.
    `lease_age` is how many seconds before `seen_at` the storage had last confirmed its leases, or the
    oldest of them, None when it holds none. `running` counts the jobs that it runs, and `runs` names the
    hundred that began first.
    """

    id: str
    host: str
    pid: int
    processes: list[int]
    queues: list[str]
    capacity: int
    allowed: int
    busy: int
    memory: int
    lease_age: float | None
    running: int
    runs: list[RunInfo]
    started_at: datetime | None
    seen_at: datetime
    until: datetime


def worker_info(id: str, seen: int, until: int, heartbeat: bytes) -> WorkerInfo:
    """A worker as the user sees it, from what a storage keeps of it."""
    said = Heartbeat.decode(heartbeat)
    return WorkerInfo(
        id=id,
        host=said.host,
        pid=said.pid,
        processes=said.processes,
        queues=said.queues,
        capacity=said.capacity,
        allowed=said.capacity if said.allowed is None else said.allowed,
        busy=said.busy,
        memory=said.memory,
        lease_age=None if said.lease_age is None else said.lease_age / 1000,
        running=said.running,
        runs=[
            RunInfo(queue=run.queue, id=run.id, attempt=run.attempt, started_at=as_datetime(max(seen - run.age, 0)))
            for run in said.runs
        ],
        started_at=as_datetime(said.started) if said.started else None,
        seen_at=as_datetime(seen),
        until=as_datetime(until),
    )


def oldest(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """As many as a worker names, those that began first in front."""
    return nsmallest(MAX_RUNS, runs, key=lambda run: -run.age)


EMPTY = Heartbeat()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Heartbeat).decode
