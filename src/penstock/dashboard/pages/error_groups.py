"""Error groups of all queues, as the pages Overview, Failures and Queue list them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.aio import gather_each
from penstock.dashboard.context import PageContext
from penstock.dashboard.protocols import auditing_of, observing_of
from penstock.dashboard.reader import MAX_FAILING, MAX_GROUPS, Reading
from penstock.model.activity import Release
from penstock.model.clock import as_datetime
from penstock.model.job import State
from penstock.storage.observing import ErrorGroup

__all__ = ["GroupRow", "group_row", "group_rows", "newest_groups", "read_groups", "releases_of"]


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """An error group in a table. `new_since` is "since v1.4.2" for one that was first seen after the last release."""

    queue: str
    key: str
    type: str
    message: str
    kind: str
    open: int
    count: int
    first: datetime
    last: datetime
    sample: str
    new_since: str = ""


async def releases_of(context: PageContext) -> list[Release]:
    """Return the releases, newest first; none if the storage keeps none."""
    storage = auditing_of(await context.storage())
    return [] if storage is None else await storage.releases()


def read_groups(context: PageContext, reading: Reading) -> list[GroupRow]:
    """Return the groups that the reader has read, those with the most open jobs first."""
    groups = [(queue, group) for queue, groups in reading.failures.items() for group in groups]
    return sorted_rows([group_row(context, queue, group, reading.releases) for queue, group in groups])


async def newest_groups(context: PageContext) -> list[GroupRow]:
    """Return the groups of all queues with failed jobs, read now, those with the most open jobs first."""
    reading = await context.reading()
    failing = [queue for queue in reading.overview.queues if queue.counts[State.FAILED]]
    failing.sort(key=lambda queue: -queue.counts[State.FAILED])
    return await group_rows(context, [queue.name for queue in failing[:MAX_FAILING]])


async def group_rows(context: PageContext, queues: Sequence[str]) -> list[GroupRow]:
    """Return the error groups of these queues, those with the most open jobs first."""
    storage = observing_of(await context.storage())
    if storage is None:
        return []
    releases = await releases_of(context)
    pages = await gather_each(lambda queue: storage.error_groups(queue, None, MAX_GROUPS), queues)
    rows = [
        group_row(context, queue, group, releases)
        for queue, page in zip(queues, pages, strict=True)
        for group in page.groups
    ]
    return sorted_rows(rows)


def sorted_rows(rows: list[GroupRow]) -> list[GroupRow]:
    """Return rows in their order: those with the most open jobs first."""
    return sorted(rows, key=lambda row: (-row.open, -row.last.timestamp()))


def group_row(context: PageContext, queue: str, group: ErrorGroup, releases: Sequence[Release]) -> GroupRow:
    """Return the row of a group."""
    newest = releases[0] if releases else None
    return GroupRow(
        queue=queue,
        key=group.key,
        type=group.type,
        message=context.text(group.message),
        kind=str(group.kind),
        open=group.open,
        count=group.count,
        first=as_datetime(group.first),
        last=as_datetime(group.last),
        sample=group.sample,
        new_since=f"since {newest.name}" if newest is not None and group.first >= newest.at else "",
    )
