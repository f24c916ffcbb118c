"""Every exception that a user of Penstock may meet, and `JobError`, the stored record of one.

Exception
└── PenstockError
    ├── DuplicateJob          an id is taken, and `on_conflict="raise"`
    ├── JobNotFound           no job has this id
    ├── NotFinished           the job has no result yet
    ├── JobFailed             the job failed for good
    ├── JobCancelled          the job was cancelled
    ├── CallTimeout           no result within the caller's timeout (also a TimeoutError)
    ├── LeaseLost             the claim is no longer held
    ├── InvalidPayload        bytes or values that do not fit the serde (also a ValueError)
    ├── StorageError          the storage answered with an error
    │   ├── StorageUnavailable    it cannot be reached, or takes no writes
    │   │   └── NotDurable        stored, but less safely than asked for
    │   └── VersionMismatch       written by a newer Penstock
    ├── PermanentError        raised by a handler: fail without a retry
    ├── Retry                 raised by a handler: run the job again
    ├── StallError            recorded for a job whose worker vanished
    └── RunTimeout            recorded for a run that took too long
"""

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

#: The errors of decoding bytes that another program may have written: no such record, no UTF-8, nesting too deep.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

#: A traceback with more characters than this loses its middle: its top and its end matter most.
MAX_TRACEBACK = 8_000


class ErrorKind(StrEnum):
    """Kind of a failure: permanent or retriable as the handler raised it, a vanished worker, or a timeout."""

    PERMANENT = "permanent"
    RETRIABLE = "retriable"
    STALL = "stall"
    TIMEOUT = "timeout"


class PenstockError(Exception):
    """Base of every error that Penstock raises."""


class DuplicateJob(PenstockError):
    """A job with this id exists already, and `on_conflict="raise"` was asked for."""


class JobNotFound(PenstockError):
    """There is no job with this id: it was never enqueued, or is no longer kept."""


class NotFinished(PenstockError):
    """The job has no result yet."""


class JobFailed(PenstockError):
    """The job failed for good; `.error` is the record of its last error."""

    def __init__(self, message: str, error: JobError) -> None:
        super().__init__(message)
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.error)


class JobCancelled(PenstockError):
    """The job was cancelled, so it has no result."""


class CallTimeout(PenstockError, TimeoutError):
    """No result came within the timeout. The job itself goes on."""


class LeaseLost(PenstockError):
    """The claim was lost: another worker may have the job, so nothing was changed."""


class InvalidPayload(PenstockError, ValueError):
    """The payload cannot be encoded, is too large, or cannot be decoded to the declared type."""


class StorageError(PenstockError):
    """The storage answered with an error."""


class StorageUnavailable(StorageError):
    """The storage could not be reached, or cannot take writes now.

    `.uncertain` is True if the storage may have carried out the request though no answer came, False if it
    has not, and None if that is not known.
    """

    uncertain: bool | None = None


class NotDurable(StorageUnavailable):
    """The jobs are stored, but not as safely as `durability` asks, so they may be lost with their server.

    `.enqueued` has the answers that were not confirmed, each with the durability it reached. Enqueueing
    the same ids again is safe, and confirms them.
    """

    def __init__(self, message: str, enqueued: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.enqueued = list(enqueued)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.enqueued)


class VersionMismatch(StorageError):
    """The storage was written by a newer Penstock than this one."""


class PermanentError(PenstockError):
    """Raised by a handler to fail the job at once, without a retry."""

    kind = ErrorKind.PERMANENT


class StallError(PenstockError):
    """The worker that ran the job stopped renewing its lease."""


class RunTimeout(PenstockError):
    """The run took longer than its timeout."""


class Retry(PenstockError):
    """Raised by a handler to run the job again: at a time, after a delay, or after the usual backoff."""

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
    """Stored record of an error: its class name, message, kind, and traceback as text."""

    type: str
    message: str
    kind: ErrorKind = ErrorKind.RETRIABLE
    traceback: str = ""

    @classmethod
    def from_exception(cls, error: BaseException, kind: ErrorKind | None = None) -> JobError:
        """Return the record of an exception; without `kind` its own `kind` attribute is used."""
        if kind is None:
            permanent = getattr(error, "kind", None) == ErrorKind.PERMANENT
            kind = ErrorKind.PERMANENT if permanent else ErrorKind.RETRIABLE
        text = "".join(_traceback.format_exception(error))
        if len(text) > MAX_TRACEBACK:
            half = MAX_TRACEBACK // 2
            text = f"{text[:half]}\n  ... cut ...\n{text[-half:]}"
        return cls(type(error).__name__, _message(error), kind, text)

    def encode(self) -> bytes:
        """Return its stored form."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> JobError:
        """Decode a record; unreadable bytes give an "UnreadableError"."""
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
