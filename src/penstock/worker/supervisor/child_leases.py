"""A child's leases: written down where the parent sees them, kept by the parent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence

from penstock.host import AppHost
from penstock.worker.leases import Leases
from penstock.worker.pool import Pool
from penstock.worker.run import Interruption, Run, RunJob
from penstock.worker.supervisor.claim_table import ENDED, ClaimTable, ParentCommand, Verdict

__all__ = ["ChildLeases"]

VERDICTS = {
    Interruption.TIMEOUT: Verdict.TIMEOUT,
    Interruption.KILL: Verdict.KILL,
    Interruption.RELEASE: Verdict.RELEASE,
    Interruption.LOSS: Verdict.LOSS,
}


class ChildLeases(Leases):
    """Leases that somebody else renews. A claim is on the board before its run begins."""

    def __init__(self, host: AppHost, worker: str, seconds: float, pool: Pool, board: ClaimTable) -> None:
        super().__init__(host, worker, seconds, pool)
        self._table = board
        self._phases = board.phases
        #: From the event loop's clock to the one that all processes share.
        self._ahead = time.monotonic() - asyncio.get_running_loop().time()
        #: How many runs of jobs have begun.
        self.begun = 0

    def hold(self, runs: Sequence[Run], asked: float) -> None:
        members = [member for run in runs for member in run.jobs]
        places = self._table.hold([member.claim for member in members], asked + self._ahead)
        for member, place in zip(members, places, strict=True):
            member.slot = place
        super().hold(runs, asked)

    def begin(self, run: Run) -> None:
        deadline = None if run.deadline is None else run.deadline + self._ahead
        for member in run.jobs:
            self._table.begin(member.slot, deadline, run.timeout, run.began + self._ahead)
            self.begun += 1
        if self._listeners.by_name:
            super().begin(run)

    def ended(self, run: Run) -> None:
        for member in run.jobs:
            if member.lost:
                self._free([member])
            elif run.began:
                self._phases[member.slot] = ENDED

    def drop(self, members: Sequence[RunJob]) -> None:
        super().drop(members)
        self._free(members)

    async def step(self) -> float | None:
        """Do what the parent has said of the claims."""
        for lease in list(self._held):
            order = self._table.order(lease.slot)
            if order is ParentCommand.LOST and not lease.ended:
                self._lose(lease)
            elif order in (ParentCommand.SIGNAL, ParentCommand.KILL):
                self._cancel_requested(lease, kill=order is ParentCommand.KILL)
        return self.seconds / 3

    def fence(self, now: float) -> float:
        for lease in self._held:
            lease.confirmed = self._table.confirmed(lease.slot) - self._ahead
        return super().fence(now)

    def escalate(self, run: Run) -> None:
        """A run cannot be made to end: leave word for the parent. Where nothing else is held, end right here."""
        assert run.interruption is not None
        for member in run.jobs:
            verdict = VERDICTS[run.interruption]
            if verdict is Verdict.KILL and not member.kill_requested:
                verdict = Verdict.RELEASE
            if member.slot >= 0:
                self._table.escalate(member.slot, verdict)
        if run.interruption is Interruption.LOSS and not self._held:
            os._exit(1)

    def _lose(self, lease: RunJob) -> None:
        super()._lose(lease)
        if lease.ended:
            self._free([lease])

    def _free(self, members: Sequence[RunJob]) -> None:
        self._table.drop([member.slot for member in members if member.slot >= 0])
        for member in members:
            member.slot = -1
