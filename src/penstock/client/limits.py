"""Limits as users read and change them: of a family, a queue, every group of a queue, or one group."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.client.answers import Page
from penstock.limit_changes import rule_scope
from penstock.model.clock import as_datetime
from penstock.model.ids import check_name
from penstock.model.limit import EVERY, EveryGroup, Limit
from penstock.model.limit_settings import LimitSettings
from penstock.storage.limiting import LimitPage, LimitRecord, Scope, ScopeKind

__all__ = ["LimitInfo", "check_family", "check_limit", "family_scope", "limit_info", "limit_page", "queue_scope"]


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and the state of its gate at the time of the call.

    `scope` is "family", "queue", "groups" (every group) or "group"; `name` is that of the family or the queue. `limit`
    is the one in force: `changed` at run time if there is one, else `declared` in code. `running` is the number of live
    claims, `waiting` that of queued jobs, of a group up to 1000. `opens_at` is when a gate that its rate or a pause
    closes opens, for "groups" the first of them; None if it is open, or closed by its concurrency or a pause without an
    end. `closed` is, for "groups", the number of groups with queued jobs that may not start.
    """

    scope: ScopeKind
    name: str
    group: str | None = None
    limit: Limit | None = None
    declared: Limit | None = None
    changed: Limit | None = None
    running: int = 0
    waiting: int = 0
    opens_at: datetime | None = None
    paused_since: datetime | None = None
    paused_until: datetime | None = None
    closed: int = 0


def queue_scope(queue: str, group: str | EveryGroup | None) -> Scope:
    """Return the scope of a queue (None), of every group of it (`EVERY`), or of one group."""
    if group is None:
        return Scope("queue", queue)
    return Scope("groups", queue) if group is EVERY else Scope("group", queue, check_name(group, "group"))


def check_family(family: str) -> str:
    """Return the name of a family; raises `ValueError` for that of a queue in a family."""
    if "/" in check_name(family, "family"):
        first = family.partition("/")[0]
        raise ValueError(
            f"family must be the part of the queues' names before the first /, not {family!r}: give {first!r}, "
            "or set a limit of the queue"
        )
    return family


def family_scope(family: str) -> Scope:
    """Return the scope of a family."""
    return Scope("family", check_family(family))


def check_limit(limit: object, scope: Scope) -> Limit:
    """Return a limit that fits its scope; raises `TypeError` or `ValueError`, which name the argument."""
    if not isinstance(limit, Limit):
        raise TypeError(f"limit must be a Limit, not {type(limit).__name__}")
    limit.check_scope(rule_scope(scope))
    return limit


def limit_info(record: LimitRecord) -> LimitInfo:
    """Return a limit for the user from a storage's record."""
    settings = LimitSettings.decode(record.settings)
    pause = record.pause
    return LimitInfo(
        scope=record.scope.kind,
        name=record.scope.name,
        group=record.scope.group,
        limit=settings.limit,
        declared=settings.declared,
        changed=settings.changed,
        running=record.running,
        waiting=record.waiting,
        opens_at=_moment(record.opens),
        paused_since=None if pause is None else as_datetime(pause.since),
        paused_until=None if pause is None else _moment(pause.until),
        closed=record.closed,
    )


def limit_page(page: LimitPage) -> Page[LimitInfo]:
    """Return a page of limits for the user."""
    return Page(map(limit_info, page.limits), page.cursor)


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else as_datetime(ms)
