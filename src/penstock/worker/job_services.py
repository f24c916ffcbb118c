"""What runs can ask of their worker, from the event loop or from a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator, Mapping
from concurrent.futures import Future
from typing import Any

from penstock.errors import StorageUnavailable
from penstock.host import AppHost
from penstock.model.context import Progress
from penstock.model.job import Claim, NewJob
from penstock.storage.base import ClaimRef

__all__ = ["WorkerJobServices"]

log = logging.getLogger("penstock.worker")


class PendingReport:
    """Something that is on its way, awaited or not."""

    def __init__(self, future: Future[bool]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, bool]:
        return asyncio.wrap_future(self._future).__await__()


class WorkerJobServices:
    """Sends progress and builds follow-up jobs for the runs of one worker."""

    def __init__(self, host: AppHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    def report(self, claim: Claim, progress: Progress) -> Awaitable[bool]:
        """Attach progress to a run."""
        return PendingReport(asyncio.run_coroutine_threadsafe(self._send(claim, progress), self._loop))

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob:
        """A follow-up job, checked and encoded."""
        return self._host.new_job(queue, payload, options)

    async def _send(self, claim: Claim, progress: Progress) -> bool:
        try:
            return await self._host.storage.report(ClaimRef(claim.queue, claim.id, claim.token), progress.encode())
        except StorageUnavailable as error:  # no reason for a run to fail: the next word may get through
            log.debug("progress of job %r was not heard: %s", claim.id, error)
            return True
