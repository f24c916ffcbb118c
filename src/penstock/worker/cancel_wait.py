"""Being told at once that somebody wants a run to end."""

from __future__ import annotations

import asyncio

from penstock.errors import StorageUnavailable
from penstock.host import AppHost

__all__ = ["CANCEL_WAIT", "wait_for_cancel"]

#: How long (seconds) one wait is, and how long nobody listens when the storage is away.
CANCEL_WAIT, UNAVAILABLE_PAUSE = 30.0, 1.0


async def wait_for_cancel(host: AppHost, worker: str, seconds: float) -> bool:
    """Wait for a request to cancel; that the storage is away is for others to tell."""
    try:
        return await host.storage.wait_cancel(worker, seconds)
    except StorageUnavailable:
        await asyncio.sleep(UNAVAILABLE_PAUSE)
        return False
