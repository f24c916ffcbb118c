"""The histories of a job, bounded lists kept with it: failed attempts, log lines, and the parts that its runs emit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from penstock.errors import UNREADABLE, JobError, escaped
from penstock.model.clock import as_datetime
from penstock.model.flow import Checkpoint, NewCheckpoint

__all__ = [
    "LOG_LEVELS",
    "MAX_ATTEMPTS",
    "MAX_LINE",
    "MAX_LINES",
    "MAX_LOG",
    "MAX_MESSAGE",
    "MAX_PART",
    "MAX_PARTS",
    "MAX_STREAM",
    "MAX_TRACEBACK",
    "Attempt",
    "AttemptOutcome",
    "HistoryEntry",
    "HistoryName",
    "HistoryPage",
    "Line",
    "LogLevel",
    "NewLine",
    "Part",
    "Report",
    "Reported",
    "attempt_data",
    "brief_error",
    "line_data",
    "part_data",
    "read_attempt",
    "read_line",
    "read_part",
]

#: The histories of a job.
HistoryName = Literal["attempts", "log", "stream"]

#: The entries of `attempts` at most: the first, and the last of the others. Of an error they keep a traceback of this
#: many bytes, without its middle, and a message of this many.
MAX_ATTEMPTS, MAX_TRACEBACK, MAX_MESSAGE = 20, 4_096, 1_024

#: The lines and bytes of `log` at most, after which the oldest go, and the bytes of one line, after which it is cut.
MAX_LINES, MAX_LOG, MAX_LINE = 1_000, 262_144, 8_192

#: The parts and bytes of `stream` at most, after which the oldest go, and the bytes of one part. Parts are counted by
#: their numbers.
MAX_PARTS, MAX_STREAM, MAX_PART = 1_000, 1_048_576, 65_536

#: How an attempt ended that did not complete: it will be repeated, its job failed or was cancelled, or its worker died.
AttemptOutcome = Literal["retrying", "failed", "cancelled", "stalled"]

#: The importance of a log line.
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)


class NewLine(msgspec.Struct, frozen=True, gc=False):
    """A log line on its way to the storage: its text, its level, and its age (ms) when the report is sent."""

    text: str
    level: LogLevel = "info"
    age: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Progress, log lines, parts and checkpoints of the run with this token; `progress` is None if it has not changed.

    `first` is the number of the first of the lines within the run, from 1 on, and `first_part` that of the first of the
    parts. Lines and parts that the storage has already are left out, so a report may be sent again. A part is its
    bytes, see `part_data`.
    """

    queue: str
    id: str
    token: str
    progress: bytes | None = None
    lines: tuple[NewLine, ...] = ()
    first: int = 1
    checkpoints: tuple[NewCheckpoint, ...] = ()
    parts: tuple[bytes, ...] = ()
    first_part: int = 1


class Reported(msgspec.Struct, frozen=True, gc=False):
    """The answer to a report: kept, or lost because the token was stale, so that nothing changed.

    `checkpoints` has, for each one of the report, the one of its name that is stored now: this or an earlier one. It is
    None for a signal that has not come.
    """

    kept: bool
    checkpoints: tuple[Checkpoint | None, ...] = ()


class HistoryEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a history: its number in it from 1 on, its time (ms), the attempt it belongs to, and its bytes.

    The bytes of `attempts` are msgpack: outcome, begin of the run (ms, 0: unknown), worker, error (bytes). Those of
    `log` are msgpack too: level, text. Those of `stream`: number of the part within its run, encoded value.
    `read_attempt`, `read_line` and `read_part` read them.

    The numbers of `stream` go on by one for each part of a run, stored or not: a gap is where parts were dropped.
    """

    n: int
    at: int
    attempt: int
    data: bytes


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of a history, oldest first; `more` if there are entries after it.

    A gap in the numbers is where entries went because there were too many.
    """

    entries: list[HistoryEntry]
    more: bool = False


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not complete: its number, worker and times, how it ended, and its error.

    `started_at` is None if it is not known. `error` is None for a cancelled or stalled one.
    """

    number: int
    outcome: AttemptOutcome
    started_at: datetime | None
    ended_at: datetime
    worker: str
    error: JobError | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a run logged. `n` is its number in the log of the job, for `after`."""

    n: int
    at: datetime
    attempt: int
    level: LogLevel
    text: str


class Part(msgspec.Struct, frozen=True):
    """A part of the stream of a job: its value, its number in the stream for `after`, and the attempt that emitted it.

    `first` is True for the first part of a run that its reader gets: a run was repeated and begins anew. A gap in the
    numbers is where parts went because there were too many.
    """

    value: Any
    n: int
    attempt: int
    first: bool


class _Ended(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of an entry of `attempts`."""

    outcome: AttemptOutcome
    started: int
    worker: str
    error: bytes


class _Logged(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of an entry of `log`."""

    level: LogLevel
    text: str


def attempt_data(outcome: AttemptOutcome, started: int, worker: str, error: bytes) -> bytes:
    """Return the bytes of an entry of `attempts`."""
    return _encode(_Ended(outcome, started, worker, error))


def line_data(line: NewLine) -> bytes:
    """Return the bytes of an entry of `log`; a long text is cut, and text that UTF-8 cannot encode is escaped."""
    text = line.text if len(line.text) <= MAX_LINE else line.text[: MAX_LINE + 1]
    return _encode(_Logged(line.level, _cut(escaped(text), MAX_LINE)))


def part_data(number: int, value: bytes) -> bytes:
    """Return the bytes of an entry of `stream`: the part with this number within its run, from 1 on."""
    return _encode((number, value))


def brief_error(error: JobError) -> bytes:
    """Return the stored form of an error for `attempts`; no bytes if that is its usual form."""
    if len(error.traceback) + len(error.message) <= MAX_MESSAGE // 4:
        return b""  # at most four bytes for each character
    message, traceback = _cut(error.message, MAX_MESSAGE), _without_middle(error.traceback)
    if message == error.message and traceback == error.traceback:
        return b""
    return replace(error, message=message, traceback=traceback).encode()


def _cut(text: str, size: int) -> str:
    """Return a text of at most this many bytes: a longer one ends with an ellipsis."""
    data = text.encode()
    return text if len(data) <= size else f"{data[: size - 3].decode(errors='ignore')}…"


def _without_middle(text: str) -> str:
    data = text.encode()
    if len(data) <= MAX_TRACEBACK:
        return text
    gap = "\n  ... cut ...\n"
    half = (MAX_TRACEBACK - len(gap)) // 2
    return f"{data[:half].decode(errors='ignore')}{gap}{data[-half:].decode(errors='ignore')}"


def read_attempt(entry: HistoryEntry) -> Attempt | None:
    """Return an entry of `attempts` as users read it; None if it is damaged."""
    try:
        ended = _decode_ended(entry.data)
    except UNREADABLE:
        return None
    return Attempt(
        number=entry.attempt,
        outcome=ended.outcome,
        started_at=as_datetime(ended.started) if ended.started else None,
        ended_at=as_datetime(entry.at),
        worker=ended.worker,
        error=JobError.decode(ended.error) if ended.error else None,
    )


def read_line(entry: HistoryEntry) -> Line | None:
    """Return an entry of `log` as users read it; None if it is damaged."""
    try:
        logged = _decode_logged(entry.data)
    except UNREADABLE:
        return None
    return Line(n=entry.n, at=as_datetime(entry.at), attempt=entry.attempt, level=logged.level, text=logged.text)


def read_part(entry: HistoryEntry) -> tuple[int, bytes] | None:
    """Return the number in the stream at which the run of a part begins, and its encoded value; None if damaged."""
    try:
        number, value = _decode_part(entry.data)
    except UNREADABLE:
        return None
    return entry.n - number + 1, value


_encode = msgspec.msgpack.Encoder().encode
_decode_ended = msgspec.msgpack.Decoder(_Ended).decode
_decode_part = msgspec.msgpack.Decoder(tuple[int, bytes]).decode
_decode_logged = msgspec.msgpack.Decoder(_Logged).decode
