"""A program that updates its jobs again and again: groups, priorities, times, and successors of runs."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock import Update
from sim.work.client import Client

__all__ = ["Updater"]

#: The number of ids that are updated.
IDS = 4


class Updater(Client):
    """Puts a few ids over and over, each time with another group or priority."""

    async def run(self) -> None:
        """Put as often as there are jobs."""
        random, left = self.random, self.shared.jobs
        pause = left / (0.8 * self.shared.seconds)
        while left > 0 and not self.shared.stopping:
            await asyncio.sleep(random.expovariate(pause))
            left -= 1
            id, options = f"moved{random.randrange(IDS)}", self._options()
            for _ in range(random.choice([1, 1, 2])):
                try:
                    put = await self.patient(lambda: self.app.queue("moved").enqueue({"n": left}, id=id, **options), 2)  # noqa: B023
                except ValueError:  # it would have a group and a priority
                    continue
                if put is not None and id not in self.shared.ids.setdefault("moved", []):
                    self.shared.ids["moved"].append(id)
                options = self._options()

    def _options(self) -> dict[str, Any]:
        random = self.random
        if random.random() < 0.25:  # a job in backoff may expire again
            return {"expires": random.choice([0.3, 1.0]), "on_conflict": Update(run_at=False, reset_counts=True)}
        options: dict[str, Any] = {"on_conflict": self._update()}
        drawn = random.random()
        if drawn < 0.6:
            options["group"] = random.choice("ab")
        elif drawn < 0.8:
            options["priority"] = random.choice([-1, 1, 5])
        if random.random() < 0.3:
            options["delay"] = random.choice([0.3, 1.0, 4.0])
        if random.random() < 0.15:
            options["expires"] = random.choice([1.0, 5.0])
        if random.random() < 0.3:
            options["result_ttl"] = random.choice([0, 0, 30])
        return options

    def _update(self) -> Update:
        random = self.random
        return Update(
            payload=random.random() < 0.5,
            run_at=random.choice([True, False, "if_later", "if_earlier"]),
            reset_counts=random.choice([None, True, False]),
            bounds=random.random() < 0.5,
            priority=random.random() < 0.7,
            group=random.random() < 0.7,
        )
