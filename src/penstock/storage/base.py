"""The storage protocol: every transition of a job's life as one atomic operation.

A storage keeps bytes, counts and times; it decides nothing about bounds or backoff, and it knows
nothing of handlers. Times are integer milliseconds on the storage's own clock. A waiting job is
`queued` when its time has come and `scheduled` or `retrying` before, so its state depends on the
clock alone and never on whether a client has read it.

A job put with a start-by time expires then, unless its first run has begun: waiting or blocked →
cancelled, with the error `EXPIRED`. A waiting one is kept for `EXPIRED_MS`, a blocked one is gone, as
after `cancel`. These verbs look for such jobs first, a bounded number per call, and so never return
or claim one: put, claim, cancel, discard, revive, purge, get, find, peek, why, counts, queues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

import msgspec

from penstock.model.activity import WorkerRequest
from penstock.model.durability import DurabilityReport
from penstock.model.events import EventRecord
from penstock.model.history import Report, Reported
from penstock.model.job import EXPIRED, EXPIRED_MS, FIND_ORDER, Claim, DiscardAnswer, NewJob, Snapshot, State
from penstock.model.outcome import Cancel, Complete, Fail, Release, Resolution, Retried, Stall, Suspend
from penstock.model.pause import Pause
from penstock.model.storage_values import CancelAnswer, EndNotice, Page, Reaped, WorkerRecord
from penstock.model.why import JobPosition

__all__ = [
    "EXPIRED", "EXPIRED_MS", "FIND_ORDER", "BlockingStorage", "Cancel", "CancelAnswer", "CancelMode", "ClaimRef",
    "Claimed", "Complete", "DiscardAnswer", "EndNotice", "EventRecord", "Fail", "JobPosition", "OpenClaim",
    "OpensClaims", "Page", "Pause", "Put", "PutStatus", "Reaped", "Release", "Renewal", "Report", "Reported",
    "Request", "Resolution", "Retried", "Settled", "Settlement", "Stall", "Storage", "Suspend", "WorkerRecord",
]  # fmt: skip

#: The effect of `cancel` on a running job: none; make this run its last; request its end; end it.
CancelMode = Literal["refuse", "forget", "signal", "kill"]
CANCEL_MODES: tuple[CancelMode, ...] = ("refuse", "forget", "signal", "kill")

#: One verb touches at most this many jobs of one queue; callers split or repeat.
MAX_BATCH = 1000

#: One call returns or sends at most about this many bytes of records of one queue: it ends with the record that
#: reaches the bound, and at least one. Callers go on after it. This bounds time and memory, as `MAX_BATCH` alone does
#: not.
MAX_BYTES = 4_000_000


class PutStatus(StrEnum):
    """Status of an enqueue."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    UPDATED = "updated"
    BLOCKED = "blocked"
    DUPLICATE = "duplicate"
    COMPLETED = "completed"
    SUSPENDED = "suspended"


class Put(msgspec.Struct, frozen=True, gc=False):
    """The answer to one `NewJob`: its status, the state of the job now, a cached result.

    `refused` means that an update changed nothing, because the job would have had a group and a priority: now,
    or when it is merged into the running job of its id. Its status is `duplicate`. `durability` is the level that was
    reached, from a storage that confirms it. `until` is when the window ends that holds the id of a duplicate.
    """

    status: PutStatus
    state: State
    result: bytes | None = None
    durability: DurabilityReport | None = None
    refused: bool = False
    until: int | None = None


class Request(msgspec.Struct, frozen=True, gc=False):
    """Request for jobs of one queue: at most `limit` runs of up to `batch` jobs each."""

    queue: str
    limit: int
    batch: int = 1


class Claimed(msgspec.Struct, frozen=True):
    """The answer to `claim`. `look_at` (ms) makes this worker responsible for claiming again at that time.

    `corrupt` names jobs (queue, id) whose records could not be read; they are failed and kept.
    `skipped` names those that were in the queue order without a record.
    `more` names queues that may have further jobs for this claim, which ended at `MAX_BATCH` or `MAX_BYTES`.
    `limited` names the queues asked for whose runs are limited, so that claims ahead of time would hold their slots.
    `tick_at` (ms) is the earliest next tick of the schedules of these queues, also of paused ones, and `now` (ms) the
    storage's time then; None if no queue has one.
    """

    claims: list[Claim]
    look_at: int | None = None
    corrupt: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    more: list[str] = []
    limited: list[str] = []
    tick_at: int | None = None
    now: int | None = None


class OpenClaim(Protocol):
    """A claim that is left open until there is work."""

    async def answer(self, on_answer: Callable[[bool, Claimed], object] = lambda hinted, claimed: None, /) -> None:
        """Wait for the answer and call `on_answer` as soon as it arrives: with whether a hint came, and the claims."""
        ...

    def hurry(self) -> None:
        """Make the storage answer now. Idempotent."""
        ...


@runtime_checkable
class OpensClaims(Protocol):
    """A storage on which a claim can be left open, so that a hint of new jobs comes together with the jobs."""

    #: Whether the storage can do so now.
    opens_claims: bool

    def open_claim(
        self, queues: Sequence[str], requests: Sequence[Request], worker: str, lease: int, token: str, seconds: float
    ) -> OpenClaim:
        """Claim when one of the queues may have work, or when the seconds have passed.

        The lease may begin as soon as this is called.
        """
        ...


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The resolution of the run with this token."""

    queue: str
    id: str
    token: str
    resolution: Resolution


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The state a settlement led to; `lost` means that the token was stale and nothing changed."""

    state: State | None
    lost: bool = False


class ClaimRef(msgspec.Struct, frozen=True, gc=False):
    """Reference to a claim: a worker that names it asserts that it holds it."""

    queue: str
    id: str
    token: str


class Renewal(msgspec.Struct, frozen=True, gc=False):
    """The answer to one `ClaimRef`: kept or lost, and the cancel mode that was requested, if any."""

    kept: bool
    cancel: CancelMode | None = None


@runtime_checkable
class Storage(Protocol):
    """The verbs of a storage. Sequences may name any queues; answers come in the order of the arguments."""

    async def open(self) -> None:
        """Connect, create what is missing, refuse a newer schema with `VersionMismatch`. Idempotent."""
        ...

    async def close(self) -> None:
        """Close connections, threads and sockets. Idempotent; `open` may follow."""
        ...

    async def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        """Store jobs: nothing → queued / scheduled / blocked, or updated in place, or the existing state.

        A job put with a `waiter`, or that `wait_done` waits for, and that would not be kept when it
        ends (a TTL of 0) stays for a minute, so that the waiter can read its result. Its id is free at
        once: a put of it starts a new job, as if the old one were not there.

        With `max_queued` all jobs, `MAX_BATCH` at most, are of one queue. If more than that many jobs would then be
        queued, scheduled or retrying in it, it raises `QueueFull` and changes nothing, unless the jobs add none to
        these: duplicates, updates, and successors that are blocked.
        """
        ...

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        """Claim jobs: due → running under `token` for `lease` ms; promotes some of the jobs whose time has come.

        Of each queue it takes at most `MAX_BATCH` jobs, and ends with the one that brings the bytes of their payloads,
        headers, bounds and last errors to `MAX_BYTES`. So its last batch may be short.
        A run that has begun removes the start-by time of its job for good, also if it is released.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle runs: running → completed / retrying / failed / cancelled / queued; fenced by the token.

        A repeated settlement changes nothing and gives the same answer; a stale token changes nothing
        and answers lost. A run whose cancellation was requested ends as cancelled unless it completed.
        """
        ...

    async def renew(self, worker: str, held: Sequence[ClaimRef], lease: int) -> list[Renewal]:
        """Renew leases: running → running, of the named claims only; the lease of any other expires."""
        ...

    async def reap(self, queues: Sequence[str], limit: int = MAX_BATCH) -> list[Reaped]:
        """Reap jobs: running with an expired lease → queued at its position with stalls + 1, or cancelled if requested.

        A batch that stalls for the first time stays together; a job that stalled before runs alone.
        """
        ...

    async def cancel(
        self, queue: str, ids: Sequence[str], running: CancelMode = "refuse", ttl: int | None = 0
    ) -> list[CancelAnswer]:
        """Cancel jobs: waiting or blocked → cancelled, kept `ttl` ms; for a running job `running` decides.

        A storage that sends a call again after a lost answer gives the answer of the first time, and emits each
        event once; the same holds for `revive`, `set_pause`, `delete_queue` and `set_ttl`.
        """
        ...

    async def discard(
        self, queue: str, ids: Sequence[str], state: State | None = None, before: int | None = None
    ) -> list[DiscardAnswer]:
        """Discard jobs: waiting, blocked or finished → gone; of a running job only the blocked successor goes.

        With `state` only a job in that state goes, with `before` only one that finished (or, unfinished,
        was accepted) until that time. Waiting and blocked jobs emit `cancelled`; one with a waiter stays
        as cancelled for a minute, as after `cancel` with a TTL of 0.
        """
        ...

    async def revive(self, queue: str, ids: Sequence[str], completed: bool = False) -> list[bool]:
        """Revive jobs: failed or cancelled → queued at the end of the order, all counts zero.

        With `completed` also completed ones, whose results are dropped. A job with a `window` takes it again, from now.
        """
        ...

    async def purge(self, queues: Sequence[str], limit: int = MAX_BATCH) -> int:
        """Purge records: finished with an expired TTL → gone, at most `limit` of each queue; returns their number.

        Records are jobs, the answers kept for repeated settlements of jobs that were not kept, windows that ended, and
        expired schedules.
        """
        ...

    async def set_pause(
        self, queue: str, paused: bool, until: int | None = None, by: str = "", group: str | None = None
    ) -> bool:
        """Pause or resume a queue, or one group of it: nothing of it is claimed; returns whether that changed anything.

        A pause ends at `until` (ms), None for never. `since` stays that of the pause before it, if there is one.
        """
        ...

    async def delete_queue(self, queue: str, settings: bool = False) -> int:
        """Delete a queue: every record of it → gone, running claims are lost; returns the number of jobs.

        Its pauses end. Its schedules and limits stay unless `settings` is set.
        """
        ...

    async def set_ttl(self, queue: str, id: str, ttl: int | None) -> bool:
        """Keep a finished job for `ttl` ms from now, None for ever; False if it does not exist or is not finished."""
        ...

    async def report(self, reports: Sequence[Report]) -> list[Reported]:
        """Store the progress of runs, fenced by their tokens; a storage with histories stores their log lines too.

        A report that is sent again changes nothing: lines are numbered within their run.
        """
        ...

    async def get(self, queue: str, ids: Sequence[str]) -> list[Snapshot | None]:
        """Return jobs by id, None for a missing one; a running job hides its blocked successor."""
        ...

    async def find(self, queue: str, state: State | None = None, after: str | None = None, limit: int = 100) -> Page:
        """Return a page of jobs, state by state, each in its order: see `FIND_ORDER`.

        It has at most `limit` jobs, and fewer if their records reach `MAX_BYTES`.
        """
        ...

    async def peek(self, queue: str) -> Snapshot | None:
        """Return the job that a claim would give next, or None."""
        ...

    async def why(self, queue: str, id: str) -> JobPosition | None:
        """Return the position of a job, read in one step; None if there is no such job."""
        ...

    async def counts(self, queue: str) -> dict[State, int]:
        """Return the number of jobs in each state."""
        ...

    async def paused(self, queue: str, group: str | None = None) -> Pause | None:
        """Return the pause of a queue, or of one group of it; None if there is none or it has ended by itself."""
        ...

    async def queues(self) -> list[str]:
        """Return the names of the queues that hold jobs, schedules or limits or are paused, also in part, sorted."""
        ...

    async def beat(self, worker: str, ttl: int, info: bytes = b"") -> WorkerRequest | None:
        """Store the heartbeat of a worker for `ttl` ms; a `ttl` of 0 removes the worker.

        Returns what the worker was asked for since it came, within `REQUEST_MS`, by `ask_worker` of a storage that has
        that.
        """
        ...

    async def workers(self) -> list[WorkerRecord]:
        """Return the live workers, sorted by id."""
        ...

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until a job may be ready in one of the queues, or for `timeout` seconds; returns whether one may be."""
        ...

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool | EndNotice:
        """Sleep until a job may have finished, or for `timeout` seconds; returns whether a hint came.

        For a `fresh` job that was put with a `waiter` a storage may return the `EndNotice`, which saves
        a read. A caller that gives up is forgotten within seconds: it no longer keeps a job with a TTL of 0.
        """
        ...

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Sleep until the cancellation of a run of this worker may have been requested, or for `timeout` seconds.

        A request made before the first such sleep, or between two of them, ends the next one.
        """
        ...

    def events(self, queue: str | None = None, names: Collection[str] | None = None) -> AsyncIterator[EventRecord]:
        """Yield the events of the storage from now on, of all its clients: of one queue or all, of these names or all.

        An event that no reader wants costs nothing, and a reader that leaves costs nothing from then on.
        """
        ...

    async def announce(self, records: Sequence[EventRecord], /) -> None:
        """Publish events to the readers of `events`, with the storage's time; nothing is stored if there are none."""
        ...

    async def time(self) -> int:
        """Return the time of the storage's clock, in milliseconds."""
        ...


class BlockingStorage(Storage, Protocol):
    """A storage for threads without an event loop: its coroutines end without suspending."""

    #: Whether it uses the connection of the app's storage, so that closing it would close that one too.
    shares_connection: bool
