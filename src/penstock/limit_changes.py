"""Changes of limits, which clients and workers share: each follows from the settings that are stored now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from penstock.errors import NotSupported
from penstock.host import AppHost
from penstock.model.events import EventRecord
from penstock.model.limit import LimitScope
from penstock.model.limit_settings import LimitSettings
from penstock.storage.base import Storage
from penstock.storage.limiting import Limiting, Scope

__all__ = ["change_limit", "limiting", "limiting_of", "rule_scope"]


def limiting_of(storage: Storage) -> Limiting | None:
    """Return the storage if it has limits, else None.

    `isinstance` would look for methods of the class alone on Python 3.12, and miss those that a wrapper forwards.
    """
    found: Any = storage
    return cast("Limiting", found) if hasattr(found, "set_limit") and hasattr(found, "limits") else None


def limiting(storage: Storage) -> Limiting:
    """Return the limits of a storage; raises `NotSupported` if it has none."""
    if (found := limiting_of(storage)) is None:
        raise NotSupported(f"{type(storage).__name__} has no limits: nothing was changed")
    return found


def rule_scope(scope: Scope) -> LimitScope:
    """Return the scope by which a limit is checked: that of one group and of every group is the same."""
    return "group" if scope.kind in ("group", "groups") else scope.kind


async def change_limit(
    host: AppHost, storage: Storage, scope: Scope, change: Callable[[LimitSettings], LimitSettings]
) -> bool:
    """Store the settings that `change` makes of the stored ones; returns whether the limit in force is another now.

    It is tried again while others change the same limit. Emits `limit_changed` if the limit in force changed.
    """
    limits = limiting(storage)
    while True:
        record = await limits.get_limit(scope)
        before = LimitSettings.decode(record.settings)
        after = change(before)
        if after == before:
            return False
        rule = None if after.limit is None else after.limit.rule(rule_scope(scope), 0)
        if await limits.set_limit(scope, rule, after.encode(), record.version) is not None:
            break
    if after.limit == before.limit:
        return False
    id = scope.group or ""
    host.emit("limit_changed", queue=scope.name, id=id)
    await storage.announce([EventRecord("limit_changed", scope.name, id, 0)])
    return True
