"""Checks before a worker starts: a server that evicts keys when its memory is full loses jobs."""

from __future__ import annotations

import contextlib
import logging

from penstock.errors import StorageError
from penstock.model.storage_info import Inspectable, ServerInfo, describe_eviction
from penstock.storage.base import Storage

__all__ = ["warn_of_eviction"]

log = logging.getLogger("penstock.worker")


async def warn_of_eviction(storage: Storage) -> None:
    """Log a warning for each server whose eviction policy may drop jobs."""
    if not isinstance(storage, Inspectable):
        return
    with contextlib.suppress(StorageError):  # the worker's loops report an outage themselves
        info = await storage.inspect(check=False)
        for node in info.nodes if isinstance(info, ServerInfo) else ():
            if node.policy not in (None, "noeviction"):
                fix = "CONFIG SET maxmemory-policy noeviction"
                log.warning("JOBS MAY BE LOST: %s: %s; %s", node.where, describe_eviction(node), fix)
