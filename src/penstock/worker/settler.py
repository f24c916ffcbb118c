"""Recording outcomes: those that arrive while one settle is in flight go out together in the next."""

from __future__ import annotations

import asyncio
import logging

from penstock.claims import emit_settled, set_outcome, settle_all
from penstock.errors import StorageError
from penstock.host import AppHost
from penstock.model.job import State
from penstock.model.outcome import Outcome
from penstock.model.printing import count, join_names
from penstock.storage.base import MAX_BATCH, Settled
from penstock.worker.log_sender import LogSender
from penstock.worker.pulse import RunCounts
from penstock.worker.run import Run, RunJob, SettleFlow
from penstock.worker.run_log import log as runs
from penstock.worker.run_log import log_run, outcome_word

__all__ = ["Settler"]

log = logging.getLogger("penstock.worker")

#: How often a settle of many outcomes may fail before each is sent by itself.
MAX_FAILURES = 2


class Settler:
    """Sends outcomes to the storage until it has answered, or until the lease behind them is lost."""

    def __init__(self, host: AppHost, worker: str, flow: SettleFlow, logs: LogSender | None = None) -> None:
        self._host = host
        self._worker = worker
        self._flow = flow
        #: The lines that runs have logged: they are sent before the outcome, after which they would be refused.
        self._logs = logs
        self._pending: list[RunJob] = []
        self._in_flight = 0
        #: How many settles in a row have failed.
        self._failures = 0
        self._empty = asyncio.Event()
        self._empty.set()
        #: The number of settles that the storage has answered.
        self.rounds = 0
        #: The runs that ended, by queue and outcome, if they are to be counted.
        self.counts: RunCounts | None = None

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
        pending = self._pending
        if not pending:
            self._empty.clear()
            self._flow.settle_soon()
        for job, outcome in zip(run.jobs, outcomes, strict=True):
            job.ended = True
            if job.lost:
                job.run = None
            else:
                set_outcome(job, outcome)
                pending.append(job)

    async def wait_empty(self) -> None:
        """Return when every outcome is recorded."""
        await self._empty.wait()

    def give_up(self) -> None:
        """Drop the outcomes that are not recorded: their leases expire, and their jobs run again."""
        left = [(job.claim.queue, job.claim.id) for job in self._pending if not job.lost]
        self._pending = []
        if left:
            log.error(
                "the storage did not record the outcomes of %s: they run again when their leases expire (%s)",
                count(len(left), "job"),
                join_names(left),
            )

    async def step(self) -> float | None:
        """Send the waiting outcomes, at most `MAX_BATCH` of them."""
        batch = self._take()
        if batch:
            try:
                failed = await self._send(batch)
            except BaseException:
                self._pending = batch + self._pending
                self._failures += 1
                raise
            finally:
                self._in_flight = 0
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed  # or its traceback and this frame would keep each other, and the batch, alive
            self._failures = 0
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

    async def _send(self, batch: list[RunJob]) -> StorageError | None:
        """Send outcomes; those of a queue in which nothing can be settled wait again, and its error is returned."""
        if self._logs:
            await self._logs.end([job.claim for job in batch])
            batch = [job for job in batch if not job.lost]  # a lease may have ended meanwhile, and its lines are gone
            if not batch:
                return None
        settled, answers, error = await settle_all(
            self._host.storage, batch, wait=self._failures < MAX_FAILURES, hooks=self._host.hooks.settle
        )
        self.rounds += 1
        if error is not None:
            recorded = set(settled)
            self._pending += [job for job in batch if job not in recorded]  # behind those of other queues
        if self._logs:
            self._logs.forget([job.claim for job in settled])
        self._flow.settled(settled)
        if self.counts is not None:
            self.counts.update(
                (job.claim.queue, outcome_word(job, answer)) for job, answer in zip(settled, answers, strict=True)
            )
        quiet = not (runs.isEnabledFor(logging.INFO) or self._host.listeners)
        for job, answer in zip(settled, answers, strict=True):
            if not (quiet and answer.state is State.COMPLETED):
                self._report(job, answer)
            job.run = None
        return error

    def _report(self, job: RunJob, answer: Settled) -> None:
        """Log and emit the end of a run; an error is only logged, because the outcome is recorded."""
        try:
            log_run(job, answer)
            if not (answer.lost and job.lost):  # a loss that was noticed before was emitted then
                resolution = job.settlement.resolution
                emit_settled(self._host, self._worker, job.claim, job.outcome, resolution, answer)
        except Exception:
            log.exception("the end of job %r could not be reported", job.claim.id)
