"""The reservations of one app: claimed here, renewed by one task, released when the app closes.

A queue may be served by reservations alone, so they also reap and purge their queue and fire the ticks of its
schedules, as a worker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Sequence

from penstock.claims import Ending, Purger, emit_settled, reap_all, renew_all, settle_all
from penstock.client.reservation import Reservation
from penstock.errors import ErrorKind, InvalidPayload, StorageError
from penstock.host import AppHost
from penstock.model.fingerprint import error_of
from penstock.model.hooks import Exchange, Within
from penstock.model.ids import new_token
from penstock.model.job import Claim
from penstock.model.options import HandlerOptions, JobBounds, rules_for
from penstock.model.outcome import Outcome, Raised, Release, Released, stalled_out
from penstock.model.printing import escape_controls
from penstock.model.retry_policy import GiveUp, decide
from penstock.model.serde import decode
from penstock.model.source import source
from penstock.storage.base import MAX_BATCH, Claimed, Renewal, Request, Settled, Settlement
from penstock.ticking import TickFirer

__all__ = ["ReservationManager"]

log = logging.getLogger("penstock")

#: How many calls of purge one look for jobs makes at most: a large number of expired jobs must not delay it.
PURGE_CALLS = 4

#: How often (seconds) a waiting `reserve` looks for work even if no hint comes.
SLOW_POLL = 5.0


class ReservationManager:
    """Claims jobs for reservations and renews their leases. The lease of a reservation that is garbage expires."""

    def __init__(self, host: AppHost) -> None:
        self._host = host
        self.worker = f"{source.host()}-{source.pid()}-reserve-{source.bytes(4).hex()}"
        #: In the order of their claims, which is that of a renewal.
        self._held: weakref.WeakKeyDictionary[Reservation, None] = weakref.WeakKeyDictionary()
        self._renewed: weakref.WeakKeyDictionary[Reservation, float] = weakref.WeakKeyDictionary()
        self._renewing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._purger = Purger(host)
        self._firer = TickFirer(host, self.worker)
        #: The queues that had a schedule with a next tick when they were last claimed from.
        self._with_ticks: set[str] = set()

    # reserving -------------------------------------------------------------------------------------

    async def reserve(self, queue: str, limit: int, wait: float, lease_ms: int) -> list[Reservation]:
        """Reserve up to `limit` jobs as soon as there is one; returns none after `wait` seconds."""
        if not (hooks := self._host.hooks.reserve):
            return await self._reserve(queue, limit, wait, lease_ms)
        exchange = Exchange("reserve", queue=queue)
        with Within(hooks, exchange):
            got = await self._reserve(queue, limit, wait, lease_ms)
            exchange.claims = [each.claim for each in got]
        return got

    async def _reserve(self, queue: str, limit: int, wait: float, lease_ms: int) -> list[Reservation]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        storage = await self._host.opened()
        got: list[Reservation] = []
        try:
            while True:
                await reap_all(self._host, [queue])
                await self._purger.purge_due([queue], PURGE_CALLS)
                looks = [
                    await self._fill(queue, limit, lease_ms, got),
                    await self._fire_due(queue, limit, lease_ms, got),
                ]
                left = deadline - loop.time()
                if got or left <= 0:
                    return got
                timeout = min(left, SLOW_POLL)
                if any(look_at is not None for look_at in looks):
                    look_at = min(look_at for look_at in looks if look_at is not None)
                    timeout = min(timeout, max(look_at - await storage.time(), 0) / 1000)
                await storage.wait_work([queue], timeout)
        except BaseException:
            await self._release(got)
            raise

    async def _fill(self, queue: str, limit: int, lease_ms: int, got: list[Reservation]) -> int | None:
        """Claim until `limit` jobs are reserved or none is left; jobs that must not run are failed.

        Returns when to look again (ms on the storage's clock), None if there is no such time.
        """
        while True:
            wanted = limit - len(got)
            asked = asyncio.get_running_loop().time()
            claimed = await self._claim(Request(queue, wanted), lease_ms)
            (self._with_ticks.discard if claimed.tick_at is None else self._with_ticks.add)(queue)
            for _, id in claimed.skipped:
                self._host.emit("skipped", queue=queue, id=id, worker=self.worker)
            for _, id in claimed.corrupt:
                self._host.emit("invalid_data", queue=queue, id=id, worker=self.worker)
            refused: list[Ending] = []
            for claim in claimed.claims:
                self._emit("started", claim)
                rules = rules_for(self._host.options(queue), JobBounds.decode(claim.bounds))
                reserved = self._reservation(claim, rules, lease_ms)
                if isinstance(reserved, Reservation):
                    self._hold(reserved, asked)
                    got.append(reserved)
                else:
                    refused.append(Ending(claim, rules, reserved))
            await self._refuse(refused)
            if len(got) >= limit or (len(claimed.claims) < wanted and not refused and not claimed.more):
                return claimed.look_at

    async def _fire_due(self, queue: str, limit: int, lease_ms: int, got: list[Reservation]) -> int | None:
        """Fire the due ticks of the queue, and reserve their jobs if there is room; returns when to look again."""
        if queue not in self._with_ticks:
            return None
        before = self._firer.fired
        look_at = await self._firer.fire_due([queue])
        if self._firer.fired > before and len(got) < limit:
            await self._fill(queue, limit, lease_ms, got)
        return look_at

    async def _claim(self, request: Request, lease_ms: int) -> Claimed:
        """Claim jobs; if the caller is cancelled meanwhile, the claimed jobs are released."""
        storage = self._host.storage
        task = asyncio.ensure_future(storage.claim([request], self.worker, lease_ms, new_token()))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            with contextlib.suppress(StorageError):
                claims = (await task).claims
                await storage.settle([Settlement(c.queue, c.id, c.token, Release()) for c in claims])
            raise

    def _reservation(self, claim: Claim, rules: HandlerOptions, lease_ms: int) -> Reservation | Outcome:
        """Return the reservation of a claim, or the outcome of a job that must not be reserved."""
        decision = decide(claim, rules, None)
        if isinstance(decision, GiveUp):
            return stalled_out(decision.reason)
        codec = self._host.codec(claim.queue)
        try:
            payload = decode(codec.payload_for(claim.id), claim.payload, self._host.payload_type(claim.queue))
        except InvalidPayload as error:
            return Raised(error_of(error, ErrorKind.PERMANENT), invalid=True)
        return Reservation(claim, payload, rules, codec.result_for(claim.id), self, lease_ms)

    async def _refuse(self, refused: Sequence[Ending]) -> None:
        """Settle claims that must not be reserved."""
        if refused:
            settled, answers, error = await settle_all(self._host.storage, refused, hooks=self._host.hooks.settle)
            for each, answer in zip(settled, answers, strict=True):
                self._emit_settled(each, answer)
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # see below

    @property
    def max_result(self) -> int:
        """The largest result of the app, in bytes."""
        return self._host.max_result

    # settling --------------------------------------------------------------------------------------

    async def settle(self, reservation: Reservation, rules: HandlerOptions, outcome: Outcome) -> Settled:
        """Record the outcome of a reservation; returns the storage's answer."""
        ending = Ending(reservation.claim, rules, outcome)
        _, answers, error = await settle_all(self._host.storage, [ending], hooks=self._host.hooks.settle)
        if error is not None:
            try:
                raise error
            finally:
                del error  # or its traceback and this frame would keep each other, and the reservation, alive
        [answer] = answers
        if not answer.lost:
            self._drop(reservation)
            self._emit_settled(ending, answer)
        return answer

    def _emit_settled(self, ending: Ending, answer: Settled) -> None:
        resolution = ending.settlement.resolution
        emit_settled(self._host, self.worker, ending.claim, ending.outcome, resolution, answer)

    def lose(self, reservation: Reservation) -> None:
        """Mark a reservation as lost and cancel it: the job may run elsewhere by now."""
        if not reservation.lost:
            reservation.lost = True
            reservation.cancelled.request()
            self._drop(reservation)
            self._emit("lease_lost", reservation.claim)

    async def close(self) -> None:
        """Release every reservation that is not settled."""
        task, self._renewing = self._renewing, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._release(list(self._held))

    async def _release(self, reservations: Sequence[Reservation]) -> None:
        left = [each for each in reservations if not each.settled and not each.lost]
        for start in range(0, len(left), MAX_BATCH):
            batch = left[start : start + MAX_BATCH]
            with contextlib.suppress(StorageError):  # a lease that cannot be released expires
                answers = await self._host.storage.settle([each.settlement(Release()) for each in batch])
                for each, answer in zip(batch, answers, strict=True):
                    if answer.state is None:
                        self.lose(each)
                    else:
                        each.mark_settled(("release",), answer.state)
                        each.cancelled.request()
                        self._drop(each)
                        emit_settled(self._host, self.worker, each.claim, Released(), Release(), answer)

    # renewing --------------------------------------------------------------------------------------

    def _hold(self, reservation: Reservation, asked: float) -> None:
        self._held[reservation] = None
        self._renewed[reservation] = asked
        self._changed.set()
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew_held(), name="penstock-reservations")

    def _drop(self, reservation: Reservation) -> None:
        self._held.pop(reservation, None)
        self._changed.set()

    async def renew(self, reservation: Reservation) -> bool:
        """Renew a reservation now; False if it is lost."""
        await self._renew([reservation], reservation.lease_ms)
        self._changed.set()
        return not reservation.lost

    async def _renew_held(self) -> None:
        """Renew each reservation every third of its lease, until none is held."""
        while self._held:
            self._changed.clear()
            try:
                rest = await self._renew_due()
            except StorageError as error:
                log.warning("the leases of reservations cannot be renewed now: %s", escape_controls(str(error)))
                rest = self._unconfirmed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._changed.wait()

    async def _renew_due(self) -> float:
        """Renew the reservations that are due; returns the seconds until the next one is."""
        loop = asyncio.get_running_loop()
        by_lease: dict[int, list[Reservation]] = {}
        for each in list(self._held):
            if self._next(each) <= loop.time() and not each.busy:
                by_lease.setdefault(each.lease_ms, []).append(each)
        for lease_ms, due in by_lease.items():
            await self._renew(due, lease_ms)
        first = min((self._next(each) for each in list(self._held) if not each.busy), default=loop.time() + 1)
        return max(first - loop.time(), 0.001)

    def _next(self, reservation: Reservation) -> float:
        return self._renewed[reservation] + reservation.lease_ms / 3000

    async def _renew(self, reservations: Sequence[Reservation], lease_ms: int) -> None:
        clock = asyncio.get_running_loop().time
        await renew_all(self._host.storage, self.worker, reservations, lease_ms, self._answered, clock)

    def _answered(self, reservations: Sequence[Reservation], answers: Sequence[Renewal], asked: float) -> None:
        for each, answer in zip(reservations, answers, strict=True):
            if each.settled:
                continue
            if answer.kept:
                self._renewed[each] = asked
                if answer.cancel in ("signal", "kill"):
                    each.cancelled.request()
            elif not each.busy:  # while it is being settled, the claim may be gone because that was recorded
                self.lose(each)

    def _unconfirmed(self) -> float:
        """Cancel the reservations whose lease has expired by this clock; returns the seconds until the next try.

        They are lost only when the storage answers so.
        """
        now = asyncio.get_running_loop().time()
        for each in list(self._held):
            if self._renewed[each] + each.lease_ms / 1000 <= now:
                each.cancelled.request()
        return min((each.lease_ms for each in list(self._held)), default=1000) / 6000

    def _emit(self, name: str, claim: Claim) -> None:
        self._host.emit(name, queue=claim.queue, id=claim.id, attempt=claim.attempts, worker=self.worker)
