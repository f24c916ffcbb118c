"""A program that reserves jobs, and settles them in every way there is."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from penstock import LeaseLost
from penstock.errors import StorageError
from sim.behaviours import MAX_RESULT
from sim.work.client import Client

__all__ = ["Puller", "SlowPuller"]

KINDS = ["fail", "retry", "release", "extend", "drop", "large", "complete"]


class Puller(Client):
    """Reserves jobs of one queue until the run closes."""

    queue = "pull"
    #: The mean pause between two reservations (seconds).
    pause = 0.0
    #: The most jobs of a reservation, and how long it waits for the first (seconds).
    most, wait = 3, 8.0

    async def run(self) -> None:
        """Reserve jobs and settle each after a while."""
        random = self.random
        while not self.shared.closing:
            try:
                held = await self.app.queue(self.queue).reserve(random.randint(1, self.most), wait=self.wait, lease=3)
            except StorageError:
                await asyncio.sleep(1.0)
                continue
            while held:  # no variable keeps a reservation that is dropped: its lease must expire
                await asyncio.sleep(random.random() * 2 / len(held))
                await self._settle(held.pop(0))
            if self.pause:
                await asyncio.sleep(5.0 if self.shared.stopping else random.expovariate(1 / self.pause))

    async def _settle(self, reservation: Any) -> None:
        calm = self.shared.stopping or self.random.random() < 0.4
        kind = "complete" if calm else self.random.choice(KINDS)
        try:
            match kind:
                case "fail":
                    await reservation.fail(RuntimeError("drawn"))
                case "retry":
                    await reservation.retry(delay=1.0)
                case "release":
                    await reservation.release()
                case "extend":
                    await reservation.extend()
                    await reservation.complete("extended")
                case "drop":
                    pass
                case "large":
                    await self._complete_with_too_much(reservation)
                case _:
                    await reservation.complete("done")
        except LeaseLost:
            pass
        except StorageError:  # its traceback may keep the reservation, which is renewed as long as it lives
            with contextlib.suppress(LeaseLost):
                await self.patient(lambda: reservation.complete("after an error"))

    async def _complete_with_too_much(self, reservation: Any) -> None:
        """Complete with a result above `max_result`: it is refused, and the job can be settled otherwise."""
        try:
            await reservation.complete("x" * (MAX_RESULT + 1))
        except ValueError:
            await reservation.complete("shorter")
        else:
            self.shared.fault("a reservation took a result above max_result")


class SlowPuller(Puller):
    """Reserves now and then, so that jobs of its queue are due for long before a claim finds them."""

    queue = "slow"
    pause = 6.0
    most, wait = 12, 0.1
