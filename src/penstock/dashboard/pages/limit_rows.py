"""Rows of limits, for the pages Limits and Queue."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.client.limits import LimitInfo
from penstock.model.limit import Limit
from penstock.ops.overview import is_closed

__all__ = ["LimitRow", "limit_row", "limit_words"]


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A limit in a table: what it is for, the limit in force, its use, and where it comes from."""

    scope: str
    name: str
    group: str | None
    words: str
    running: int
    concurrency: int | None
    rate: str
    waiting: int
    closed: bool
    closed_groups: int
    opens_at: datetime | None
    paused_since: datetime | None
    declared: str
    changed: str

    @property
    def share(self) -> float | None:
        """The part of the runs at once that are used, 0 to 1; None if they are not limited."""
        return None if not self.concurrency else min(1.0, self.running / self.concurrency)


def limit_row(info: LimitInfo) -> LimitRow:
    """Return the row of a limit."""
    limit = info.limit
    return LimitRow(
        scope=info.scope,
        name=info.name,
        group=info.group,
        words=limit_words(limit),
        running=info.running,
        concurrency=None if limit is None else limit.concurrency,
        rate="" if limit is None or limit.rate is None else str(limit.rate),
        waiting=info.waiting,
        closed=is_closed(info),
        closed_groups=info.closed,
        opens_at=info.opens_at,
        paused_since=info.paused_since,
        declared=limit_words(info.declared),
        changed=limit_words(info.changed),
    )


def limit_words(limit: Limit | None) -> str:
    """Return a limit in words, empty for None."""
    if limit is None:
        return ""
    parts: list[str] = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency} at once")
    if limit.rate is not None:
        parts.append(f"{limit.rate}{' by cost' if limit.by == 'cost' else ''}")
        if limit.burst > 1:
            parts.append(f"burst {limit.burst}")
    if limit.weight != 1:
        parts.append(f"weight {limit.weight}")
    if limit.ordered is not None:
        parts.append("ordered" if limit.ordered else "not ordered")
    return ", ".join(parts) or "no limit"
