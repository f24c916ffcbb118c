"""Leases: kept while a run is held, and its hand-over when one is lost or somebody wants it to end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from penstock.claims import renew_all
from penstock.host import AppHost
from penstock.storage.base import Renewal
from penstock.worker.pool import Pool
from penstock.worker.run import Interruption, Run, RunJob

__all__ = ["Leases"]


class Leases:
    """Every claim this worker holds, from the answer that gave it until its end is recorded.

    A lease that was not confirmed in time is given up here before anybody else may have the job.
    """

    def __init__(self, host: AppHost, worker: str, seconds: float, pool: Pool) -> None:
        self._host = host
        self._listeners = host.listeners
        self._worker = worker
        self._pool = pool
        self._held: set[RunJob] = set()
        self.seconds = seconds
        #: Grows with every renewal that was heard.
        self.rounds = 0
        #: Called with the time at which the next lease ends unless it is confirmed.
        self.watch: Callable[[float], None] = lambda _: None

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    def hold(self, runs: Sequence[Run], asked: float) -> None:
        """Keep the claims of runs; `asked` is when the storage was asked for them."""
        for run in runs:
            self._held.update(run.jobs)
        self.watch(asked + self.seconds)

    def drop(self, members: Sequence[RunJob]) -> None:
        """The ends of these claims are recorded."""
        self._held.difference_update(members)

    def begin(self, run: Run) -> None:
        """The run of held claims begins."""
        if self._listeners.by_name and self._listeners.wants("started"):
            for member in run.jobs:
                claim = member.claim
                self._host.emit(
                    "started", queue=claim.queue, id=claim.id, attempt=claim.attempts, worker=self._worker
                )  # fmt: skip

    def ended(self, run: Run) -> None:
        """The run is over; what came of it is not recorded yet."""

    async def step(self) -> float | None:
        """Renew everything that is held, by name."""
        clock, lease_ms = asyncio.get_running_loop().time, round(self.seconds * 1000)
        await renew_all(self._host.storage, self._worker, list(self._held), lease_ms, self._answered, clock)
        return self.seconds / 3

    def _answered(self, leases: Sequence[RunJob], answers: Sequence[Renewal], asked: float) -> None:
        self.rounds += 1
        self.renewed(leases, answers, asked)

    def fence(self, now: float) -> float:
        """Give up what was not confirmed within its lease; gives when the next one is due."""
        for lease in list(self._held):
            if lease.confirmed + self.seconds <= now:
                self._lose(lease)
        first = min((lease.confirmed for lease in self._held), default=math.inf)
        return first + self.seconds

    def age(self, now: float) -> float | None:
        """How long ago the storage confirmed the lease that it has not confirmed for the longest."""
        first = min((lease.confirmed for lease in self._held), default=None)
        return None if first is None else now - first

    def late(self, since: float) -> list[RunJob]:
        """The leases that were not confirmed since this time. Any thread may ask."""
        return [lease for lease in list(self._held) if lease.confirmed < since]

    def renewed(self, leases: Sequence[RunJob], answers: Sequence[Renewal], asked: float) -> None:
        """What the storage said of these leases, asked at this time."""
        for lease, answer in zip(leases, answers, strict=True):
            if lease not in self._held:
                continue  # settled meanwhile
            if not answer.kept:
                # After the end it may be lost because it is recorded: the settle's own answer will tell.
                if not lease.ended:
                    self._lose(lease)
                continue
            lease.confirmed = max(lease.confirmed, asked)
            if answer.cancel in ("signal", "kill"):
                self._cancel_requested(lease, kill=answer.cancel == "kill")

    def _cancel_requested(self, lease: RunJob, kill: bool) -> None:
        """Somebody asked for the run to end."""
        lease.job.cancelled.request()
        if kill:
            lease.kill_requested = True
            self._interrupt(lease, Interruption.KILL)

    def _lose(self, lease: RunJob) -> None:
        """The job may run elsewhere by now: nothing of this run is reported, and it ends if it is alone."""
        claim = lease.claim
        lease.lost = True
        lease.job.cancelled.request()
        self._held.discard(lease)
        self._host.emit("lease_lost", queue=claim.queue, id=claim.id, attempt=claim.attempts, worker=self._worker)
        if lease.run is not None and all(each.lost for each in lease.run.jobs):
            self._interrupt(lease, Interruption.LOSS)

    def _interrupt(self, lease: RunJob, why: Interruption) -> None:
        if lease.run is not None:
            self._pool.interrupt(lease.run, why)
