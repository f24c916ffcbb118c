"""A child process: it claims, runs and settles by itself; its parent keeps its leases and its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.host import AppHost
from penstock.model.handler import Handler
from penstock.model.outcome import Outcome, Released
from penstock.worker.leases import Leases
from penstock.worker.loop import Loop
from penstock.worker.run import Run
from penstock.worker.runtime import WorkerRuntime
from penstock.worker.supervisor.child_leases import ChildLeases
from penstock.worker.supervisor.claim_table import RUNS, UNITS, WITHHELD, ClaimTable
from penstock.worker.supervisor.config import ChildConfig

__all__ = []


#: How long (seconds) a job on its last chance waits for the process to be empty.
ALONE_WITHIN = 10.0


class ChildRuntime(WorkerRuntime):
    """A shift whose leases, deadlines and presence are the parent's care."""

    def __init__(
        self,
        host: AppHost,
        settings: ChildConfig,
        handlers: dict[str, Handler],
        board: ClaimTable,
        say: Callable[[str], None],
    ) -> None:
        self._table = board
        self._send = say
        self._max_jobs = settings.max_jobs
        self._full = False
        self._last_chances: list[Run] = []
        self._alone: Run | None = None
        self._counting = False
        super().__init__(host, settings.worker, handlers, settings.capacity, settings.lease, settings.adaptive)
        if settings.replacing:
            self._claimer.excluded = frozenset(q for q, handler in handlers.items() if handler.options.concurrency)
        self._pool.escalate = self._escalate

    def _new_leases(self, lease: float) -> Leases:
        self._keeper = ChildLeases(self._host, self._worker, lease, self._pool, self._table)
        return self._keeper

    def _loops(self) -> list[Loop]:
        return [self._settling, self._renewing, self._watching, self._claiming]

    def _new_lease_thread(self) -> None:
        """Return None: the supervisor renews the leases of its children, even while one holds the interpreter."""

    async def _leave(self) -> None:
        """The parent is still there."""

    def look(self) -> None:
        """The parent has said something of the claims."""
        self._renewing.wake()

    def take_over(self) -> None:
        """Nobody else of this seat has runs of the queues that were barred."""
        self._claimer.excluded = frozenset()
        self._claiming.wake()

    def again(self) -> None:
        """The parent has given jobs back."""
        self._table.set_idle(False)
        self._claiming.wake()

    async def finish(self) -> None:
        self._claimer.stopping = True
        waiting, self._last_chances = self._last_chances, []
        for run in waiting:
            self._settler.add(run, [Released()] * len(run.jobs))
        await super().finish()

    # drain ----------------------------------------------------------------------------------------

    async def _drain(self) -> float | None:
        self._table.set_idle(False)
        return await super()._drain()

    def _nothing_left(self) -> float | None:
        self._table.set_idle(True)
        self._send("idle")
        return self._claimer.patience()

    # runs -----------------------------------------------------------------------------------------

    def _room(self) -> float:
        if self._max_jobs is not None and self._keeper.begun >= self._max_jobs:
            if not self._full:
                self._full = True
                self._send("full")
            return 0
        return 0 if self._last_chances or self._alone else min(super()._room(), self._table.room)

    def _start(self, runs: Sequence[Run]) -> None:
        """Jobs whose process died before run alone when one more time would be the last: they may be the reason."""
        batch = runs[0].handler.batch
        suspects = [run for run in runs if (batch or run.jobs[0].claim.stalls) and on_last_chance(run)]
        if innocent := [run for run in runs if run not in suspects] if suspects else runs:
            super()._start(innocent)
        for run in suspects:
            if self._alone is None and not self._last_chances and self._empty:
                self._start_alone(run)
            else:
                self._last_chances.append(run)
                asyncio.get_running_loop().call_later(ALONE_WITHIN, self._next_last_chance, run)
        self._count()

    def _start_alone(self, run: Run) -> None:
        self._alone = run
        super()._start([run])

    def _ended(self, run: Run, outcomes: list[Outcome]) -> None:
        if run is self._alone:
            self._alone = None
        super()._ended(run, outcomes)
        if not self._counting:
            self._count()
        if self._last_chances:
            self._all_settled()

    def _all_settled(self) -> None:
        """What went well before a suspect runs must be recorded, or it would count as lost with it."""
        super()._all_settled()
        if self._last_chances and self._empty:
            self._next_last_chance(self._last_chances[0])

    @property
    def _empty(self) -> bool:
        return self._pool.empty and not self._settler.busy

    def _next_last_chance(self, run: Run) -> None:
        if run not in self._last_chances:
            return
        if self._alone is not None:
            asyncio.get_running_loop().call_later(1.0, self._next_last_chance, run)
        else:
            self._last_chances.remove(run)
            self._start_alone(run)
            self._count()

    def _share_changed(self) -> None:
        super()._share_changed()
        self._count()

    def _count(self) -> None:
        """Have the parent know, once in a turn of the event loop."""
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._count_now)

    def _count_now(self) -> None:
        self._counting = False
        self._table.head[UNITS] = max(self._pool.busy, 0)
        self._table.head[RUNS] = len(self._pool.live)
        self._table.head[WITHHELD] = self._pool.capacity - self._pool.allowed

    def _escalate(self, run: Run) -> None:
        self._keeper.escalate(run)
        self._send("stuck")


def on_last_chance(run: Run) -> bool:
    """Whether one more dead process would fail a job of this run for good."""
    return any(0 < member.claim.stalls == (member.rules.max_stalls or 0) - 1 for member in run.jobs)
