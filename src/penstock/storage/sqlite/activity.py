"""Verbs about operators: the activity, bulk actions, releases, and requests to workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.model.activity import (
    ACTIVITY_MS,
    BULK_MS,
    MAX_ACTIVITY,
    MAX_BULK,
    MAX_RELEASES,
    REQUEST_MS,
    Activity,
    BulkAction,
    Release,
    WorkerRequest,
)
from penstock.storage.sqlite.rows import LARGEST
from penstock.storage.sqlite.transaction import Transaction

__all__ = [
    "add_release",
    "ask_worker",
    "bulk_actions",
    "forget_operators",
    "get_bulk",
    "log_activity",
    "purge_operators",
    "put_bulk",
    "read_activity",
    "releases",
]

#: Numbers and entries of the activity, as they are read.
Entries = list[tuple[int, Activity | None]]


def log_activity(tx: Transaction, entry: Activity) -> None:
    """Add an entry, with the time of the transaction; the oldest go."""
    tx.run("activity_add", tx.namespace, tx.now, entry.encode())
    tx.run("activity_trim", tx.namespace, tx.now - ACTIVITY_MS, MAX_ACTIVITY)


def read_activity(tx: Transaction, before: int | None, limit: int) -> Entries:
    """Return up to `limit` entries with smaller numbers than `before`, newest first; None for unreadable ones."""
    rows = tx.all("activity_read", tx.namespace, LARGEST if before is None else before, tx.now - ACTIVITY_MS, limit)
    return [(n, Activity.decode(entry, at) if _fits(at, entry) else None) for n, at, entry in rows]


def put_bulk(tx: Transaction, action: BulkAction) -> int | None:
    """Store a bulk action if its version is unchanged; returns the new version, or None."""
    old = tx.one("bulk_get", tx.namespace, action.id, tx.now - BULK_MS)
    version = old[1] if old and type(old[1]) is int else 0
    if version != action.version:
        return None
    tx.run("bulk_put", tx.namespace, action.id, version + 1, tx.now, action.encode())
    if not version:
        tx.run("bulk_trim", tx.namespace, tx.now - BULK_MS, MAX_BULK)
    return version + 1


def get_bulk(tx: Transaction, id: str) -> BulkAction | None:
    """Return a bulk action, or None."""
    row = tx.one("bulk_get", tx.namespace, id, tx.now - BULK_MS)
    return _action(row) if row else None


def bulk_actions(tx: Transaction) -> list[BulkAction]:
    """Return the bulk actions that are kept."""
    rows = tx.all("bulk_all", tx.namespace, tx.now - BULK_MS)
    return [action for action in map(_action, rows) if action is not None]


def _action(row: Sequence[Any]) -> BulkAction | None:
    _, version, changed, record = row
    if not _fits(changed, record) or type(version) is not int:
        return None
    return BulkAction.decode(record, changed, version)


def add_release(tx: Transaction, name: str) -> bool:
    """Note a release; False if one of this name is kept."""
    added = tx.run("release_add", tx.namespace, name, tx.now) == 1
    if added:
        tx.run("releases_trim", tx.namespace, MAX_RELEASES)
    return added


def releases(tx: Transaction) -> list[Release]:
    """Return the last releases, newest first."""
    rows = tx.all("releases_all", tx.namespace, MAX_RELEASES)
    return [Release(name, at) for name, at in rows if type(name) is str and type(at) is int]


def ask_worker(tx: Transaction, worker: str, request: WorkerRequest) -> bool:
    """Keep a request for a live worker, and wake its waiter for cancel requests."""
    if not tx.run("worker_ask", request, tx.now + REQUEST_MS, tx.namespace, worker, tx.now):
        return False
    tx.notify_cancel(worker)
    return True


def purge_operators(tx: Transaction, limit: int) -> None:
    """Delete old entries of the activity and old bulk actions."""
    tx.run("activity_purge", tx.now - ACTIVITY_MS, limit)
    tx.run("bulk_purge", tx.now - BULK_MS)


def forget_operators(tx: Transaction) -> None:
    """Delete all records about operators of the namespace."""
    for name in ("activity_forget", "bulk_forget", "releases_forget"):
        tx.run(name, tx.namespace)


def _fits(at: Any, data: Any) -> bool:
    return type(at) is int and type(data) is bytes
