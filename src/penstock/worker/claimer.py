"""What to ask the storage for: as much as there is room for, the right queues first."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

from penstock.host import AppHost
from penstock.model.handler import Handler
from penstock.model.ids import new_token
from penstock.model.job import Claim
from penstock.storage.base import Claimed, OpenClaim, OpensClaims, Request
from penstock.worker.pool import Pool
from penstock.worker.queue_order import QueueTurn, batches_of, in_order, plan

__all__ = ["Claimer"]


#: The slow poll (seconds): the safety net under lost hints.
SLOW_POLL = 5.0

#: Hints that nobody takes last for longer than this (seconds).
HINTS_LAST = 20.0

#: A claim may be left open for this part of a lease, and for so many queues.
OPEN, MOST_OPEN = 1 / 2, 4


class Claimer:
    """Fills the pool from the storage, and waits for work when there is none."""

    def __init__(
        self,
        host: AppHost,
        worker: str,
        lease_ms: int,
        handlers: Iterable[Handler],
        pool: Pool,
        begin: Callable[[Handler, Sequence[Sequence[Claim]], int, float], None],
    ) -> None:
        self._host = host
        self._worker = worker
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._begin = begin
        self._turns = {handler.queue: QueueTurn(handler) for handler in handlers}
        self._turn = 0
        self._empty: set[str] = set()
        self._promises: list[float] = []
        self._empty_hints = 0
        #: Queues that are known to be empty when the next filling begins, and until when.
        self._known_empty: set[str] = set()
        self._known_until = -math.inf
        #: What to claim when there is work, the claim that is open for it, and a promise that came with its answer.
        self._next: list[Request] = []
        self._open: OpenClaim | None = None
        storage = host.storage
        self._open_storage = storage if isinstance(storage, OpensClaims) else None
        self._pending_look_at: int | None = None
        self._no_room = self._reserving_room = False
        self._idle_emitted = False
        self.stopping = False
        #: Queues that are not to be asked for now.
        self.excluded: frozenset[str] = frozenset()
        #: Grows with every claim that was heard.
        self.rounds = 0
        #: Whether every outcome of this worker is recorded and told.
        self.settled: Callable[[], bool] = lambda: True
        #: How many more jobs may be held.
        self.room: Callable[[], float] = lambda: math.inf

    @property
    def starved(self) -> bool:
        """Whether some queue may have work that there was no room for, or that was not listened for."""
        return self._no_room or len(self._empty) + len(self.excluded) < len(self._turns)

    async def fill(self) -> None:
        """Claim until there is no room, or nothing to claim."""
        began, got = self._loop.time(), 0
        self._empty = self._known_empty if began < self._known_until else set()
        self._known_empty = set()
        if self._pending_look_at is not None:
            await self._promise(self._pending_look_at)
            self._pending_look_at = None
        while not self.stopping and self.room() > 0:
            asked = self._loop.time()
            requests = plan(await self._candidates(), self._pool, asked)
            if not requests:
                break
            answer = await self._host.storage.claim(requests, self._worker, self._lease_ms, new_token())
            self.rounds += 1
            got += self._accept(requests, answer, asked)
            if answer.look_at is not None:
                await self._promise(answer.look_at)
        self._promises = [due for due in self._promises if due > began]
        self._found(got)

    async def step(self) -> float | None:
        """Fill the pool; rest until units free when something is waiting for them, else until there is work."""
        await self.fill()
        dry = [seat for queue, seat in self._turns.items() if queue in self._empty and queue not in self.excluded]
        if not dry:
            return None
        self._no_room = not self._plan_next(dry)  # then it is woken when a run ends
        if self._no_room:
            self._remember_empty()
            return None
        self.rest()
        return self.patience()

    def _plan_next(self, dry: list[QueueTurn]) -> bool:
        """Plan what an open claim asks for; False when there is no room for anything, so no reason to listen."""
        self._next = []
        if self._open_storage is None or not self._open_storage.opens_claims:
            return True
        if not self._reserving_room and self.room() > 0:
            self._next = plan(in_order(dry), self._pool, self._loop.time())
        return bool(self._next)

    def rest(self) -> None:
        """Say once that there is nothing to do: nothing was found, nothing runs, and nothing waits to be recorded."""
        if self._idle_emitted or self.starved or not self._pool.empty or not self.settled():
            return
        self._idle_emitted = True
        self._host.emit("idle", worker=self._worker)

    def patience(self) -> float:
        """How long to wait for a hint: until the next promise to look, or the slow poll."""
        due = min(self._promises, default=math.inf) - self._loop.time()
        return min(max(due, 0.0), SLOW_POLL)

    async def _promise(self, look_at: int) -> None:
        """Remember to look again at that time of the storage's clock: nobody else was asked to."""
        ms = look_at - await self._host.storage.time()
        self._promises.append(self._loop.time() + max(ms, 0) / 1000)

    async def doze(self, seconds: float) -> None:
        """Wait for a hint from the queues that were found empty, if the storage can with a claim behind it."""
        if self._empty_hints > 3:  # hints that lead to nothing must not turn into a busy loop
            await asyncio.sleep(0.01 * 2 ** min(self._empty_hints, 7))
        queues = sorted(self._empty)
        if (opened := self._open_claim(queues, seconds)) is None:
            self._empty_hints += await self._host.storage.wait_work(queues, seconds)
        else:
            await self._await_open_claim(opened)

    def _open_claim(self, queues: Sequence[str], seconds: float) -> OpenClaim | None:
        """The claim of what there is room for, if the storage can leave one open."""
        if self._open_storage is None or not self._next or len(queues) > MOST_OPEN:
            return None
        wait = min(seconds, self._lease_ms / 1000 * OPEN)
        return self._open_storage.open_claim(queues, self._next, self._worker, self._lease_ms, new_token(), wait)

    async def _await_open_claim(self, opened: OpenClaim) -> None:
        """Begin what it gives as soon as that is here; its lease counts from when it was sent."""
        asked, requests, got = self._loop.time(), self._next, 0

        def hear(hinted: bool, answer: Claimed) -> None:
            nonlocal got
            self.rounds += 1
            asked_of = {request.queue for request in requests}
            self._empty -= asked_of
            got = self._accept(requests, answer, asked)
            self._empty &= asked_of  # of the others the hint may have been
            self._remember_empty()
            self._empty_hints += hinted
            self._found(got)
            self._pending_look_at = answer.look_at  # promised by the next filling, which nobody interrupts

        self._open = opened
        try:
            await opened.answer(hear)
        finally:
            self._open = None
        if got:  # what was quick is sent before the next claim is planned: an event loop may write after its turn
            await asyncio.sleep(0)

    def hurry(self) -> bool:
        """Have the claim that is open answered now; False when none is."""
        if self._open is None:
            return False
        self._open.hurry()
        return True

    def _remember_empty(self) -> None:
        """These need not be asked again before they are listened to: what comes meanwhile leaves a hint."""
        self._known_empty, self._known_until = self._empty, self._loop.time() + HINTS_LAST

    def _found(self, got: int) -> None:
        if got:
            self._empty_hints = 0
            self._idle_emitted = False

    async def _candidates(self) -> list[QueueTurn]:
        """The queues to ask, in order of service."""
        seats = [seat for queue, seat in self._turns.items() if queue not in self._empty and queue not in self.excluded]
        seats = in_order(seats)
        self._reserving_room = False
        for seat in seats:
            if not seat.overdue:
                break
            if seat.units > self._pool.free:
                # It is too big for what frees up: hold the room for it, if it has any work at all.
                if await self._host.storage.peek(seat.queue) is not None:
                    self._reserving_room = True
                    return []
                seat.passed_over = 0
        return seats

    def _accept(self, requests: Sequence[Request], answer: Claimed, asked: float) -> int:
        batches = batches_of(answer.claims)
        runs = {queue: len(found) for queue, found in batches.items()}
        asked_of = {request.queue for request in requests}
        for request in requests:
            if runs.get(request.queue, 0) < request.limit:
                self._empty.add(request.queue)
        self._turn += 1
        turns = max(1, *(count // self._turns[queue].full(self._pool) for queue, count in runs.items()), 0)
        for seat in self._turns.values():
            if seat.queue in asked_of:
                seat.passed_over = 0
                if seat.queue in runs:
                    seat.served = self._turn
            elif seat.queue not in self._empty:
                seat.passed_over += turns
        for queue, id in answer.skipped:
            self._host.emit("skipped", queue=queue, id=id, worker=self._worker)
        for queue, id in answer.corrupt:
            self._host.emit("invalid_data", queue=queue, id=id, worker=self._worker)
        for queue, found in batches.items():
            seat = self._turns[queue]
            self._begin(seat.handler, found, seat.units, asked)
        return len(batches)
