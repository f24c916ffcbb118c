"""Outcomes to the storage: those gathered while one settle is in flight go out together in the next."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.ends import end_of
from penstock.errors import ErrorKind, InvalidPayload, JobError
from penstock.job import State
from penstock.outcome import Outcome, Raised
from penstock.serde import decode
from penstock.storage.base import (
    MAX_BATCH,
    Cancel,
    Complete,
    Ended,
    Fail,
    Release,
    Retried,
    Settled,
    Settlement,
    Stall,
)
from penstock.task import Handler
from penstock.worker.host import Host
from penstock.worker.pool import Member, Run

__all__ = ["Pending", "Settler"]

log = logging.getLogger("penstock.worker")

#: How the log calls the ends.
ENDED_AS = {
    "complete": "completed", "retried": "retrying", "fail": "failed", "release": "released", "stall": "stalled",
    "cancel": "cancelled",
}  # fmt: skip


class Pending(NamedTuple):
    """A run's end for one of its jobs, to be recorded."""

    handler: Handler
    member: Member
    outcome: Outcome
    end: Ended
    #: How long the run took (seconds).
    took: float = 0.0


class Settler:
    """Sends ends to the storage until it has heard them, or until the lease behind them is gone."""

    def __init__(self, host: Host, worker: str, settled: Callable[[Member], None]) -> None:
        self._host = host
        self._worker = worker
        self._settled = settled
        self._pending: deque[Pending] = deque()
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

    def add(self, run: Run, outcomes: list[Outcome]) -> None:
        """Take the outcomes of a run; those of lost claims are nobody's business any more."""
        took = asyncio.get_running_loop().time() - run.began if run.began else 0.0
        for member, outcome in zip(run.members, outcomes, strict=True):
            member.ended = True
            if not member.lost:
                end = end_of(member.claim, member.rules, outcome)
                self._pending.append(Pending(run.handler, member, outcome, end, took))
        if self._pending:
            self._empty.clear()
            self.wake()

    async def wait_empty(self) -> None:
        await self._empty.wait()

    async def step(self) -> float | None:
        """Send what is there, as much as one call may carry."""
        batch = self._take()
        if batch:
            try:
                await self._send(batch)
            except BaseException:
                self._pending.extendleft(reversed(batch))
                raise
            finally:
                self._in_flight = 0
        if self._pending:
            return 0
        self._empty.set()
        if batch:
            self.emptied()
        return None

    def _take(self) -> list[Pending]:
        batch: list[Pending] = []
        while self._pending and len(batch) < MAX_BATCH:
            pending = self._pending.popleft()
            if not pending.member.lost:
                batch.append(pending)
        self._in_flight = len(batch)
        return batch

    async def _send(self, batch: list[Pending]) -> None:
        try:
            answers = await self._host.storage.settle([settlement(pending) for pending in batch])
        except (TypeError, ValueError):
            answers = [await self._send_alone(pending) for pending in batch]
        self.rounds += 1
        for pending, answer in zip(batch, answers, strict=True):
            self._settled(pending.member)
            if log.isEnabledFor(logging.INFO):
                log_run(pending, answer)
            self._tell(pending, answer)

    async def _send_alone(self, pending: Pending) -> Settled:
        """A settlement that the storage can never take must not hold up its neighbours: it fails its own job."""
        settle = self._host.storage.settle
        try:
            return (await settle([settlement(pending)]))[0]
        except (TypeError, ValueError) as error:
            log.error("the storage refused the outcome of job %r: %s", pending.member.claim.id, error)
            outcome = Raised(JobError.from_exception(error, ErrorKind.PERMANENT))
        end = end_of(pending.member.claim, pending.member.rules, outcome)
        return (await settle([settlement(pending._replace(end=end))]))[0]

    def _tell(self, pending: Pending, answer: Settled) -> None:
        """The events of a transition, named by what the storage says it led to."""
        outcome, end = pending.outcome, pending.end
        invalid = isinstance(outcome, Raised) and outcome.invalid
        if not (self._host.listeners or answer.lost or invalid):
            return
        error = outcome.error if isinstance(outcome, Raised) else None
        if answer.lost:
            return None if pending.member.lost else self._event("lease_lost", pending)
        if answer.state is State.CANCELLED:
            return self._event("cancelled", pending)
        if invalid:
            self._event("invalid_data", pending, error=error)
        if error is not None and error.kind is ErrorKind.TIMEOUT:
            self._event("timed_out", pending, error=error)
        match end:
            case Complete(result):
                self._event("completed", pending, result=result)
            case Retried():
                self._event("retrying", pending, error=error)
            case Fail():
                self._event("failed", pending, error=error)
            case Release():
                self._event("released", pending)
            case Stall():
                self._event("stalled", pending)
            case Cancel():
                pass
        if isinstance(end, Complete | Fail):
            for new in end.then:
                self._host.tell("enqueued", queue=new.queue, id=new.id)

    def _event(
        self, name: str, pending: Pending, *, result: bytes | None = None, error: JobError | None = None
    ) -> None:
        if not self._host.listeners.wants(name) and name not in ("lease_lost", "invalid_data"):
            return
        claim = pending.member.claim
        value: Any = None
        if result is not None:
            try:
                value = decode(self._host.codec(claim.queue).result, result)
            except InvalidPayload:
                value = result
        self._host.tell(
            name, queue=claim.queue, id=claim.id, attempt=claim.attempts, result=value, error=error,
            worker=self._worker,
        )  # fmt: skip


def log_run(pending: Pending, answer: Settled) -> None:
    """The one line that a run leaves in the log."""
    claim, ms = pending.member.claim, pending.took * 1000
    how = type(pending.end).__name__.lower() if answer.state is not State.CANCELLED else "cancel"
    outcome = "lost" if answer.lost else ENDED_AS[how]
    fields = {"queue": claim.queue, "job_id": claim.id, "attempt": claim.attempts, "ms": ms, "outcome": outcome}
    text = "%s: job %s, attempt %d, %s after %.1f ms"
    log.info(text, claim.queue, claim.id, claim.attempts, outcome, ms, extra=fields)


def settlement(pending: Pending) -> Settlement:
    claim = pending.member.claim
    return Settlement(claim.queue, claim.id, claim.token, pending.end)
