"""A job's row in Python: its bucket, its state by the clock, and its snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec

from penstock.model.checks import MAX_COST
from penstock.model.clock import MAX_MS
from penstock.model.job import MAX_PRIORITY, MoveWhen, Snapshot, State, Update
from penstock.storage.base import CANCEL_MODES

__all__ = [
    "FOREVER",
    "FORMAT",
    "LARGEST",
    "QUARANTINE_MS",
    "STATES",
    "Bucket",
    "JobRow",
    "expiry",
    "flags_of",
    "flags_to_bits",
    "read_job",
    "snapshot",
    "state_of",
]

#: The `expires` of a job that is kept forever: later than any clock, so that one index serves all jobs.
FOREVER = 1 << 60

#: No integer that Penstock writes is larger.
LARGEST = FOREVER

#: How long (ms) a record that cannot be read is kept: as long as a failed job by default.
QUARANTINE_MS = 7 * 24 * 3600 * 1000

#: The newest format of headers, bounds and payload that this software reads, and the one that it writes. The
#: other columns mean the same in every format.
FORMAT = 1


class Bucket(IntEnum):
    """The column `place`: which of the ordered structures of its queue a row belongs to.

    `LATER` is a scheduled or retrying job that has not been promoted yet, `PARKED` one that waits for software
    that knows its format, `LANE` one in the list of its group.
    """

    PARKED = -1
    LATER = 0
    READY = 1
    LANE = 2
    RUNNING = 3
    BLOCKED = 4
    COMPLETED = 5
    FAILED = 6
    CANCELLED = 7
    SUSPENDED = 8


PARKED, LATER, READY, LANE, RUNNING, BLOCKED, COMPLETED, FAILED, CANCELLED, SUSPENDED = -1, 0, 1, 2, 3, 4, 5, 6, 7, 8

#: Rows are counted by slot: their bucket, but retrying jobs in `LATER` have a slot of their own. -1 is the last.
RETRYING, SLOT_COUNT = 9, 11

#: The states that do not depend on the clock.
STATES: dict[int, State] = {
    Bucket.RUNNING: State.RUNNING,
    Bucket.BLOCKED: State.BLOCKED,
    Bucket.COMPLETED: State.COMPLETED,
    Bucket.FAILED: State.FAILED,
    Bucket.CANCELLED: State.CANCELLED,
}


class JobRow(msgspec.Struct, gc=False):
    """A whole row of `jobs`, in the order of `JOB_COLUMNS`; changed in memory, then saved."""

    n: int
    queue: int
    id: str
    twin: int
    place: int
    rank: int
    time: int
    seq: int
    due: int
    created: int
    grp: str | None
    retried: int
    solo: int
    format: int
    attempts: int
    retries: int
    stalls: int
    timeouts: int
    start_by: int | None
    cost: int
    window_ms: int | None
    earliest: int | None
    settled: str | None
    flags: int | None
    token: str | None
    worker: str | None
    until: int | None
    begun: int | None
    cancel: str | None
    cancel_ttl: int | None
    expires: int | None
    number: int | None
    finished: int | None
    error_key: str | None
    progress: bytes | None
    error: bytes | None
    result: bytes | None
    headers: bytes
    bounds: bytes
    payload: bytes
    #: The slot in which its queue counts it, and the group whose backoffs it is counted in.
    counted_slot: int = 0
    counted_backoff: str | None = None
    #: Of a damaged record, which `read_job` has repaired in memory: whether the job cannot be run, whether anything
    #: was repaired that was not counted yet, and whether the slot in which its queue counts it is not known.
    damaged: bool = False
    repaired: bool = False
    uncounted: bool = False

    def __post_init__(self) -> None:
        self.counted_slot = self.slot
        self.counted_backoff = self.backoff

    @property
    def slot(self) -> int:
        """The slot in which it is to be counted: its bucket, or `RETRYING`."""
        return RETRYING if self.retried and self.place == LATER else self.place

    @property
    def backoff(self) -> str | None:
        """The group that it waits for its next run in, by a backoff or suspended after a run, or None."""
        return self.grp if self.retried and self.place in (LATER, SUSPENDED) else None

    @property
    def size(self) -> int:
        """About how many bytes its record has."""
        parts: tuple[Any, ...] = self.payload, self.headers, self.bounds, self.error, self.result, self.progress
        return sum(len(part) for part in parts if isinstance(part, bytes | str))

    @property
    def holds_group(self) -> bool:
        """Whether it holds its group: by running, by its backoff, or suspended after a run."""
        return self.grp is not None and (self.place == RUNNING or self.backoff is not None)

    @property
    def waiting(self) -> bool:
        """Whether it is queued, scheduled, retrying or suspended."""
        return self.place <= LANE or self.place == SUSPENDED

    @property
    def ended(self) -> bool:
        """Whether it has completed, failed or was cancelled."""
        return BLOCKED < self.place < SUSPENDED

    def expired(self, now: int) -> bool:
        """Return whether it has ended and its TTL is over, though it was not purged yet."""
        return self.ended and self.expires is not None and self.expires <= now

    def values(self) -> tuple[object, ...]:
        """Return the parameters of `job_save`."""
        return (
            self.twin, self.place, self.rank, self.time, self.seq, self.due, self.grp, self.retried, self.solo,
            self.format, self.attempts, self.retries, self.stalls, self.timeouts, self.start_by, self.cost,
            self.window_ms, self.earliest, self.settled, self.flags, self.token, self.worker, self.until, self.begun,
            self.cancel, self.cancel_ttl, self.expires, self.number, self.finished, self.error_key,
            self.progress, self.error, self.result,
            self.headers, self.bounds, self.payload, self.n,
        )  # fmt: skip


_TEXT, _INT, _BYTES, _NONE = frozenset({str}), frozenset({int}), frozenset({bytes}), frozenset({type(None)})

#: The types of each column, in the order of `JobRow`.
_TYPES = (
    _INT, _INT, _TEXT, *(_INT,) * 7, _TEXT | _NONE, *(_INT,) * 7, _INT | _NONE, _INT, *(_INT | _NONE,) * 2,
    _TEXT | _NONE, _INT | _NONE,
    *(_TEXT | _NONE,) * 2, *(_INT | _NONE,) * 2, _TEXT | _NONE, *(_INT | _NONE,) * 4, _TEXT | _NONE,
    *(_BYTES | _NONE,) * 3, *(_BYTES,) * 3,
)  # fmt: skip
_COLUMNS = JobRow.__struct_fields__[: len(_TYPES)]
_ID, _GRP, _START_BY, _COST = (_COLUMNS.index(name) for name in ("id", "grp", "start_by", "cost"))
_CANCEL, _PAYLOADS = (_COLUMNS.index(name) for name in ("cancel", "headers"))

#: Values in place of those that cannot be read; of the other columns 0, or None where that is allowed.
_REPLACED: dict[str, Any] = {"place": FAILED, "format": FORMAT, "cost": 1, "cancel_ttl": QUARANTINE_MS}

#: Combinations of types that were found sound, so that most rows are checked by one look-up.
_sound_types: set[tuple[type, ...]] = set()
MAX_SOUND_TYPES = 1_000


def read_job(values: Sequence[Any]) -> JobRow:
    """Return the job of a row. Values that Penstock never writes are replaced in memory, and the job is marked.

    The columns of its last run and of its end are replaced without harm. A job with other unreadable columns is
    `damaged`: it must not run, and `damage.set_aside` fails it with its columns kept.
    """
    types = tuple(map(type, values))
    if types in _sound_types:
        if _in_range(values):
            return JobRow(*values)
    elif all(type in allowed for type, allowed in zip(types, _TYPES, strict=True)) and _in_range(values):
        if len(_sound_types) < MAX_SOUND_TYPES:
            _sound_types.add(types)
        return JobRow(*values)
    return _repair(values)


def _in_range(values: Sequence[Any]) -> bool:
    """Return whether the values of a row, whose types are sound, are such as Penstock writes."""
    _, _, _, twin, place, rank, time, seq, due, created, _, retried, solo, format, *counts = values[:18]
    cancel, cancel_ttl = values[_CANCEL : _CANCEL + 2]
    return (
        0 <= twin <= 1
        and PARKED <= place <= SUSPENDED
        and 0 <= retried <= 1
        and 0 <= solo <= 1
        and -MAX_PRIORITY <= rank <= MAX_PRIORITY
        and min(counts) >= 0
        and 1 <= values[_COST] <= MAX_COST
        and 0 <= (values[_COST + 1] or 0) <= LARGEST
        and 0 <= (values[_COST + 2] or 0) <= LARGEST
        and min(time, seq, due, created, format) >= -LARGEST
        and max(time, seq, due, created, format, *counts) <= LARGEST
        and (cancel is None or cancel in CANCEL_MODES)
        and (cancel_ttl is None or 0 <= cancel_ttl <= LARGEST)
    )


_RANGES: dict[str, tuple[int, int]] = {
    "twin": (0, 1), "place": (PARKED, SUSPENDED), "retried": (0, 1), "solo": (0, 1),
    "rank": (-MAX_PRIORITY, MAX_PRIORITY), "cost": (1, MAX_COST),
    **dict.fromkeys(("attempts", "retries", "stalls", "timeouts", "window_ms", "earliest", "cancel_ttl"), (0, LARGEST)),
    **dict.fromkeys(("time", "seq", "due", "created", "format"), (-LARGEST, LARGEST)),
}  # fmt: skip


def _repair(values: Sequence[Any]) -> JobRow:
    """Return the job of a damaged row."""
    fixed: list[Any] = []
    wrong: set[int] = set()
    for at, (name, value, allowed) in enumerate(zip(_COLUMNS, values, _TYPES, strict=True)):
        low, high = _RANGES.get(name, (-(1 << 63), 1 << 63))
        known = name != "cancel" or value is None or value in CANCEL_MODES
        if type(value) in allowed and known and (type(value) is not int or low <= value <= high):
            fixed.append(value)
            continue
        wrong.add(at)
        if at == _ID:
            fixed.append(_bytes(value).decode("utf-8", "replace"))
        elif at >= _PAYLOADS:
            fixed.append(value)  # opaque: written back as it was
        else:
            fixed.append(_REPLACED.get(name, None if type(None) in allowed else 0))
    job = JobRow(*fixed)
    job.repaired = True
    job.damaged = any(at < _START_BY or at >= _PAYLOADS for at in wrong)
    job.uncounted = bool(wrong & {_COLUMNS.index("place"), _COLUMNS.index("retried")})
    return job


def state_of(job: JobRow, now: int) -> State:
    """Return a job's state; that of a waiting job depends on the clock."""
    state = STATES.get(job.place)
    if state is not None:
        return state
    if job.place == SUSPENDED:
        return State.QUEUED if job.until is not None and job.until <= now else State.SUSPENDED
    if job.place != LATER or job.due <= now:
        return State.QUEUED  # a promoted job stays queued if the clock is set back
    return State.RETRYING if job.retried else State.SCHEDULED


def expiry(ttl: int | None, now: int) -> int:
    """Return when a record that is kept for `ttl` ms expires."""
    return FOREVER if ttl is None else now + ttl


def snapshot(queue: str, job: JobRow, now: int, format: int = FORMAT) -> Snapshot:
    """Return the snapshot of a job; of a damaged record, or one of a newer format, only the readable parts."""
    newer = job.format > format
    running, finished = job.place == RUNNING, job.ended
    return Snapshot(
        queue=queue,
        id=job.id,
        state=state_of(job, now),
        payload=b"" if newer else _bytes(job.payload),
        group=job.grp,
        priority=-job.rank,
        headers=b"" if newer else _bytes(job.headers),
        bounds=b"" if newer else _bytes(job.bounds),
        created=job.created,
        run_at=job.due,
        attempts=job.attempts,
        retries=job.retries,
        stalls=job.stalls,
        timeouts=job.timeouts,
        progress=job.progress if running else None,
        worker=job.worker if running or finished else None,
        result=job.result if finished else None,
        error=None if newer and not finished else job.error,
        cancel=job.cancel if running else None,
        finished=job.finished if finished else None,
        expires=None if not finished or job.expires == FOREVER else job.expires,
        started=_started(job) if running or finished else None,
        start_by=job.start_by,
        cost=job.cost,
        window=job.window_ms,
        format=job.format if newer else None,
    )


def _started(job: JobRow) -> int | None:
    return job.begun if job.begun is not None and 0 < job.begun <= MAX_MS else None


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode("utf-8", "surrogateescape")


_MOVES: tuple[MoveWhen, ...] = (False, True, "if_later", "if_earlier")


def flags_to_bits(flags: Update) -> int:
    """Encode the update flags of a successor as one integer."""
    move = next(i for i, value in enumerate(_MOVES) if value == flags.run_at)
    bits = move | flags.payload << 2 | flags.resets << 3 | flags.bounds << 4
    return bits | flags.priority << 5 | flags.group << 6


def flags_of(bits: int) -> Update:
    """Decode the update flags of a successor."""
    return Update(
        payload=bool(bits & 4),
        run_at=_MOVES[bits & 3],
        reset_counts=bool(bits & 8),
        bounds=bool(bits & 16),
        priority=bool(bits & 32),
        group=bool(bits & 64),
    )
