"""The nouns: what a job is, what was asked, what is known, and what a worker holds."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

__all__ = [
    "FINISHED",
    "MAX_PRIORITY",
    "WAITING",
    "Claim",
    "MoveWhen",
    "NewJob",
    "OnConflict",
    "Snapshot",
    "State",
    "Update",
]

#: Priorities lie between this and its negative.
MAX_PRIORITY = 2**31 - 1


class State(StrEnum):
    """Where a job is in its life; it is in exactly one."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    BLOCKED = "blocked"
    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


WAITING = frozenset({State.SCHEDULED, State.QUEUED, State.RETRYING})
FINISHED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})

MoveWhen = bool | Literal["if_later", "if_earlier"]


class Update(msgspec.Struct, frozen=True):
    """What an enqueue changes in a job that exists already.

    `payload` replaces the payload and headers; `run_at` moves the job always, never, or only
    later or earlier; `reset_counts` (as `payload` unless given) forgets its attempts; `limits`
    replaces the job's own timeout, limits and result TTL.
    """

    payload: bool = True
    run_at: MoveWhen = True
    reset_counts: bool | None = None
    limits: bool = False

    def __post_init__(self) -> None:
        for name in ("payload", "limits"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"Update({name}=...) must be True or False")
        if self.reset_counts not in (None, True, False):
            raise TypeError("Update(reset_counts=...) must be True, False or None")
        if self.run_at not in (True, False, "if_later", "if_earlier"):
            raise ValueError('Update(run_at=...) must be True, False, "if_later" or "if_earlier"')

    @property
    def resets(self) -> bool:
        """Whether the job's counts start again."""
        return self.payload if self.reset_counts is None else self.reset_counts


#: What an enqueue does when its id is taken: nothing, change the job, or raise `DuplicateJob`.
OnConflict = Literal["reject", "update", "raise"] | Update


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job as it is asked for. Times are milliseconds; payload, headers and limits are opaque bytes.

    `update` None refuses when the id is taken. `fresh` says that the id was just made up, so that
    no storage needs to look for it. `waiter` names who is to be told when the job ends.
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
    limits: bytes = b""
    waiter: str | None = None


class Claim(msgspec.Struct, frozen=True, gc=False):
    """One run of a job, handed to one worker; `token` is the fence that its outcome must show.

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
    limits: bytes = b""
    created: int = 0
    run_at: int = 0
    attempts: int = 1
    retries: int = 0
    stalls: int = 0
    timeouts: int = 0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a storage knows about one job, as of one moment."""

    queue: str
    id: str
    state: State
    payload: bytes
    group: str | None = None
    priority: int = 0
    headers: bytes = b""
    limits: bytes = b""
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
    #: The format of the record, if it is newer than the software that looks: its payload is not shown then.
    format: int | None = None
