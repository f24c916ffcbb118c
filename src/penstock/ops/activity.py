"""The activity: entries of the audit log for changes by operators, which never fail the change itself."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from penstock.client.app import Penstock
from penstock.errors import PenstockError
from penstock.model.activity import MAX_IDS, Activity, Via, os_user
from penstock.storage.auditing import need_auditing

__all__ = ["add_entry", "log_activity"]


async def log_activity(
    app: Penstock, verb: str, *, via: Via, who: str | None = None, queue: str | None = None, target: str = "",
    ids: Sequence[str] = (), count: int = 0, outcome: str = "done", role: str = "", address: str = "",
) -> bool:  # fmt: skip
    """Add an entry to the activity; returns whether the storage took it. `count` is by default the number of ids."""
    entry = Activity(
        who=os_user() if who is None else who, verb=verb, via=via, queue=queue, target=target,
        ids=tuple(ids[:MAX_IDS]), count=count or len(ids), outcome=outcome, role=role, address=address,
    )  # fmt: skip
    return await add_entry(app, entry)


async def add_entry(app: Penstock, entry: Activity) -> bool:
    """Add an entry to the activity; returns whether the storage took it."""
    with contextlib.suppress(PenstockError):
        await need_auditing(await app.opened()).log_activity(entry)
        return True
    return False
