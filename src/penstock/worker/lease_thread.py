"""A thread that keeps leases while the event loop of a worker is held up by a handler.

It has a connection of its own and does nothing as long as the loop renews in time. A handler that
holds the interpreter's lock holds this thread too: that is what child processes are for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.aio import drive
from penstock.claims import HeldClaim, renew_all
from penstock.errors import StorageError
from penstock.storage.base import BlockingStorage, Renewal

__all__ = ["LeaseThread"]

C = TypeVar("C", bound="HeldLease")

log = logging.getLogger("penstock.worker")


class HeldLease(HeldClaim, Protocol):
    """A claim that is held, and when the storage last confirmed it."""

    @property
    def confirmed(self) -> float: ...

    @confirmed.setter
    def confirmed(self, at: float, /) -> None: ...


class LeaseSource(Protocol[C]):
    """Who keeps leases on an event loop. `late` is asked from another thread."""

    @property
    def seconds(self) -> float: ...

    def late(self, since: float) -> list[C]: ...

    def renewed(self, leases: Sequence[C], answers: Sequence[Renewal], asked: float) -> None: ...


class LeaseThread:
    """Renews for a loop that is late; what the storage says of cancelled and lost claims waits for the loop."""

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
        #: From the clock by which the leases go, which is the event loop's own unless told, to this thread's.
        self._ahead = time.monotonic() - self._loop.time() if ahead is None else ahead
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock lease renewal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Let the thread end. Idempotent."""
        self._over.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        storage: BlockingStorage | None = None
        while not self._over.wait(self._leases.seconds / 6):
            try:
                leases = self._leases.late(self._now() - self._leases.seconds / 2)
                if not leases:
                    continue
                if storage is None:
                    storage = self._open_storage()
                    if storage is None:
                        return
                    drive(storage.open())
                lease_ms = round(self._leases.seconds * 1000)
                drive(renew_all(storage, self._worker, leases, lease_ms, self._renewed, self._now))
            except (StorageError, ValueError) as error:  # or a board was closed meanwhile
                log.debug("the heart could not renew: %s", error)
        if storage is not None and not storage.shares_connection:
            drive(storage.close())

    def _now(self) -> float:
        """Return the time on the clock of the leases."""
        return time.monotonic() - self._ahead

    def _renewed(self, leases: Sequence[HeldLease], answers: Sequence[Renewal], asked: float) -> None:
        """Confirm the leases in this thread, for the next look, and pass the answers to the event loop."""
        for lease, answer in zip(leases, answers, strict=True):
            if answer.kept:
                lease.confirmed = asked
        self._loop.call_soon_threadsafe(self._leases.renewed, leases, answers, asked)
