"""Reserved jobs: user code holds and settles them, and their leases are renewed in the background."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from penstock.errors import LeaseLost, StorageError
from penstock.model.clock import Span, milliseconds, span_ms
from penstock.model.context import Cancellation, JobInfo
from penstock.model.job import Claim, State
from penstock.model.options import HandlerOptions
from penstock.model.outcome import Failed, Outcome, Released, Resolution, Returned, raised
from penstock.model.serde import Serde, check_result, encode
from penstock.storage.base import ClaimRef, Settled, Settlement

__all__ = ["Reservation"]


class Manager(Protocol):
    """The `ReservationManager`, as one of its reservations sees it: the manager is built on `Reservation`."""

    @property
    def max_result(self) -> int: ...

    async def settle(self, reservation: Reservation, rules: HandlerOptions, outcome: Outcome) -> Settled: ...

    async def renew(self, reservation: Reservation) -> bool: ...

    def lose(self, reservation: Reservation) -> None: ...


class Reservation(JobInfo):
    """A job that is held until `complete`, `fail`, `retry` or `release`, each of which returns the state it led to.

    Its lease is renewed in the background for as long as the object exists. To settle it again with
    the same outcome changes nothing; with another one, or after the lease was lost, it raises
    `LeaseLost`. At the end of an `async with reservation:` block it is completed with None unless it was
    settled inside. An exception in the block fails it as if a handler had raised it, and is raised
    again; a cancelled task, Ctrl-C and the like release it. It has no timeout, only the lease.
    """

    def __init__(
        self, claim: Claim, payload: Any, rules: HandlerOptions, results: Serde, manager: Manager, lease_ms: int
    ) -> None:
        super().__init__(claim)
        self.payload = payload
        #: Set when a cancel of the job was requested, or the lease was lost: test it (`if`) or await it.
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
        """Whether its outcome is recorded."""
        return self._settled is not None

    @property
    def busy(self) -> bool:
        """Whether its outcome is being recorded now."""
        return self._settling.locked()

    @property
    def claim(self) -> Claim:
        """The claim of the reservation."""
        return self._claim

    @property
    def ref(self) -> ClaimRef:
        """The claim as the storage names it."""
        return ClaimRef(self.queue, self.id, self.fence)

    async def complete(self, result: Any = None) -> State:
        """Complete the job with this result; raises `InvalidPayload` if it is larger than the app's `max_result`."""
        data = check_result(encode(self._results, result, "result"), self._manager.max_result)
        return await self._settle(("complete", data), Returned(data))

    async def fail(self, error: Exception | str) -> State:
        """Fail the run as if a handler had raised the error: the job is retried unless its retries are used up.

        A permanent error fails the job at once.
        """
        failed = Outcome.fail(error)
        assert isinstance(failed, Failed)
        outcome = raised(failed.error, self._rules.permanent)
        record = outcome.error
        return await self._settle(("fail", record.type, record.message, record.kind), outcome)

    async def retry(
        self,
        *,
        at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        pause: Literal["group", "queue"] | None = None,
    ) -> State:
        """Run the job again: at a time, after a delay, or after the usual backoff. It counts as a retry.

        With `pause` no other job of its group, or of its queue, starts until then.
        """
        outcome = Outcome.retry(at=at, delay=delay, pause=pause)
        due = None if at is None else milliseconds(at, "at")
        asked = (due, None if delay is None else span_ms(delay, "delay"), pause)
        return await self._settle(("retry", *asked), outcome)

    async def release(self) -> State:
        """Give the job back at its position, as if it had not been reserved."""
        return await self._settle(("release",), Released())

    async def extend(self, lease: Span | None = None) -> None:
        """Renew the lease now; a given length also holds for later renewals."""
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
        with contextlib.suppress(LeaseLost, StorageError):  # the exception of the block is the one to raise
            await (self.fail(error) if isinstance(error, Exception) else self.release())

    async def _settle(self, wanted: tuple[object, ...], outcome: Outcome) -> State:
        async with self._settling:
            if (state := self._check(wanted)) is not None:
                return state
            answer = await self._manager.settle(self, self._rules, outcome)
            if answer.lost or answer.state is None:
                self._manager.lose(self)
                raise self._gone()
            self.mark_settled(wanted, answer.state)
            return answer.state

    def mark_settled(self, settled: tuple[object, ...], state: State) -> None:
        """Remember the outcome that was recorded, and the state it led to."""
        self._settled, self._state = settled, state

    def settlement(self, resolution: Resolution) -> Settlement:
        """Build the settlement that records this resolution."""
        return Settlement(self.queue, self.id, self.fence, resolution)

    def _check(self, wanted: tuple[object, ...] | None) -> State | None:
        """Return the state if it was settled with this outcome, None if it is not settled; else raise `LeaseLost`."""
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
        """Build the exception for a claim that is no longer held."""
        return LeaseLost(
            f"job {self.id!r} in queue {self.queue!r} is no longer held: its lease ran out or the queue was deleted; "
            "nothing was changed, and the job may run elsewhere"
        )
