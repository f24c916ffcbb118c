"""Waiting for jobs to end: a hint says when to look, and only what is read counts, unless the storage says how."""

from __future__ import annotations

import asyncio
import math

from penstock.aio import RequestCoalescer
from penstock.errors import StorageUnavailable
from penstock.model.job import FINISHED, Snapshot
from penstock.storage.base import EndNotice, Storage

__all__ = ["ResultWaiter"]

#: Whoever waits looks so often (seconds) even if no hint comes.
RECHECK_INTERVAL = 5.0

#: How long (seconds) to rest at first, and at most, while the storage cannot be reached.
RETRY_DELAYS = (0.05, 1.0)

#: So many jobs are read at once: their results may be large.
MAX_READS = 100


class ResultWaiter:
    """Everybody in this process who waits for the end of some job; their reads go out together."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._reads = RequestCoalescer(storage.get, MAX_READS)

    async def wait(
        self, queue: str, id: str, timeout: float | None, *, read_first: bool = True
    ) -> Snapshot | EndNotice | None:
        """How a job ended, None when it is not there; after `patience` seconds, how it stands.

        With `look` False the job is known to be under way, so the first look comes after the first
        hint. A storage that cannot be reached is waited for, too.
        """
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + timeout
        pause = RETRY_DELAYS[0]
        while True:
            left = deadline - loop.time()
            try:
                if read_first or left <= 0:
                    snapshot = await self._reads.get(queue, id)
                    if snapshot is None or snapshot.state in FINISHED or left <= 0:
                        return snapshot
                read_first = True
                hint = await self._storage.wait_done(queue, id, min(left, RECHECK_INTERVAL))
                if isinstance(hint, EndNotice):
                    return hint
                pause = RETRY_DELAYS[0]
            except StorageUnavailable:
                if left <= 0:
                    raise
                read_first = True
                await asyncio.sleep(min(pause, left))
                pause = min(2 * pause, RETRY_DELAYS[1])

    async def close(self) -> None:
        """End the reads that are under way."""
        await self._reads.close()
