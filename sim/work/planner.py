"""An operator of schedules: it creates, changes, pauses, triggers and removes them."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from penstock.errors import PenstockError
from penstock.model.clock import as_datetime
from penstock.model.schedule import OVERLAPS
from sim.declared import TICKS, draw_options, draw_when
from sim.work.client import Client

__all__ = ["Planner"]

#: The mean pause between two changes (seconds).
PAUSE = 4.0

#: The schedules: two that are made at run time, and those that the two versions of the code declare.
MADE, DECLARED = ("made0", "made1"), ("both", "only0", "only1")


#: The clock of the storage may be set back by as much (ms) while a schedule is resumed.
SET_BACK = 10_000


class Planner(Client):
    """Changes schedules as long as there are faults, lets them tick until the run heals, then pauses all of them."""

    async def run(self) -> None:
        """Change and read."""
        random, until = self.random, self.node.scheduler.now + self.shared.seconds
        with contextlib.suppress(PenstockError):
            await self._put(MADE[0])
        while not self.shared.stopping and self.node.scheduler.now < until:
            await asyncio.sleep(random.expovariate(1 / PAUSE))
            with contextlib.suppress(PenstockError, ValueError):  # one that code declares is not removed
                await self._operate(random.choice([*MADE, *MADE, *DECLARED]))
        await self._for_each("resume")
        while not self.shared.stopping:  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # nodes share no event
        await self._for_each("pause")
        self.shared.ticking = False

    @property
    def _schedules(self) -> Any:
        return self.app.queue(TICKS).schedules

    async def _put(self, name: str) -> None:
        options = draw_options(self.random)
        if self.random.random() < 0.2:
            now = await self._now()
            options |= {"start": as_datetime(now + 2500), "end": as_datetime(now + 2500 + self.random.randrange(60000))}
        await self._schedules.put(name, draw_when(self.random), at_once=self.random.random() < 0.2, **options)

    async def _now(self) -> int:
        return await (await self.app.opened()).time()

    async def _operate(self, name: str) -> None:
        random, schedules = self.random, self._schedules
        match random.randrange(16):
            case 13 | 14 | 15:
                await self._edit_at_tick(name)
            case 0 | 1:
                await (self._put(name) if name in MADE else schedules.reset(name))
            case 2 | 3:
                await schedules.edit(name, **self._changes())
            case 4:
                await schedules.pause(name, "planned")
            case 5 | 6:
                await (self._resume(name) if random.random() < 0.5 else schedules.resume(name, catch_up=True))
            case 7 | 8:
                await schedules.trigger(name, payload=1, overlap=random.choice([None, *OVERLAPS]))
            case 9:
                now = as_datetime(await self._now())
                await schedules.backfill(name, now - timedelta(seconds=20), now)
            case 10:
                await schedules.remove(name)
            case 11:
                await schedules.next(name, 2)
            case _:
                await schedules.list()

    async def _edit_at_tick(self, name: str) -> None:
        """Edit a schedule in the milliseconds around its next tick: it is decided once, and not before its time."""
        info = await self._schedules.get(name)
        if info is None or info.next_at is None:
            return
        wait = info.next_at.timestamp() - await self._now() / 1000
        if 0 < wait < 8:
            await asyncio.sleep(max(wait - 0.006 + 0.006 * self.random.random(), 0))
            await self._schedules.edit(name, **self._changes())

    async def _resume(self, name: str) -> None:
        """Resume a schedule, and check that no tick of its pause is to come; code may declare others meanwhile."""
        before = await self._now()
        if not await self._schedules.resume(name) or name not in MADE:
            return
        info = await self._schedules.get(name)
        earliest = as_datetime(min(before, await self._now()) - SET_BACK)
        if info is not None and info.next_at is not None and info.next_at < earliest:
            self.shared.fault(f"a resumed schedule makes up for its pause: {name} ticks next at {info.next_at}")

    def _changes(self) -> dict[str, Any]:
        """Draw some options to change."""
        options = {"when": draw_when(self.random), **draw_options(self.random)}
        return {name: options[name] for name in self.random.sample(sorted(options), 2)}

    async def _for_each(self, verb: str) -> None:
        """Pause or resume every schedule, again until none is left to change."""
        changed = True
        while changed:
            changed = False
            for info in await self.patient(lambda: self._schedules.list()):
                with contextlib.suppress(PenstockError):
                    changed = await getattr(self._schedules, verb)(info.name) or changed
