"""The pages Groups and Group: groups of a queue in which jobs wait, and the jobs of one."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.aio import gather_each
from penstock.client.job_filter import quote_value
from penstock.dashboard.context import BadRequest, PageContext
from penstock.dashboard.pages.job_rows import JobRow, job_row
from penstock.dashboard.protocols import observing_of
from penstock.model.clock import as_datetime
from penstock.model.ids import check_name
from penstock.model.job import Snapshot, State
from penstock.storage.base import Storage
from penstock.storage.observing import Observing, QueueGroup

__all__ = ["GroupPage", "GroupView", "GroupsPage", "view", "view_group", "view_of_group"]

#: How many groups, or jobs of a state, a page reads, and how many queues are searched for groups.
ROWS, MAX_QUEUES = 100, 200


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a table: its head, how many wait, and whether a run, a backoff or a pause holds it.

    `rotates` is whether it has a turn to start a job. `since` is when a queued head was due, so since when it waits.
    """

    name: str
    head: str | None
    state: State
    due: datetime | None
    since: datetime | None
    waiting: int
    held: int
    rotates: bool
    paused_since: datetime | None
    paused_by: str


class GroupsPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the groups of a queue; without a queue, the queues to choose from."""

    at: datetime
    queue: str
    queues: list[str]
    groups: list[GroupView]
    cursor: str | None
    find: str
    supported: bool
    outage: str = ""


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of one group; `complete` is whether all its jobs that have not ended were found."""

    at: datetime
    queue: str
    name: str
    paused_since: datetime | None
    paused_by: str
    jobs: list[JobRow]
    complete: bool
    all_link: str


def view_of_group(group: QueueGroup) -> GroupView:
    """Return a group for a table."""
    due = None if group.due is None else as_datetime(group.due)
    return GroupView(
        name=group.name,
        head=group.head,
        state=group.state,
        due=due,
        since=due if group.state is State.QUEUED else None,
        waiting=group.waiting,
        held=group.held,
        rotates=group.rotates,
        paused_since=None if group.pause is None else as_datetime(group.pause.since),
        paused_by="" if group.pause is None else group.pause.by,
    )


async def view(context: PageContext) -> GroupsPage:
    """Return the view model of the groups of the chosen queue, or of the first queue that has any."""
    reading = await context.reading()
    names = [queue.name for queue in reading.overview.queues]
    chosen, find, after = context.param("queue"), context.param("find"), context.param("after") or None
    storage = observing_of(await context.storage())
    groups: list[GroupView] = []
    cursor: str | None = None
    if storage is not None and not chosen:
        heads = await gather_each(lambda name: storage.groups(name, None, 1), names[:MAX_QUEUES])
        chosen = next((name for name, page in zip(names, heads, strict=False) if page.groups), "")
    if storage is not None and chosen:
        try:
            page = await storage.groups(check_name(chosen, "queue"), after, ROWS, find)
        except (TypeError, ValueError) as error:
            raise BadRequest(str(error)) from None
        groups, cursor = [view_of_group(group) for group in page.groups], page.cursor
    return GroupsPage(
        at=reading.overview.at, queue=chosen, queues=names,
        groups=groups, cursor=cursor, find=find, supported=storage is not None, outage=reading.error,
    )  # fmt: skip


async def view_group(context: PageContext) -> GroupPage:
    """Return the view model of one group: the job that holds it, its first queued jobs, and others it finds.

    An index answers for the former; running and scheduled jobs are looked for among the first of the queue.
    """
    queue, name = context.needed("queue"), context.needed("name")
    storage = await context.storage()
    pause, observing = await storage.paused(queue, name), observing_of(storage)
    found: dict[str, Snapshot] = {}
    complete = True
    for state in (State.RUNNING, State.RETRYING, State.QUEUED, State.SCHEDULED):
        if state is State.RETRYING and observing is not None:
            found |= await head_in_backoff(storage, observing, queue, name)
        if state is State.QUEUED and observing is not None:
            page = await observing.find(queue, state, None, ROWS, group=name)
        else:
            page = await storage.find(queue, state, None, ROWS)
        found |= {job.id: job for job in page.jobs if job.group == name and job.id not in found}
        complete = complete and page.cursor is None
    jobs = [job_row(context, job) for job in found.values()]
    return GroupPage(
        at=await context.now(), queue=queue, name=name,
        paused_since=None if pause is None else as_datetime(pause.since), paused_by="" if pause is None else pause.by,
        jobs=jobs, complete=complete,
        all_link=context.link("jobs", filter=f"queue:{quote_value(queue)} group:{quote_value(name)}"),
    )  # fmt: skip


async def head_in_backoff(storage: Storage, observing: Observing, queue: str, name: str) -> dict[str, Snapshot]:
    """Return the job in backoff that holds a group, by its id; nothing if none does."""
    rows = [row for row in (await observing.groups(queue, None, 1, name)).groups if row.name == name]
    ids = [row.head for row in rows if row.state is State.RETRYING and row.head is not None]
    return {job.id: job for job in await storage.get(queue, ids) if job is not None} if ids else {}
