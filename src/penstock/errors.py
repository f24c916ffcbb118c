"""Every exception that a user of Penstock may meet, and `JobError`, the stored record of one.

Exception
└── PenstockError
    ├── DuplicateJob          an id is taken, and `on_conflict="raise"`
    ├── QueueFull             as many jobs wait as `max_queued` allows
    ├── JobNotFound           no job has this id
    ├── ScheduleNotFound      no schedule of the queue has this name
    ├── NotFinished           the job has no result yet
    ├── JobFailed             the job failed for good
    ├── JobCancelled          the job was cancelled
    ├── CallTimeout           no result within the caller's timeout (also a TimeoutError)
    ├── LeaseLost             the claim is no longer held
    ├── InvalidPayload        bytes or values that do not fit the serde (also a ValueError)
    ├── NotSupported          the storage has no such feature
    ├── StorageError          the storage answered with an error
    │   ├── StorageUnavailable    it cannot be reached, or takes no writes now
    │   │   └── NotDurable        stored, but less safely than asked for
    │   ├── AccessDenied          it refused the credentials, or this user may not do this
    │   ├── StorageUnusable       it cannot be used until an operator changes something
    │   └── VersionMismatch       written by another version of Penstock
    ├── NotSupported          this storage has no schedules, or no limits
    ├── PermanentError        raised by a handler: fail without a retry
    ├── Retry                 raised by a handler: run the job again
    ├── StallError            recorded for a job whose worker vanished
    └── RunTimeout            recorded for a run that took too long
"""

from __future__ import annotations

import os
import traceback as _traceback
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Literal, TypeVar

import msgspec

from penstock._times import milliseconds, span_ms

__all__ = [
    "AccessDenied",
    "CallTimeout",
    "DuplicateJob",
    "ErrorKind",
    "InvalidPayload",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JournalFull",
    "LeaseLost",
    "NotDurable",
    "NotFinished",
    "NotSupported",
    "PenstockError",
    "PermanentError",
    "QueueFull",
    "Retry",
    "RunTimeout",
    "ScheduleNotFound",
    "SignalTimeout",
    "StallError",
    "StorageError",
    "StorageUnavailable",
    "StorageUnusable",
    "VersionMismatch",
]

T = TypeVar("T")

#: The errors of decoding bytes that another program may have written: no such record, no UTF-8, nesting too deep.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

#: A traceback with more characters than this loses its middle: its top and its end matter most.
MAX_TRACEBACK = 8_000

#: The most bytes of a stored error: message and traceback, each of whose characters may be escaped in six bytes.
MAX_ERROR = 131_072

#: The longest class name that is stored, in characters.
MAX_TYPE = 200

#: The folder of the package: a stored traceback begins with the first frame outside of it.
PACKAGE = os.path.dirname(__file__) + os.sep

NAME_OF_CLASS: Any = type.__dict__["__name__"]


class ErrorKind(StrEnum):
    """Kind of a failure: permanent or retriable as the handler raised it, a vanished worker, or a timeout.

    `abandoned` is that of a flow whose producer stopped before it had stored all of it.
    """

    PERMANENT = "permanent"
    RETRIABLE = "retriable"
    STALL = "stall"
    TIMEOUT = "timeout"
    ABANDONED = "abandoned"


class PenstockError(Exception):
    """Base of every error that Penstock raises."""


class DuplicateJob(PenstockError):
    """A job with this id exists already, and `on_conflict="raise"` was asked for."""


class QueueFull(PenstockError):
    """The queue has no room for these jobs: as many wait in it as its `max_queued` allows.

    `.queue`, `.waiting` and `.max_queued` name the queue, the number of its waiting jobs and the bound. `.enqueued` has
    the answers of the jobs of an `enqueue_many` that were stored before; of one `enqueue` or `call` nothing was.
    """

    def __init__(self, queue: str, waiting: int, max_queued: int, count: int = 1, enqueued: Sequence[Any] = ()) -> None:
        if waiting < max_queued:
            why = f"has room for {max_queued - waiting} more, not for {count}"
        else:
            why = f"is full, {waiting} waiting"
        stored = f"only the first {len(enqueued)} were stored" if enqueued else "nothing was stored"
        super().__init__(
            f"queue {queue!r} {why} (max_queued is {max_queued}), so {stored}: enqueue again when workers have caught "
            "up, or raise max_queued"
        )
        self.queue = queue
        self.waiting = waiting
        self.max_queued = max_queued
        self.count = count
        self.enqueued = list(enqueued)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.queue, self.waiting, self.max_queued, self.count, self.enqueued)


class JobNotFound(PenstockError):
    """There is no job with this id: it was never enqueued, or is no longer kept."""


class ScheduleNotFound(PenstockError):
    """There is no schedule with this name."""


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
    """The job was cancelled, so it has no result; `.error` has the type `Expired` if it expired, else is None."""

    def __init__(self, message: str, error: JobError | None = None) -> None:
        super().__init__(message)
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.error)


class SignalTimeout(PenstockError, TimeoutError):
    """No signal came in the time for which a job waited."""


class CallTimeout(PenstockError, TimeoutError):
    """No result came within the timeout. The job itself goes on; `.id` is its id, to wait for it again."""

    def __init__(self, message: str = "", id: str = "") -> None:
        super().__init__(message)
        self.id = id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.id)


class LeaseLost(PenstockError):
    """The claim was lost: another worker may have the job, so nothing was changed."""


class InvalidPayload(PenstockError, ValueError):
    """The payload cannot be encoded, is too large, or cannot be decoded to the declared type.

    `.without_values` is the message without any part of the payload, None if there is no such text: `Signed`,
    `Encrypted` and other wrappers pass on nothing else of an error of the serde inside.
    """

    def __init__(self, message: str = "", *, without_values: str | None = None) -> None:
        super().__init__(message)
        self.without_values = without_values


class NotSupported(PenstockError):
    """The storage lacks an optional part of the protocol that this call needs."""


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


class AccessDenied(StorageError):
    """The storage refused the credentials, or does not allow this user to do this. A worker goes on trying."""


class StorageUnusable(StorageError):
    """The storage cannot be used until an operator changes something, so a worker exits instead of waiting.

    A file is damaged, read-only, of another user or of another program, or was deleted while it was open. The
    message has the way out.
    """


class VersionMismatch(StorageError):
    """The storage was written by a newer or older Penstock, in a layout that this one does not know."""


class PermanentError(PenstockError):
    """Raised by a handler to fail the job at once, without a retry."""

    kind = ErrorKind.PERMANENT


class JournalFull(PermanentError):
    """The journal of a job has no room for another checkpoint."""


class StallError(PenstockError):
    """The worker that ran the job stopped renewing its lease."""


class RunTimeout(PenstockError):
    """The run took longer than its timeout."""


class Retry(PenstockError):
    """Raised by a handler to run the job again: at a time, after a delay, or after the usual backoff.

    With `pause` no other job of its group (its queue, if it has no group), or of its queue, starts until then.
    """

    def __init__(
        self,
        message: str = "",
        *,
        at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        count: bool = True,
        pause: Literal["group", "queue"] | None = None,
    ) -> None:
        if not isinstance(message, str):
            raise TypeError(f"message must be a str, not {type(message).__name__}; delay= takes seconds")
        if at is not None and delay is not None:
            raise ValueError("Retry takes at= or delay=, not both")
        if at is not None:
            milliseconds(at, "at")
        if delay is not None:
            span_ms(delay, "delay")
        if not isinstance(count, bool):
            raise TypeError(f"count must be True or False, not {type(count).__name__}")
        if pause not in (None, "group", "queue"):
            raise ValueError(f"pause must be 'group', 'queue' or None, not {pause!r}")
        super().__init__(message or "the handler asked for a retry")
        self.retry_at = at
        self.retry_in = delay
        self.count = count
        self.pause: Literal["group", "queue"] | None = pause


class JobError(msgspec.Struct, frozen=True, array_like=True):
    """Stored record of an error: its class name, message, kind, and traceback as text.

    `path` is its class with the module, empty if that is not known. `key` is the fingerprint that groups failed jobs
    of one cause, 16 hexadecimal digits, empty for an error that no run raised. It stays the last field: storages find
    it at the end of the record.
    """

    type: str
    message: str
    kind: ErrorKind = ErrorKind.RETRIABLE
    traceback: str = ""
    path: str = ""
    key: str = ""

    @classmethod
    def from_exception(cls, error: BaseException, kind: ErrorKind | None = None) -> JobError:
        """Return the record of an exception, whatever its attributes and methods do.

        Without `kind` its own `kind` attribute is used. Text that UTF-8 cannot encode is escaped. The
        traceback begins with the first frame outside of this package, if there is one.
        """
        if kind is None:
            permanent = attempted(lambda: bool(getattr(error, "kind", None) == ErrorKind.PERMANENT), otherwise=False)
            kind = ErrorKind.PERMANENT if permanent else ErrorKind.RETRIABLE
        name = escaped(NAME_OF_CLASS.__get__(type(error)))[:MAX_TYPE]
        message = attempted(lambda: _message(error), f"<{name} whose message cannot be shown>")
        return cls(name, message, kind, _traceback_text(error, f"{name}: {message}\n"), _class_path(type(error)))

    def encode(self) -> bytes:
        """Return its stored form."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> JobError:
        """Decode a record; unreadable bytes give an "UnreadableError"."""
        try:
            return _decode(data)
        except UNREADABLE:
            return cls("UnreadableError", f"{len(data)} bytes that are not an error record", ErrorKind.PERMANENT)


def attempted(call: Callable[[], T], otherwise: T) -> T:
    """Return the value of a call that runs methods of a user's exception, or `otherwise` if it raises anything."""
    try:
        return call()
    except BaseException:
        return otherwise


def escaped(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates, as in `os.fsdecode(b"\\xff")`, become backslash escapes."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def _class_path(cls: type[BaseException]) -> str:
    """Return module and name of a class, whatever its metaclass does."""
    module = attempted(lambda: str.__str__(type.__dict__["__module__"].__get__(cls)), "")
    name = attempted(lambda: str.__str__(type.__dict__["__qualname__"].__get__(cls)), "")
    return escaped(f"{module}.{name}" if module and name else name)[: 2 * MAX_TYPE]


def _message(error: BaseException) -> str:
    return escaped(str.__getitem__(str(error), slice(MAX_TRACEBACK)))


def _traceback_text(error: BaseException, last_line: str) -> str:
    """Return the traceback of an exception as text, without its middle if it is long."""
    trace = _users_part(error.__traceback__)
    text = attempted(lambda: "".join(_traceback.format_exception(type(error), error, trace)), "")
    if not text:  # a note, a cause or a group that cannot be shown
        text = attempted(lambda: "".join(_traceback.format_tb(trace)), "") + last_line
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = f"{text[:half]}\n  ... cut ...\n{text[-half:]}"
    return escaped(text)


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its first frames that are of this package; all of it if it has no others."""
    part = trace
    while part is not None and part.tb_frame.f_code.co_filename.startswith(PACKAGE):
        part = part.tb_next
    return trace if part is None else part


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JobError).decode
