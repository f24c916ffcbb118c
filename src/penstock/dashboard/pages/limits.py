"""The page Limits: the limits of families, queues and groups, and how much of them is used."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.dashboard.context import PageContext
from penstock.dashboard.pages.limit_rows import LimitRow, limit_row
from penstock.ops.overview import read_limits

__all__ = ["LimitsPage", "view"]

#: How many limits of a queue are listed.
PER_QUEUE = 50


class LimitsPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the limits; `edit_…` name the one whose form is open."""

    at: datetime
    limits: list[LimitRow]
    queues: list[str]
    edit_scope: str
    edit_name: str
    edit_group: str
    outage: str = ""


async def view(context: PageContext) -> LimitsPage:
    """Return the view model."""
    reading = await context.reading()
    names = [queue.name for queue in reading.overview.queues]
    found = await read_limits(await context.storage(), names, PER_QUEUE)
    rows = [limit_row(info) for info in found if info.limit is not None or info.paused_since is not None]
    return LimitsPage(
        at=reading.overview.at, limits=rows, queues=names, edit_scope=context.param("scope"),
        edit_name=context.param("name"), edit_group=context.param("group"), outage=reading.error,
    )  # fmt: skip
