"""The page Activity: the audit log, and bulk actions with their progress."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.client.job_filter import hide_values
from penstock.dashboard.context import PageContext
from penstock.dashboard.redact import HIDDEN
from penstock.model.activity import Activity, BulkAction
from penstock.model.clock import as_datetime

__all__ = ["ActivityPage", "ActivityRow", "BulkRow", "activity_row", "bulk_row", "view"]

ROWS, BULK_ROWS = 100, 20


class ActivityRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit log."""

    at: datetime
    who: str
    role: str
    via: str
    address: str
    verb: str
    queue: str | None
    target: str
    ids: tuple[str, ...]
    count: int
    outcome: str


class BulkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action with its progress; `share` is the part that is done, 0 to 1, None if the total is not known."""

    id: str
    who: str
    verb: str
    filter: str
    state: str
    starts_at: datetime
    starts_in: float
    total: int | None
    done: int
    skipped: int
    failed: int
    error: str
    share: float | None


class ActivityPage(msgspec.Struct, frozen=True, kw_only=True):
    """View model of the activity; it is empty if it is not `kept` by the storage."""

    at: datetime
    entries: list[ActivityRow]
    cursor: str | None
    bulk: list[BulkRow]
    queue: str
    kept: bool
    busy: bool


async def view(context: PageContext) -> ActivityPage:
    """Return the view model."""
    records, now, queue = await context.records(), await context.now(), context.param("queue")
    wanted = context.needed("queue") if queue else None
    if records is None:
        return ActivityPage(at=now, entries=[], cursor=None, bulk=[], queue=queue, kept=False, busy=False)
    page = await records.activity(wanted, None, context.param("after") or None, ROWS)
    rows = [bulk_row(context, action, now) for action in await records.bulk_actions(BULK_ROWS)]
    return ActivityPage(
        at=now, entries=[activity_row(context, entry) for entry in page.entries], cursor=page.cursor, bulk=rows,
        queue=queue, kept=True, busy=any(row.state in ("waiting", "running") for row in rows),
    )  # fmt: skip


def activity_row(context: PageContext, entry: Activity) -> ActivityRow:
    """Return the row of an entry."""
    return ActivityRow(
        at=as_datetime(entry.at),
        who=entry.who,
        role=entry.role,
        via=entry.via,
        address=entry.address,
        verb=entry.verb,
        queue=entry.queue,
        target=hide_values(entry.target, context.redactor, HIDDEN),
        ids=entry.ids,
        count=entry.count,
        outcome=context.text(entry.outcome),
    )


def bulk_row(context: PageContext, action: BulkAction, now: datetime) -> BulkRow:
    """Return the row of a bulk action."""
    begins, handled = as_datetime(action.starts_at), action.done + action.skipped + action.failed
    return BulkRow(
        id=action.id,
        who=action.who,
        verb=action.verb,
        filter=hide_values(action.filter, context.redactor, HIDDEN),
        state=action.state_at(int(now.timestamp() * 1000)),
        starts_at=begins,
        starts_in=max(0.0, (begins - now).total_seconds()),
        total=action.total,
        done=action.done,
        skipped=action.skipped,
        failed=action.failed,
        error=context.text(action.error),
        share=None if not action.total else min(1.0, handled / action.total),
    )
