"""The pages Failures and Error group: jobs that failed for good, by cause."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.client.answers import status_of
from penstock.dashboard.context import NotThere, PageContext
from penstock.dashboard.pages.error_groups import GroupRow, group_row, group_rows, newest_groups, releases_of
from penstock.dashboard.pages.job import ErrorView, error_view
from penstock.dashboard.pages.job_rows import JobRow, job_row
from penstock.dashboard.protocols import observing_of
from penstock.errors import ErrorKind
from penstock.model.job import State

__all__ = ["ErrorGroupPage", "FailuresPage", "view", "view_group"]

ORDERS = ("open", "last", "first")

#: How many jobs of a group a page lists, how many failed jobs are listed without groups, how many groups are searched.
ROWS, MAX_SEARCHED = 50, 200


class FailuresPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the failures: error groups, or the newest failed jobs where the storage has no groups."""

    at: datetime
    queue: str
    queues: list[str]
    kind: str
    kinds: list[str]
    order: str
    orders: tuple[str, ...]
    groups: list[GroupRow]
    open: int
    supported: bool
    jobs: list[JobRow]
    outage: str = ""


class ErrorGroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of one error group: the error of the job that failed last, and the jobs."""

    at: datetime
    group: GroupRow
    sample: ErrorView | None
    markdown: str
    jobs: list[JobRow]
    cursor: str | None


async def view(context: PageContext) -> FailuresPage:
    """Return the view model of the list."""
    reading = await context.reading()
    failing = [queue.name for queue in reading.overview.queues if queue.counts[State.FAILED]]
    queue, kind, order = context.param("queue"), context.param("kind"), context.param("order", "open")
    supported = observing_of(await context.storage()) is not None
    groups = await (group_rows(context, [context.needed("queue")]) if queue else newest_groups(context))
    groups = [group for group in groups if not kind or group.kind == kind]
    if order in ("last", "first"):
        groups.sort(key=lambda group: getattr(group, order), reverse=True)
    return FailuresPage(
        at=reading.overview.at, queue=queue, queues=failing, kind=kind, kinds=[str(each) for each in ErrorKind],
        order=order if order in ORDERS else "open", orders=ORDERS, groups=groups,
        open=sum(group.open for group in groups), supported=supported,
        jobs=[] if supported else await failed_jobs(context, [queue] if queue else failing[:10]), outage=reading.error,
    )  # fmt: skip


async def failed_jobs(context: PageContext, queues: list[str]) -> list[JobRow]:
    """Return some failed jobs of these queues, for a storage without error groups."""
    storage = await context.storage()
    return [
        job_row(context, job) for name in queues for job in (await storage.find(name, State.FAILED, None, ROWS)).jobs
    ][:ROWS]


async def view_group(context: PageContext) -> ErrorGroupPage:
    """Return the view model of one group; raises `NotThere` if it is not known any more."""
    queue, key = context.needed("queue"), context.param("key")
    storage = observing_of(await context.storage())
    groups = [] if storage is None else (await storage.error_groups(queue, None, MAX_SEARCHED)).groups
    found = next((group for group in groups if group.key == key), None)
    if storage is None or found is None:
        raise NotThere("There is no such error group: nothing of it has failed for 14 days, or its queue was deleted.")
    group = group_row(context, queue, found, await releases_of(context))
    page = await storage.group_jobs(queue, key, context.param("after") or None, ROWS)
    [snapshot] = await (await context.storage()).get(queue, [group.sample]) if group.sample else [None]
    snapshot = snapshot or (page.jobs[0] if page.jobs else None)
    sample = None if snapshot is None else error_view(context, status_of(snapshot, context.app.codec(queue)))
    return ErrorGroupPage(
        at=await context.now(), group=group, sample=sample, markdown=markdown_of(group, sample),
        jobs=[job_row(context, job) for job in page.jobs], cursor=page.cursor,
    )  # fmt: skip


def markdown_of(group: GroupRow, sample: ErrorView | None) -> str:
    """Return a group as Markdown, for an issue."""
    lines = [
        f"**{group.type}**: {group.message}",
        "",
        f"- queue `{group.queue}`, {group.open} open of {group.count}, {group.kind}",
        f"- first {group.first:%Y-%m-%d %H:%M} UTC, last {group.last:%Y-%m-%d %H:%M} UTC",
        f"- e.g. job `{group.sample}`",
    ]
    if sample is not None and sample.text:
        lines += ["", "```", sample.text.rstrip(), "```"]
    return "\n".join(lines)
