"""The optional part of a storage that keeps statistics: totals, latencies, their history, and groups of errors."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, cast, runtime_checkable

import msgspec

from penstock.errors import ErrorKind, NotSupported
from penstock.model.job import State
from penstock.model.pause import Pause
from penstock.model.stats import Histogram, Sample, Totals
from penstock.model.storage_values import Page

__all__ = [
    "MAX_ERROR_GROUPS", "MAX_GROUP_WAITING", "MAX_RINGS", "RINGS", "STATS_MS", "ErrorGroup", "ErrorGroupPage",
    "Histogram", "Observing", "Page", "QueueGroup", "QueueGroupPage", "QueueStats", "RunTimes", "Sample", "Step",
    "Totals", "check_find", "format_group_cursor", "need_observing", "observing_of", "page_of_groups",
    "parse_group_cursor",
]  # fmt: skip

#: The distance (minutes) of samples.
Step = Literal[1, 10, 60]

#: How many samples of each step are kept: two hours, two days, two weeks.
RINGS: dict[Step, int] = {1: 120, 10: 288, 60: 336}

#: How many queues have samples of their own; the others are in the sum of all queues only.
MAX_RINGS = 500

#: How long (ms) histograms, samples and error groups stay after their last change.
STATS_MS = 14 * 86_400_000

#: The error groups of one queue at most; the one that was seen longest ago makes room for a new one.
MAX_ERROR_GROUPS = 200

#: Up to which number the waiting jobs of a group are counted.
MAX_GROUP_WAITING = 1_000


class RunTimes(msgspec.Struct, frozen=True):
    """The waits and durations of runs of one queue that a worker has measured since it last sent them."""

    queue: str
    wait: Histogram = Histogram()
    run: Histogram = Histogram()


class QueueStats(msgspec.Struct, frozen=True):
    """A queue at one moment: its pause, its sample of that moment, expired leases, and unreadable records found."""

    queue: str
    sample: Sample
    pause: Pause | None = None
    overdue: int = 0
    damaged: int = 0


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one queue that failed alike: their errors have one `key`, see `JobError`.

    `open` of them are failed now; `count` have failed since `first` (ms), the last one at `last`. Type, message and
    kind are those of the first error, and `sample` is the id of the job that failed last.
    """

    key: str
    type: str
    message: str
    kind: ErrorKind
    first: int
    last: int
    count: int
    open: int
    sample: str


class ErrorGroupPage(msgspec.Struct, frozen=True):
    """A page of error groups; `cursor` leads to the next one, None at the end."""

    groups: list[ErrorGroup]
    cursor: str | None = None


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of a queue in which jobs wait.

    `head` is the id of the job that the others wait for, and `state` its state: the first of the queued ones, or, in a
    group that is `held`, of those in backoff, None if a run holds it. `due` is when the head is or was due. `waiting`
    counts the queued jobs up to `MAX_GROUP_WAITING`; `held` is the number of jobs that run or wait for a retry. A group
    that `rotates` has a turn to start a job; any other is held, closed by a limit or a pause, or needs newer software.
    """

    name: str
    head: str | None
    state: State
    due: int | None = None
    waiting: int = 0
    held: int = 0
    rotates: bool = False
    pause: Pause | None = None


class QueueGroupPage(msgspec.Struct, frozen=True):
    """A page of the groups of one queue; `cursor` leads to the next one, None at the end."""

    groups: list[QueueGroup]
    cursor: str | None = None


@runtime_checkable
class Observing(Protocol):
    """A storage with statistics. On one without them, the calls that need them raise `NotSupported`."""

    async def stats(self, queues: Sequence[str]) -> list[QueueStats]:
        """Return counts, pause, totals and latencies of queues, each read at one moment; an unknown one has zeros."""
        ...

    async def record_stats(self, worker: str, times: Sequence[RunTimes]) -> int:
        """Add the measured times of runs, and sample the queues for this minute; returns the storage's time (ms).

        The first call in a new minute stores the state that it finds, with its time, from any worker and with any
        queues: a sample of each queue with a change since its last one, and one of all queues together. Times
        of a queue that does not exist are dropped. The worker's id may be empty: a reader, who measured nothing.
        """
        ...

    async def history(self, queue: str | None, step: Step = 1, since: int = 0) -> list[Sample]:
        """Return the samples of a queue, or (None) of all together, taken at `since` (ms) or later, oldest first.

        Two samples that are further apart than the step, and alike, have nothing between them; if they differ, no
        worker or reader looked in between. Totals that fall have begun anew, as the queue was deleted or forgotten.
        """
        ...

    async def history_bytes(self, queues: Sequence[str]) -> int:
        """Return about how many bytes the samples of these queues take, and those of all queues together."""
        ...

    async def error_groups(self, queue: str, after: str | None = None, limit: int = 100) -> ErrorGroupPage:
        """Return the error groups of a queue, the one seen last first."""
        ...

    async def group_jobs(self, queue: str, key: str, after: str | None = None, limit: int = 100) -> Page:
        """Return the failed jobs of an error group, the one that failed last first; fewer if they reach `MAX_BYTES`."""
        ...

    async def find(
        self, queue: str, state: State | None = None, after: str | None = None, limit: int = 100, newest: bool = False,
        group: str | None = None,
    ) -> Page:  # fmt: skip
        """Return a page of jobs as `Storage.find` does; with `newest` each state in the opposite order.

        With a `group` the page has the queued jobs of that group, in the order of the group; no state may be given
        but `queued`.
        """
        ...

    async def groups(self, queue: str, after: str | None = None, limit: int = 100, prefix: str = "") -> QueueGroupPage:
        """Return the groups in which jobs are queued or in backoff: those in the rotation by their turns, then others.

        The others come by the UTF-8 bytes of their names, and so do all whose names begin with a given `prefix`. A page
        may have fewer groups than the limit, or none, because a call looks at a bounded number of records.
        """
        ...


def observing_of(storage: object) -> Observing | None:
    """Return the storage if it keeps statistics, else None; `isinstance` would miss methods that a wrapper forwards."""
    found: Any = storage
    return cast("Observing", found) if hasattr(found, "record_stats") and hasattr(found, "error_groups") else None


def check_find(state: State | None, limit: int, group: str | None) -> None:
    """Raise `ValueError` for arguments that `find` does not accept."""
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if group is not None and state is not State.QUEUED:
        raise ValueError(f"only queued jobs are found by their group, not {'all' if state is None else state} ones")


def need_observing(storage: object) -> Observing:
    """Return the statistics of a storage; raises `NotSupported` if it keeps none."""
    if (found := observing_of(storage)) is None:
        raise NotSupported(f"{type(storage).__name__} keeps no statistics")
    return found


def page_of_groups(groups: Iterable[ErrorGroup], now: int, after: str | None, limit: int) -> ErrorGroupPage:
    """Return a page of the error groups of a queue, without those that were not seen for `STATS_MS`.

    A cursor is the time of the last one and its key.
    """
    before = None if after is None else _parse_cursor(after)
    seen = sorted(((group.last, group.key, group) for group in groups), key=lambda each: each[:2], reverse=True)
    shown = [g for last, key, g in seen if last > now - STATS_MS and (before is None or (last, key) < before)]
    page = shown[:limit]
    return ErrorGroupPage(page, f"{page[-1].last}.{page[-1].key}" if len(shown) > limit else None)


def _parse_cursor(after: str) -> tuple[int, str]:
    last, dot, key = after.partition(".")
    if not (dot and last.isascii() and last.isdigit()):
        raise ValueError(f"after must be the cursor of an earlier page, not {after!r}")
    return int(last), key


def format_group_cursor(rotates: bool, position: bytes) -> str:
    """Return the cursor of a page of `groups` that ended at a position in the rotation, or among the other groups."""
    return urlsafe_b64encode((b"t" if rotates else b"n") + position).decode()


def parse_group_cursor(after: str) -> tuple[bool, bytes]:
    """Return what `format_group_cursor` was given; raises `ValueError` for any other text."""
    try:
        part = urlsafe_b64decode(after.encode("ascii"))
    except ValueError:
        part = b""
    rotates, position = part.startswith(b"t"), part[1:]
    # A turn is two numbers at least; a name may be of any length.
    if len(position) < 16 if rotates else not part.startswith(b"n"):
        raise ValueError(f"after must be the cursor of an earlier page, not {after!r}")
    return rotates, position
