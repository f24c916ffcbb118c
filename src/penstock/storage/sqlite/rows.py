"""A job's row as Python sees it: where it is, its state by the clock, and what is shown of it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from penstock.model.job import MoveWhen, Snapshot, State, Update

__all__ = [
    "FOREVER",
    "FORMAT",
    "STATES",
    "Bucket",
    "JobRow",
    "expiry",
    "flags_of",
    "flags_to_bits",
    "snapshot",
    "state_of",
]

#: The `expires` of a job that is kept for ever: later than any clock, so that one order fits all.
FOREVER = 1 << 60


#: The newest format of headers, limits and payload that is read here, and the one that is written. The
#: other columns mean the same in every format.
FORMAT = 1


class Bucket(IntEnum):
    """Which structure a row is in.

    `LATER` is a waiting job that has not entered the order yet, `PARKED` one that has left it until
    somebody comes who knows its format.
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


PARKED, LATER, READY, LANE, RUNNING, BLOCKED, COMPLETED, FAILED = -1, 0, 1, 2, 3, 4, 5, 6

#: Rows are counted by place. Later ones for a further try have this slot; the last one, -1, is of the parked.
RETRYING, SLOT_COUNT = 8, 10

#: The states that do not depend on the clock.
STATES: dict[int, State] = {
    Bucket.RUNNING: State.RUNNING,
    Bucket.BLOCKED: State.BLOCKED,
    Bucket.COMPLETED: State.COMPLETED,
    Bucket.FAILED: State.FAILED,
    Bucket.CANCELLED: State.CANCELLED,
}


class JobRow(msgspec.Struct, gc=False):
    """A whole row, in the order of `JOB_COLUMNS`; changed in memory, then saved."""

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
    settled: str | None
    flags: int | None
    token: str | None
    worker: str | None
    until: int | None
    cancel: str | None
    cancel_ttl: int | None
    expires: int | None
    number: int | None
    finished: int | None
    progress: bytes | None
    error: bytes | None
    result: bytes | None
    headers: bytes
    limits: bytes
    payload: bytes
    #: Where its row is counted.
    counted_slot: int = 0

    def __post_init__(self) -> None:
        self.counted_slot = self.slot

    @property
    def slot(self) -> int:
        """Where it is to be counted: by its place, but for one that waits for a further try."""
        return RETRYING if self.retried and self.place == LATER else self.place

    @property
    def holds_group(self) -> bool:
        """Whether it holds its group: by running, or by waiting out a backoff."""
        return self.grp is not None and (self.place == RUNNING or (self.place == LATER and bool(self.retried)))

    @property
    def waiting(self) -> bool:
        return self.place <= LANE

    def expired(self, now: int) -> bool:
        """Whether it has ended and its time is over, though nobody has purged it yet."""
        return self.place > BLOCKED and self.expires is not None and self.expires <= now

    def values(self) -> tuple[object, ...]:
        """What `job_save` writes."""
        return (
            self.twin, self.place, self.time, self.seq, self.due, self.retried, self.solo, self.format, self.attempts,
            self.retries, self.stalls, self.timeouts, self.settled, self.flags, self.token, self.worker, self.until,
            self.cancel, self.cancel_ttl, self.expires, self.number, self.finished, self.progress, self.error,
            self.result, self.headers, self.limits, self.payload, self.n,
        )  # fmt: skip


def state_of(job: JobRow, now: int) -> State:
    """A job's state: of a waiting one it is a matter of the clock."""
    state = STATES.get(job.place)
    if state is not None:
        return state
    if job.place != LATER or job.due <= now:
        return State.QUEUED  # one that has entered stays so if the clock is set back
    return State.RETRYING if job.retried else State.SCHEDULED


def expiry(ttl: int | None, now: int) -> int:
    """When something kept for `ttl` ms is forgotten."""
    return FOREVER if ttl is None else now + ttl


def snapshot(queue: str, job: JobRow, now: int, format: int = FORMAT) -> Snapshot:
    """What is shown of a job. A damaged record, or one of a newer format, is shown as far as it can be read."""
    newer = _int(job.format) > format
    running, ended = job.place == RUNNING, job.place > BLOCKED
    return Snapshot(
        queue=queue,
        id=job.id,
        state=state_of(job, now),
        payload=b"" if newer else _bytes(job.payload),
        group=job.grp,
        priority=-_int(job.rank),
        headers=b"" if newer else _bytes(job.headers),
        limits=b"" if newer else _bytes(job.limits),
        created=_int(job.created),
        run_at=_int(job.due),
        attempts=_int(job.attempts),
        retries=_int(job.retries),
        stalls=_int(job.stalls),
        timeouts=_int(job.timeouts),
        progress=job.progress if running else None,
        worker=job.worker if running or ended else None,
        result=job.result if ended else None,
        error=None if newer and not ended else job.error,
        cancel=job.cancel if running else None,
        finished=job.finished if ended else None,
        expires=None if not ended or job.expires == FOREVER else job.expires,
        format=job.format if newer else None,
    )


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode("utf-8", "surrogateescape")


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


_MOVES: tuple[MoveWhen, ...] = (False, True, "if_later", "if_earlier")


def flags_to_bits(flags: Update) -> int:
    """A successor's update flags as one small number."""
    move = next(i for i, value in enumerate(_MOVES) if value == flags.run_at)
    return move | flags.payload << 2 | flags.resets << 3 | flags.limits << 4


def flags_of(bits: int) -> Update:
    """The flags back from their number."""
    return Update(
        payload=bool(bits & 4),
        run_at=_MOVES[bits & 3],
        reset_counts=bool(bits & 8),
        limits=bool(bits & 16),
    )
