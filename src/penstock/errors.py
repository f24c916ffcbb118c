"""Every exception a user may meet, and the record of a remote one."""

from __future__ import annotations

import traceback as _traceback
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

__all__ = [
    "CallTimeout",
    "DuplicateJob",
    "ErrorKind",
    "InvalidPayload",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "NotDurable",
    "NotFinished",
    "PenstockError",
    "PermanentError",
    "Retry",
    "RunTimeout",
    "StallError",
    "StorageError",
    "StorageUnavailable",
    "VersionMismatch",
]

#: What reading bytes may raise that somebody else wrote: no such record, text that is none, nesting without end.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

#: A traceback longer than this loses its middle: the top and the bottom tell the story.
MAX_TRACEBACK = 8_000


class ErrorKind(StrEnum):
    """Why a job failed: the handler's word, the handler's failure, a dead worker, or the clock."""

    PERMANENT = "permanent"
    RETRIABLE = "retriable"
    STALL = "stall"
    TIMEOUT = "timeout"


class PenstockError(Exception):
    """The base of every error that Penstock raises."""


class DuplicateJob(PenstockError):
    """A job with this id exists already, and `on_conflict="raise"` was asked for."""


class JobNotFound(PenstockError):
    """There is no job with this id: never enqueued, or forgotten since."""


class NotFinished(PenstockError):
    """The job has no result yet."""


class JobFailed(PenstockError):
    """The job failed for good; `.error` says how."""

    def __init__(self, message: str, error: JobError) -> None:
        super().__init__(message)
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.error)


class JobCancelled(PenstockError):
    """The job was cancelled, so there is no result to give."""


class CallTimeout(PenstockError, TimeoutError):
    """No answer came in time. The job itself goes on."""


class LeaseLost(PenstockError):
    """The run is no longer ours: another worker may have the job, so nothing was changed."""


class InvalidPayload(PenstockError, ValueError):
    """The payload cannot be encoded, is too large, or cannot be decoded to the declared type."""


class StorageError(PenstockError):
    """The storage answered with an error."""


class StorageUnavailable(StorageError):
    """The storage could not be reached, or cannot take writes now."""


class NotDurable(StorageUnavailable):
    """The jobs are stored, but not as safely as `durability` asks, so they may be lost with their server.

    `.enqueued` has the answers of the call that was not confirmed, with how far it came. To enqueue the
    same ids again is safe, and confirms them.
    """

    def __init__(self, message: str, enqueued: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.enqueued = list(enqueued)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.enqueued)


class VersionMismatch(StorageError):
    """The storage was written by a newer Penstock than this one."""


class PermanentError(PenstockError):
    """Raise it in a handler to fail the job at once, without a retry."""

    kind = ErrorKind.PERMANENT


class StallError(PenstockError):
    """The worker that ran the job stopped answering."""


class RunTimeout(PenstockError):
    """The run took longer than its timeout."""


class Retry(PenstockError):
    """Raise it in a handler to run the job again: at a time, after a delay, or after the usual backoff."""

    def __init__(
        self,
        message: str = "",
        *,
        at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        count: bool = True,
    ) -> None:
        if at is not None and delay is not None:
            raise ValueError("Retry takes at= or delay=, not both")
        super().__init__(message or "the handler asked for a retry")
        self.retry_at = at
        self.retry_in = delay
        self.count = count


class JobError(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of an error: its class name, its message, its kind and its traceback as text."""

    type: str
    message: str
    kind: ErrorKind = ErrorKind.RETRIABLE
    traceback: str = ""

    @classmethod
    def from_exception(cls, error: BaseException, kind: ErrorKind | None = None) -> JobError:
        """Describe an exception; its own `kind` attribute counts when none is given."""
        if kind is None:
            permanent = getattr(error, "kind", None) == ErrorKind.PERMANENT
            kind = ErrorKind.PERMANENT if permanent else ErrorKind.RETRIABLE
        text = "".join(_traceback.format_exception(error))
        if len(text) > MAX_TRACEBACK:
            half = MAX_TRACEBACK // 2
            text = f"{text[:half]}\n  ... cut ...\n{text[-half:]}"
        return cls(type(error).__name__, _message(error), kind, text)

    def encode(self) -> bytes:
        """Its stored form."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> JobError:
        """Read an error back; one that cannot be read is still an error, and says so."""
        try:
            return _decode(data)
        except UNREADABLE:
            return cls("UnreadableError", f"{len(data)} bytes that are no error record", ErrorKind.PERMANENT)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:MAX_TRACEBACK]
    except Exception:  # a broken __str__ must not hide the failure itself
        return f"<{type(error).__name__} whose message cannot be shown>"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JobError).decode
