"""Waiting for the results of jobs.

A hint of the storage only triggers a read, which decides; an `EndNotice` has the result itself.
"""

from __future__ import annotations

import asyncio
import math

from penstock.aio import RequestCoalescer
from penstock.errors import StorageUnavailable
from penstock.model.job import FINISHED, Snapshot
from penstock.storage.base import EndNotice, Storage

__all__ = ["ResultWaiter"]

#: How often (seconds) a waiting caller reads the job even if no hint comes.
RECHECK_INTERVAL = 5.0

#: The first and the longest delay (seconds) between retries while the storage is unavailable.
RETRY_DELAYS = (0.05, 1.0)

#: The most jobs of one read: their results may be large.
MAX_READS = 100


class ResultWaiter:
    """Waits for finished jobs on behalf of all callers of an app; their reads are coalesced."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._reads = RequestCoalescer(storage.get, MAX_READS)

    async def wait(
        self, queue: str, id: str, timeout: float | None, *, read_first: bool = True
    ) -> Snapshot | EndNotice | None:
        """Return a job once it is finished, None if it does not exist; after `timeout` seconds as it is then.

        With `read_first` False the job was just put, so the first read comes after the first hint. An
        unavailable storage is retried until the timeout.
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
        """Cancel the reads in progress."""
        await self._reads.close()
