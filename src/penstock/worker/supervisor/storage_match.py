"""Check that a child and its parent use the same storage."""

from __future__ import annotations

import os

from penstock.model.storage_info import Inspectable
from penstock.storage.base import Storage

__all__ = ["PARENT_TIMEOUT", "location_of", "why_parent_is_missing"]

#: How long (seconds) the parent may be missing: a failover may lose its record until the next heartbeat.
PARENT_TIMEOUT = 30.0

_MEMORY, _FILE = "memory:", "sqlite:"


def location_of(storage: Storage) -> str:
    """Return the location of a storage without credentials, or an empty string if it has none."""
    where = storage.where if isinstance(storage, Inspectable) else ""
    return _FILE + os.path.realpath(where.removeprefix(_FILE)) if where.startswith(_FILE) else where


def why_parent_is_missing(parent: str, child: str, seconds: float) -> str | None:
    """Return why a child has not found its parent for these seconds; None as long as it still may.

    Memory is private to a process, and two paths are two files. Two addresses may be one server.
    """
    if child == _MEMORY:
        return "memory: is private to its process, so the child would see no jobs; use a file or a server"
    difference = f"the parent uses {parent}, the child {child}" if parent != child else ""
    if difference and parent and child and _FILE in (parent[: len(_FILE)], child[: len(_FILE)]):
        return f"its parent is not in its storage: {difference}; the app must name the same one wherever it is imported"
    if seconds < PARENT_TIMEOUT:
        return None
    return (
        f"its parent was not seen in its storage for {PARENT_TIMEOUT:g} s: "
        f"{difference or f'both use {child}' if child else 'is that private to its process?'}; "
        "the app must name the same storage and the same namespace wherever it is imported"
    )
