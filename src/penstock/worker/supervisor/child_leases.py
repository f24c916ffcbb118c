"""The leases of a child process: written into the claim table, and renewed by the supervisor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from penstock.host import AppHost
from penstock.model.source import source
from penstock.worker.leases import Leases
from penstock.worker.run import Interruption, Run, RunFlow, RunJob
from penstock.worker.supervisor.claim_table import TURNS, ClaimTable, ParentCommand

__all__ = ["ChildLeases"]


class ChildLeases(Leases):
    """Leases that the supervisor renews. A claim is in the table before its run begins."""

    def __init__(self, host: AppHost, worker: str, seconds: float, flow: RunFlow, table: ClaimTable) -> None:
        super().__init__(host, worker, seconds, flow)
        self._table = table
        #: The offset from the event loop's clock to the monotonic clock, which all processes share.
        self.ahead = source.monotonic() - asyncio.get_running_loop().time()

    def hold(self, runs: Sequence[Run], asked: float) -> None:
        """Write the claims of runs into the table, and keep them."""
        jobs = [job for run in runs for job in run.jobs]
        slots = self._table.hold([job.claim for job in jobs], asked + self.ahead)
        for job, slot in zip(jobs, slots, strict=True):
            job.slot = slot
        super().hold(runs, asked)

    def drop(self, jobs: Sequence[RunJob]) -> None:
        """Hold these claims no longer, and free their slots."""
        super().drop(jobs)
        self.free(jobs)

    def free(self, jobs: Sequence[RunJob]) -> None:
        """Free the slots of these claims."""
        self._table.drop([job.slot for job in jobs if job.slot >= 0])
        for job in jobs:
            job.slot = -1

    async def step(self) -> float | None:
        """Carry out the commands that the supervisor has written for the claims, and count a turn of the event loop."""
        self._table.head[TURNS] += 1
        for job in list(self._held):
            command = self._table.command(job.slot)
            if command is ParentCommand.LOST and not job.ended:
                self._lose(job)
            elif command in (ParentCommand.SIGNAL, ParentCommand.KILL):
                self._cancel(job, kill=command is ParentCommand.KILL)
        return self.seconds / 3

    def expired(self, jobs: Sequence[RunJob], now: float) -> list[RunJob]:
        """Return the jobs that the supervisor could not renew in time, by the times that it wrote into the table."""
        for job in jobs:
            if job.slot >= 0:
                job.confirmed = self._table.confirmed(job.slot) - self.ahead
        return super().expired(jobs, now)

    def escalate(self, run: Run) -> None:
        """Write into the table why a run must end that the child cannot end; the supervisor kills the child.

        A child that lost its last leases exits at once.
        """
        assert run.interruption is not None
        for job in run.jobs:
            why = run.interruption
            if why is Interruption.KILL and not job.kill_requested:
                why = Interruption.RELEASE
            if job.slot >= 0:
                self._table.escalate(job.slot, why)
        if run.interruption is Interruption.LOSS and not self._held:
            self._exit()

    def _exit(self) -> None:
        os._exit(1)
