"""Outcomes to the storage: those gathered while one settle is in flight go out together in the next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.errors import ErrorKind, InvalidPayload, JobError
from penstock.host import AppHost
from penstock.model.job import State
from penstock.model.outcome import Outcome, Raised
from penstock.model.resolution import resolve
from penstock.model.serde import decode
from penstock.storage.base import MAX_BATCH, Cancel, Complete, Fail, Release, Retried, Settled, Settlement, Stall
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
                self._emit_settled(member, answer)
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

    def _emit_settled(self, member: RunJob, answer: Settled) -> None:
        """The events of a transition, named by what the storage says it led to."""
        outcome, end = member.outcome, member.settlement.resolution
        invalid = isinstance(outcome, Raised) and outcome.invalid
        if not (self._host.listeners or answer.lost or invalid):
            return
        error = outcome.error if isinstance(outcome, Raised) else None
        if answer.lost:
            return None if member.lost else self._emit("lease_lost", member)
        if answer.state is State.CANCELLED:
            return self._emit("cancelled", member)
        if invalid:
            self._emit("invalid_data", member, error=error)
        if error is not None and error.kind is ErrorKind.TIMEOUT:
            self._emit("timed_out", member, error=error)
        match end:
            case Complete(result):
                self._emit("completed", member, result=result)
            case Retried():
                self._emit("retrying", member, error=error)
            case Fail():
                self._emit("failed", member, error=error)
            case Release():
                self._emit("released", member)
            case Stall():
                self._emit("stalled", member)
            case Cancel():
                pass
        if isinstance(end, Complete | Fail):
            for new in end.then:
                self._host.emit("enqueued", queue=new.queue, id=new.id)

    def _emit(self, name: str, member: RunJob, *, result: bytes | None = None, error: JobError | None = None) -> None:
        if not self._host.listeners.wants(name) and name not in ("lease_lost", "invalid_data"):
            return
        claim = member.claim
        value: Any = None
        if result is not None:
            try:
                value = decode(self._host.codec(claim.queue).result, result)
            except InvalidPayload:
                value = result
        self._host.emit(
            name, queue=claim.queue, id=claim.id, attempt=claim.attempts, result=value, error=error,
            worker=self._worker,
        )  # fmt: skip


def log_run(member: RunJob, answer: Settled) -> None:
    """The one line that a run leaves in the log."""
    claim, run = member.claim, member.run
    ms = run.took * 1000 if run is not None and run.began else 0.0
    how = type(member.settlement.resolution).__name__.lower() if answer.state is not State.CANCELLED else "cancel"
    outcome = "lost" if answer.lost else OUTCOME_WORDS[how]
    fields = {"queue": claim.queue, "job_id": claim.id, "attempt": claim.attempts, "ms": ms, "outcome": outcome}
    text = "%s: job %s, attempt %d, %s after %.1f ms"
    log.info(text, claim.queue, claim.id, claim.attempts, outcome, ms, extra=fields)
