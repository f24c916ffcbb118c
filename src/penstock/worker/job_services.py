"""The services of a worker for its handlers, on the event loop or in a thread: progress, lines, parts, follow-ups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from penstock.errors import InvalidPayload, LeaseLost, StorageUnavailable
from penstock.host import AppHost
from penstock.model.context import Progress
from penstock.model.durable_children import refusal
from penstock.model.flow import Checkpoint, DependencyEntry, DependencyPage, NewCheckpoint
from penstock.model.history import MAX_PART, LogLevel
from penstock.model.job import Claim, NewJob
from penstock.model.printing import escape_controls
from penstock.model.serde import Codec, encode
from penstock.storage.base import Report
from penstock.storage.flowing import need_flowing
from penstock.worker.log_sender import LogSender

__all__ = ["WorkerJobServices"]

log = logging.getLogger("penstock.worker")

T = TypeVar("T")


class PendingReport:
    """A progress report under way; it may be awaited."""

    def __init__(self, future: Future[bool]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, bool]:
        return asyncio.wrap_future(self._future).__await__()


class WorkerJobServices:
    """Sends progress and log lines, and builds follow-up jobs for the runs of one worker."""

    def __init__(self, host: AppHost, worker: str) -> None:
        self._host = host
        #: The id of the worker.
        self.worker = worker
        self._loop = asyncio.get_running_loop()
        #: Returns whether the worker stops, so that long runs should end.
        self.stopping: Callable[[], bool] = lambda: False
        self.log_sender = LogSender(host)

    def report(self, claim: Claim, progress: Progress) -> Awaitable[bool]:
        """Attach progress to a run; the awaited answer is False if the claim was lost."""
        return PendingReport(asyncio.run_coroutine_threadsafe(self._send(claim, progress), self._loop))

    def log(self, claim: Claim, text: str, level: LogLevel) -> None:
        """Add a line to the log of a job; it is sent soon."""
        self.log_sender.add(claim, text, level)

    def emit(self, claim: Claim, value: Any) -> Awaitable[bool]:
        """Add a part to the stream of a job; it is sent soon."""
        data = encode(self._host.codec(claim.queue).result_for(claim.id), value, "part")
        if len(data) > MAX_PART:
            raise InvalidPayload(f"part is {len(data)} bytes, more than {MAX_PART}")
        return self.log_sender.emit(claim, data)

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob:
        """Build a follow-up job, checked and encoded."""
        return self._host.new_job(queue, payload, options)

    def now(self) -> float:
        """Return the time of the event loop (seconds)."""
        return self._loop.time()

    def wait_for(self, call: Awaitable[T]) -> T:
        """Wait for a call in the thread of a plain handler; raises `ValueError` on an event loop, which would stop."""
        coroutine = cast("Coroutine[Any, Any, T]", call)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        coroutine.close()
        raise refusal("a durable call of a plain handler waits in its thread: write the handler as `async def` instead")

    @property
    def max_payload(self) -> int:
        """The bytes of a value at most."""
        return self._host.max_payload

    def codec(self, queue: str) -> Codec:
        """Return the serdes of a queue."""
        return self._host.codec(queue)

    async def record(self, claim: Claim, checkpoints: Sequence[NewCheckpoint]) -> tuple[Checkpoint | None, ...]:
        """Store checkpoints of a run, and return the stored ones; raises `LeaseLost` if the claim was lost."""
        need_flowing(self._host.storage)
        report = Report(queue=claim.queue, id=claim.id, token=claim.token, checkpoints=tuple(checkpoints))
        [answer] = await self._host.storage.report([report])
        if not answer.kept:
            raise LeaseLost(f"the claim of job {claim.id!r} was lost, so that nothing was recorded")
        return answer.checkpoints

    async def journal(self, claim: Claim) -> tuple[list[Checkpoint], list[DependencyEntry]]:
        """Return the checkpoints and dependencies of a job."""
        flows = need_flowing(self._host.storage)
        if claim.flow is None or claim.flow.whole:
            return ([], []) if claim.flow is None else (list(claim.flow.checkpoints), list(claim.flow.dependencies))
        checkpoints: list[Checkpoint] = []
        page = await flows.read_journal(claim.queue, claim.id)
        while page is not None:
            checkpoints += page.checkpoints
            page = await flows.read_journal(claim.queue, claim.id, checkpoints[-1].n) if page.more else None
        entries: list[DependencyEntry] = []
        found = await flows.dependencies(claim.queue, claim.id)
        while found is not None:
            entries += found.dependencies
            found = await flows.dependencies(claim.queue, claim.id, entries[-1].number) if found.more else None
        return checkpoints, entries

    async def dependency_page(self, claim: Claim, after: int) -> DependencyPage | None:
        """Return the dependencies of a job with higher numbers than `after`, as many as one call gives."""
        return await need_flowing(self._host.storage).dependencies(claim.queue, claim.id, after)

    async def _send(self, claim: Claim, progress: Progress) -> bool:
        try:
            report = Report(queue=claim.queue, id=claim.id, token=claim.token, progress=progress.encode())
            [answer] = await self._host.storage.report([report])
            return answer.kept
        except StorageUnavailable as error:  # no reason to fail the run: the next report may get through
            log.debug("progress of job %r was not stored: %s", claim.id, escape_controls(str(error)))
            return True
