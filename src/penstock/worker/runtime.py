"""One start-to-stop of a worker: its parts, its loops, and the steps of a job.

The `Claimer` asks the storage for jobs, and `claimed` makes runs of them, holds their leases and gives
them to the `Pool`. When a run has its units and its turn, the pool calls `started`, and the `Executor`
calls the handler. `ended` takes the outcomes of the run and leaves them with the `Settler`, which
records them in batches. `settled` then drops the leases of the recorded jobs. A lease that the
storage did not confirm in time goes to `lost` instead, which interrupts the run, and its outcome is
never recorded.

The parts report these steps to the runtime (`RunFlow`) and do not know what follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.aio import first_of
from penstock.errors import StorageError, StorageUnusable
from penstock.host import AppHost
from penstock.model.activity import WorkerRequest
from penstock.model.handler import Handler
from penstock.model.job import Claim
from penstock.model.outcome import Outcome, Released
from penstock.model.printing import quote_name
from penstock.model.source import source
from penstock.model.worker_info import Heartbeat, RunSummary, oldest
from penstock.model.worker_status import WorkerStatus
from penstock.worker.claimer import Claimer
from penstock.worker.executor import Executor
from penstock.worker.job_services import WorkerJobServices
from penstock.worker.later_jobs import may_start_later
from penstock.worker.lease_thread import LeaseThread
from penstock.worker.leases import CANCEL_WAIT, Leases, wait_for_cancel
from penstock.worker.loop import Loop
from penstock.worker.maintenance import Maintenance
from penstock.worker.outage import OutageLog
from penstock.worker.pool import INTERRUPT_GRACE, Pool
from penstock.worker.pulse import RunCounts
from penstock.worker.rss import resident
from penstock.worker.run import Interruption, Run, RunJob, slots_of, units_of
from penstock.worker.run_log import log_lost
from penstock.worker.settings_service import SettingsService
from penstock.worker.settler import Settler
from penstock.worker.stats import SAMPLE_EVERY, RunStats
from penstock.worker.thread_pool import ThreadPool
from penstock.worker.throttle import LoadMonitor

__all__ = ["WorkerRuntime"]

log = logging.getLogger("penstock.worker")

#: How often (seconds) a drain that waits for later jobs looks whether other workers have run them.
DRAIN_POLL = 1.0
#: How often (seconds) a drain looks for jobs that its runs have put; each time twice as long, up to `DRAIN_POLL`.
DRAIN_LOOK = 0.02


class WorkerRuntime:
    """The parts of a started worker. It is started once and finished once."""

    #: Whether this process may be killed and replaced for the sake of a run that does not end.
    replaceable = False
    #: How often (seconds) the queues are sampled while nothing was measured.
    _sample_every = SAMPLE_EVERY

    def __init__(
        self, host: AppHost, worker: str, handlers: Mapping[str, Handler], capacity: int, lease: float,
        adaptive: bool, give_up: Callable[[StorageUnusable], None],
    ) -> None:  # fmt: skip
        #: Stops the worker, when it is asked to.
        self.stop_asked: Callable[[], None] = lambda: None
        self._host = host
        self._listeners = host.listeners
        self._worker = worker
        self._queues = sorted(handlers)
        #: The runs that each handler with `concurrency=n` may have.
        self._slots = slots_of(handlers.values())
        self._outage = OutageLog(host, worker, give_up)
        self._services = WorkerJobServices(host, worker)
        self._threads = self._new_thread_pool()
        largest = max((units_of(handler) for handler in handlers.values()), default=1)
        executor = Executor(host.codec, host.max_result, self._threads, self._stop_as_by_ctrl_c, host.hooks.run)
        self._pool = Pool(capacity, executor, self, max(largest, 1), lease)
        self._leases = self._new_leases(lease)
        self._settler = Settler(host, worker, self, self._services.log_sender)
        self._claimer = Claimer(host, worker, round(lease * 1000), handlers.values(), self._pool, self)
        self._stats = RunStats(host, worker, self._sample_every)
        self._maintenance = Maintenance(host, worker, lease, self._queues, self._status, self.asked, self._stats)
        self._settings = SettingsService(
            host, worker, [] if self.replaceable else self._queues, self._outage, self._maintenance,
            self._claimer.take_asked,
        )  # fmt: skip
        self._services.stopping = lambda: self._claimer.stopping
        self._claiming = self._new_claiming("claim", self._claim, self._claimer.doze)
        self._settling = Loop("settle", self._settler.step, self._outage, answers=lambda: self._settler.rounds)
        self._renewing = Loop(
            "leases", self._leases.step, self._outage, longest=lease / 6, answers=lambda: self._leases.rounds
        )
        self._watching = Loop("watch", self._watch_deadlines, self._outage)
        self._maintaining = Loop(
            "maintenance", self._maintenance.step, self._outage, answers=lambda: self._maintenance.rounds
        )
        self._waiting_for_cancels = Loop("cancels", self._time_to_wait, self._outage, self._wait_for_cancel)
        monitor = LoadMonitor(self._pool, self._share_changed)
        self._throttling = Loop("adapt", monitor.step, self._outage) if adaptive else None
        self._lease_thread: LeaseThread | None = None
        self._held_up = False
        self._interrupt: asyncio.Task[None] | None = None
        self._look = DRAIN_LOOK
        self._draining: bool = False
        self._scheduled = False
        #: Set when a drain has found nothing more to do.
        self.drained = asyncio.Event()
        #: Set when the runs that are left are to be released.
        self.release_now = asyncio.Event()

    def _new_claiming(
        self, name: str, step: Callable[[], Awaitable[float | None]], doze: Callable[[float], Awaitable[None]]
    ) -> Loop:
        end_doze = self._claimer.end_doze
        return Loop(name, step, self._outage, doze, end_doze, answers=lambda: self._claimer.rounds)

    def _new_leases(self, lease: float) -> Leases:
        return Leases(self._host, self._worker, lease, self)

    def _new_thread_pool(self) -> ThreadPool:
        return ThreadPool()

    def _new_lease_thread(self) -> LeaseThread | None:
        """Build the thread that renews the leases while a handler blocks this event loop."""
        return LeaseThread(self._leases, self._worker, self._host.blocking_storage)

    # the steps of a job ------------------------------------------------------------------------

    def claimed(self, handler: Handler, batches: Sequence[Sequence[Claim]], units: int, asked: float) -> None:
        """Make runs of claims of one queue, hold their leases, and start them; a stopping worker releases them.

        `asked` is when the claim was sent: their leases count from then.
        """
        options, services = handler.options, self._services
        if handler.batch:
            batched = [[RunJob(claim, options, services, asked) for claim in claims] for claims in batches]
            runs = [Run(handler, jobs, units) for jobs in batched]
        else:
            runs = [Run(handler, [RunJob(claim, options, services, asked)], units) for (claim,) in batches]
        self._leases.hold(runs, asked)
        self._look = DRAIN_LOOK
        if self._claimer.stopping:
            for run in runs:
                self._settler.add(run, [Released()] * len(run.jobs))
        else:
            self._start(runs)
        self._waiting_for_cancels.wake_by(asked + 2 * CANCEL_WAIT)

    def _start(self, runs: Sequence[Run]) -> None:
        self._pool.start(runs)

    def tick_at(self, at: int, now: int | None) -> None:
        """Fire the ticks of schedules from this time (ms) on; `now` is the storage's time."""
        self._settings.tick_at(at, now)

    def limited(self, queues: Sequence[str]) -> None:
        """Look after the limits of these queues."""
        self._settings.limited(queues)

    def started(self, run: Run) -> None:
        """Emit `started` for the jobs of a run whose handler is about to be called."""
        if self._listeners.by_name and self._listeners.wants("started"):
            for job in run.jobs:
                self._emit("started", job.claim)

    def fence(self, run: Run, now: float) -> None:
        """Interrupt a run that is about to begin if a lease of it is over: it may have completed elsewhere by now.

        Its other jobs, if it is a batch, are released.
        """
        expired = self._leases.expired(run.jobs, now)
        if expired or any(job.lost for job in run.jobs):
            run.interruption = Interruption.LOSS
            self._leases.give_up(expired)

    def ended(self, run: Run, outcomes: list[Outcome]) -> None:
        """Leave the outcomes of a run with the settler, and claim again if a queue waited for its units."""
        self._settler.add(run, outcomes)
        if not self._claiming.woken and (self._draining or self._claimer.starved):
            self._claiming.wake()

    def settled(self, jobs: Sequence[RunJob]) -> None:
        """Drop the leases of jobs whose outcomes are recorded, and count their runs."""
        self._leases.drop(jobs)
        self._stats.count(jobs)
        if self._draining or self._held_up:
            self._claiming.wake()

    def lost(self, job: RunJob) -> None:
        """Emit `lease_lost` for a job that may run elsewhere by now; interrupt its run if all its jobs are lost."""
        log_lost(job.claim)
        self._services.log_sender.forget([job.claim])
        self._emit("lease_lost", job.claim)
        if job.run is not None and all(each.lost for each in job.run.jobs):
            self._pool.interrupt(job.run, Interruption.LOSS)

    def _emit(self, name: str, claim: Claim) -> None:
        self._host.emit(name, queue=claim.queue, id=claim.id, attempt=claim.attempts, worker=self._worker)

    # requests of the parts to each other ----------------------------------------------------------

    def interrupt(self, run: Run, why: Interruption) -> None:
        """Make a run end."""
        self._pool.interrupt(run, why)

    def stuck(self, run: Run) -> None:
        """Refuse: a worker without children does not end its own process."""
        raise AssertionError("only the process of a child is replaced")

    def settle_soon(self) -> None:
        """Wake the settler."""
        self._settling.wake()

    def all_settled(self) -> None:
        """Emit `idle` if there is nothing to do."""
        if not self._draining:
            self._claimer.emit_idle()

    def everything_settled(self) -> bool:
        """Return whether every outcome is recorded."""
        return not self._settler.busy

    def watch(self, due: float) -> None:
        """Look at deadlines and leases at this time (monotonic) at the latest."""
        self._watching.wake_by(due)

    def room(self) -> float:
        """Return how many more jobs may be held: none while the storage is slow to record outcomes."""
        self._held_up = self._settler.full
        return 0 if self._held_up else math.inf

    def _share_changed(self) -> None:
        if self._claimer.starved:
            self._claiming.wake()

    def _stop_as_by_ctrl_c(self) -> None:
        """Send this process SIGINT, because a handler raised `KeyboardInterrupt`; its outcome is recorded before.

        The exception itself would end the event loop, and with it the settler. Children ignore the signal.
        """
        if self._interrupt is None or self._interrupt.done():
            self._interrupt = asyncio.ensure_future(self._send_interrupt())

    async def _send_interrupt(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERRUPT_GRACE):
                await self._settler.wait_empty()
        signal.raise_signal(signal.SIGINT)

    # start and stop -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Claim and run until finished."""
        if not self._queues:
            self._host.emit("no_queues", worker=self._worker)
        for loop in (*self._loops(), *filter(None, [self._throttling])):
            loop.start()
        self._lease_thread = self._new_lease_thread()
        if self._lease_thread is not None:
            self._lease_thread.start()

    def _loops(self) -> list[Loop]:
        return [
            self._settling,
            self._renewing,
            self._watching,
            self._maintaining,
            self._waiting_for_cancels,
            *self._settings.loops(ticks=not self._draining),
            self._claiming,
        ]

    async def finish(self) -> None:
        """Stop claiming, let runs end until `release_now`, release the rest, record every outcome, and leave.

        Outcomes that the storage has not recorded within one lease are given up.
        """
        self._claimer.stopping = True
        await self._claiming.stop()
        await self._settings.stop()
        self._pool.release_waiting()
        for run in list(self._pool.live):
            if run.timeout is None:  # it may never end by itself: another worker may run its jobs now
                self._pool.interrupt(run, Interruption.RELEASE)
        await first_of(self._pool.wait_empty(), self.release_now.wait())
        await self.release()
        self._settler.give_up()
        for loop in (
            self._throttling,
            self._waiting_for_cancels,
            self._maintaining,
            self._renewing,
            self._watching,
            self._settling,
        ):
            if loop is not None:
                await loop.stop()
        if self._lease_thread is not None:
            await self._lease_thread.stop()
        self._threads.close()
        self._pool.close()
        await self._services.log_sender.close()
        await self._leave()
        if self._interrupt is not None:
            await self._interrupt

    async def _leave(self) -> None:
        with contextlib.suppress(StorageError):
            await self._maintenance.leave()

    async def release(self) -> int:
        """Release every run; returns the number of their jobs, after a lease at the latest if they are not recorded."""
        waiting = self._pool.release_waiting()
        runs = list(self._pool.live)
        for run in runs:
            self._pool.interrupt(run, Interruption.RELEASE)
        await self._pool.wait_gone(runs)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._leases.seconds):  # a claim without an answer would be lost by then
                await self._settler.wait_empty()
        return waiting + sum(len(run.jobs) for run in runs)

    def runs(self) -> list[tuple[str, str]]:
        """Return the jobs that are running, as queue and id, the oldest run first."""
        live = sorted(self._pool.live, key=lambda run: run.began or math.inf)
        return [(job.claim.queue, job.claim.id) for run in live for job in run.jobs]

    async def _claim(self) -> float | None:
        """Claim as much as there is room for, after the settings of the code are declared."""
        if not self._settings.declared:
            await self._settings.declare()
        return await self._claimer.step()

    # drain ----------------------------------------------------------------------------------------

    async def drain(self, scheduled: bool) -> None:
        """Claim and run until `drained` is set: no job is due or running, nor due later if `scheduled`."""
        self._draining, self._scheduled = True, scheduled
        self._claiming = self._new_claiming("drain", self._drain, self._drain_doze)
        await self.start()

    async def _drain(self) -> float | None:
        if not self._settings.declared:
            await self._settings.declare()
        before = self._settler.rounds, self._maintenance.reaped
        if looked := self._settings.has_ticks:
            await self._settings.fire_due()
        await self._claimer.fill()
        if not looked and self._settings.has_ticks and await self._settings.fire_due():
            return 0
        if not self._pool.empty:  # a run may put jobs, and wait for them
            self._look = min(2 * self._look, DRAIN_POLL)
            return self._look
        if self._settler.busy:
            return None
        await self._maintenance.reap()
        if before != (self._settler.rounds, self._maintenance.reaped):
            return 0
        if self._scheduled:
            if await may_start_later(self._host.storage, self._queues):
                return min(self._claimer.wait_time(), DRAIN_POLL)
            await self._claimer.fill()  # a job may have become due between the two looks
            if not self._pool.empty:
                return self._look
        return self._nothing_left()

    async def _drain_doze(self, seconds: float) -> None:
        await (self._claimer.doze(seconds) if self._pool.empty else asyncio.sleep(seconds))

    def _nothing_left(self) -> float | None:
        self.drained.set()
        return None

    # watching -------------------------------------------------------------------------------------

    def count_runs(self) -> None:
        """Count the runs that end, for `look`."""
        self._settler.counts = RunCounts()

    def look(self) -> WorkerStatus:
        """Return the state of this worker, for its health checks and metrics."""
        now, beat = source.monotonic(), self._status()
        since = self._claiming.stepping_since
        return WorkerStatus(
            id=self._worker, stage="working", lease=self._leases.seconds, capacity=beat.capacity,
            allowed=beat.allowed or 0, busy=beat.busy, running=beat.running, memory=beat.memory,
            lease_age=None if beat.lease_age is None else beat.lease_age / 1000,
            claim_age=now - since if since else 0.0, answer_age=now - self._outage.answered_at,
            runs=dict(self._settler.counts or {}),
        )  # fmt: skip

    # steps of loops -------------------------------------------------------------------------------

    async def _watch_deadlines(self) -> float | None:
        """Look at the deadlines of all runs and at all leases; returns the seconds until the next one is due."""
        now = asyncio.get_running_loop().time()
        due = min(self._pool.sweep(now), self._leases.fence(now))
        return None if due == math.inf else max(due - now, 0.0)

    async def _time_to_wait(self) -> float | None:
        """Return how long to wait for a cancel request: only while claims are held."""
        return CANCEL_WAIT if self._leases else None

    async def _wait_for_cancel(self, seconds: float) -> None:
        if await wait_for_cancel(self._host, self._worker, seconds):
            self._renewing.wake()
            self._maintenance.beat_again()  # or the worker itself may be asked for something
            self._maintaining.wake()

    def asked(self, request: WorkerRequest) -> None:
        """Do what the worker is asked for: claim no more, or stop."""
        self.be_quiet()
        if request == "stop":
            self.stop_asked()

    def be_quiet(self) -> None:
        """Claim no more jobs; those that run go on."""
        if not self._claimer.stopping:
            self._claimer.stopping = True
            log.warning("worker %s was asked to claim no more jobs", quote_name(self._worker))
            self._maintenance.beat_again()
            self._maintaining.wake()

    def _status(self) -> Heartbeat:
        """Return the state of this worker for its heartbeat."""
        now, pool = asyncio.get_running_loop().time(), self._pool
        age = self._leases.age(now)
        runs = [
            RunSummary(job.claim.queue, job.claim.id, job.claim.attempts, round((now - (run.began or now)) * 1000))
            for run in pool.live
            for job in run.jobs
        ]
        return Heartbeat(
            capacity=pool.capacity, allowed=pool.allowed, busy=pool.busy, memory=resident(),
            lease_age=None if age is None else round(age * 1000), running=len(runs), runs=oldest(runs),
            quiet=self._claimer.stopping,
            slots=sum(self._slots.values()), slots_used=sum(pool.running(queue) for queue in self._slots),
        )  # fmt: skip
