"""The supervisor: it starts child processes, renews their leases, kills those that are stuck, and replaces them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.context import BaseContext

from penstock.aio import first_of
from penstock.app_loader import loaded_files, modification_times
from penstock.errors import PenstockError, StorageError, StorageUnavailable, StorageUnusable
from penstock.host import AppHost
from penstock.model.activity import WorkerRequest
from penstock.model.handler import Handler
from penstock.model.printing import MAX_NAMES, count, escape_controls, indent, job_name, join_names, quote_name
from penstock.model.source import source
from penstock.model.worker_info import Heartbeat, RunSummary, oldest
from penstock.model.worker_status import WorkerStatus
from penstock.worker.lease_thread import LeaseThread
from penstock.worker.leases import CANCEL_WAIT, wait_for_cancel
from penstock.worker.loop import Loop
from penstock.worker.maintenance import Maintenance
from penstock.worker.outage import OutageLog
from penstock.worker.pulse import BLOCKED, RunCounts
from penstock.worker.rss import resident
from penstock.worker.run import Interruption, RunJob, slots_of
from penstock.worker.settings_service import SettingsService
from penstock.worker.settler import Settler
from penstock.worker.supervisor.channel import FromChild, ToChild
from penstock.worker.supervisor.child_handle import ChildHandle, Stage
from penstock.worker.supervisor.claim_table import (
    ANSWERED,
    CLAIMING,
    IDLE,
    LAG,
    LIVE,
    NOTED,
    UNITS,
    WITHHELD,
    Phase,
    Slot,
)
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.crash_recovery import CrashRecovery
from penstock.worker.supervisor.lease_renewer import LeaseRenewer
from penstock.worker.supervisor.rota import RotaKeeper
from penstock.worker.supervisor.stacks import describe
from penstock.worker.supervisor.storage_match import location_of
from penstock.worker.supervisor.tick_reports import TickReports

__all__ = ["Supervisor"]

log = logging.getLogger("penstock.worker")

#: How often (seconds) the claim tables are checked, how often if no claim is held, and the memory of the children.
SWEEP, IDLE_SWEEP, MEMORY = 0.1, 0.5, 1.0

#: How long (seconds) the other runs of a child that is replaced may take.
DRAIN_BOUND = 30.0

#: A child that lived shorter than this (seconds) failed to start; the next ones start later, by up to this long.
QUICK_EXIT, LONGEST_REST = 2.0, 5.0

#: Why a run that does not end should have ended.
ENDED_BY = {
    Interruption.KILL: "its cancel",
    Interruption.RELEASE: "its release",
    Interruption.LOSS: "the loss of its lease",
}


class Supervisor:
    """The child processes of one worker, from start to stop. It is started once and finished once."""

    def __init__(
        self,
        host: AppHost,
        handlers: Mapping[str, Handler],
        config: ChildConfig,
        give_up: Callable[[StorageUnusable], None],
    ) -> None:
        #: Stops the worker, when it is asked to.
        self.stop_asked: Callable[[], None] = lambda: None
        self._host = host
        self._worker = config.worker
        self._config = config
        self._children: list[ChildHandle] = []
        self._spawning: dict[asyncio.Task[None], int] = {}
        self._quick_exits: Counter[int] = Counter()
        self._context = context(host)
        #: The runs of children that ended, by queue and outcome, and the children replaced, by reason.
        self._runs, self._restarted = RunCounts(), Counter[str]()
        #: The slots that have had a child, and the source files that the first children imported, with their times.
        self._started: set[int] = set()
        self._sources = modification_times(loaded_files())
        self._outage = OutageLog(host, config.worker, give_up)
        self._maintenance = Maintenance(host, config.worker, config.lease, sorted(handlers), self._status, self._asked)
        self._tick_reports = TickReports()
        self._settings = self._new_settings(sorted(handlers))
        self._settler = Settler(host, config.worker, self)
        #: The runs that each handler with `concurrency=n` may have in all children.
        self._slots = slots_of(handlers.values())
        self._crash_recovery = CrashRecovery(host, handlers, config.lease, self._settler)
        self._lease_renewer = LeaseRenewer(host, config.worker, config.lease, lambda: self._children)
        self._lease_thread, self._rota = self._new_lease_thread(), RotaKeeper()
        self._settling = Loop("settle", self._settler.step, self._outage, answers=lambda: self._settler.rounds)
        self._recovering = Loop("crash recovery", self._crash_recovery.step, self._outage)
        self._renewing = Loop(
            "leases", self._lease_renewer.step, self._outage, longest=config.lease / 6,
            answers=lambda: self._lease_renewer.rounds,
        )  # fmt: skip
        self._watching = Loop("watch", self._watch, self._outage)
        sweep = self._maintenance
        self._maintaining = Loop("maintenance", sweep.step, self._outage, answers=lambda: sweep.rounds)
        self._waiting_for_cancels = Loop("cancels", self._time_to_wait, self._outage, self._wait_for_cancel)
        self._change = asyncio.Event()
        self._finishing = self._quiet = False
        self._closing, self._registered = asyncio.Event(), asyncio.Event()
        self._failure: str | None = None
        self._next_memory = 0.0
        #: The children that may not have looked for work since jobs were given back, with their idle counters then.
        self._outdated: dict[ChildHandle, int] = {}
        #: Set when a drain has found nothing more to do, and when the runs that are left are to be released.
        self.drained, self.release_now = asyncio.Event(), asyncio.Event()

    def _new_settings(self, queues: Sequence[str]) -> SettingsService:
        asked = self._tick_reports.take_asked
        return SettingsService(self._host, self._worker, queues, self._outage, self._maintenance, asked)

    def _new_lease_thread(self) -> LeaseThread:
        return LeaseThread(self._lease_renewer, self._worker, self._host.blocking_storage, ahead=0.0)

    def _new_child(self, config: ChildConfig) -> ChildHandle:
        return ChildHandle(config, self._received, self._died)

    # start ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the children; returns when all of them work, or when the supervisor is to finish."""
        try:
            await self._register()
        finally:
            self._registered.set()
        if self._finishing:
            return
        for loop in (
            self._settling,
            self._recovering,
            self._renewing,
            self._watching,
            self._maintaining,
            self._waiting_for_cancels,
            *self._settings.loops(),
        ):
            loop.start()
        self._lease_thread.start()
        for slot in range(self._config.slots):
            self._spawn(slot)
        try:
            while self._spawning or any(child.stage is Stage.STARTING for child in self._children):
                await self._changed()
                self._check_start()
        except BaseException:
            self.release_now.set()
            await self.finish()
            raise

    async def _register(self) -> None:
        """Send the first heartbeat and declare settings, retrying while the storage is unavailable.

        Children check for the heartbeat, and claim at once. A drain runs the ticks that are due now.
        """
        tries = 0
        while not self._finishing:
            try:
                await self._maintenance.step()
                await self._settings.declare()
                if self._config.drain:
                    await self._settings.fire_due()
                return self._outage.went_well(self._maintaining.name, answered=True)
            except StorageUnavailable as error:
                tries += 1
                self._outage.failed(self._maintaining.name, error, tries)
                await self._rest(min(0.1 * 2**tries, LONGEST_REST))

    async def drain(self, scheduled: bool) -> None:
        """Work until `drained` is set: no job is due or running, nor due later if `scheduled`."""
        self._config = dataclasses.replace(self._config, drain=True, scheduled=scheduled)
        await self.start()

    def _check_start(self) -> None:
        """Raise if the first children cannot start: the reason would not go away by itself."""
        if self._failure is not None:
            raise PenstockError(f"a child process cannot start: {self._failure}")
        if self._quick_exits and max(self._quick_exits.values()) > 2:
            raise PenstockError(
                "the child processes end before they are ready; a script that starts a worker with "
                'processes needs `if __name__ == "__main__":` around it'
            )

    def _spawn(self, slot: int, delay: float = 0.0) -> None:
        task = asyncio.ensure_future(self._start_child(slot, delay))
        self._spawning[task] = slot
        task.add_done_callback(self._spawned)

    async def _start_child(self, slot: int, delay: float) -> None:
        if delay:
            await self._rest(delay)
        if self._finishing:
            return
        config = dataclasses.replace(
            self._config,
            slot=slot,
            replacing=any(child.slot == slot for child in self._children),
            storage=location_of(self._host.storage),
            environment=dict(os.environ),
        )
        child = self._new_child(config)
        await child.start(self._context)
        self._children.append(child)
        if slot in self._started:
            self._check_sources(child)
        self._started.add(slot)
        if self._finishing:
            child.leave()

    def _check_sources(self, child: ChildHandle) -> None:
        """Warn once of each source file that has changed: a new child imports it, the others have the old code."""
        now = modification_times(self._sources)
        changed = sorted(os.path.relpath(path) for path, time in self._sources.items() if now[path] != time)
        if changed:
            self._sources = now
            text = "%s changed since this worker started: process %s has the new code, others the old; restart it"
            log.warning(
                text,
                ", ".join(map(quote_name, changed[:MAX_NAMES])) + (", …" if len(changed) > MAX_NAMES else ""),
                child.pid,
            )

    def _spawned(self, task: asyncio.Task[None]) -> None:
        slot = self._spawning.pop(task)
        self._change.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a child process could not be started: %s", escape_controls(str(error)))
            self._quick_exits[slot] += 1
            if not self._finishing:
                self._spawn(slot, LONGEST_REST)

    # stop -----------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Stop claiming, let runs end until `release_now`, release the rest, record every outcome, and leave."""
        self._finishing = True
        self._closing.set()
        await self._registered.wait()  # else the first heartbeat could follow the last one
        await self._settings.stop()
        if self._spawning:  # a start is never cancelled: its process would be left without a handle
            await asyncio.wait(list(self._spawning))
        for child in self._children:
            child.leave()
        await first_of(self._all_gone(), self.release_now.wait())
        for child in self._children:
            child.leave(within=self._config.lease + 2)
            child.send(ToChild.RELEASE_AND_STOP)
            self._set_deadlines(child)
        await self._all_gone()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.lease):
                await self._nothing_pending()
        for loop in (
            self._waiting_for_cancels,
            self._maintaining,
            self._renewing,
            self._watching,
            self._recovering,
            self._settling,
        ):
            await loop.stop()
        await self._lease_thread.stop()
        with contextlib.suppress(StorageError):
            await self._maintenance.leave()

    async def release(self) -> int:
        """Release every run; returns the number of their jobs."""
        wanted = [
            (child, slot) for child in self._children for slot in child.table.held() if slot.phase is not Phase.ENDED
        ]
        for child in self._children:
            child.send(ToChild.RELEASE)
            self._set_deadlines(child)
        keys = {(child, slot.key) for child, slot in wanted}
        while keys & {(child, slot.key) for child in self._children for slot in child.table.held()}:
            await self._changed(SWEEP / 5)
        await self._nothing_pending()
        return len(wanted)

    def runs(self) -> list[tuple[str, str]]:
        """Return the jobs that the children run, as queue and id, the oldest run first."""
        slots = [slot for child in self._children for slot in child.table.held() if slot.phase is Phase.RUNNING]
        return [(slot.ref.queue, slot.ref.id) for slot in sorted(slots, key=lambda slot: slot.begun)]

    def _set_deadlines(self, child: ChildHandle) -> None:
        for slot in child.table.held():
            child.set_deadline(slot, Interruption.RELEASE)

    async def _all_gone(self) -> None:
        while self._children:
            await self._changed()

    async def _nothing_pending(self) -> None:
        while self._crash_recovery.busy:
            await self._changed()

    async def _rest(self, seconds: float) -> None:
        """Wait this long, or until the supervisor is to finish."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _changed(self, within: float = 1.0) -> None:
        self._change.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._change.wait()

    # watch ----------------------------------------------------------------------------------------

    async def _watch(self) -> float | None:
        """Check leases, deadlines and memory of all children; returns the seconds until the next check."""
        now = source.monotonic()
        self._lease_renewer.fence(now)
        for child in self._children:
            if child.killed:
                child.finish_kill(now)
            else:
                self._check_overdue(child, now)
                if child.stage is Stage.WORKING and not child.hung and child.stands_still(now):
                    child.kill_hung()
        if self._config.max_rss is not None and now >= self._next_memory:
            self._next_memory = now + MEMORY
            self._check_memory(self._config.max_rss)
        for child in self._children:
            if child.replacing and not self._counted_before(child):
                child.take_over()
        if not self._config.drain:
            self._rota.look(self._children, now)
        elif self._is_drained():
            self.drained.set()
        busy = self._config.drain or any(child.replacing or child.table.head[LIVE] for child in self._children)
        return SWEEP if busy else IDLE_SWEEP

    async def _time_to_wait(self) -> float | None:
        """Return how long to wait for a cancel request."""
        return CANCEL_WAIT

    async def _wait_for_cancel(self, seconds: float) -> None:
        """Wait for a cancel request, then renew at once: the answers name the claims to cancel."""
        if await wait_for_cancel(self._host, self._worker, seconds):
            self._renewing.wake()
            self._maintenance.beat_again()  # or the worker itself may be asked for something
            self._maintaining.wake()

    def _asked(self, request: WorkerRequest) -> None:
        """Do what the worker is asked for: let the children claim no more, or stop."""
        if not self._quiet:
            self._quiet = True
            log.warning("worker %s was asked to claim no more jobs", quote_name(self._worker))
            for child in self._children:
                child.send(ToChild.QUIET)
            self._maintenance.beat_again()
            self._maintaining.wake()
        if request == "stop":
            self.stop_asked()

    def _check_overdue(self, child: ChildHandle, now: float) -> None:
        """Replace a child with runs that do not end, and kill it when its other runs have ended."""
        overdue = child.overdue(now)
        if overdue and not child.stuck:
            child.stuck = True
            self._log_stuck(child, overdue)
            self._replace(child, "stuck")
        if child.stage is Stage.LEAVING and child.must_die(now, overdue):
            if overdue:
                child.kill_with_stacks(overdue, now)
            else:
                child.kill(overdue)

    def _log_stuck(self, child: ChildHandle, overdue: Mapping[tuple[int, int], Interruption]) -> None:
        slots = [slot for slot in child.table.held() if slot.key in overdue]
        runs = ", ".join(describe_stuck(slot, overdue[slot.key]) for slot in slots[:MAX_NAMES])
        log.warning(
            "process %s has %s not end (%s%s): it is %s",
            child.pid,
            count(len(overdue), "run that does", "runs that do"),
            runs,
            ", …" if len(slots) > MAX_NAMES else "",
            "killed" if self._finishing else "replaced",
        )

    def _replace(self, child: ChildHandle, why: str) -> None:
        """Start another child at once; this one stops when its runs have ended."""
        if child.stage is not Stage.LEAVING and not self._finishing:
            self._restarted[why] += 1
            self._spawn(child.slot)
        child.leave(within=DRAIN_BOUND)

    def _check_memory(self, most: int) -> None:
        for child in self._children:
            if child.stage is Stage.WORKING and (size := child.memory()) > most:
                log.info("process %s uses %d MB: it is replaced", child.pid, size // 2**20)
                self._replace(child, "max_rss")

    def _counted_before(self, child: ChildHandle) -> bool:
        """Return whether a child that this one replaces may still have runs of queues with `concurrency=n`."""
        before = [
            each for each in self._children if each.slot == child.slot and each is not child and not each.replacing
        ]
        return any(
            not each.stop_confirmed or any(slot.ref.queue in self._slots for slot in each.table.held())
            for each in before
        )

    def _is_drained(self) -> bool:
        """Return whether at one moment every child was idle, after the last jobs were given back."""
        idle = all(child.stage is Stage.WORKING and not child.replacing for child in self._children)
        if self._spawning or self._crash_recovery.busy or not idle:
            return False
        first = [child.table.head[IDLE] for child in self._children]
        second = [child.table.head[IDLE] for child in self._children]
        # Two equal readings of counters that grow with every change: there was a moment with all of these values.
        late = [
            each for each, counter in zip(self._children, first, strict=True) if self._outdated.get(each) == counter
        ]
        return first == second and not late and all(counter % 2 for counter in first) and bool(first)

    # messages and exits of children ---------------------------------------------------------------

    def _received(self, child: ChildHandle, message: str) -> None:
        if message == FromChild.FULL and child.stage is Stage.WORKING:
            log.info("process %s has run its share of jobs: it is replaced", child.pid)
            self._replace(child, "max_jobs")
        elif message in (FromChild.STUCK, FromChild.IDLE):
            self._watching.wake()
        elif message == FromChild.READY:
            log.info("process %s works", child.pid)
            if self._quiet:
                child.send(ToChild.QUIET)
            self._maintaining.wake()  # the heartbeat lists the processes
        elif message == FromChild.PARENT_MISSING:
            self._maintenance.beat_again()
            self._maintaining.wake()
        elif message.startswith(FromChild.TICKS):
            return self._settings.tick_at(*self._tick_reports.read(message))
        elif message == FromChild.BUSY:
            return self._rota.end(self._children)
        elif message == FromChild.LIMITED:
            self._settings.limited()
        elif message.startswith(FromChild.COUNTS):
            for queue, outcome, number in json.loads(message.removeprefix(FromChild.COUNTS)):
                self._runs[queue, outcome] += number
            return
        elif message.startswith(FromChild.UNUSABLE):
            self._outage.failed("child", StorageUnusable(message.removeprefix(FromChild.UNUSABLE)), 1)
        self._failure = child.failure or self._failure
        self._change.set()

    def _died(self, child: ChildHandle) -> None:
        """Settle the claims of a dead child, and start another in its slot unless that was done before."""
        self._children.remove(child)
        self._outdated.pop(child, None)
        slots = child.table.held()
        child.fenced = child.fenced or (bool(slots) and all(slot.interruption is Interruption.LOSS for slot in slots))
        self._crash_recovery.add(child, slots, self._worker)
        self._recovering.wake()
        self._maintaining.wake()
        if child.killed_for and (where := describe(child.stacks)):
            log.warning("process %s was killed; where its runs were:%s", child.pid, indent(where))
        if not self._finishing and not child.was_leaving:
            self._log_exit(child, slots)
        child.close()
        self._change.set()

    def _log_exit(self, child: ChildHandle, slots: Sequence[Slot]) -> None:
        jobs = [(slot.ref.queue, slot.ref.id) for slot in slots if slot.phase is Phase.RUNNING]
        held = f"with {count(len(jobs), 'run')} ({join_names(jobs)})" if jobs else "without runs"
        if child.failure is not None:
            log.error("a child process cannot start: %s", child.failure)
        elif child.fenced:
            log.warning("process %s ended %s: its leases were not confirmed in time", child.pid, held)
        elif child.hung:
            log.warning(
                "process %s was killed: it settled none of its claims and stood still; another one starts", child.pid
            )
        else:
            text = "process %s died (%s) %s; another one starts%s"
            log.warning(text, child.pid, child.death, held, indent(describe(child.stacks)))
        lived = source.monotonic() - child.born
        self._quick_exits[child.slot] = self._quick_exits[child.slot] + 1 if lived < QUICK_EXIT or child.failure else 0
        self._restarted["failed" if child.failure else "fenced" if child.fenced else "died"] += 1
        tries = self._quick_exits[child.slot]
        delay = 0.0 if tries < 2 else min(0.1 * 2 ** (tries - 2), LONGEST_REST)
        self._spawn(child.slot, delay)

    # the owner of the settler (`SettleFlow`) ---------------------------------------------------------

    def settle_soon(self) -> None:
        """Wake the settler: it has outcomes of dead children to record."""
        self._settling.wake()

    def settled(self, jobs: Sequence[RunJob]) -> None:
        """Have draining children look for work: these jobs were given back."""
        self._change.set()
        if self._config.drain:
            for child in self._children:
                self._outdated[child] = child.table.head[IDLE]
                child.send(ToChild.CLAIM_AGAIN)

    def all_settled(self) -> None:
        """Do nothing: `idle` is emitted by the children."""

    # heartbeat ------------------------------------------------------------------------------------

    def _status(self) -> Heartbeat:
        """Return the state of all children for the heartbeat of the worker."""
        now, capacity = source.monotonic(), self._config.capacity * self._config.slots
        heads = [child.table.head for child in self._children]
        slots = [slot for child in self._children for slot in child.table.held()]
        confirmed = min((slot.confirmed for slot in slots), default=None)
        runs = [
            RunSummary(slot.ref.queue, slot.ref.id, slot.attempt, round((now - slot.begun) * 1000))
            for slot in slots
            if slot.phase is Phase.RUNNING
        ]
        return Heartbeat(
            processes=self.pids, capacity=capacity, allowed=capacity - sum(head[WITHHELD] for head in heads),
            busy=sum(head[UNITS] for head in heads),
            memory=resident() + sum(child.memory() for child in self._children),
            lease_age=None if confirmed is None else round((now - confirmed) * 1000),
            running=len(runs), runs=oldest(runs), quiet=self._quiet or self._finishing,
            slots=sum(self._slots.values()), slots_used=sum(run.queue in self._slots for run in runs),
        )  # fmt: skip

    def count_runs(self) -> None:
        """Count the outcomes of dead children, for `look`; living ones send their own."""
        self._settler.counts = RunCounts()

    def look(self) -> WorkerStatus:
        """Return the state of this worker with all its children, for its health checks and metrics."""
        now, beat = source.monotonic(), self._status()
        heads = [child.table.head for child in self._children if child.table.head[NOTED]]
        claims = [now - head[CLAIMING] / 1000 for head in heads if head[CLAIMING]]
        blocked = [since for head in heads if (since := now - head[NOTED] / 1000) > BLOCKED]
        answered = [now - head[ANSWERED] / 1000 for head in heads]
        return WorkerStatus(
            id=self._worker, stage="working", lease=self._config.lease, capacity=beat.capacity,
            allowed=beat.allowed or 0, busy=beat.busy, running=beat.running, memory=beat.memory,
            lease_age=None if beat.lease_age is None else beat.lease_age / 1000,
            claim_age=max(claims + blocked, default=0.0), answer_age=max([now - self._outage.answered_at, *answered]),
            loop_lag=max([head[LAG] / 1000 for head in heads] + blocked, default=0.0),
            runs=dict(self._runs + (self._settler.counts or RunCounts())), restarted=dict(self._restarted),
        )  # fmt: skip

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that are alive."""
        return [child.pid for child in self._children if child.pid is not None]


def describe_stuck(slot: Slot, why: Interruption) -> str:
    """Return the name of a run that does not end, and why it should."""
    since = f"its timeout of {slot.timeout:g} s" if why is Interruption.TIMEOUT else ENDED_BY[why]
    return f"{job_name(slot.ref.queue, slot.ref.id)} after {since}"


def context(host: AppHost) -> BaseContext:
    """Return how children are started: forked by a server with the modules loaded, or spawned where there is none."""
    methods: Iterable[str] = multiprocessing.get_all_start_methods()
    if "forkserver" not in methods:
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["penstock.worker.supervisor.preload", type(host.storage).__module__])
    return server
