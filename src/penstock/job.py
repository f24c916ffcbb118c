"""The nouns: what a job is, what was asked, what is known, and what a worker holds."""

from __future__ import annotations

import hashlib
import os
import time
from base64 import b64encode, urlsafe_b64encode
from binascii import b2a_base64
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
    "Snapshot",
    "State",
    "Update",
    "check_name",
    "fail_queue_of",
    "family_of",
    "new_id",
    "new_ids",
    "new_token",
]

MAX_NAME_BYTES = 512
FAIL_SUFFIX = "/failures"
LONGEST_WITH_SUFFIX = MAX_NAME_BYTES - len(FAIL_SUFFIX)
#: Priorities lie between this and its negative.
MAX_PRIORITY = 2**31 - 1

#: From base 64 to the same letters as in URLs, but so that text is ordered as the bytes it stands for.
_IN_ORDER = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
)
#: Set in the time of an id, which would begin with "-" without it.
_FIRST_BIT = 1 << 47


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


def family_of(queue: str) -> str:
    """The family of a queue: its name up to the first `/`. What is atomic happens inside one.

    A name too long to carry the suffix of its fail queue is in the family of that queue instead.
    """
    if len(queue) > LONGEST_WITH_SUFFIX // 4 and fail_queue_of(queue) != queue + FAIL_SUFFIX:
        return fail_queue_of(queue).partition("/")[0]
    return queue.partition("/")[0]


def fail_queue_of(queue: str) -> str:
    """The queue of a queue's fail jobs; a name too long for the suffix is stood in for by its digest."""
    if len(queue.encode()) <= LONGEST_WITH_SUFFIX:
        return queue + FAIL_SUFFIX
    return hashlib.sha256(queue.encode()).hexdigest() + FAIL_SUFFIX


def new_id() -> str:
    """A fresh job id: 20 characters, the time in milliseconds before 72 random bits."""
    try:
        return _stamp() + _unused.pop()
    except IndexError:
        _unused.extend(_random(64))
        return new_id()


def new_ids(count: int) -> list[str]:
    """Many fresh ids with one system call.

    They ascend, as those made later do: an index that holds them grows at its end, where a page takes
    a hundred of them, and not in as many pages as there are ids.
    """
    stamp = _stamp()
    return [stamp + end for end in sorted(_random(count))]


def _stamp() -> str:
    """The first 8 characters of an id that is made now."""
    now = (_FIRST_BIT | int(time.time() * 1000)).to_bytes(6, "big")
    return b2a_base64(now, newline=False).translate(_IN_ORDER).decode()


def _random(count: int) -> list[str]:
    """The last 12 characters of so many ids."""
    text = b64encode(os.urandom(9 * count)).translate(_IN_ORDER).decode()
    return [text[at : at + 12] for at in range(0, 12 * count, 12)]


#: Ends of ids, made in one system call for many of them; a process that is forked makes its own.
_unused: list[str] = []
os.register_at_fork(after_in_child=_unused.clear)


def new_token() -> str:
    """A fresh claim token: 16 characters, 96 random bits."""
    return urlsafe_b64encode(os.urandom(12)).decode()


def check_name(value: object, name: str) -> str:
    """A name or id as given, or an exception that names the argument: 1 to 512 bytes of UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid Unicode (it holds a lone surrogate)") from None
    if not 1 <= size <= MAX_NAME_BYTES:
        raise ValueError(f"{name} must be 1 to {MAX_NAME_BYTES} bytes of UTF-8, not {size}")
    return value
