"""The runtime of a child process: it claims, runs and settles; its supervisor renews its leases and watches it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence

from penstock.app_loader import one_line
from penstock.errors import StorageError
from penstock.host import AppHost
from penstock.model.handler import Handler
from penstock.model.outcome import Outcome, Released
from penstock.model.source import source
from penstock.model.worker_status import WorkerStatus
from penstock.worker.leases import Leases
from penstock.worker.loop import Loop
from penstock.worker.pulse import Pulse, RunCounts
from penstock.worker.run import Run, RunJob
from penstock.worker.runtime import WorkerRuntime
from penstock.worker.supervisor.channel import FromChild
from penstock.worker.supervisor.child_leases import ChildLeases
from penstock.worker.supervisor.child_rota import ChildRota
from penstock.worker.supervisor.claim_table import (
    ANSWERED,
    CLAIMING,
    ENDED,
    LAG,
    LIVE,
    NOTED,
    RUNS,
    UNITS,
    WITHHELD,
    ClaimTable,
)
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.stacks import coroutine_stack
from penstock.worker.supervisor.tick_reports import TickReporter

__all__ = ["ChildRuntime"]


#: How long (seconds) a job on its last chance waits for the process to be empty.
ALONE_WITHIN = 10.0

#: How often (seconds) the times of runs are sent.
STATS_EVERY = 5.0

#: How often (seconds) a child that has measured nothing asks for the storage's time: its supervisor has queues sampled.
SAMPLE_EVERY = 300.0


class ChildRuntime(WorkerRuntime):
    """A `WorkerRuntime` whose leases, deadlines and heartbeat are the supervisor's task."""

    replaceable = True
    _leases_class = ChildLeases
    _sample_every = SAMPLE_EVERY

    def __init__(
        self,
        host: AppHost,
        config: ChildConfig,
        handlers: dict[str, Handler],
        table: ClaimTable,
        send: Callable[[str], None],
    ) -> None:
        self._table = table
        self._phases = table.phases
        self._send = send
        self._max_jobs = config.max_jobs
        #: The number of jobs whose runs have begun.
        self._begun = 0
        self._full = False
        #: The runs that wait to run alone, and the one that does.
        self._last_chances: list[Run] = []
        self._alone: Run | None = None
        self._counting = self._reported_limits = False
        super().__init__(
            host, config.worker, handlers, config.capacity, config.lease, config.adaptive,
            lambda error: send(FromChild.UNUSABLE + one_line(error)),
        )  # fmt: skip
        self._rota = self._claimer.rota = ChildRota(send)
        self._knows_time = False
        self._ticks = TickReporter(self._claimer.take_asked, send)
        self._measuring = Loop("stats", self._send_stats, self._outage)
        self._pulse: Pulse | None = None
        if config.watched:
            self.count_runs()
            self._pulse = Pulse(self._noted)
        if config.replacing:
            self._claimer.excluded = frozenset(q for q, handler in handlers.items() if handler.options.concurrency)

    def _new_leases(self, lease: float) -> Leases:
        self._child_leases = self._leases_class(self._host, self._worker, lease, self, self._table)
        return self._child_leases

    def _new_lease_thread(self) -> None:
        """Return None: the supervisor renews the leases of its children, even while one holds the interpreter."""

    def _loops(self) -> list[Loop]:
        return [self._settling, self._renewing, self._watching, self._claiming, self._measuring]

    async def _send_stats(self) -> float | None:
        """Send the times of runs; returns the seconds until the next time."""
        loop = asyncio.get_running_loop()
        if not self._knows_time:
            self._stats.set_clock(await self._host.storage.time(), loop.time())
            self._knows_time = True
        else:
            await self._stats.try_send(loop.time())
        return STATS_EVERY

    async def _leave(self) -> None:
        """Send the last times of runs; the worker's record in the storage stays, as it is the supervisor's."""
        await self._measuring.stop()
        with contextlib.suppress(StorageError):
            await self._stats.try_send(asyncio.get_running_loop().time())

    # messages of the supervisor -------------------------------------------------------------------

    def read_commands(self) -> None:
        """Read the commands that the supervisor has written into the claim table."""
        self._renewing.wake()

    def take_over(self) -> None:
        """Serve the excluded queues: the child that this one replaces has no runs of them any more."""
        self._claimer.excluded = frozenset()
        self._claiming.wake()

    def claim_again(self) -> None:
        """Look for work: the supervisor has given jobs back."""
        self._table.set_idle(False)
        self._claiming.wake()

    def begin_rota(self, turns: str) -> None:
        """Wait for work in turn with the other children, as none of them has any."""
        self._rota.begin(turns, busy=bool(self._table.head[LIVE]))

    def end_rota(self) -> None:
        """Look for work: another child may have no room for it."""
        self._rota.end()
        self._claiming.wake()

    async def finish(self) -> None:
        """Release the runs that wait to run alone, then finish as any worker."""
        self._claimer.stopping = True
        waiting, self._last_chances = self._last_chances, []
        for run in waiting:
            self._settler.add(run, [Released()] * len(run.jobs))
        await super().finish()
        if self._pulse is not None:
            await self._pulse.stop()
            self._noted()

    # drain ----------------------------------------------------------------------------------------

    async def _drain(self) -> float | None:
        self._table.set_idle(False)
        return await super()._drain()

    def _nothing_left(self) -> float | None:
        self._table.set_idle(True)
        self._send(FromChild.IDLE)
        return self._claimer.wait_time()

    # the steps of a job ------------------------------------------------------------------------

    def tick_at(self, at: int, now: int | None) -> None:
        """Have the supervisor fire the ticks of schedules: a queue has one."""
        self._ticks.report(at, now)

    def limited(self, queues: Sequence[str]) -> None:
        """Have the supervisor look after limits: a queue has them."""
        if not self._reported_limits:
            self._reported_limits = True
            self._send(FromChild.LIMITED)

    def _start(self, runs: Sequence[Run]) -> None:
        """Start runs; those on their last chance run alone, because they may be what killed the process before."""
        self._rota.work()
        batch = runs[0].handler.batch
        suspects = [run for run in runs if (batch or run.jobs[0].claim.stalls) and on_last_chance(run)]
        if others := [run for run in runs if run not in suspects] if suspects else runs:
            super()._start(others)
        for run in suspects:
            if self._alone is None and not self._last_chances and self._empty:
                self._start_alone(run)
            else:
                self._last_chances.append(run)
                asyncio.get_running_loop().call_later(ALONE_WITHIN, self._next_last_chance, run)
        self._count()

    def started(self, run: Run) -> None:
        """Write the deadline of a run into the table before its handler is called."""
        ahead = self._child_leases.ahead
        deadline = None if run.deadline is None else run.deadline + ahead
        for job in run.jobs:
            self._table.begin(job.slot, deadline, run.timeout, run.began + ahead)
            self._begun += 1
        if self._listeners.by_name:
            super().started(run)

    def ended(self, run: Run, outcomes: list[Outcome]) -> None:
        """Mark the claims of a run as ended in the table, and leave its outcomes with the settler."""
        for job in run.jobs:
            if job.lost:
                self._child_leases.free([job])
            elif run.began:
                self._phases[job.slot] = ENDED
        if run is self._alone:
            self._alone = None
        super().ended(run, outcomes)
        if not self._counting:
            self._count()
        if self._last_chances:
            self.all_settled()

    def all_settled(self) -> None:
        """Start the next run on its last chance: outcomes that were not recorded would be lost with the process."""
        super().all_settled()
        if self._last_chances and self._empty:
            self._next_last_chance(self._last_chances[0])

    def lost(self, job: RunJob) -> None:
        """Interrupt the run of a lost job as any worker; free the slot of a job whose run has ended."""
        super().lost(job)
        if job.ended:
            self._child_leases.free([job])

    def stuck(self, run: Run) -> None:
        """Have the supervisor replace this process: a run does not end."""
        if run.task is not None and run.handler.signature.is_async:
            for job in run.jobs:
                self._table.write_stack(coroutine_stack(run.task.get_coro(), job.claim.queue, job.claim.id))
        self._child_leases.escalate(run)
        self._send(FromChild.STUCK)

    def room(self) -> float:
        """Return how many more jobs may be held: none after `max_jobs`, nor while a run is to be alone."""
        if self._max_jobs is not None and self._begun >= self._max_jobs:
            if not self._full:
                self._full = True
                self._send(FromChild.FULL)
            return 0
        return 0 if self._last_chances or self._alone else min(super().room(), self._table.room)

    # runs on their last chance --------------------------------------------------------------------

    @property
    def _empty(self) -> bool:
        return self._pool.empty and not self._settler.busy

    def _start_alone(self, run: Run) -> None:
        self._alone = run
        super()._start([run])

    def _next_last_chance(self, run: Run) -> None:
        if run not in self._last_chances:
            return
        if self._alone is not None:
            asyncio.get_running_loop().call_later(1.0, self._next_last_chance, run)
        else:
            self._last_chances.remove(run)
            self._start_alone(run)
            self._count()

    # counts for the supervisor --------------------------------------------------------------------

    async def start(self) -> None:
        """Start as any worker; a watched one notes its state from now on."""
        if self._pulse is not None:
            self._pulse.start()
        await super().start()

    def _noted(self) -> WorkerStatus:
        """Write the state of this process into the table, and send the runs that ended since the last time."""
        status = super().look()
        now, head = source.monotonic(), self._table.head
        head[CLAIMING] = round((now - status.claim_age) * 1000) if status.claim_age else 0
        head[ANSWERED] = round((now - self._rota.answer_age(status.answer_age)) * 1000)
        head[NOTED] = round(now * 1000)
        if self._pulse is not None:
            head[LAG] = round(self._pulse.status().loop_lag * 1000)
        counts, self._settler.counts = self._settler.counts, RunCounts()
        if counts:
            self._send(FromChild.COUNTS + encode_counts(counts))
        return status

    def _share_changed(self) -> None:
        super()._share_changed()
        self._count()

    def _count(self) -> None:
        """Write the counts of this process into the table, once in a turn of the event loop."""
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._count_now)

    def _count_now(self) -> None:
        self._counting = False
        self._table.head[UNITS] = max(self._pool.busy, 0)
        self._table.head[RUNS] = len(self._pool.live)
        self._table.head[WITHHELD] = self._pool.capacity - self._pool.allowed


def encode_counts(counts: RunCounts) -> str:
    """Return the number of ended runs as a line of text."""
    return json.dumps([[queue, outcome, count] for (queue, outcome), count in counts.items()])


def on_last_chance(run: Run) -> bool:
    """Return whether one more dead process would fail a job of this run for good."""
    return any(0 < job.claim.stalls == (job.rules.max_stalls or 0) - 1 for job in run.jobs)
