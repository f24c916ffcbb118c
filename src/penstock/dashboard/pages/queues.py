"""The page Queues: all queues with counts, rates and latencies."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.dashboard.context import PageContext
from penstock.dashboard.pages.queue_rows import QueueRow, queue_rows

__all__ = ["QueuesPage", "view"]

ORDERS = ("name", "waiting", "running", "failed", "oldest")


class QueuesPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the list of queues."""

    at: datetime
    queues: list[QueueRow]
    find: str
    order: str
    orders: tuple[str, ...] = ORDERS
    outage: str = ""


async def view(context: PageContext) -> QueuesPage:
    """Return the view model, of the queues whose names have the given text."""
    reading = await context.reading()
    find, order = context.param("find"), context.param("order", "name")
    rows = [row for row in queue_rows(reading) if find.lower() in row.name.lower()]
    if order in ORDERS[1:]:
        rows.sort(key=lambda row: -(getattr(row, order) or 0))
    return QueuesPage(
        at=reading.overview.at, queues=rows, find=find, order=order if order in ORDERS else "name", outage=reading.error
    )
