"""Facts about a storage for operators, and the restoring of exported jobs.

Both protocols are optional: facts that a storage does not offer are shown as unknown. The storages of
Penstock implement both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from penstock.errors import MAX_ERROR, VersionMismatch
from penstock.model.checks import MAX_COST
from penstock.model.clock import MAX_MS
from penstock.model.headers import MAX_HEADERS
from penstock.model.ids import check_name
from penstock.model.job import FINISHED, MAX_PRIORITY, WAITING, Snapshot, State

__all__ = [
    "MAX_COUNT",
    "MAX_RESTORED",
    "FileInfo",
    "Inspectable",
    "NodeInfo",
    "QueueMeter",
    "Restorable",
    "ServerInfo",
    "check_restorable",
    "describe_eviction",
    "schema_mismatch",
]


#: The largest attempts, retries, stalls and timeouts of a job that is restored.
MAX_COUNT = 65_535

#: The most bytes of the bounds of a job, encoded.
MAX_BOUNDS = 1_024

#: The most bytes of the payload and of the result of a job that is restored, unless the caller sets a bound.
MAX_RESTORED = 1_048_576


class QueueMeter(msgspec.Struct, frozen=True):
    """Counters of a queue: jobs finished and damaged records found since it was created, expired leases, next tick."""

    queue: str
    finished: int
    overdue: int
    #: Stored records that could not be read: Penstock set them aside or repaired them, and continued without them.
    damaged: int = 0
    #: The next tick of its schedules, in ms; None if it has none.
    tick: int | None = None


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One server, by its own account. None is a fact that it does not disclose."""

    where: str
    software: str = "redis"
    version: str = ""
    role: str = "master"
    #: Its eviction policy, and the memory that it may use (0: no limit), uses, and that the machine has.
    policy: str | None = None
    max_memory: int = 0
    used_memory: int = 0
    machine_memory: int = 0
    evicted: int = 0
    #: Persistence: the append-only file and when it is flushed, the snapshots, and whether the last writes worked.
    aof: bool = False
    appendfsync: str | None = None
    save: str | None = None
    saved_at: int = 0
    changes: int = 0
    writes_work: bool = True
    #: Replicas that are connected, and how many a write needs.
    replicas: int = 0
    needs_replicas: int | None = None
    clients: int = 0
    max_clients: int = 0
    #: How far its clock is ahead of this machine's, and the round trip of a command (milliseconds).
    ahead_ms: float = 0.0
    latency_ms: float = 0.0


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The servers behind a URL: one, or every primary of a Cluster."""

    schema: int
    cluster: bool
    nodes: list[NodeInfo]


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An SQLite file, or (with an empty path) a database in memory."""

    path: str
    version: str
    schema: int
    journal_mode: str
    #: The setting that the storage was opened with: "NORMAL" or "FULL".
    synchronous: str
    size: int = 0
    log_size: int = 0
    #: The permission bits of the file.
    mode: int = 0o600
    free: int = 0
    filesystem: str | None = None
    #: How users other than this one and root can read or change the file: a sentence each.
    exposures: list[str] = []
    #: The directory of its wake-up sockets if another user owns it, else empty.
    foreign_wake_directory: str = ""
    #: Why this process may not write the file, and what to change; empty if it may.
    obstacle: str = ""
    #: The faults that a check of the file found; None when it was not checked.
    faults: list[str] | None = None
    #: The namespaces in the file that have queues, the first ones of many.
    namespaces: list[str] = []
    latency_ms: float = 0.0


@runtime_checkable
class Inspectable(Protocol):
    """A storage that reports facts about itself."""

    @property
    def where(self) -> str:
        """Its URL without user and password."""
        ...

    async def inspect(self, check: bool = True) -> FileInfo | ServerInfo:
        """Return facts about the storage; `check` also looks for damage, which takes longer the more it holds."""
        ...

    async def meters(self, queues: Sequence[str]) -> list[QueueMeter]:
        """Return the counters of these queues, in their order."""
        ...

    async def latest(self, queue: str, state: State, limit: int = 10) -> list[Snapshot]:
        """Return finished jobs of one state, those kept longest first: with one TTL, the newest."""
        ...


@runtime_checkable
class Restorable(Protocol):
    """A storage that can restore exported jobs."""

    async def restore(self, jobs: Sequence[Snapshot]) -> list[bool]:
        """Restore jobs: nothing → the state of the snapshot, with its counts and times; False where the id is taken.

        Running and blocked jobs belong to a worker's claim, so they are refused with a `ValueError`.
        """
        ...


def schema_mismatch(where: str, found: int | None, known: int) -> VersionMismatch:
    """Return the error for a storage whose schema version is not the known one."""
    if found is None:
        remedy = "the number cannot be read: restore a copy, or use another storage"
    elif found < known:
        remedy = "it was written by an older Penstock: export its jobs with that one and import them here"
    else:
        remedy = "it was written by a newer Penstock: upgrade this one, or use another storage"
    return VersionMismatch(f"{where} has schema version {found}, and this Penstock knows {known}; {remedy}")


def describe_eviction(node: NodeInfo) -> str:
    """Return a sentence about the effect of a server's eviction policy on jobs."""
    if node.policy and node.policy.startswith("volatile"):
        what = "deletes keys that have a time to live"
    else:
        what = "deletes keys of its choice, jobs among them"
    when = "when its memory is full" if node.max_memory else "once a maxmemory is set and reached"
    done = f"; it has deleted {node.evicted:,} keys since it was started" if node.evicted else ""
    return f"maxmemory-policy is {node.policy}: {when} the server {what}, without an error{done}"


def check_restorable(job: Snapshot, max_payload: int | None = None) -> None:
    """Raise `ValueError` with the reason for a job that cannot be restored, before anything is stored.

    `max_payload` bounds the bytes of payload and result, if it is given. The other bounds are those of `enqueue` and
    of the errors of handlers.
    """
    for name, value in (("queue", job.queue), ("id", job.id), ("group", job.group), ("worker", job.worker)):
        if value is not None:
            check_name(value, name)
    if job.state not in WAITING | FINISHED:
        raise ValueError(f"a {job.state} job belongs to its worker and cannot be restored")
    if abs(job.priority) > MAX_PRIORITY:
        raise ValueError(f"priority must be between -{MAX_PRIORITY} and {MAX_PRIORITY}, not {job.priority}")
    if job.group is not None and job.priority:
        raise ValueError("priority does not reorder a group: a job has one or the other")
    if not 1 <= job.cost <= MAX_COST:
        raise ValueError(f"cost must be between 1 and {MAX_COST}, not {job.cost}")
    if job.window is not None and not 0 <= job.window <= MAX_MS:
        raise ValueError("window must not be negative or beyond the year 9999")
    counts = (job.attempts, job.retries, job.stalls, job.timeouts)
    if min(counts) < 0 or max(counts) > MAX_COUNT:
        raise ValueError(f"attempts, retries, stalls and timeouts must be between 0 and {MAX_COUNT}")
    for name, data, most in (
        ("headers", job.headers, MAX_HEADERS), ("bounds", job.bounds, MAX_BOUNDS), ("error", job.error, MAX_ERROR),
        ("payload", job.payload, max_payload), ("result", job.result, max_payload),
    ):  # fmt: skip
        if most is not None and len(data or b"") > most:
            raise ValueError(f"{name} has {len(data or b'')} bytes, more than {most}")
    times = (job.created, job.run_at, job.finished or 0, job.expires or 0, job.start_by or 0, job.started or 0)
    for moment in times:
        if not 0 <= moment <= MAX_MS:
            raise ValueError("times must be between 1970 and 9999")
