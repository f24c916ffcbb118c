"""An operator of limits: it changes and resets them, and pauses groups and queues."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from functools import partial
from typing import Any

from penstock import EVERY
from penstock.errors import PenstockError
from penstock.model.clock import as_datetime
from sim.declared import FAMILY, LIMITED, draw_limit
from sim.work.client import Client
from sim.work.tenant import GROUPS

__all__ = ["Limiter"]

#: The mean pause between two changes (seconds).
PAUSE = 2.5

#: The queues whose limits are changed: one of them is deleted at times, with its settings.
CHANGED = (*LIMITED, "temp", "pull")


class Limiter(Client):
    """Changes limits as long as there are faults, and then undoes all that it has changed."""

    async def run(self) -> None:
        """Change, read and pause."""
        until = self.node.scheduler.now + self.shared.seconds
        #: The scopes whose limits were changed, and the places that were paused.
        self._changed: dict[tuple[str, Any], None] = {}
        self._paused: dict[tuple[str, str | None], None] = {}
        while not self.shared.stopping and self.node.scheduler.now < until:
            await asyncio.sleep(self.random.expovariate(1 / PAUSE))
            with contextlib.suppress(PenstockError):
                await self._operate()
        await self._undo()

    async def _operate(self) -> None:
        random = self.random
        queue = random.choice(CHANGED)
        chosen, group = self.app.queue(queue), random.choice(GROUPS)
        scope: Any = random.choice([None, EVERY, group])
        match random.randrange(12):
            case 0 | 1 | 2 | 3:
                self._changed[queue, scope] = None
                await chosen.set_limit(draw_limit(random, queue, group=scope is not None), group=scope)
            case 4:
                await self.app.set_limit(FAMILY, draw_limit(random, FAMILY))
            case 5:
                await chosen.reset_limit(scope)
            case 6:
                await self.app.reset_limit(FAMILY)
            case 7:
                self._paused[queue, group] = None
                await chosen.pause(group, await self._soon() if random.random() < 0.6 else None, by="limiter")
            case 8:
                self._paused[queue, None] = None
                await chosen.pause(until=await self._soon())
            case 9:
                await chosen.resume(random.choice([None, group]))
            case 10:
                await chosen.limits()
            case _:
                await chosen.limit(scope)

    async def _soon(self) -> datetime:
        """Return a time some seconds ahead, by the storage's clock."""
        return as_datetime(await (await self.app.opened()).time() + round(8000 * self.random.random()))

    async def _undo(self) -> None:
        """Reset all limits and end all pauses, so that every job can start."""
        for queue, scope in self._changed:
            await self.patient(partial(self.app.queue(queue).reset_limit, scope))
        for queue, group in self._paused:
            await self.patient(partial(self.app.queue(queue).resume, group))
        await self.patient(lambda: self.app.reset_limit(FAMILY))
