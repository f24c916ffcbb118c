"""The services of a worker for its handlers, on the event loop or in a thread: progress and follow-up jobs."""

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
from penstock.model.printing import escape_controls
from penstock.storage.base import ClaimRef

__all__ = ["WorkerJobServices"]

log = logging.getLogger("penstock.worker")


class PendingReport:
    """A progress report under way; it may be awaited."""

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
        """Attach progress to a run; the awaited answer is False if the claim was lost."""
        return PendingReport(asyncio.run_coroutine_threadsafe(self._send(claim, progress), self._loop))

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob:
        """Build a follow-up job, checked and encoded."""
        return self._host.new_job(queue, payload, options)

    async def _send(self, claim: Claim, progress: Progress) -> bool:
        try:
            return await self._host.storage.report(ClaimRef(claim.queue, claim.id, claim.token), progress.encode())
        except StorageUnavailable as error:  # no reason to fail the run: the next report may get through
            log.debug("progress of job %r was not stored: %s", claim.id, escape_controls(str(error)))
            return True
