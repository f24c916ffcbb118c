"""A producer for a queue that is served now and then: its jobs are due for long before a claim finds them."""

from __future__ import annotations

import asyncio
from typing import Any

from sim.work.client import Client

__all__ = ["Latecomer"]

#: The mean pause between two puts (seconds).
PAUSE = 1.2


class Latecomer(Client):
    """Puts delayed jobs, and other jobs after these are due."""

    async def run(self) -> None:
        """Put jobs as long as there are faults."""
        random, until = self.random, self.node.scheduler.now + self.shared.seconds
        while not self.shared.stopping and self.node.scheduler.now < until:
            await asyncio.sleep(random.expovariate(1 / PAUSE))
            drawn = random.random()
            options: dict[str, Any] = {}
            if drawn < 0.4:
                options = {"delay": random.choice([0.2, 0.5, 1.0])}
            elif drawn < 0.55:
                options = {"group": random.choice("pq")}
            put = await self.patient(lambda: self.app.queue("slow").enqueue({}, **options), 1)  # noqa: B023
            if put is not None:
                self.shared.ids.setdefault("slow", []).append(put.id)
