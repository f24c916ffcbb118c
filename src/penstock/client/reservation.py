"""Jobs that are pulled: held by whoever reserved them, kept alive in the background until settled."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.errors import LeaseLost, StorageError
from penstock.model.clock import Span, milliseconds, span_ms
from penstock.model.context import Cancellation, JobInfo
from penstock.model.job import Claim, State
from penstock.model.options import HandlerOptions
from penstock.model.outcome import Outcome, Raised, Released, Resolution, Returned, resolve
from penstock.model.serde import Serde, encode
from penstock.storage.base import ClaimRef, Settled, Settlement

__all__ = ["Reservation"]


class Manager(Protocol):
    """The `ReservationManager`, as one of its reservations sees it: the manager is built on `Reservation`."""

    async def settle(self, reservation: Reservation, outcome: Outcome, end: Resolution) -> Settled: ...

    async def renew(self, reservation: Reservation) -> bool: ...

    def lose(self, reservation: Reservation) -> None: ...


class Reservation(JobInfo):
    """A job that is held until `complete`, `fail`, `retry` or `release`, each of which gives the state it led to.

    Its lease is renewed in the background for as long as the object is there. Settling it again with
    the same outcome changes nothing; with any other one, or after the lease was lost, it raises
    `LeaseLost`. As `async with reservation:` it is completed with None at the end of the block unless
    it was settled inside; an exception fails it as if a handler had raised it, and goes on; a
    cancelled task, Ctrl-C and the like release it. No timeout bounds it: the lease does.
    """

    def __init__(
        self, claim: Claim, payload: Any, rules: HandlerOptions, results: Serde, manager: Manager, lease_ms: int
    ) -> None:
        super().__init__(claim)
        self.payload = payload
        #: Set when somebody asked to cancel the job, or the lease was lost: `if reservation.cancelled`, or await it.
        self.cancelled = Cancellation()
        self.lease_ms = lease_ms
        self.lost = False
        self._rules = rules
        self._results = results
        self._manager = manager
        self._settling = asyncio.Lock()
        self._settled: tuple[object, ...] | None = None
        self._state: State | None = None

    @property
    def settled(self) -> bool:
        """Whether its end is recorded."""
        return self._settled is not None

    @property
    def busy(self) -> bool:
        """Whether its end is being recorded just now."""
        return self._settling.locked()

    @property
    def claim(self) -> Claim:
        """The claim behind it."""
        return self._claim

    @property
    def ref(self) -> ClaimRef:
        """The claim as the storage names it."""
        return ClaimRef(self.queue, self.id, self.fence)

    async def complete(self, result: Any = None) -> State:
        """The job is done, with this result."""
        data = encode(self._results, result, "result")
        return await self._settle(("complete", data), Returned(data))

    async def fail(self, error: Exception | str) -> State:
        """As if a handler had raised the error: the job is retried, unless that is permanent or was the last time."""
        outcome = Outcome.fail(error)
        assert isinstance(outcome, Raised)
        record = outcome.error
        return await self._settle(("fail", record.type, record.message, record.kind), outcome)

    async def retry(self, *, at: datetime | float | None = None, delay: timedelta | float | None = None) -> State:
        """Run the job again: at a time, after a delay, or after the usual backoff. It counts as a retry."""
        asked = (None if at is None else milliseconds(at, "at"), None if delay is None else span_ms(delay, "delay"))
        return await self._settle(("retry", *asked), Outcome.retry(at=at, delay=delay))

    async def release(self) -> State:
        """Give the job back to its place, as if it had not been reserved."""
        return await self._settle(("release",), Released())

    async def extend(self, lease: Span | None = None) -> None:
        """Renew the lease now, from now on with this length if one is given."""
        if lease is not None:
            self.lease_ms = span_ms(lease, "lease", zero=False)
        self._check(None)
        if not await self._manager.renew(self):
            raise self._gone()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.settled:
            return
        if error is None:
            await self.complete()
            return
        with contextlib.suppress(LeaseLost, StorageError):  # the exception that is on its way says more
            await (self.fail(error) if isinstance(error, Exception) else self.release())

    async def _settle(self, wanted: tuple[object, ...], outcome: Outcome) -> State:
        async with self._settling:
            if (state := self._check(wanted)) is not None:
                return state
            answer = await self._manager.settle(self, outcome, resolve(self._claim, self._rules, outcome))
            if answer.lost or answer.state is None:
                self._manager.lose(self)
                raise self._gone()
            self.mark_settled(wanted, answer.state)
            return answer.state

    def mark_settled(self, settled: tuple[object, ...], state: State) -> None:
        """Remember how it was settled."""
        self._settled, self._state = settled, state

    def settlement(self, end: Resolution) -> Settlement:
        """The settlement that ends this run so."""
        return Settlement(self.queue, self.id, self.fence, end)

    def _check(self, wanted: tuple[object, ...] | None) -> State | None:
        """The state when it was settled just so; an exception when it can be settled no more."""
        if self._settled is not None:
            if self._settled == wanted:
                return self._state
            raise LeaseLost(
                f"job {self.id!r} in queue {self.queue!r} was settled before ({self._settled[0]}): nothing was changed"
            )
        if self.lost:
            raise self._gone()
        return None

    def _gone(self) -> LeaseLost:
        return LeaseLost(
            f"job {self.id!r} in queue {self.queue!r} is no longer held: its lease ran out or the queue was deleted; "
            "nothing was changed, and the job may run elsewhere"
        )
