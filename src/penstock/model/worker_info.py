"""Facts about live workers: the heartbeat that a worker sends, and the `WorkerInfo` that users read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import nsmallest

import msgspec

from penstock.errors import UNREADABLE
from penstock.model.clock import as_datetime

__all__ = ["Heartbeat", "RunInfo", "RunSummary", "WorkerInfo", "oldest", "worker_info"]

#: How many runs a heartbeat lists: those that started first.
MAX_RUNS = 100


class RunSummary(msgspec.Struct, frozen=True, array_like=True):
    """A running job in a heartbeat, with its age (ms) when that was sent."""

    queue: str
    id: str
    attempt: int
    age: int


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a worker sends with each heartbeat. A field that another version does not send has its default.

    `started` is in milliseconds of the storage's clock; all other times are ages, so that they do not
    depend on the worker's clock.
    """

    host: str = ""
    pid: int = 0
    processes: list[int] = []
    queues: list[str] = []
    started: int = 0
    capacity: int = 0
    allowed: int | None = None
    busy: int = 0
    #: The runs that handlers with `concurrency=n` may have, and those that they have.
    slots: int = 0
    slots_used: int = 0
    memory: int = 0
    lease_age: int | None = None
    running: int = 0
    runs: list[RunSummary] = []
    #: Distinguishes two workers with one id, and whether there are two.
    instance: str = ""
    duplicate: bool = False
    #: Whether it claims no more jobs, and the release of its code.
    quiet: bool = False
    release: str = ""

    def encode(self) -> bytes:
        """Return its stored form."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Heartbeat:
        """Decode a stored heartbeat; unreadable bytes give an empty one."""
        try:
            return _decode(data) if data else EMPTY
        except UNREADABLE:
            return EMPTY

    @property
    def shape(self) -> tuple[object, ...]:
        """The facts whose change makes a worker send a heartbeat at once."""
        return self.processes, self.capacity, self.allowed, self.busy, self.slots_used, self.running, self.quiet


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker is running."""

    queue: str
    id: str
    attempt: int
    started_at: datetime


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A live worker: its identity, its queues, and its load at `seen_at`, the time of its last heartbeat.

    A busy worker sends a heartbeat every few seconds (half its lease, at least 2 and at most 5), an idle
    one every ten. It is removed from the list at `until` unless another heartbeat comes. `started_at` is
    None if it is not known.

    `processes` are the ids of its child processes, none if handlers run in `pid` itself. Of its `capacity`
    in units, over all processes, `busy` are in use; an adaptive worker that cannot keep up allows itself
    fewer, `allowed`. Handlers with `concurrency=n` hold no units: they may have `slots` runs, and have
    `slots_used`. `memory` is the resident bytes of all its processes, 0 where that is not known.
    `lease_age` is how many seconds before `seen_at` the storage had last confirmed its leases, or the
    oldest of them, None when it holds none. `running` counts the jobs that it runs, and `runs` names the
    hundred that began first. `duplicate` means that another live worker has the same id. `quiet` means
    that it claims no more jobs, because it stops or was asked to. `release` is its `PENSTOCK_RELEASE`.
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
    slots: int = 0
    slots_used: int = 0
    duplicate: bool = False
    quiet: bool = False
    release: str = ""


def worker_info(id: str, seen: int, until: int, heartbeat: bytes) -> WorkerInfo:
    """Return the `WorkerInfo` of a worker from its stored record."""
    beat = Heartbeat.decode(heartbeat)
    return WorkerInfo(
        id=id,
        host=beat.host,
        pid=beat.pid,
        processes=beat.processes,
        queues=beat.queues,
        capacity=beat.capacity,
        allowed=beat.capacity if beat.allowed is None else beat.allowed,
        busy=beat.busy,
        memory=beat.memory,
        lease_age=None if beat.lease_age is None else beat.lease_age / 1000,
        running=beat.running,
        runs=[
            RunInfo(queue=run.queue, id=run.id, attempt=run.attempt, started_at=as_datetime(max(seen - run.age, 0)))
            for run in beat.runs
        ],
        started_at=as_datetime(beat.started) if beat.started else None,
        seen_at=as_datetime(seen),
        until=as_datetime(until),
        slots=beat.slots,
        slots_used=beat.slots_used,
        duplicate=beat.duplicate,
        quiet=beat.quiet,
        release=beat.release,
    )


def oldest(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the runs that a heartbeat lists: the `MAX_RUNS` that started first, oldest first."""
    return nsmallest(MAX_RUNS, runs, key=lambda run: -run.age)


EMPTY = Heartbeat()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Heartbeat).decode
