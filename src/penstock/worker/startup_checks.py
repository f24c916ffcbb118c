"""Before any work is done: does the server drop jobs when its memory is full?"""

from __future__ import annotations

import contextlib
import logging

from penstock.errors import StorageError
from penstock.model.storage_info import Inspectable, ServerInfo, describe_eviction
from penstock.storage.base import Storage

__all__ = ["warn_of_eviction"]

log = logging.getLogger("penstock.worker")


async def warn_of_eviction(storage: Storage) -> None:
    """Say loudly which setting of the server loses jobs without a word."""
    if not isinstance(storage, Inspectable):
        return
    with contextlib.suppress(StorageError):  # a storage that goes away now is told of by the work itself
        vitals = await storage.inspect(check=False)
        for node in vitals.nodes if isinstance(vitals, ServerInfo) else ():
            if node.policy not in (None, "noeviction"):
                fix = "CONFIG SET maxmemory-policy noeviction"
                log.warning("JOBS MAY BE LOST: %s: %s; %s", node.where, describe_eviction(node), fix)
