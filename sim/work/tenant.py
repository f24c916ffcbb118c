"""A producer for the queues with limits: groups and costs; and for ids with windows and debounced ones."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import Entry
from sim.declared import LIMITED
from sim.work.client import Client

__all__ = ["GROUPS", "Tenant"]

#: The groups of the queues with limits.
GROUPS = ("a", "b", "c")

#: The ids with windows, and those that are debounced.
IDS = 3


class Tenant(Client):
    """Puts jobs of several groups together, and a few ids again and again."""

    async def run(self) -> None:
        """Put as many jobs as all producers together."""
        random, left = self.random, self.shared.jobs
        pause = left / (0.75 * self.shared.seconds) / 2.5
        while left > 0 and not self.shared.stopping:
            await asyncio.sleep(random.expovariate(pause))
            if random.random() < 0.3:
                await self._put_id()
                left -= 1
            else:
                left -= await self._put_many()

    async def _put_many(self) -> int:
        random, queue = self.random, self.random.choice(LIMITED)
        entries: list[Any] = [
            Entry({"n": number}, group=self._group(queue), cost=random.choice([1, 1, 2, 9]))
            for number in range(random.randint(1, 6))
        ]
        answer = await self.patient(lambda: self.app.queue(queue).enqueue_many(entries), 2)
        if answer is not None:
            self.shared.ids.setdefault(queue, []).extend(each.id for each in answer)
        return len(entries)

    def _group(self, queue: str) -> str | None:
        """Draw a group; in some queues there are jobs without one."""
        without = queue not in ("strict", "tenant") and self.random.random() < 0.3
        return None if without else self.random.choice(GROUPS)

    async def _put_id(self) -> None:
        random = self.random
        options: dict[str, Any] = {"id": f"window{random.randrange(IDS)}", "window": random.choice([4, 15])}
        options["on_conflict"] = random.choice(["reject", "reject", "update"])
        drawn = random.random()
        if drawn < 0.4:
            options = {"id": f"last{random.randrange(IDS)}", "debounce": 2, "max_wait": random.choice([None, 4])}
        elif drawn < 0.6:
            options["result_ttl"] = 0
        if random.random() < 0.1:
            options["delay" if "window" in options else "window"] = 3
        answer = await self.patient(lambda: self.app.queue("keyed").enqueue({}, **options), 2)
        if answer is not None:
            self.shared.ids.setdefault("keyed", []).append(answer.id)
