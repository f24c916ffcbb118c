"""The parent: it starts children, keeps their leases and their time, ends those that cannot end, and replaces them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.context import BaseContext

from penstock.aio import first_of
from penstock.errors import PenstockError, StorageError, StorageUnavailable
from penstock.host import AppHost
from penstock.model.handler import Handler
from penstock.model.worker_info import Heartbeat, RunSummary, oldest
from penstock.worker.cancel_wait import CANCEL_WAIT, wait_for_cancel
from penstock.worker.lease_thread import LeaseThread
from penstock.worker.loop import Loop
from penstock.worker.maintenance import Maintenance
from penstock.worker.outage import OutageLog
from penstock.worker.rss import resident
from penstock.worker.run import RunJob
from penstock.worker.settler import Settler
from penstock.worker.supervisor.child_handle import ChildHandle, Stage
from penstock.worker.supervisor.claim_table import IDLE, LIVE, UNITS, WITHHELD, Phase, Verdict
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.crash_recovery import CrashRecovery
from penstock.worker.supervisor.lease_renewer import LeaseRenewer
from penstock.worker.supervisor.storage_match import location_of

__all__ = ["Supervisor"]

log = logging.getLogger("penstock.worker")

#: How often (seconds) the boards are looked over, also when nothing is held, and the memory of the children.
SWEEP, IDLE_SWEEP, MEMORY = 0.1, 0.5, 1.0

#: How long (seconds) the innocent runs of a child that must end may take.
DRAIN_BOUND = 30.0

#: A child that lived shorter than this (seconds) was no success; the next ones wait, up to this long.
QUICK_EXIT, LONGEST_REST = 2.0, 5.0


class Supervisor:
    """The children of one worker, from start to stop. It is started once and finished once."""

    def __init__(self, host: AppHost, handlers: Mapping[str, Handler], settings: ChildConfig) -> None:
        self._host = host
        self._worker = settings.worker
        self._settings = settings
        self._children: list[ChildHandle] = []
        self._spawning: dict[asyncio.Task[None], int] = {}
        self._quick_exits: Counter[int] = Counter()
        self._context = context(host)
        self._outage = OutageLog(host, settings.worker)
        self._maintenance = Maintenance(host, settings.worker, settings.lease, sorted(handlers), self._status)
        self._settler = Settler(host, settings.worker, self._settled)
        self._counted = frozenset(queue for queue, handler in handlers.items() if handler.options.concurrency)
        self._crash_recovery = CrashRecovery(host, handlers, settings.lease, self._settler)
        self._lease_renewer = LeaseRenewer(host, settings.worker, settings.lease, lambda: self._children)
        self._lease_thread = LeaseThread(self._lease_renewer, settings.worker, host.blocking_storage, ahead=0.0)
        self._settling = Loop("settle", self._settler.step, self._outage.failed, answers=lambda: self._settler.rounds)
        self._recovering = Loop("aftermath", self._crash_recovery.step, self._outage.failed)
        self._renewing = Loop(
            "leases", self._lease_renewer.step, self._outage.failed, longest=settings.lease / 6,
            answers=lambda: self._lease_renewer.rounds,
        )  # fmt: skip
        self._watching = Loop("watch", self._watch, self._outage.failed)
        self._maintaining = Loop(
            "upkeep", self._maintenance.step, self._outage.failed, answers=lambda: self._maintenance.rounds
        )
        self._waiting_for_cancels = Loop("cancels", self._listen, self._outage.failed, self._wait_for_cancel)
        self._settler.wake = self._settling.wake
        self._change = asyncio.Event()
        self._finishing = False
        self._closing, self._registered = asyncio.Event(), asyncio.Event()
        self._failure: str | None = None
        self._next_memory = 0.0
        #: The children that have not looked for work since jobs were given back, with their idle words then.
        self._outdated: dict[ChildHandle, int] = {}
        self.drained = asyncio.Event()
        #: Set when the runs that are left shall be given back.
        self.hurry = asyncio.Event()

    # start ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the children, and return when all of them work, or when it is to finish."""
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
        ):
            loop.went_well = self._outage.went_well
            loop.start()
        self._lease_thread.start()
        for seat in range(self._settings.slots):
            self._spawn(seat)
        try:
            while self._spawning or any(hand.stage is Stage.STARTING for hand in self._children):
                await self._changed()
                self._check_start()
        except BaseException:
            self.hurry.set()
            await self.finish()
            raise

    async def _register(self) -> None:
        """Be in the storage, where the children look for their parent. It was there: if it refuses, it is sat out."""
        tries = 0
        while not self._finishing:
            try:
                await self._maintenance.step()
                return self._outage.went_well(self._maintaining.name, answered=True)
            except StorageUnavailable as error:
                tries += 1
                self._outage.failed(self._maintaining.name, error, tries)
                await self._rest(min(0.1 * 2**tries, LONGEST_REST))

    async def drain(self, scheduled: bool) -> None:
        """Work until `drained` is set: nothing due, nothing running, and nothing later if asked for."""
        self._settings = dataclasses.replace(self._settings, drain=True, scheduled=scheduled)
        await self.start()

    def _check_start(self) -> None:
        """The first children must start: whatever keeps them from it will not go away."""
        if self._failure is not None:
            raise PenstockError(f"a child process cannot start: {self._failure}")
        if self._quick_exits and max(self._quick_exits.values()) > 2:
            raise PenstockError(
                "the child processes end before they are ready; a script that starts a worker with "
                'processes needs `if __name__ == "__main__":` around it'
            )

    def _spawn(self, seat: int, delay: float = 0.0) -> None:
        task = asyncio.ensure_future(self._start_child(seat, delay))
        self._spawning[task] = seat
        task.add_done_callback(self._spawned)

    async def _start_child(self, seat: int, delay: float) -> None:
        if delay:
            await self._rest(delay)
        if self._finishing:
            return
        beside = any(hand.slot == seat for hand in self._children)
        place = location_of(self._host.storage)
        settings = dataclasses.replace(
            self._settings, slot=seat, replacing=beside, storage=place, environment=dict(os.environ)
        )  # fmt: skip
        hand = ChildHandle(settings, self._received, self._died)
        await hand.start(self._context)
        self._children.append(hand)
        if self._finishing:
            hand.leave()

    def _spawned(self, task: asyncio.Task[None]) -> None:
        seat = self._spawning.pop(task)
        self._change.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a child process could not be started: %s", error)
            self._quick_exits[seat] += 1
            if not self._finishing:
                self._spawn(seat, LONGEST_REST)

    # stop -----------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Stop claiming, let runs end until `hurry`, give the rest back, record everything, and leave."""
        self._finishing = True
        self._closing.set()
        await self._registered.wait()  # or it would appear after it has left
        if self._spawning:  # a start is never cancelled: nobody would know of the process
            await asyncio.wait(list(self._spawning))
        for hand in self._children:
            hand.leave()
        await first_of(self._all_gone(), self.hurry.wait())
        for hand in self._children:
            hand.leave(within=self._settings.lease + 2)
            hand.send("hurry")
            self._set_deadlines(hand)
        await self._all_gone()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease):
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
        """Give back every run that is alive; gives how many jobs that were."""
        wanted = [
            (hand, slot) for hand in self._children for slot in hand.table.held() if slot.phase is not Phase.ENDED
        ]
        for hand in self._children:
            hand.send("release")
            self._set_deadlines(hand)
        keys = {(hand, slot.key) for hand, slot in wanted}
        while keys & {(hand, slot.key) for hand in self._children for slot in hand.table.held()}:
            await self._changed(SWEEP / 5)
        await self._nothing_pending()
        return len(wanted)

    def _set_deadlines(self, hand: ChildHandle) -> None:
        for slot in hand.table.held():
            hand.set_deadline(slot, Verdict.RELEASE)

    async def _all_gone(self) -> None:
        while self._children:
            await self._changed()

    async def _nothing_pending(self) -> None:
        while self._crash_recovery.busy:
            await self._changed()

    async def _rest(self, seconds: float) -> None:
        """Wait, but not when it is to finish."""
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
        """The one sweep over all boards: leases, deadlines, memory."""
        now = time.monotonic()
        self._lease_renewer.fence(now)
        for hand in self._children:
            if not hand.killed:
                self._check_overdue(hand, now)
        if self._settings.max_rss is not None and now >= self._next_memory:
            self._next_memory = now + MEMORY
            self._check_memory(self._settings.max_rss)
        for hand in self._children:
            if hand.replacing and not self._counted_before(hand):
                hand.take_over()
        if self._settings.drain and self._is_drained():
            self.drained.set()
        busy = self._settings.drain or any(hand.replacing or hand.table.head[LIVE] for hand in self._children)
        return SWEEP if busy else IDLE_SWEEP

    async def _listen(self) -> float | None:
        return CANCEL_WAIT

    async def _wait_for_cancel(self, seconds: float) -> None:
        """A renewal tells which run somebody wants to end."""
        if await wait_for_cancel(self._host, self._worker, seconds):
            self._renewing.wake()

    def _check_overdue(self, hand: ChildHandle, now: float) -> None:
        """A run that does not end costs its process: it is drained of the innocent and ended."""
        guilty = hand.overdue(now)
        if guilty and not hand.stuck:
            hand.stuck = True
            log.warning("process %s has runs that do not end (%d): it is replaced", hand.pid, len(guilty))
            self._replace(hand)
        if hand.stage is Stage.LEAVING and hand.must_die(now, guilty):
            hand.kill(guilty)

    def _replace(self, hand: ChildHandle) -> None:
        """Start another child at once, and let this one go when its runs have ended."""
        if hand.stage is not Stage.LEAVING and not self._finishing:
            self._spawn(hand.slot)
        hand.leave(within=DRAIN_BOUND)

    def _check_memory(self, most: int) -> None:
        for hand in self._children:
            if hand.stage is Stage.WORKING and (size := hand.memory()) > most:
                log.info("process %s has %d MB: it is replaced", hand.pid, size // 2**20)
                self._replace(hand)

    def _counted_before(self, hand: ChildHandle) -> bool:
        """Whether a child that this one replaces may still have runs of queues with `concurrency=n`."""
        before = [each for each in self._children if each.slot == hand.slot and each is not hand and not each.replacing]
        return any(
            not each.stop_confirmed or any(slot.ref.queue in self._counted for slot in each.table.held())
            for each in before
        )

    def _is_drained(self) -> bool:
        """Whether there is a moment at which every child found nothing, after everything was given back."""
        idle = all(hand.stage is Stage.WORKING and not hand.replacing for hand in self._children)
        if self._spawning or self._crash_recovery.busy or not idle:
            return False
        first = [hand.table.head[IDLE] for hand in self._children]
        second = [hand.table.head[IDLE] for hand in self._children]
        late = [hand for hand, word in zip(self._children, first, strict=True) if self._outdated.get(hand) == word]
        return first == second and not late and all(word % 2 for word in first) and bool(first)

    # what children say ----------------------------------------------------------------------------

    def _received(self, hand: ChildHandle, words: str) -> None:
        if words == "full" and hand.stage is Stage.WORKING:
            log.info("process %s has run its share of jobs: it is replaced", hand.pid)
            self._replace(hand)
        elif words in ("stuck", "idle"):
            self._watching.wake()
        elif words == "ready":
            log.info("process %s works", hand.pid)
            self._maintaining.wake()  # to say so
        elif words == "unseen":
            self._maintenance.beat_again()
            self._maintaining.wake()
        self._failure = hand.failure or self._failure
        self._change.set()

    def _died(self, hand: ChildHandle) -> None:
        """A child is gone: what it held is settled, and another takes its seat unless one has."""
        self._children.remove(hand)
        self._outdated.pop(hand, None)
        slots = hand.table.held()
        hand.fenced = hand.fenced or (bool(slots) and all(slot.verdict is Verdict.LOSS for slot in slots))
        self._crash_recovery.add(hand, slots, self._worker)
        self._recovering.wake()
        self._maintaining.wake()
        if not self._finishing and not hand.was_leaving:
            self._log_exit(hand, len(slots))
        hand.close()
        self._change.set()

    def _log_exit(self, hand: ChildHandle, jobs: int) -> None:
        code = hand.exit_code
        if hand.failure is not None:
            log.error("a child process cannot start: %s", hand.failure)
        elif hand.fenced:
            log.warning("process %s ended: its leases were not confirmed in time (%d jobs)", hand.pid, jobs)
        else:
            log.warning("process %s died (exit code %s) with %d jobs; they go back", hand.pid, code, jobs)
        lived = time.monotonic() - hand.born
        self._quick_exits[hand.slot] = self._quick_exits[hand.slot] + 1 if lived < QUICK_EXIT or hand.failure else 0
        tries = self._quick_exits[hand.slot]
        delay = 0.0 if tries < 2 else min(0.1 * 2 ** (tries - 2), LONGEST_REST)
        self._spawn(hand.slot, delay)

    # helpers --------------------------------------------------------------------------------------

    def _settled(self, members: Sequence[RunJob]) -> None:
        self._change.set()
        if self._settings.drain:
            for hand in self._children:
                self._outdated[hand] = hand.table.head[IDLE]
                hand.send("again")

    def _status(self) -> Heartbeat:
        """How the children fare, all together."""
        now, capacity = time.monotonic(), self._settings.capacity * self._settings.slots
        heads = [hand.table.head for hand in self._children]
        slots = [slot for hand in self._children for slot in hand.table.held()]
        confirmed = min((slot.confirmed for slot in slots), default=None)
        runs = [
            RunSummary(slot.ref.queue, slot.ref.id, slot.attempt, round((now - slot.begun) * 1000))
            for slot in slots
            if slot.phase is Phase.RUNNING
        ]
        return Heartbeat(
            processes=self.pids, capacity=capacity, allowed=capacity - sum(head[WITHHELD] for head in heads),
            busy=sum(head[UNITS] for head in heads), memory=resident() + sum(hand.memory() for hand in self._children),
            lease_age=None if confirmed is None else round((now - confirmed) * 1000),
            running=len(runs), runs=oldest(runs),
        )  # fmt: skip

    @property
    def pids(self) -> list[int]:
        """The processes that are alive."""
        return [hand.pid for hand in self._children if hand.pid is not None]


def context(host: AppHost) -> BaseContext:
    """How children are started: forked by a small server that has what they need, or else from nothing."""
    methods: Iterable[str] = multiprocessing.get_all_start_methods()
    if "forkserver" not in methods:
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["penstock.worker.supervisor.preload", type(host.storage).__module__])
    return server
