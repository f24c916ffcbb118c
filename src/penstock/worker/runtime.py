"""One stretch of a worker's life, from start to stop: its parts, and how they wake each other."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from penstock.aio import first_of
from penstock.errors import StorageError
from penstock.host import AppHost
from penstock.model.handler import Handler
from penstock.model.job import Claim, State
from penstock.model.outcome import Outcome, Released
from penstock.model.worker_info import Heartbeat, RunSummary, oldest
from penstock.worker.cancel_wait import CANCEL_WAIT, wait_for_cancel
from penstock.worker.claimer import Claimer
from penstock.worker.executor import Executor
from penstock.worker.job_services import WorkerJobServices
from penstock.worker.lease_thread import LeaseThread
from penstock.worker.leases import Leases
from penstock.worker.loop import Loop
from penstock.worker.maintenance import Maintenance
from penstock.worker.outage import OutageLog
from penstock.worker.pool import Pool
from penstock.worker.rss import resident
from penstock.worker.run import Interruption, Run, RunJob, units_of
from penstock.worker.settler import Settler
from penstock.worker.thread_pool import ThreadPool
from penstock.worker.throttle import LoadMonitor

__all__ = ["Runtime", "WorkerRuntime"]

#: A drain that waits for later jobs looks so often (seconds) whether others have run them.
DRAIN_POLL = 1.0
#: While something runs it looks this often (seconds) at first, whether that has put something.
DRAIN_LOOK = 0.02


class Runtime(Protocol):
    """A stretch of work: a `Shift` in this process, or the `Crew` of a supervisor."""

    drained: asyncio.Event
    hurry: asyncio.Event

    async def start(self) -> None: ...

    async def drain(self, scheduled: bool) -> None: ...

    async def finish(self) -> None: ...

    async def release(self) -> int: ...


class WorkerRuntime:
    """The parts of a working worker. It is started once and finished once."""

    def __init__(
        self, host: AppHost, worker: str, handlers: Mapping[str, Handler], capacity: int, lease: float,
        adaptive: bool = False,
    ) -> None:  # fmt: skip
        self._host = host
        self._worker = worker
        self._queues = sorted(handlers)
        self._outage = OutageLog(host, worker)
        self._services = WorkerJobServices(host)
        self._threads = ThreadPool()
        executor = Executor(host.codec, self._threads)
        largest = max((units_of(handler) for handler in handlers.values()), default=1)
        self._pool = Pool(capacity, executor.execute, executor.give_up, self._ended, least=max(largest, 1))
        self._leases = self._new_leases(lease)
        self._settler = Settler(host, worker, self._settled)
        self._claimer = Claimer(host, worker, round(lease * 1000), handlers.values(), self._pool, self._begin)
        self._maintenance = Maintenance(host, worker, lease, self._queues, self._status)
        self._claiming = self._new_claiming("claim", self._claimer.step, self._claimer.doze)
        self._settling = Loop("settle", self._settler.step, self._outage.failed, answers=lambda: self._settler.rounds)
        self._renewing = Loop(
            "leases", self._leases.step, self._outage.failed, longest=lease / 6, answers=lambda: self._leases.rounds
        )
        self._watching = Loop("watch", self._watch, self._outage.failed)
        self._maintaining = Loop(
            "upkeep", self._maintenance.step, self._outage.failed, answers=lambda: self._maintenance.rounds
        )
        self._waiting_for_cancels = Loop("cancels", self._listen, self._outage.failed, self._hear)
        adapter = LoadMonitor(self._pool, self._share_changed)
        self._throttling = Loop("adapt", adapter.step, self._outage.failed) if adaptive else None
        self._settler.wake = self._settling.wake
        self._settler.emptied = self._all_settled
        self._claimer.settled = lambda: not self._settler.busy
        self._claimer.room = self._room
        self._pool.began = self._leases.begin
        self._pool.watch = self._leases.watch = self._watching.wake_by
        self._lease_thread: LeaseThread | None = None
        self._held_up = False
        self._look = DRAIN_LOOK
        self._draining: bool = False
        self._scheduled = False
        self.drained = asyncio.Event()
        #: Set when the runs that are left shall be given back.
        self.hurry = asyncio.Event()

    def _new_claiming(
        self, name: str, step: Callable[[], Awaitable[float | None]], doze: Callable[[float], Awaitable[None]]
    ) -> Loop:
        loop = Loop(name, step, self._outage.failed, doze, answers=lambda: self._claimer.rounds)
        loop.hurry = self._claimer.hurry
        return loop

    def _new_leases(self, lease: float) -> Leases:
        return Leases(self._host, self._worker, lease, self._pool)

    async def start(self) -> None:
        """Claim and run until finished."""
        if not self._queues:
            self._host.emit("no_queues", worker=self._worker)
        for loop in (*self._loops(), *filter(None, [self._throttling])):
            loop.went_well = self._outage.went_well
            loop.start()
        self._lease_thread = self._new_lease_thread()
        if self._lease_thread is not None:
            self._lease_thread.start()

    def _new_lease_thread(self) -> LeaseThread | None:
        """A thread that keeps the leases while this loop is held up, for storages that a thread can use."""
        return LeaseThread(self._leases, self._worker, self._host.blocking_storage)

    def _loops(self) -> list[Loop]:
        return [
            self._settling,
            self._renewing,
            self._watching,
            self._maintaining,
            self._waiting_for_cancels,
            self._claiming,
        ]

    async def drain(self, scheduled: bool) -> None:
        """Claim and run until `drained` is set: nothing due, nothing running, and nothing later if asked for."""
        self._draining, self._scheduled = True, scheduled
        self._claiming = self._new_claiming("drain", self._drain, self._drain_doze)
        await self.start()

    async def finish(self) -> None:
        """Stop claiming, let runs end until `hurry`, give the rest back, record everything, and leave."""
        self._claimer.stopping = True
        await self._claiming.stop()
        self._pool.give_back()
        for run in list(self._pool.live):
            if run.timeout is None:  # it would not end by itself: others may go on with it now
                self._pool.interrupt(run, Interruption.RELEASE)
        await first_of(self._pool.wait_empty(), self.hurry.wait())
        await self.release()
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
        await self._leave()

    async def _leave(self) -> None:
        with contextlib.suppress(StorageError):
            await self._maintenance.leave()

    async def release(self) -> int:
        """Give back every run that is alive; gives how many jobs that were."""
        given_back = self._pool.give_back()
        runs = list(self._pool.live)
        for run in runs:
            self._pool.interrupt(run, Interruption.RELEASE)
        await self._pool.wait_gone(runs)
        await self._settler.wait_empty()
        return given_back + sum(len(run.jobs) for run in runs)

    async def _drain(self) -> float | None:
        before = self._settler.rounds, self._maintenance.reaped
        await self._claimer.fill()
        if not self._pool.empty:  # what runs may put jobs, and wait for them
            self._look = min(2 * self._look, DRAIN_POLL)
            return self._look
        if self._settler.busy:
            return None
        await self._maintenance.reap()
        if before != (self._settler.rounds, self._maintenance.reaped):
            return 0
        if self._scheduled:
            if await self._later():
                return min(self._claimer.patience(), DRAIN_POLL)
            await self._claimer.fill()  # it may have fallen due between the two looks
            if not self._pool.empty:
                return self._look
        return self._nothing_left()

    async def _drain_doze(self, seconds: float) -> None:
        await (self._claimer.doze(seconds) if self._pool.empty else asyncio.sleep(seconds))

    def _nothing_left(self) -> float | None:
        self.drained.set()
        return None

    async def _later(self) -> bool:
        """Whether some queue that is not paused has jobs for later."""
        storage = self._host.storage
        for queue in self._queues:
            counts = await storage.counts(queue)
            if counts[State.SCHEDULED] + counts[State.RETRYING] and await storage.paused(queue) is None:
                return True
        return False

    async def _watch(self) -> float | None:
        """The one sweep over all deadlines: of runs and of leases."""
        now = asyncio.get_running_loop().time()
        due = min(self._pool.sweep(now), self._leases.fence(now))
        return None if due == math.inf else max(due - now, 0.0)

    async def _listen(self) -> float | None:
        """Somebody may want a run to end, as long as there are any."""
        return CANCEL_WAIT if self._leases else None

    async def _hear(self, seconds: float) -> None:
        if await wait_for_cancel(self._host, self._worker, seconds):
            self._renewing.wake()

    def _room(self) -> float:
        """How many more jobs may be held: none while the storage does not keep up with recording ends."""
        self._held_up = self._settler.full
        return 0 if self._held_up else math.inf

    def _begin(self, handler: Handler, batches: Sequence[Sequence[Claim]], units: int, asked: float) -> None:
        options, desk = handler.options, self._services
        if handler.batch:
            groups = [[RunJob(claim, options, desk, asked) for claim in claims] for claims in batches]
            runs = [Run(handler, members, units) for members in groups]
        else:
            runs = [Run(handler, [RunJob(claim, options, desk, asked)], units) for (claim,) in batches]
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

    def _ended(self, run: Run, outcomes: list[Outcome]) -> None:
        self._leases.ended(run)
        self._settler.add(run, outcomes)
        if not self._claiming.woken and (self._draining or self._claimer.starved):
            self._claiming.wake()

    def _settled(self, members: Sequence[RunJob]) -> None:
        self._leases.drop(members)
        if self._draining or self._held_up:
            self._claiming.wake()

    def _all_settled(self) -> None:
        if not self._draining:
            self._claimer.rest()

    def _share_changed(self) -> None:
        if self._claimer.starved:
            self._claiming.wake()

    def _status(self) -> Heartbeat:
        """How this worker fares."""
        now, pool = asyncio.get_running_loop().time(), self._pool
        age = self._leases.age(now)
        runs = [
            RunSummary(m.claim.queue, m.claim.id, m.claim.attempts, round((now - (run.began or now)) * 1000))
            for run in pool.live
            for m in run.jobs
        ]
        return Heartbeat(
            capacity=pool.capacity, allowed=pool.allowed, busy=pool.busy, memory=resident(),
            lease_age=None if age is None else round(age * 1000), running=len(runs), runs=oldest(runs),
        )  # fmt: skip
