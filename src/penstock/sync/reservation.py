"""Reservations without `await`."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self

from penstock.client.reservation import Reservation as AsyncReservation
from penstock.model.clock import Span
from penstock.model.context import Cancellation, JobInfo
from penstock.model.job import State
from penstock.sync.backends import SyncBackends

__all__ = ["Reservation"]


class Reservation(JobInfo):
    """A job that is held until `complete`, `fail`, `retry` or `release`, each of which returns its new state.

    Its lease is renewed on the background thread for as long as the object is there. Settling it again
    with the same outcome changes nothing; with any other one, or after the lease was lost, it raises
    `LeaseLost`. As `with reservation:` it is completed with None at the end of the block unless it was
    settled inside; an exception fails it as if a handler had raised it, and goes on; Ctrl-C and the
    like release it. No timeout bounds it: the lease does.
    """

    def __init__(self, backends: SyncBackends, reservation: AsyncReservation) -> None:
        super().__init__(reservation.claim)
        self.payload = reservation.payload
        self._backends = backends
        self._async_reservation = reservation

    @property
    def cancelled(self) -> Cancellation:
        """True when the cancellation of the job was requested, or the lease was lost."""
        return self._async_reservation.cancelled

    @property
    def lost(self) -> bool:
        """Whether the lease expired, so that the job may run elsewhere."""
        return self._async_reservation.lost

    @property
    def settled(self) -> bool:
        """Whether its outcome is recorded."""
        return self._async_reservation.settled

    def complete(self, result: Any = None) -> State:
        """Complete the job with this result; raises `InvalidPayload` if it is larger than the app's `max_result`."""
        return self._backends.run_on_loop(self._async_reservation.complete(result))

    def fail(self, error: Exception | str) -> State:
        """Fail the run as if a handler had raised the error: the job is retried unless it has no retries left."""
        return self._backends.run_on_loop(self._async_reservation.fail(error))

    def retry(
        self,
        *,
        at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        pause: Literal["group", "queue"] | None = None,
    ) -> State:
        """Run the job again: at a time, after a delay, or after the usual backoff. It counts as a retry.

        With `pause` no other job of its group, or of its queue, starts until then.
        """
        return self._backends.run_on_loop(self._async_reservation.retry(at=at, delay=delay, pause=pause))

    def release(self) -> State:
        """Release the job to its position in the queue, as if it had not been reserved."""
        return self._backends.run_on_loop(self._async_reservation.release())

    def extend(self, lease: Span | None = None) -> None:
        """Renew the lease now, from now on with this length if one is given."""
        self._backends.run_on_loop(self._async_reservation.extend(lease))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._backends.run_on_loop(self._async_reservation.__aexit__(kind, error, trace))
