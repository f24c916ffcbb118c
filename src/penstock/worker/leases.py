"""The leases of a worker: renewed while a claim is held, given up when they expire.

A cancel request travels the same way. The storage wakes the worker (`wait_for_cancel`), which renews
at once, and the answer to the renewal names the claims that are to be cancelled.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from penstock.claims import renew_all
from penstock.errors import StorageUnavailable
from penstock.host import AppHost
from penstock.storage.base import Renewal
from penstock.worker.run import Interruption, Run, RunFlow, RunJob

__all__ = ["CANCEL_WAIT", "Leases", "wait_for_cancel"]

#: How long (seconds) one wait for a cancel request is, and the pause after one that the storage could not serve.
CANCEL_WAIT, UNAVAILABLE_PAUSE = 30.0, 1.0


class Leases:
    """Every claim that this worker holds, from the answer that gave it until its outcome is recorded.

    A lease that was not confirmed in time is given up here before another worker may have the job.
    """

    def __init__(self, host: AppHost, worker: str, seconds: float, flow: RunFlow) -> None:
        self._host = host
        self._worker = worker
        self._flow = flow
        #: In the order of their claims, which is that of a renewal.
        self._held: dict[RunJob, None] = {}
        self.seconds = seconds
        #: The number of renewals that the storage has answered.
        self.rounds = 0

    def __bool__(self) -> bool:
        """Return whether any claim is held."""
        return bool(self._held)

    def hold(self, runs: Sequence[Run], asked: float) -> None:
        """Keep the claims of runs; `asked` is when the claim was sent."""
        for run in runs:
            for job in run.jobs:
                self._held[job] = None
        self._flow.watch(asked + self.seconds)

    def drop(self, jobs: Sequence[RunJob]) -> None:
        """Hold these claims no longer: their outcomes are recorded."""
        for job in jobs:
            self._held.pop(job, None)

    async def step(self) -> float | None:
        """Renew every held claim; returns the seconds until the next renewal."""
        clock, lease_ms = asyncio.get_running_loop().time, round(self.seconds * 1000)
        await renew_all(self._host.storage, self._worker, list(self._held), lease_ms, self._answered, clock)
        return self.seconds / 3

    def _answered(self, jobs: Sequence[RunJob], answers: Sequence[Renewal], asked: float) -> None:
        self.rounds += 1
        self.renewed(jobs, answers, asked)

    def fence(self, now: float) -> float:
        """Give up the claims that were not confirmed within their lease; returns when the next one expires."""
        self.give_up(self.expired(list(self._held), now))
        first = min((job.confirmed for job in self._held), default=math.inf)
        return first + self.seconds

    def expired(self, jobs: Sequence[RunJob], now: float) -> list[RunJob]:
        """Return those of these jobs that are held and were not confirmed within their lease."""
        return [job for job in jobs if not job.lost and job.confirmed + self.seconds <= now]

    def give_up(self, jobs: Sequence[RunJob]) -> None:
        """Give up claims: other workers may have the jobs."""
        for job in jobs:
            self._lose(job)

    def age(self, now: float) -> float | None:
        """Return the seconds since the oldest confirmation of a held lease, None without leases."""
        first = min((job.confirmed for job in self._held), default=None)
        return None if first is None else now - first

    def late(self, since: float) -> list[RunJob]:
        """Return the jobs whose lease was not confirmed since this time. Safe to call from any thread."""
        return [job for job in list(self._held) if job.confirmed < since]

    def renewed(self, jobs: Sequence[RunJob], answers: Sequence[Renewal], asked: float) -> None:
        """Apply the storage's answers to a renewal that was sent at this time."""
        for job, answer in zip(jobs, answers, strict=True):
            if job not in self._held:
                continue  # settled meanwhile
            if not answer.kept:
                # After its run ended, a claim may be gone because the outcome is recorded: settle answers for it.
                if not job.ended:
                    self._lose(job)
                continue
            job.confirmed = max(job.confirmed, asked)
            if answer.cancel in ("signal", "kill"):
                self._cancel(job, kill=answer.cancel == "kill")

    def _cancel(self, job: RunJob, kill: bool) -> None:
        """Pass a cancel request on to the handler; with `kill`, interrupt its run."""
        job.job.cancelled.request()
        if kill:
            job.kill_requested = True
            if job.run is not None:
                self._flow.interrupt(job.run, Interruption.KILL)

    def _lose(self, job: RunJob) -> None:
        """Give up a claim: another worker may run the job by now, so its outcome is not recorded."""
        job.lost = True
        job.job.cancelled.request()
        self._held.pop(job, None)
        self._flow.lost(job)


async def wait_for_cancel(host: AppHost, worker: str, seconds: float) -> bool:
    """Wait for a cancel request; returns whether a claim of the worker may have one.

    A storage that is unavailable counts as no request: the loops that call it report the outage.
    """
    try:
        return await host.storage.wait_cancel(worker, seconds)
    except StorageUnavailable:
        await asyncio.sleep(UNAVAILABLE_PAUSE)
        return False
