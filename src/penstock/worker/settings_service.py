"""The part of a worker that looks after settings of its queues: declares those of its code, and fires ticks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from penstock.host import AppHost
from penstock.worker.declarations import Declarations
from penstock.worker.declared_limits import DeclaredLimits
from penstock.worker.declared_schedules import DeclaredSchedules
from penstock.worker.loop import Loop
from penstock.worker.maintenance import Maintenance
from penstock.worker.outage import OutageLog
from penstock.worker.ticker import Ticker

__all__ = ["SettingsService"]


class SettingsService:
    """Two loops of a worker or of a supervisor, whose children have none: declarations, and ticks of schedules.

    `asked` gives the queues of the claims since its last call, those of children included.
    """

    def __init__(
        self,
        host: AppHost,
        worker: str,
        queues: Sequence[str],
        outage: OutageLog,
        maintenance: Maintenance,
        asked: Callable[[], Collection[str]] = lambda: (),
    ) -> None:
        self._queues = queues
        self._ticker = Ticker(host, worker, queues, asked)
        self._schedules = DeclaredSchedules(host, queues, self._ticker.foreign)
        self._limits = DeclaredLimits(host, queues)
        self._declarations = Declarations(host, worker, [self._schedules, self._limits], maintenance.started_at)
        self._ticking = Loop("ticks", self._ticker.step, outage, answers=lambda: self._ticker.rounds)
        self._declaring = Loop(
            "declarations", self._declarations.step, outage, answers=lambda: self._declarations.rounds
        )

    @property
    def declared(self) -> bool:
        """Whether the settings of the code are declared: no claim may come before."""
        return self._declarations.declared

    async def declare(self) -> None:
        """Declare the settings of the code."""
        await self._declarations.look()

    def loops(self, *, ticks: bool = True) -> list[Loop]:
        """Return the loops to start; without that of ticks for a drain, which fires them itself."""
        return [self._declaring, self._ticking] if ticks else [self._declaring]

    def tick_at(self, at: int, now: int | None) -> None:
        """Have the ticker look at this time (ms) at the latest: an answer to a claim named it, and the time."""
        self._schedules.noticed = True
        if self._ticker.notice(at, now):
            self._ticking.wake()

    def limited(self, queues: Sequence[str] | None = None) -> None:
        """Look after the limits of these queues, or of all: an answer to a claim named them."""
        self._limits.limited.update(self._queues if queues is None else queues)

    @property
    def has_ticks(self) -> bool:
        """Whether a queue has a schedule with a next tick, as far as is known."""
        return self._ticker.active

    async def fire_due(self) -> int:
        """Fire the ticks that are due; returns the number of their schedules."""
        return await self._ticker.fire_due()

    async def stop(self) -> None:
        """End the loops."""
        await self._ticking.stop()
        await self._declaring.stop()
