"""The optional part of a storage that keeps records about operators: activity, bulk actions, releases, requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast, runtime_checkable

from penstock.errors import NotSupported
from penstock.model.activity import Activity, ActivityPage, BulkAction, Release, WorkerRequest

__all__ = [
    "Activity",
    "ActivityPage",
    "Auditing",
    "BulkAction",
    "Release",
    "WorkerRequest",
    "check_limit",
    "filled_page",
    "need_auditing",
]


@runtime_checkable
class Auditing(Protocol):
    """A storage with records about operators. On one without them, the calls that need them raise `NotSupported`."""

    async def log_activity(self, entry: Activity) -> None:
        """Add an entry to the activity, with the storage's time; the oldest go beyond `MAX_ACTIVITY`."""
        ...

    async def activity(
        self, queue: str | None = None, id: str | None = None, after: str | None = None, limit: int = 100
    ) -> ActivityPage:
        """Return a page of the activity, newest first, without entries older than `ACTIVITY_MS`.

        With `queue` only entries about that queue, with `id` also only those that list this job.
        """
        ...

    async def put_bulk(self, action: BulkAction) -> int | None:
        """Store a bulk action if its version is still the one of `action`, 0 for none; returns the new version.

        None means that the version is another, and nothing changed. It is kept for `BULK_MS` from now.
        """
        ...

    async def get_bulk(self, id: str) -> BulkAction | None:
        """Return a bulk action, or None."""
        ...

    async def bulk_actions(self, limit: int = 100) -> list[BulkAction]:
        """Return the bulk actions that are kept, those that start last first."""
        ...

    async def add_release(self, name: str) -> bool:
        """Note a release, with the storage's time; False if one of this name is kept already."""
        ...

    async def releases(self) -> list[Release]:
        """Return the last `MAX_RELEASES` releases, newest first."""
        ...

    async def ask_worker(self, worker: str, request: WorkerRequest) -> bool:
        """Ask a worker to claim no more, or to stop; False if there is no live worker of this id.

        The request is kept with the worker's presence: `beat` answers it, and `wait_cancel` of the worker ends.
        """
        ...


def need_auditing(storage: object) -> Auditing:
    """Return the records about operators of a storage; raises `NotSupported` if it has none."""
    found: Any = storage
    if not (hasattr(found, "log_activity") and hasattr(found, "put_bulk")):
        raise NotSupported(f"{type(storage).__name__} keeps no records about operators")
    return cast("Auditing", found)


#: The entries that one read of the storage returns at most.
PART = 1_000

#: Reads up to that many entries with smaller numbers, newest first; None stands for an unreadable one.
Read = Callable[[int | None, int], Awaitable[list[tuple[int, Activity | None]]]]


async def filled_page(read: Read, queue: str | None, id: str | None, after: str | None, limit: int) -> ActivityPage:
    """Return a page of the entries that fit, newest first."""
    check_limit(limit)
    if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 16):
        raise ValueError(f"after must be a cursor that activity gave, not {after!r}")
    before = None if after is None else int(after)
    found: list[Activity] = []
    while True:
        part = await read(before, PART if queue or id else min(PART, limit + 1))
        for number, entry in part:
            if entry is not None and _fits(entry, queue, id):
                if len(found) == limit:
                    return ActivityPage(found, str(before))
                found.append(entry)
            before = number
        if len(part) < PART and (queue or id or len(part) <= limit):
            return ActivityPage(found)


def _fits(entry: Activity, queue: str | None, id: str | None) -> bool:
    return (queue is None or entry.queue == queue) and (id is None or id in entry.ids)


def check_limit(limit: int) -> None:
    """Raise `ValueError` unless the limit of a list is at least 1."""
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
