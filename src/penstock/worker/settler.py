"""Recording outcomes: those that arrive while one settle is in flight go out together in the next."""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from penstock.claims import emit_settled
from penstock.errors import ErrorKind, JobError
from penstock.host import AppHost
from penstock.model.job import State
from penstock.model.outcome import Outcome, Raised, resolve
from penstock.storage.base import MAX_BATCH, Settled, Settlement
from penstock.worker.run import Run, RunJob, SettleFlow
from penstock.worker.run_log import log as runs
from penstock.worker.run_log import log_run

__all__ = ["Settler"]

log = logging.getLogger("penstock.worker")


class Settler:
    """Sends outcomes to the storage until it has answered, or until the lease behind them is lost."""

    def __init__(self, host: AppHost, worker: str, flow: SettleFlow) -> None:
        self._host = host
        self._worker = worker
        self._flow = flow
        self._pending: list[RunJob] = []
        self._loop = asyncio.get_running_loop()
        self._in_flight = 0
        self._empty = asyncio.Event()
        self._empty.set()
        #: The number of settles that the storage has answered.
        self.rounds = 0

    @property
    def busy(self) -> bool:
        """Whether outcomes wait to be recorded."""
        return bool(self._pending or self._in_flight)

    @property
    def full(self) -> bool:
        """Whether a whole batch of outcomes waits to be recorded, so that no more jobs should be claimed."""
        return len(self._pending) + self._in_flight >= MAX_BATCH

    def add(self, run: Run, outcomes: list[Outcome]) -> None:
        """Take the outcomes of a run; those of lost claims are dropped."""
        run.took = self._loop.time() - run.began
        pending = self._pending
        if not pending:
            self._empty.clear()
            self._flow.settle_soon()
        for job, outcome in zip(run.jobs, outcomes, strict=True):
            job.ended = True
            if not job.lost:
                claim = job.claim
                job.outcome = outcome
                job.settlement = Settlement(claim.queue, claim.id, claim.token, resolve(claim, job.rules, outcome))
                pending.append(job)

    async def wait_empty(self) -> None:
        """Return when every outcome is recorded."""
        await self._empty.wait()

    async def step(self) -> float | None:
        """Send the waiting outcomes, at most `MAX_BATCH` of them."""
        batch = self._take()
        if batch:
            try:
                await self._send(batch)
            except BaseException:
                self._pending = batch + self._pending
                raise
            finally:
                self._in_flight = 0
        if self._pending:
            return 0
        self._empty.set()
        if batch:
            self._flow.all_settled()
        return None

    def _take(self) -> list[RunJob]:
        taken, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
        batch = [job for job in taken if not job.lost]
        self._in_flight = len(batch)
        return batch

    async def _send(self, batch: list[RunJob]) -> None:
        try:
            answers = await self._host.storage.settle([job.settlement for job in batch])
        except (TypeError, ValueError):
            answers = [await self._send_alone(job) for job in batch]
        self.rounds += 1
        self._flow.settled(batch)
        quiet = not (runs.isEnabledFor(logging.INFO) or self._host.listeners)
        for job, answer in zip(batch, answers, strict=True):
            if not (quiet and answer.state is State.COMPLETED):
                log_run(job, answer)
                if not (answer.lost and job.lost):  # a loss that was noticed before was emitted then
                    resolution = job.settlement.resolution
                    emit_settled(self._host, self._worker, job.claim, job.outcome, resolution, answer)
            job.run = None

    async def _send_alone(self, job: RunJob) -> Settled:
        """Settle one job of a batch that the storage refused; if its own outcome is refused, fail the job."""
        settle = self._host.storage.settle
        try:
            return (await settle([job.settlement]))[0]
        except (TypeError, ValueError) as error:
            log.error("the storage refused the outcome of job %r: %s", job.claim.id, error)
            outcome = Raised(JobError.from_exception(error, ErrorKind.PERMANENT))
        job.outcome = outcome
        job.settlement = replace(job.settlement, resolution=resolve(job.claim, job.rules, outcome))
        return (await settle([job.settlement]))[0]
