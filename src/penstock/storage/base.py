"""The seam: every transition of a job's life as one atomic operation.

A storage keeps bytes, counts and times; it decides nothing about limits or backoff, and it knows
nothing of handlers. Times are integer milliseconds on the storage's own clock. A waiting job is
`queued` when its time has come and `scheduled` or `retrying` before, so that state is a matter of
the clock and never of somebody having looked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

import msgspec

from penstock.model.durability import DurabilityReport
from penstock.model.job import Claim, NewJob, Snapshot, State
from penstock.model.outcome import Cancel, Complete, Fail, Release, Resolution, Retried, Stall
from penstock.model.why import JobPosition

__all__ = [
    "BlockingStorage",
    "Cancel",
    "CancelAnswer",
    "CancelMode",
    "ClaimRef",
    "Claimed",
    "Complete",
    "EndNotice",
    "EventRecord",
    "Fail",
    "JobPosition",
    "OpenClaim",
    "OpensClaims",
    "Page",
    "Put",
    "PutStatus",
    "Reaped",
    "Release",
    "Renewal",
    "Request",
    "Resolution",
    "Retried",
    "Settled",
    "Settlement",
    "Stall",
    "Storage",
    "WorkerRecord",
]

#: What `cancel` does to a running job: nothing; make this run its last; ask it to end; end it.
CancelMode = Literal["refuse", "forget", "signal", "kill"]
CANCEL_MODES: tuple[CancelMode, ...] = ("refuse", "forget", "signal", "kill")

#: One verb touches at most this many jobs of one queue; callers split or repeat.
MAX_BATCH = 1000


class PutStatus(StrEnum):
    """What became of an enqueue."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    UPDATED = "updated"
    BLOCKED = "blocked"
    DUPLICATE = "duplicate"
    COMPLETED = "completed"


class Put(msgspec.Struct, frozen=True, gc=False):
    """The answer to one `NewJob`: what happened, the state of the job now, a cached result.

    `durability` is how far it came, from a storage that was told to see to that.
    """

    status: PutStatus
    state: State
    result: bytes | None = None
    durability: DurabilityReport | None = None


class Request(msgspec.Struct, frozen=True, gc=False):
    """How much a worker wants of one queue: `limit` runs of up to `batch` jobs each."""

    queue: str
    limit: int
    batch: int = 1


class Claimed(msgspec.Struct, frozen=True):
    """The answer to `claim`. `look_at` (ms) asks this worker to look again then: it holds the alarm.

    `corrupt` names jobs (queue, id) whose records could not be read; they are failed and kept.
    `skipped` names those that stood in line without a record.
    """

    claims: list[Claim]
    look_at: int | None = None
    corrupt: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []


class OpenClaim(Protocol):
    """A claim that is left open until there is work."""

    async def answer(self, hear: Callable[[bool, Claimed], object] = lambda hinted, claimed: None) -> None:
        """Wait for it. `hear` is told whether there was a hint, and what was claimed, as soon as that is here."""
        ...

    def hurry(self) -> None:
        """Have it answered now. Idempotent."""
        ...


@runtime_checkable
class OpensClaims(Protocol):
    """A storage that can leave a claim open, so that a worker's next jobs come with the hint."""

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
    """How the run with this token ended."""

    queue: str
    id: str
    token: str
    resolution: Resolution


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The state a settlement led to; `lost` means that the token was stale and nothing changed."""

    state: State | None
    lost: bool = False


class EndNotice(msgspec.Struct, frozen=True, gc=False):
    """How a job ended, as those who wait for it are told."""

    id: str
    state: State
    result: bytes | None = None
    error: bytes | None = None


class ClaimRef(msgspec.Struct, frozen=True, gc=False):
    """A claim that a worker says it holds."""

    queue: str
    id: str
    token: str


class Renewal(msgspec.Struct, frozen=True, gc=False):
    """The answer to one held claim: kept or lost, and the cancel mode somebody asked for."""

    kept: bool
    cancel: CancelMode | None = None


class Reaped(msgspec.Struct, frozen=True):
    """A job taken back from a worker whose lease was over, and which attempt that was (0: not known)."""

    queue: str
    id: str
    state: State
    worker: str
    attempt: int = 0


class CancelAnswer(msgspec.Struct, frozen=True):
    """The answer to a cancel; `running` says that a run of this id goes on."""

    status: Literal["cancelled", "running", "cancel_requested", "completed", "failed", "not_found"]
    running: bool = False


class Page(msgspec.Struct, frozen=True):
    """A page of jobs; `cursor` leads to the next one, None at the end."""

    jobs: list[Snapshot]
    cursor: str | None = None


class EventRecord(msgspec.Struct, frozen=True, array_like=True):
    """One line of the feed: a transition as it happened, with bytes where the user sees values.

    Names: enqueued updated started completed retrying failed stalled timed_out cancelled
    cancel_requested skipped invalid_data released queue_deleted, and what was announced.
    """

    name: str
    queue: str
    id: str
    at: int
    attempt: int = 0
    worker: str | None = None
    result: bytes | None = None
    error: bytes | None = None


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker's presence: its id, when it was last heard of, when that ends, and what it says of itself."""

    id: str
    seen: int
    until: int
    info: bytes = b""


@runtime_checkable
class Storage(Protocol):
    """What a backend must do. Sequences may name any queues; answers come in the order of the questions."""

    async def open(self) -> None:
        """Connect, create what is missing, refuse a newer schema with `VersionMismatch`. Idempotent."""
        ...

    async def close(self) -> None:
        """Let go of connections, threads and sockets. Idempotent; `open` may follow."""
        ...

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """nothing → queued / scheduled / blocked, or updated in place, or the existing state.

        A job put with a `waiter`, or that `wait_done` waits for, and that would not be kept when it
        ends (a TTL of 0) stays for a minute, so that whoever waits can read how it ended. Its id is
        free at once: a put of it starts a new job, as if the old one were not there.
        """
        ...

    async def claim(self, requests: Sequence[Request], worker: str, lease: int, token: str) -> Claimed:
        """due → running under `token` for `lease` ms; promotes jobs whose time has come, bounded."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """running → completed / retrying / failed / cancelled / queued; fenced by the token.

        The same settlement twice is one settling and gives the same answer; a stale token changes
        nothing and answers lost. A run that was asked to cancel ends as cancelled unless it completed.
        """
        ...

    async def renew(self, worker: str, held: Sequence[ClaimRef], lease: int) -> list[Renewal]:
        """running → running: extends the named claims only; one that is not named runs out."""
        ...

    async def reap(self, queues: Sequence[str], limit: int = MAX_BATCH) -> list[Reaped]:
        """running with its lease over → queued at its place with stalls + 1 (or cancelled, if asked to).

        The first time a batch comes back whole; a job that stalled before runs by itself.
        """
        ...

    async def cancel(
        self, queue: str, ids: Sequence[str], running: CancelMode = "refuse", ttl: int | None = 0
    ) -> list[CancelAnswer]:
        """waiting or blocked → cancelled, kept `ttl` ms; a running job is treated as `running` says."""
        ...

    async def revive(self, queue: str, ids: Sequence[str]) -> list[bool]:
        """failed or cancelled → queued at the end of the line, all counts zero."""
        ...

    async def purge(self, queues: Sequence[str], limit: int = MAX_BATCH) -> int:
        """finished with its TTL over → gone; answers how many records went, at most `limit` of each queue.

        Records are jobs, and what is remembered of settlements whose jobs were not kept.
        """
        ...

    async def set_paused(self, queue: str, paused: bool) -> bool:
        """Stop or go on handing out jobs of a queue; answers whether that changed anything."""
        ...

    async def delete_queue(self, queue: str) -> int:
        """Every record of a queue → gone, running claims are lost; answers how many jobs there were."""
        ...

    async def set_ttl(self, queue: str, id: str, ttl: int | None) -> bool:
        """Keep a finished job for `ttl` ms from now; False when it is not there or not finished."""
        ...

    async def report(self, held: ClaimRef, progress: bytes) -> bool:
        """Attach progress to a run; False when the claim is lost."""
        ...

    async def get(self, queue: str, ids: Sequence[str]) -> list[Snapshot | None]:
        """Jobs by id; a running job hides its blocked successor."""
        ...

    async def find(self, queue: str, state: State | None = None, after: str | None = None, limit: int = 100) -> Page:
        """A page of jobs, state by state, each in its order: see `FIND_ORDER`."""
        ...

    async def peek(self, queue: str) -> Snapshot | None:
        """The job that a claim would give next."""
        ...

    async def why(self, queue: str, id: str) -> JobPosition | None:
        """Where a job stands and what stands before it, read at once; None when there is no such job."""
        ...

    async def counts(self, queue: str) -> dict[State, int]:
        """How many jobs are in each state."""
        ...

    async def paused(self, queue: str) -> int | None:
        """Since when (ms) a queue is paused, or None."""
        ...

    async def queues(self) -> list[str]:
        """The names of the queues that hold jobs or are paused, sorted."""
        ...

    async def beat(self, worker: str, ttl: int, info: bytes = b"") -> None:
        """Say that a worker is there for the next `ttl` ms; a `ttl` of 0 takes it off the list."""
        ...

    async def workers(self) -> list[WorkerRecord]:
        """The workers that are there, sorted by id."""
        ...

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until a job may be ready in one of the queues or `timeout` seconds have passed."""
        ...

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool | EndNotice:
        """Sleep until a job may have ended or `timeout` seconds have passed.

        Of a `fresh` job that was put with a `waiter` a storage may say how it ended, which saves the look.
        """
        ...

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Sleep until a run of this worker may have been asked to end or `timeout` seconds have passed.

        What was asked before the first such sleep, or between two of them, ends the next one.
        """
        ...

    def events(self, queue: str | None = None) -> AsyncIterator[EventRecord]:
        """What happens in the storage from now on, whoever causes it."""
        ...

    async def announce(self, notes: Sequence[EventRecord]) -> None:
        """Add lines to the feed, at the storage's time, if anybody reads it; nothing else changes."""
        ...

    async def time(self) -> int:
        """The storage's clock, in milliseconds."""
        ...


class BlockingStorage(Storage, Protocol):
    """A storage for threads without an event loop: its coroutines end without suspending."""

    #: Whether it uses the connection of the app's storage, so that closing it would close that one too.
    shares_connection: bool


#: `find` walks the states in this order. Within `queued`: jobs without a group in the order they
#: would run, then lane by lane (groups by their UTF-8 bytes). `scheduled` and `retrying`: by due
#: time, then acceptance. `running` and `blocked`: by acceptance. Finished ones: in the order in
#: which they will be forgotten, then of finishing.
FIND_ORDER: tuple[State, ...] = (
    State.RUNNING,
    State.QUEUED,
    State.RETRYING,
    State.SCHEDULED,
    State.BLOCKED,
    State.COMPLETED,
    State.FAILED,
    State.CANCELLED,
)
