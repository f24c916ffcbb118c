"""Whether a child looks for its parent in the right place."""

from __future__ import annotations

import os

from penstock.model.storage_info import Inspectable
from penstock.storage.base import Storage

__all__ = ["PARENT_TIMEOUT", "location_of", "why_parent_is_missing"]

#: A server may have forgotten the parent (a failover does); so long (seconds) it may take to be there again.
PARENT_TIMEOUT = 30.0

_MEMORY, _FILE = "memory:", "sqlite:"


def location_of(storage: Storage) -> str:
    """Where a storage is, without credentials; nothing for one that cannot tell."""
    where = storage.where if isinstance(storage, Inspectable) else ""
    return _FILE + os.path.realpath(where.removeprefix(_FILE)) if where.startswith(_FILE) else where


def why_parent_is_missing(parent: str, child: str, seconds: float) -> str | None:
    """Why a child has not seen its parent for so long; None as long as it still may.

    Memory is private, and another file stays another file. Addresses of one server may well differ.
    """
    if child == _MEMORY:
        return "memory: is private to its process, so the child would see no jobs; use a file or a server"
    apart = f"the parent uses {parent}, the child {child}" if parent != child else ""
    if apart and parent and child and _FILE in (parent[: len(_FILE)], child[: len(_FILE)]):
        return f"its parent is not in its storage: {apart}; the app must name the same one wherever it is imported"
    if seconds < PARENT_TIMEOUT:
        return None
    return (
        f"its parent was not seen in its storage for {PARENT_TIMEOUT:g} s: "
        f"{apart or f'both use {child}' if child else 'is that private to its process?'}; "
        "the app must name the same storage and the same namespace wherever it is imported"
    )
