"""The values of a job: its states, a new job, a claim, and a snapshot."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from penstock.errors import ErrorKind, JobError
from penstock.model.clock import Span, span_ms
from penstock.model.flow import ClaimFlow, FlowPart, FlowSnapshot

__all__ = [
    "EXPIRED",
    "EXPIRED_MS",
    "FIND_ORDER",
    "FINISHED",
    "MAX_PRIORITY",
    "WAITING",
    "Claim",
    "DiscardAnswer",
    "MoveWhen",
    "NewJob",
    "OnConflict",
    "Snapshot",
    "State",
    "StateName",
    "Update",
]

#: The result of `discard` for one id: gone, unfinished or finished; refused because it runs; kept because its state
#: or age is another; or there is no such job.
DiscardAnswer = Literal["cancelled", "discarded", "running", "kept", "not_found"]

#: The error of a job that expired, and how long (ms) the job is kept.
EXPIRED = JobError("Expired", "its first run had not begun when it expired", ErrorKind.PERMANENT).encode()
EXPIRED_MS = 3_600_000

#: Priorities are between this and its negative.
MAX_PRIORITY = 2**31 - 1


class State(StrEnum):
    """State of a job; a job is in exactly one."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    BLOCKED = "blocked"
    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"


#: The states as text, for type checkers.
StateName = Literal[
    "scheduled", "queued", "blocked", "running", "retrying", "completed", "failed", "cancelled", "suspended"
]

WAITING = frozenset({State.SCHEDULED, State.QUEUED, State.RETRYING})
FINISHED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})

#: `find` returns the states in this order. Within `queued`: jobs without a group in the order in which
#: they would run, then group by group (groups by their UTF-8 bytes). `scheduled` and `retrying`: by due
#: time, then acceptance. `suspended`: by the time when the clock resumes them, those that wait for something else
#: last, then acceptance. `running`: by the begin of the run, those that began in the same millisecond in an
#: order of the storage's own. `blocked`: as the runs that they wait for. Finished ones: in the order in
#: which they expire, then of finishing.
FIND_ORDER: tuple[State, ...] = (
    State.RUNNING,
    State.QUEUED,
    State.RETRYING,
    State.SCHEDULED,
    State.SUSPENDED,
    State.BLOCKED,
    State.COMPLETED,
    State.FAILED,
    State.CANCELLED,
)

MoveWhen = bool | Literal["if_later", "if_earlier"]


class Update(msgspec.Struct, frozen=True):
    """The changes that an enqueue makes to a job that exists already.

    `payload` replaces the payload, headers and cost; `run_at` moves the job always, never, or only
    later or earlier; `reset_counts` (as `payload` unless given) zeroes its counts; `bounds`
    replaces the job's own timeout, bounds and result TTL; `priority` and `group` replace the job's
    priority and group, if the enqueue gives one. A job whose group changes joins the end of the new one.
    `max_wait` (seconds or a timedelta) is how long after its acceptance the job is due at the latest, whatever time
    this enqueue asks for.
    """

    payload: bool = True
    run_at: MoveWhen = True
    reset_counts: bool | None = None
    bounds: bool = False
    priority: bool = True
    group: bool = True
    max_wait: Span | None = None

    def __post_init__(self) -> None:
        for name in ("payload", "bounds", "priority", "group"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"Update({name}=...) must be True or False")
        if self.reset_counts not in (None, True, False):
            raise TypeError("Update(reset_counts=...) must be True, False or None")
        if self.run_at not in (True, False, "if_later", "if_earlier"):
            raise ValueError('Update(run_at=...) must be True, False, "if_later" or "if_earlier"')
        if self.max_wait is not None:
            span_ms(self.max_wait, "Update(max_wait=...)", zero=False)

    @property
    def resets(self) -> bool:
        """Whether the job's counts start again."""
        return self.payload if self.reset_counts is None else self.reset_counts


#: What an enqueue does when its id is taken: nothing, change the job, or raise `DuplicateJob`.
OnConflict = Literal["reject", "update", "raise"] | Update


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to be stored. Times are milliseconds; payload, headers and bounds are opaque bytes.

    `update` None changes nothing if the id is taken; its flag `priority` is set only if the enqueue gives a
    priority, its flag `group` has no effect without a group. `fresh` means that the id was just generated, so a
    storage need not look for it. `waiter` identifies the waiter to notify when the job finishes. If its first
    run has not begun at `start_by`, or `start_within` ms after its acceptance, the job expires. `cost` is what a
    run takes from rates that count costs. A job is due at most `max_wait` ms after its acceptance, whatever time this
    put or update asks for; windows and retries may make it later.

    A job with a `window` (ms) takes its id for that time from its acceptance, or from its due time if that is later.
    Completed, it keeps the window, even when it is forgotten. It frees the id if it fails, or is cancelled, expired or
    discarded. Meanwhile a put of the id with a `window` of its own starts no job at once. Without `update` it is a
    duplicate, with the state completed if no job of the id is kept; a kept result is returned as ever. With `update`
    it starts a job that is due when the window ends or later, whatever updates ask for, and takes a new window. So
    does a blocked successor with a `window` when it is released. An update leaves the window of its job as it is.

    `flow` is its part in flows, for a storage that has them: see `penstock.storage.flowing`.
    """

    queue: str
    id: str
    payload: bytes
    fresh: bool = False
    update: Update | None = None
    run_at: int | None = None
    delay: int | None = None
    priority: int = 0
    group: str | None = None
    headers: bytes = b""
    bounds: bytes = b""
    waiter: str | None = None
    start_by: int | None = None
    start_within: int | None = None
    cost: int = 1
    window: int | None = None
    max_wait: int | None = None
    flow: FlowPart | None = None


class Claim(msgspec.Struct, frozen=True, gc=False):
    """One job handed to one worker; settling it requires its `token`, the fence.

    `batch` numbers the batches of one queue in one answer: claims with the same number run together.
    `attempts` includes this run.
    """

    queue: str
    id: str
    token: str
    payload: bytes
    batch: int = 0
    group: str | None = None
    priority: int = 0
    headers: bytes = b""
    bounds: bytes = b""
    created: int = 0
    run_at: int = 0
    attempts: int = 1
    retries: int = 0
    stalls: int = 0
    timeouts: int = 0
    flow: ClaimFlow | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a storage knows about one job, read at one moment."""

    queue: str
    id: str
    state: State
    payload: bytes
    group: str | None = None
    priority: int = 0
    headers: bytes = b""
    bounds: bytes = b""
    created: int = 0
    run_at: int = 0
    attempts: int = 0
    retries: int = 0
    stalls: int = 0
    timeouts: int = 0
    progress: bytes | None = None
    worker: str | None = None
    result: bytes | None = None
    error: bytes | None = None
    cancel: str | None = None
    finished: int | None = None
    expires: int | None = None
    #: When the run was claimed that is running, or that ended the job; None if none did.
    started: int | None = None
    #: When it expires; None if it does not, or if its first run has begun.
    start_by: int | None = None
    #: What a run takes from rates that count costs.
    cost: int = 1
    #: How long (ms) its id is taken: see `NewJob`.
    window: int | None = None
    #: The format of the record if this software is too old to read it, otherwise None; the payload is empty then.
    format: int | None = None
    #: Its part in flows; None without one.
    flow: FlowSnapshot | None = None
