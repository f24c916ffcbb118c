"""The page Schedules: the schedules of all queues."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.aio import gather_each
from penstock.dashboard.context import PageContext
from penstock.dashboard.pages.schedule_rows import ScheduleRow, schedule_rows
from penstock.ticking import scheduling_of

__all__ = ["SchedulesPage", "view"]

#: How many schedules of a queue, and of all, are listed.
PER_QUEUE, MOST = 100, 500


class SchedulesPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the schedules; `edited` is the one whose form is open, as "queue/name"."""

    at: datetime
    schedules: list[ScheduleRow]
    more: bool
    edit_queue: str
    edit_name: str
    outage: str = ""


async def view(context: PageContext) -> SchedulesPage:
    """Return the view model."""
    reading = await context.reading()
    rows: list[ScheduleRow] = []
    if scheduling_of(await context.storage()) is not None:
        names = [queue.name for queue in reading.overview.queues]
        for page in await gather_each(lambda name: read_rows(context, name), names):
            rows += page
    rows.sort(key=lambda row: (row.next_at is None, row.next_at or reading.overview.at))
    return SchedulesPage(
        at=reading.overview.at, schedules=rows[:MOST], more=len(rows) > MOST, edit_queue=context.param("queue"),
        edit_name=context.param("edit"), outage=reading.error,
    )  # fmt: skip


async def read_rows(context: PageContext, queue: str) -> list[ScheduleRow]:
    """Return the schedules of a queue."""
    return await schedule_rows(context, queue, await context.app.queue(queue).schedules.list(None, PER_QUEUE))
