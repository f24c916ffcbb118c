"""The page Queue: one queue with its charts, handler, workers, limits, and what is next."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from penstock.client.limits import LimitInfo
from penstock.client.schedule_info import ScheduleInfo
from penstock.dashboard.charts import SpanName
from penstock.dashboard.context import NotThere, PageContext
from penstock.dashboard.formatting import duration
from penstock.dashboard.pages.error_groups import GroupRow, group_rows
from penstock.dashboard.pages.job_rows import JobRow, job_row
from penstock.dashboard.pages.limit_rows import LimitRow, limit_row
from penstock.dashboard.pages.option_rows import OptionRow, option_rows
from penstock.dashboard.pages.overview import chosen_span
from penstock.dashboard.pages.queue_rows import QueueRow, queue_row
from penstock.dashboard.pages.schedule_rows import ScheduleRow, schedule_rows
from penstock.dashboard.protocols import observing_of
from penstock.dashboard.reader import Reading
from penstock.limit_changes import limiting_of
from penstock.model.job import State
from penstock.model.limit import EVERY
from penstock.model.pause import Pause
from penstock.model.worker_info import WorkerInfo
from penstock.storage.observing import QueueGroup
from penstock.ticking import scheduling_of

__all__ = ["QueuePage", "view"]

Tab = Literal["jobs", "groups", "failures", "limits", "schedules"]
TABS: tuple[Tab, ...] = ("jobs", "groups", "failures", "limits", "schedules")

#: How many rows a tab shows.
ROWS = 50


class QueueWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that serves the queue."""

    id: str
    busy: int
    allowed: int


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of a queue.

    `options` are those of its handler, and `in_force` the limits of the queue and of each group, with who set them.
    """

    at: datetime
    name: str
    row: QueueRow
    pause: Pause | None
    paused_since: datetime | None
    paused_until: datetime | None
    empties_in: str
    handler: str
    options: list[OptionRow]
    in_force: list[LimitRow]
    next: JobRow | None
    workers: list[QueueWorker]
    charts: bool
    span: SpanName
    tab: Tab
    tabs: tuple[Tab, ...] = TABS
    jobs: list[JobRow] = []
    groups: list[QueueGroup] = []
    failures: list[GroupRow] = []
    limits: list[LimitRow] = []
    schedules: list[ScheduleRow] = []
    outage: str = ""


async def view(context: PageContext) -> QueuePage:
    """Return the view model; raises `NotThere` for a queue without jobs, pause, settings and worker."""
    name = context.needed("name")
    reading = await context.reading()
    queue = reading.queue(name)
    if queue is None:
        reading = await context.reader.refresh()
        queue = reading.queue(name)
    if queue is None:
        raise NotThere(f"There is no queue {name!r}: it has no job, no pause, no setting and no worker.")
    storage = await context.storage()
    tab = chosen_tab(context)
    row = queue_row(reading, queue)
    stats = reading.stats.get(name)
    next_job = await storage.peek(name)
    page = QueuePage(
        at=reading.overview.at,
        name=name,
        row=row,
        pause=stats.pause if stats else await storage.paused(name),
        paused_since=queue.paused_since,
        paused_until=queue.paused_until,
        empties_in=empties_in(row),
        handler=handler_name(context, name),
        options=option_rows(context.app, name),
        in_force=await limits_in_force(context, name),
        next=None if next_job is None else job_row(context, next_job),
        workers=queue_workers(reading, name),
        charts=observing_of(storage) is not None,
        span=chosen_span(context),
        tab=tab,
        outage=reading.error,
    )
    return msgspec.structs.replace(page, **await tab_rows(context, name, tab))


def chosen_tab(context: PageContext) -> Tab:
    """Return the tab that the query names, the first without one."""
    chosen: Tab = "jobs"
    for tab in TABS:
        if tab == context.param("tab"):
            chosen = tab
    return chosen


async def tab_rows(context: PageContext, name: str, tab: Tab) -> dict[str, object]:
    """Return the rows of the chosen tab by the name of their field."""
    storage, queue = await context.storage(), context.app.queue(name)
    if tab == "groups":
        observing = observing_of(storage)
        return {"groups": [] if observing is None else (await observing.groups(name, None, ROWS)).groups}
    if tab == "failures":
        return {"failures": await group_rows(context, [name])}
    if tab == "limits":
        limits: list[LimitInfo] = [] if limiting_of(storage) is None else await queue.limits(None, ROWS)
        return {"limits": [limit_row(info) for info in limits]}
    if tab == "schedules":
        found: list[ScheduleInfo] = [] if scheduling_of(storage) is None else await queue.schedules.list(None, ROWS)
        return {"schedules": await schedule_rows(context, name, found)}
    return {"jobs": [job_row(context, job) for job in (await storage.find(name, None, None, ROWS)).jobs]}


def queue_workers(reading: Reading, name: str) -> list[QueueWorker]:
    """Return the live workers that serve a queue."""

    def brief(worker: WorkerInfo) -> QueueWorker:
        return QueueWorker(id=worker.id, busy=worker.busy, allowed=worker.allowed)

    return [brief(worker) for worker in reading.overview.workers if name in worker.queues]


def empties_in(row: QueueRow) -> str:
    """Return when the queue will be empty at the present rates, in words."""
    waiting = row.waiting + row.counts[State.RETRYING]
    if not waiting or row.ended is None or row.arrived is None:
        return ""
    surplus = row.ended - row.arrived
    return duration(waiting / surplus * 60) if surplus > 0 else "never at this rate"


def handler_name(context: PageContext, name: str) -> str:
    """Return the name of the handler, if it is registered in this process."""
    handler = context.app.handlers.get(name)
    return "" if handler is None else handler.name


async def limits_in_force(context: PageContext, name: str) -> list[LimitRow]:
    """Return the limit of the queue and that of each group, where there is one."""
    if limiting_of(await context.storage()) is None:
        return []
    queue = context.app.queue(name)
    found = [await queue.limit(), await queue.limit(EVERY)]
    return [limit_row(info) for info in found if info.limit is not None]
