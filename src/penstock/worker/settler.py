"""Outcomes to the storage: those gathered while one settle is in flight go out together in the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from penstock.claims import emit_settled
from penstock.errors import ErrorKind, JobError
from penstock.host import AppHost
from penstock.model.job import State
from penstock.model.outcome import Outcome, Raised, resolve
from penstock.storage.base import MAX_BATCH, Settled, Settlement
from penstock.worker.run import Run, RunJob

__all__ = ["Settler"]

log = logging.getLogger("penstock.worker")

#: How the log calls the ends.
OUTCOME_WORDS = {
    "complete": "completed", "retried": "retrying", "fail": "failed", "release": "released", "stall": "stalled",
    "cancel": "cancelled",
}  # fmt: skip


class Settler:
    """Sends ends to the storage until it has heard them, or until the lease behind them is gone."""

    def __init__(self, host: AppHost, worker: str, settled: Callable[[Sequence[RunJob]], None]) -> None:
        self._host = host
        self._worker = worker
        self._settled = settled
        self._pending: list[RunJob] = []
        self._loop = asyncio.get_running_loop()
        self._in_flight = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self.wake: Callable[[], None] = lambda: None
        #: Called when everything that there was is recorded and told.
        self.emptied: Callable[[], None] = lambda: None
        #: Grows with every settle that was heard.
        self.rounds = 0

    @property
    def busy(self) -> bool:
        return bool(self._pending or self._in_flight)

    @property
    def full(self) -> bool:
        """Whether so much waits to be recorded that nothing more should be begun."""
        return len(self._pending) + self._in_flight >= MAX_BATCH

    def add(self, run: Run, outcomes: list[Outcome]) -> None:
        """Take the outcomes of a run; those of lost claims are nobody's business any more."""
        run.took = self._loop.time() - run.began
        pending = self._pending
        if not pending:
            self._empty.clear()
            self.wake()
        for member, outcome in zip(run.jobs, outcomes, strict=True):
            member.ended = True
            if not member.lost:
                claim = member.claim
                member.outcome = outcome
                member.settlement = Settlement(
                    claim.queue, claim.id, claim.token, resolve(claim, member.rules, outcome)
                )  # fmt: skip
                pending.append(member)

    async def wait_empty(self) -> None:
        await self._empty.wait()

    async def step(self) -> float | None:
        """Send what is there, as much as one call may carry."""
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
            self.emptied()
        return None

    def _take(self) -> list[RunJob]:
        taken, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
        batch = [member for member in taken if not member.lost]
        self._in_flight = len(batch)
        return batch

    async def _send(self, batch: list[RunJob]) -> None:
        try:
            answers = await self._host.storage.settle([member.settlement for member in batch])
        except (TypeError, ValueError):
            answers = [await self._send_alone(member) for member in batch]
        self.rounds += 1
        self._settled(batch)
        quiet = not (log.isEnabledFor(logging.INFO) or self._host.listeners)
        for member, answer in zip(batch, answers, strict=True):
            if not (quiet and answer.state is State.COMPLETED):
                log_run(member, answer)
                if not (answer.lost and member.lost):  # the loss was emitted when it was noticed
                    resolution = member.settlement.resolution
                    emit_settled(self._host, self._worker, member.claim, member.outcome, resolution, answer)
            member.run = None

    async def _send_alone(self, member: RunJob) -> Settled:
        """A settlement that the storage can never take must not hold up its neighbours: it fails its own job."""
        settle = self._host.storage.settle
        try:
            return (await settle([member.settlement]))[0]
        except (TypeError, ValueError) as error:
            log.error("the storage refused the outcome of job %r: %s", member.claim.id, error)
            outcome = Raised(JobError.from_exception(error, ErrorKind.PERMANENT))
        member.outcome = outcome
        member.settlement = replace(member.settlement, resolution=resolve(member.claim, member.rules, outcome))
        return (await settle([member.settlement]))[0]


def log_run(member: RunJob, answer: Settled) -> None:
    """The one line that a run leaves in the log."""
    claim, run = member.claim, member.run
    ms = run.took * 1000 if run is not None and run.began else 0.0
    how = type(member.settlement.resolution).__name__.lower() if answer.state is not State.CANCELLED else "cancel"
    outcome = "lost" if answer.lost else OUTCOME_WORDS[how]
    fields = {"queue": claim.queue, "job_id": claim.id, "attempt": claim.attempts, "ms": ms, "outcome": outcome}
    text = "%s: job %s, attempt %d, %s after %.1f ms"
    log.info(text, claim.queue, claim.id, claim.attempts, outcome, ms, extra=fields)
