"""Claiming: ask the storage for as many jobs as there is room for, and wait for work when there are none."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.host import AppHost
from penstock.model.handler import Handler
from penstock.model.ids import new_token
from penstock.storage.base import Claimed, OpenClaim, OpensClaims, Request
from penstock.worker.pool import Pool
from penstock.worker.queue_order import QueueTurn, batches_of, in_order, plan
from penstock.worker.run import RunFlow

__all__ = ["Claimer"]


#: How often (seconds) a waiting worker looks for work even if no hint comes, because a hint may be lost.
SLOW_POLL = 5.0

#: A storage keeps a hint that no worker takes for longer than this (seconds).
HINTS_LAST = 20.0

#: A claim is left open for at most this part of a lease, and for at most this number of queues.
OPEN, MOST_OPEN = 1 / 2, 4


class WaitTurns(Protocol):
    """The times at which a worker waits for work, where another one waits in its place at other times."""

    def off(self) -> float: ...

    def left(self) -> float: ...


class Claimer:
    """Fills the pool from the storage, and waits for work when there is none."""

    def __init__(
        self, host: AppHost, worker: str, lease_ms: int, handlers: Iterable[Handler], pool: Pool, flow: RunFlow
    ) -> None:
        self._host = host
        self._worker = worker
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._flow = flow
        self._turns = {handler.queue: QueueTurn(handler) for handler in handlers}
        self._turn = 0
        self._empty: set[str] = set()
        #: The times (monotonic) at which this worker has promised to look for work.
        self._promises: list[float] = []
        self._empty_hints = 0
        #: The queues that are known to be empty when the next filling begins, and until when.
        self._known_empty: set[str] = set()
        self._known_until = -math.inf
        #: The requests of the next open claim, that claim, and a promise to look that came with its answer.
        self._next: list[Request] = []
        self._open: OpenClaim | None = None
        storage = host.storage
        self._open_storage = storage if isinstance(storage, OpensClaims) else None
        self._pending_look_at: int | None = None
        self._no_room = self._reserving_room = False
        self._idle_emitted = False
        self.stopping = False
        #: When to wait for work, None: at all times.
        self.rota: WaitTurns | None = None
        #: The queues that are not to be claimed from now.
        self.excluded: frozenset[str] = frozenset()
        #: The number of claims that the storage has answered.
        self.rounds = 0
        #: The queues of these claims since `take_asked`.
        self._asked: set[str] = set()

    @property
    def starved(self) -> bool:
        """Whether a queue may have work that there was no room for, or for which no hint was awaited."""
        return self._no_room or len(self._empty) + len(self.excluded) < len(self._turns)

    def take_asked(self) -> set[str]:
        """Return the queues that the storage has been asked for since the last call."""
        asked, self._asked = self._asked, set()
        return asked

    async def fill(self) -> None:
        """Claim until there is no room, or nothing to claim."""
        began, got = self._loop.time(), 0
        self._empty = self._known_empty if began < self._known_until else set()
        self._known_empty = set()
        if self._pending_look_at is not None:
            await self._promise(self._pending_look_at)
            self._pending_look_at = None
        while not self.stopping and self._flow.room() > 0:
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
        """Fill the pool; rest until units are free if a queue waits for them, else until there may be work."""
        await self.fill()
        empty = [turn for queue, turn in self._turns.items() if queue in self._empty and queue not in self.excluded]
        if not empty:
            return None
        self._no_room = not self._plan_next(empty)  # then it is woken when a run ends
        if self._no_room:
            self._remember_empty()
            return None
        self.emit_idle()
        return self.wait_time()

    def _plan_next(self, empty: list[QueueTurn]) -> bool:
        """Plan the requests of an open claim; False if there is no room for any, so that a hint would be useless."""
        self._next = []
        if self._open_storage is None or not self._open_storage.opens_claims:
            return True
        if not self._reserving_room and self._flow.room() > 0:
            self._next = plan(in_order(empty), self._pool, self._loop.time())
        return bool(self._next)

    def emit_idle(self) -> None:
        """Emit `idle`, once: nothing was found, nothing runs, and no outcome waits to be recorded."""
        if self._idle_emitted or self.starved or not self._pool.empty or not self._flow.everything_settled():
            return
        self._idle_emitted = True
        self._host.emit("idle", worker=self._worker)

    def wait_time(self) -> float:
        """Return how long (seconds) to wait for a hint: until the next promise to look, or the slow poll."""
        due = min(self._promises, default=math.inf) - self._loop.time()
        return min(max(due, 0.0), SLOW_POLL)

    async def _promise(self, look_at: int) -> None:
        """Remember to look again at that time of the storage's clock: it asked no other worker to."""
        ms = look_at - await self._host.storage.time()
        self._promises.append(self._loop.time() + max(ms, 0) / 1000)

    async def doze(self, seconds: float) -> None:
        """Wait for a hint from the queues that were found empty, with an open claim if the storage has those."""
        if self._empty_hints > 3:  # hints that lead to nothing must not turn into a busy loop
            await asyncio.sleep(0.01 * 2 ** min(self._empty_hints, 7))
        if self.rota is not None:
            if off := self.rota.off():
                return await self._rest_off(min(off, seconds))
            seconds = min(seconds, self.rota.left())
        queues = sorted(self._empty)
        if (opened := self._open_claim(queues, seconds)) is None:
            self._empty_hints += await self._host.storage.wait_work(queues, seconds)
        else:
            await self._await_open_claim(opened)

    async def _rest_off(self, seconds: float) -> None:
        """Rest while another process waits for work; look afterwards only if this one has promised to."""
        await asyncio.sleep(seconds)
        if min(self._promises, default=math.inf) > self._loop.time() + 0.001:
            self._remember_empty()

    def _open_claim(self, queues: Sequence[str], seconds: float) -> OpenClaim | None:
        """Open a claim for as much as there is room for; None if the storage cannot, or there are too many queues."""
        if self._open_storage is None or not self._next or len(queues) > MOST_OPEN:
            return None
        wait = min(seconds, self._lease_ms / 1000 * OPEN)
        return self._open_storage.open_claim(queues, self._next, self._worker, self._lease_ms, new_token(), wait)

    async def _await_open_claim(self, opened: OpenClaim) -> None:
        """Start the jobs of an open claim as soon as its answer is here; their lease counts from when it was sent."""
        asked, requests, got = self._loop.time(), self._next, 0

        def answered(hinted: bool, answer: Claimed) -> None:
            nonlocal got
            self.rounds += 1
            asked_of = {request.queue for request in requests}
            self._empty -= asked_of
            got = self._accept(requests, answer, asked)
            self._empty &= asked_of  # the hint may have been for a queue that was not claimed from
            self._remember_empty()
            self._empty_hints += hinted
            self._found(got)
            self._pending_look_at = answer.look_at  # the next filling promises it: that is never cancelled

        self._open = opened
        try:
            await opened.answer(answered)
        finally:
            self._open = None
        if got:  # outcomes of quick runs are sent before the next claim is planned: a transport may write after this
            await asyncio.sleep(0)

    def end_doze(self) -> bool:
        """Have the open claim answered now; False without one."""
        if self._open is None:
            return False
        self._open.hurry()
        return True

    def _remember_empty(self) -> None:
        """Skip the empty queues in the next filling: a job that comes meanwhile leaves a hint."""
        self._known_empty, self._known_until = self._empty, self._loop.time() + HINTS_LAST

    def _found(self, got: int) -> None:
        if got:
            self._empty_hints = 0
            self._idle_emitted = False

    async def _candidates(self) -> list[QueueTurn]:
        """Return the queues to claim from, in order of service."""
        turns = [turn for queue, turn in self._turns.items() if queue not in self._empty and queue not in self.excluded]
        turns = in_order(turns)
        self._reserving_room = False
        for turn in turns:
            if not turn.overdue:
                break
            if turn.units > self._pool.free:
                # A run of this queue needs more units than are free: keep them free for it, if it has a job at all.
                if await self._host.storage.peek(turn.queue) is not None:
                    self._reserving_room = True
                    return []
                turn.passed_over = 0
        return turns

    def _accept(self, requests: Sequence[Request], answer: Claimed, asked: float) -> int:
        """Hand the claims of an answer over to be run; returns the number of queues that had any."""
        batches = batches_of(answer.claims)
        runs = {queue: len(found) for queue, found in batches.items()}
        asked_of = {request.queue for request in requests}
        self._asked |= asked_of
        for request in requests:
            if runs.get(request.queue, 0) < request.limit and request.queue not in answer.more:
                self._empty.add(request.queue)
        self._turn += 1
        turns = max(1, *(count // self._turns[queue].full(self._pool) for queue, count in runs.items()), 0)
        for turn in self._turns.values():
            if turn.queue in asked_of:
                turn.limited = turn.queue in answer.limited
                turn.passed_over = 0
                if turn.queue in runs:
                    turn.served = self._turn
            elif turn.queue not in self._empty:
                turn.passed_over += turns
        for queue, id in answer.skipped:
            self._host.emit("skipped", queue=queue, id=id, worker=self._worker)
        for queue, id in answer.corrupt:
            self._host.emit("invalid_data", queue=queue, id=id, worker=self._worker)
        if answer.tick_at is not None:
            self._flow.tick_at(answer.tick_at, answer.now)
        if answer.limited:
            self._flow.limited(answer.limited)
        for queue, found in batches.items():
            turn = self._turns[queue]
            self._flow.claimed(turn.handler, found, turn.units, asked)
        return len(batches)
