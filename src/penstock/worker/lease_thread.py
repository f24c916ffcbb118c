"""A thread that renews leases while a handler blocks the event loop of its worker.

It has a connection of its own and does nothing as long as the loop renews in time. A handler that
holds the interpreter's lock blocks this thread too; only child processes help against that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.aio import drive
from penstock.claims import HeldClaim, renew_all
from penstock.errors import StorageError
from penstock.model.printing import escape_controls
from penstock.model.source import source
from penstock.storage.base import BlockingStorage, Renewal

__all__ = ["LeaseThread"]

log = logging.getLogger("penstock.worker")


class HeldLease(HeldClaim, Protocol):
    """A held claim, with the time at which the storage last confirmed it."""

    @property
    def confirmed(self) -> float: ...

    @confirmed.setter
    def confirmed(self, at: float, /) -> None: ...


C = TypeVar("C", bound=HeldLease)


class LeaseSource(Protocol[C]):
    """The part that renews leases on an event loop: `Leases` or `LeaseRenewer`. `late` is called by this thread."""

    @property
    def seconds(self) -> float: ...

    def late(self, since: float) -> list[C]: ...

    def renewed(self, claims: Sequence[C], answers: Sequence[Renewal], asked: float, /) -> None: ...


class LeaseThread:
    """Renews the leases of a blocked event loop; the loop applies the answers when it runs again."""

    def __init__(
        self,
        leases: LeaseSource[Any],
        worker: str,
        open_storage: Callable[[], BlockingStorage | None],
        ahead: float | None = None,
    ) -> None:
        self._leases = leases
        self._worker = worker
        self._open_storage = open_storage
        self._loop = asyncio.get_running_loop()
        #: The offset from the clock of the leases, by default the event loop's, to the monotonic clock.
        self._ahead = source.monotonic() - self._loop.time() if ahead is None else ahead
        self._storage: BlockingStorage | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock lease renewal", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """Let the thread end, and wait for it. Idempotent."""
        self._over.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    @property
    def interval(self) -> float:
        """The seconds between two looks for late leases."""
        return self._leases.seconds / 6

    def _run(self) -> None:
        while not self._over.wait(self.interval):
            if not drive(self.renew_late()):
                return
        if self._storage is not None and not self._storage.shares_connection:
            drive(self._storage.close())

    async def renew_late(self) -> bool:
        """Renew the leases that the event loop has not renewed in time; False if this thread can have no storage."""
        try:
            claims = self._leases.late(self._now() - self._leases.seconds / 2)
            if not claims:
                return True
            if self._storage is None:
                storage = self._open_storage()
                if storage is None:
                    return False
                self._storage = storage
                await storage.open()
            lease_ms = round(self._leases.seconds * 1000)
            await renew_all(self._storage, self._worker, claims, lease_ms, self._renewed, self._now)
        except (StorageError, ValueError) as error:  # ValueError: the claim table of a dead child was closed
            log.debug("the lease thread could not renew: %s", escape_controls(str(error)))
        return True

    def _now(self) -> float:
        """Return the time on the clock of the leases."""
        return source.monotonic() - self._ahead

    def _renewed(self, claims: Sequence[HeldLease], answers: Sequence[Renewal], asked: float) -> None:
        """Confirm the leases here, so that they are not late at the next look, and pass the answers to the loop."""
        for claim, answer in zip(claims, answers, strict=True):
            if answer.kept:
                claim.confirmed = asked
        self._loop.call_soon_threadsafe(self._leases.renewed, claims, answers, asked)
