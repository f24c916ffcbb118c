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

from penstock.errors import PenstockError, StorageError, StorageUnavailable
from penstock.host import Host
from penstock.model.handler import Handler
from penstock.model.worker_info import Presence, RunWords, oldest
from penstock.worker.cancel_wait import EAR, hear
from penstock.worker.lease_thread import Heart
from penstock.worker.loop import Loop
from penstock.worker.maintenance import Upkeep
from penstock.worker.outage import Trouble
from penstock.worker.rss import resident
from penstock.worker.run import Member
from penstock.worker.runtime import first_of
from penstock.worker.settler import Settler
from penstock.worker.supervisor.child_handle import Hand, Stage
from penstock.worker.supervisor.claim_table import (
    IDLE,
    LIVE,
    UNITS,
    WITHHELD,
    Phase,
    Verdict,
)
from penstock.worker.supervisor.config import Settings
from penstock.worker.supervisor.crash_recovery import Aftermath
from penstock.worker.supervisor.lease_renewer import Renewals
from penstock.worker.supervisor.storage_match import place_of

__all__ = ["Crew"]

log = logging.getLogger("penstock.worker")

#: How often (seconds) the boards are looked over, also when nothing is held, and the memory of the children.
SWEEP, IDLE_SWEEP, MEMORY = 0.1, 0.5, 1.0

#: How long (seconds) the innocent runs of a child that must end may take.
DRAIN_BOUND = 30.0

#: A child that lived shorter than this (seconds) was no success; the next ones wait, up to this long.
YOUNG, LONGEST_REST = 2.0, 5.0


class Crew:
    """The children of one worker, from start to stop. It is started once and finished once."""

    def __init__(self, host: Host, handlers: Mapping[str, Handler], settings: Settings) -> None:
        self._host = host
        self._worker = settings.worker
        self._settings = settings
        self._hands: list[Hand] = []
        self._hiring: dict[asyncio.Task[None], int] = {}
        self._young: Counter[int] = Counter()
        self._context = context(host)
        self._trouble = Trouble(host, settings.worker)
        self._upkeep = Upkeep(host, settings.worker, settings.lease, sorted(handlers), self._status)
        self._settler = Settler(host, settings.worker, self._settled)
        self._counted = frozenset(queue for queue, handler in handlers.items() if handler.options.concurrency)
        self._aftermath = Aftermath(host, handlers, settings.lease, self._settler)
        self._renewals = Renewals(host, settings.worker, settings.lease, lambda: self._hands)
        self._heart = Heart(self._renewals, settings.worker, host.blocking_storage, ahead=0.0)
        self._settling = Loop("settle", self._settler.step, self._trouble.failed, answers=lambda: self._settler.rounds)
        self._burying = Loop("aftermath", self._aftermath.step, self._trouble.failed)
        self._renewing = Loop(
            "leases", self._renewals.step, self._trouble.failed, longest=settings.lease / 6,
            answers=lambda: self._renewals.rounds,
        )  # fmt: skip
        self._watching = Loop("watch", self._watch, self._trouble.failed)
        self._keeping = Loop("upkeep", self._upkeep.step, self._trouble.failed, answers=lambda: self._upkeep.rounds)
        self._hearing = Loop("cancels", self._listen, self._trouble.failed, self._hear)
        self._settler.wake = self._settling.wake
        self._change = asyncio.Event()
        self._finishing = False
        self._closing, self._appeared = asyncio.Event(), asyncio.Event()
        self._failure: str | None = None
        self._next_memory = 0.0
        #: The children that have not looked for work since jobs were given back, with their idle words then.
        self._outdated: dict[Hand, int] = {}
        self.drained = asyncio.Event()
        #: Set when the runs that are left shall be given back.
        self.hurry = asyncio.Event()

    # start ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the children, and return when all of them work, or when it is to finish."""
        try:
            await self._appear()
        finally:
            self._appeared.set()
        if self._finishing:
            return
        for loop in (self._settling, self._burying, self._renewing, self._watching, self._keeping, self._hearing):
            loop.went_well = self._trouble.went_well
            loop.start()
        self._heart.start()
        for seat in range(self._settings.seats):
            self._hire(seat)
        try:
            while self._hiring or any(hand.stage is Stage.STARTING for hand in self._hands):
                await self._changed()
                self._check_start()
        except BaseException:
            self.hurry.set()
            await self.finish()
            raise

    async def _appear(self) -> None:
        """Be in the storage, where the children look for their parent. It was there: if it refuses, it is sat out."""
        tries = 0
        while not self._finishing:
            try:
                await self._upkeep.step()
                return self._trouble.went_well(self._keeping.name, answered=True)
            except StorageUnavailable as error:
                tries += 1
                self._trouble.failed(self._keeping.name, error, tries)
                await self._rest(min(0.1 * 2**tries, LONGEST_REST))

    async def drain(self, scheduled: bool) -> None:
        """Work until `drained` is set: nothing due, nothing running, and nothing later if asked for."""
        self._settings = dataclasses.replace(self._settings, drain=True, scheduled=scheduled)
        await self.start()

    def _check_start(self) -> None:
        """The first children must start: whatever keeps them from it will not go away."""
        if self._failure is not None:
            raise PenstockError(f"a child process cannot start: {self._failure}")
        if self._young and max(self._young.values()) > 2:
            raise PenstockError(
                "the child processes end before they are ready; a script that starts a worker with "
                'processes needs `if __name__ == "__main__":` around it'
            )

    def _hire(self, seat: int, delay: float = 0.0) -> None:
        task = asyncio.ensure_future(self._start_hand(seat, delay))
        self._hiring[task] = seat
        task.add_done_callback(self._hired)

    async def _start_hand(self, seat: int, delay: float) -> None:
        if delay:
            await self._rest(delay)
        if self._finishing:
            return
        beside = any(hand.seat == seat for hand in self._hands)
        place = place_of(self._host.storage)
        settings = dataclasses.replace(
            self._settings, seat=seat, beside=beside, place=place, environment=dict(os.environ)
        )  # fmt: skip
        hand = Hand(settings, self._told, self._died)
        await hand.start(self._context)
        self._hands.append(hand)
        if self._finishing:
            hand.leave()

    def _hired(self, task: asyncio.Task[None]) -> None:
        seat = self._hiring.pop(task)
        self._change.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a child process could not be started: %s", error)
            self._young[seat] += 1
            if not self._finishing:
                self._hire(seat, LONGEST_REST)

    # stop -----------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Stop claiming, let runs end until `hurry`, give the rest back, record everything, and leave."""
        self._finishing = True
        self._closing.set()
        await self._appeared.wait()  # or it would appear after it has left
        if self._hiring:  # a start is never cancelled: nobody would know of the process
            await asyncio.wait(list(self._hiring))
        for hand in self._hands:
            hand.leave()
        await first_of(self._all_gone(), self.hurry.wait())
        for hand in self._hands:
            hand.leave(within=self._settings.lease + 2)
            hand.say("hurry")
            self._doom_all(hand)
        await self._all_gone()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.lease):
                await self._nothing_pending()
        for loop in (self._hearing, self._keeping, self._renewing, self._watching, self._burying, self._settling):
            await loop.stop()
        await self._heart.stop()
        with contextlib.suppress(StorageError):
            await self._upkeep.leave()

    async def release(self) -> int:
        """Give back every run that is alive; gives how many jobs that were."""
        wanted = [(hand, slot) for hand in self._hands for slot in hand.board.held() if slot.phase is not Phase.ENDED]
        for hand in self._hands:
            hand.say("release")
            self._doom_all(hand)
        keys = {(hand, slot.key) for hand, slot in wanted}
        while keys & {(hand, slot.key) for hand in self._hands for slot in hand.board.held()}:
            await self._changed(SWEEP / 5)
        await self._nothing_pending()
        return len(wanted)

    def _doom_all(self, hand: Hand) -> None:
        for slot in hand.board.held():
            hand.doom(slot, Verdict.RELEASE)

    async def _all_gone(self) -> None:
        while self._hands:
            await self._changed()

    async def _nothing_pending(self) -> None:
        while self._aftermath.busy:
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
        self._renewals.fence(now)
        for hand in self._hands:
            if not hand.killed:
                self._judge(hand, now)
        if self._settings.max_rss is not None and now >= self._next_memory:
            self._next_memory = now + MEMORY
            self._weigh(self._settings.max_rss)
        for hand in self._hands:
            if hand.beside and not self._counted_before(hand):
                hand.take_over()
        if self._settings.drain and self._is_drained():
            self.drained.set()
        busy = self._settings.drain or any(hand.beside or hand.board.head[LIVE] for hand in self._hands)
        return SWEEP if busy else IDLE_SWEEP

    async def _listen(self) -> float | None:
        return EAR

    async def _hear(self, seconds: float) -> None:
        """A renewal tells which run somebody wants to end."""
        if await hear(self._host, self._worker, seconds):
            self._renewing.wake()

    def _judge(self, hand: Hand, now: float) -> None:
        """A run that does not end costs its process: it is drained of the innocent and ended."""
        guilty = hand.judge(now)
        if guilty and not hand.convicted:
            hand.convicted = True
            log.warning("process %s has runs that do not end (%d): it is replaced", hand.pid, len(guilty))
            self._replace(hand)
        if hand.stage is Stage.LEAVING and hand.must_die(now, guilty):
            hand.kill(guilty)

    def _replace(self, hand: Hand) -> None:
        """Start another child at once, and let this one go when its runs have ended."""
        if hand.stage is not Stage.LEAVING and not self._finishing:
            self._hire(hand.seat)
        hand.leave(within=DRAIN_BOUND)

    def _weigh(self, most: int) -> None:
        for hand in self._hands:
            if hand.stage is Stage.WORKING and (size := hand.memory()) > most:
                log.info("process %s has %d MB: it is replaced", hand.pid, size // 2**20)
                self._replace(hand)

    def _counted_before(self, hand: Hand) -> bool:
        """Whether a child that this one replaces may still have runs of queues with `concurrency=n`."""
        before = [each for each in self._hands if each.seat == hand.seat and each is not hand and not each.beside]
        return any(
            not each.heard_stop or any(slot.held.queue in self._counted for slot in each.board.held())
            for each in before
        )

    def _is_drained(self) -> bool:
        """Whether there is a moment at which every child found nothing, after everything was given back."""
        idle = all(hand.stage is Stage.WORKING and not hand.beside for hand in self._hands)
        if self._hiring or self._aftermath.busy or not idle:
            return False
        first = [hand.board.head[IDLE] for hand in self._hands]
        second = [hand.board.head[IDLE] for hand in self._hands]
        late = [hand for hand, word in zip(self._hands, first, strict=True) if self._outdated.get(hand) == word]
        return first == second and not late and all(word % 2 for word in first) and bool(first)

    # what children say ----------------------------------------------------------------------------

    def _told(self, hand: Hand, words: str) -> None:
        if words == "full" and hand.stage is Stage.WORKING:
            log.info("process %s has run its share of jobs: it is replaced", hand.pid)
            self._replace(hand)
        elif words in ("stuck", "idle"):
            self._watching.wake()
        elif words == "ready":
            log.info("process %s works", hand.pid)
            self._keeping.wake()  # to say so
        elif words == "unseen":
            self._upkeep.beat_again()
            self._keeping.wake()
        self._failure = hand.failure or self._failure
        self._change.set()

    def _died(self, hand: Hand) -> None:
        """A child is gone: what it held is settled, and another takes its seat unless one has."""
        self._hands.remove(hand)
        self._outdated.pop(hand, None)
        slots = hand.board.held()
        hand.fenced = hand.fenced or (bool(slots) and all(slot.verdict is Verdict.LOSS for slot in slots))
        self._aftermath.add(hand, slots, self._worker)
        self._burying.wake()
        self._keeping.wake()
        if not self._finishing and not hand.was_leaving:
            self._mourn(hand, len(slots))
        hand.bury()
        self._change.set()

    def _mourn(self, hand: Hand, jobs: int) -> None:
        code = hand.exit_code
        if hand.failure is not None:
            log.error("a child process cannot start: %s", hand.failure)
        elif hand.fenced:
            log.warning("process %s ended: its leases were not confirmed in time (%d jobs)", hand.pid, jobs)
        else:
            log.warning("process %s died (exit code %s) with %d jobs; they go back", hand.pid, code, jobs)
        lived = time.monotonic() - hand.born
        self._young[hand.seat] = self._young[hand.seat] + 1 if lived < YOUNG or hand.failure else 0
        tries = self._young[hand.seat]
        delay = 0.0 if tries < 2 else min(0.1 * 2 ** (tries - 2), LONGEST_REST)
        self._hire(hand.seat, delay)

    # helpers --------------------------------------------------------------------------------------

    def _settled(self, members: Sequence[Member]) -> None:
        self._change.set()
        if self._settings.drain:
            for hand in self._hands:
                self._outdated[hand] = hand.board.head[IDLE]
                hand.say("again")

    def _status(self) -> Presence:
        """How the children fare, all together."""
        now, capacity = time.monotonic(), self._settings.capacity * self._settings.seats
        heads = [hand.board.head for hand in self._hands]
        slots = [slot for hand in self._hands for slot in hand.board.held()]
        confirmed = min((slot.confirmed for slot in slots), default=None)
        runs = [
            RunWords(slot.held.queue, slot.held.id, slot.attempt, round((now - slot.begun) * 1000))
            for slot in slots
            if slot.phase is Phase.RUNNING
        ]
        return Presence(
            processes=self.pids, capacity=capacity, allowed=capacity - sum(head[WITHHELD] for head in heads),
            busy=sum(head[UNITS] for head in heads), memory=resident() + sum(hand.memory() for hand in self._hands),
            lease_age=None if confirmed is None else round((now - confirmed) * 1000),
            running=len(runs), runs=oldest(runs),
        )  # fmt: skip

    @property
    def pids(self) -> list[int]:
        """The processes that are alive."""
        return [hand.pid for hand in self._hands if hand.pid is not None]


def context(host: Host) -> BaseContext:
    """How children are started: forked by a small server that has what they need, or else from nothing."""
    methods: Iterable[str] = multiprocessing.get_all_start_methods()
    if "forkserver" not in methods:
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["penstock.worker.supervisor.preload", type(host.storage).__module__])
    return server
