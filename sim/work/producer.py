"""A producer: it puts jobs of all kinds, alone and together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from penstock import Entry, QueueFull, Update
from sim.work.client import Client

__all__ = ["PRODUCERS", "Producer", "is_heavy"]

#: The number of producers of a run, which share its jobs.
PRODUCERS = 2

#: The queues of jobs, each as often as it is in the list.
CHOICES = [
    "mail", "mail", "lane", "lane", "mixed", "mixed", "batch", "plain", "brief", "once", "temp", "pull", "long", "long",
    "bounded", "bounded", "bounded",
]  # fmt: skip

#: Every tenth seed has jobs whose records are longer than a call may carry; the length of one (bytes).
HEAVY_SEEDS, HEAVY = 10, 900_000


def is_heavy(seed: int) -> bool:
    """Return whether a seed has jobs whose records are longer than a call may carry."""
    return seed % HEAVY_SEEDS == 0


class Producer(Client):
    """Puts its share of the jobs within the first part of the run."""

    async def run(self) -> None:
        """Put jobs of all kinds, some of them together."""
        random, left = self.random, self.shared.jobs // PRODUCERS
        pause = left / (0.7 * self.shared.seconds)
        if is_heavy(self.shared.seed):
            await self._put_heavy()
        while left > 0 and not self.shared.stopping:
            await asyncio.sleep(random.expovariate(pause))
            drawn = random.random()
            if drawn < 0.06:
                left -= await self._put_burst()
            elif drawn < 0.25:
                left -= await self._put_many()
            else:
                await self._put_one()
                left -= 1

    async def _put_one(self) -> None:
        queue, options = self._entry()
        if options.get("id") is None and self.random.random() < 0.5:
            options["id"] = self.new_id()
        payload = {"n": self.random.getrandbits(16)}
        await self._put(queue, lambda: self.app.queue(queue).enqueue(payload, **options))

    async def _put_many(self) -> int:
        queue, _ = self._entry()
        entries: list[Any] = []
        for _ in range(self.random.randint(2, 6)):
            _, options = self._entry(queue)
            entries.append(Entry({"n": len(entries)}, **options))
        await self._put(queue, lambda: self.app.queue(queue).enqueue_many(entries))
        return len(entries)

    async def _put_burst(self) -> int:
        """Put many plain jobs at once: they are claimed and settled together."""
        entries: list[Any] = [Entry({"n": number}) for number in range(self.random.randint(6, 14))]
        await self._put("burst", lambda: self.app.queue("burst").enqueue_many(entries))
        return len(entries) // 2

    async def _put_heavy(self) -> None:
        """Put jobs whose records are longer than one call may carry; the seed decides which kind is the first."""
        text = "x" * HEAVY
        kinds: list[dict[str, Any]] = [{"delay": 2.0}, {}, {"group": "g"}]
        first = self.shared.seed // HEAVY_SEEDS % len(kinds)
        for options in (*kinds[first:], *kinds[:first]):
            entries: list[Any] = [Entry({"x": text}, **options) for _ in range(7)]
            await self._put("heavy", partial(self.app.queue("heavy").enqueue_many, entries))
            await asyncio.sleep(3.0)  # plain jobs and groups are claimed in other ways, if both are there

    async def _put(self, queue: str, put: Callable[[], Awaitable[Any]]) -> None:
        """Put once or, after an error, again with the same ids; an update to a group and a priority is refused."""
        try:
            answer = await self.patient(put, 3)
        except (ValueError, QueueFull):
            return
        if answer is not None:
            for each in answer if isinstance(answer, list) else [answer]:
                self.shared.ids.setdefault(queue, []).append(each.id)

    def _entry(self, queue: str | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a queue and the options of a job."""
        random = self.random
        queue = queue or random.choice(CHOICES)
        options: dict[str, Any] = {"id": None}
        if queue == "lane":
            return queue, {"group": random.choice("xyz")}
        if queue in ("batch", "mixed", "pull") and random.random() < 0.6:
            options["group"] = random.choice("gh")
        elif random.random() < 0.3:
            options["priority"] = random.choice([-1, 1, 5])
        if random.random() < 0.25:
            options["delay"] = random.choice([0.0, 0.5, 3.0, 10.0])
        if random.random() < 0.12:
            options["expires"] = random.choice([0.5, 2.0, 8.0])
        if queue != "once" and random.random() < 0.35:
            options["id"] = self.shared_id()
            options["on_conflict"] = random.choice(["reject", "update", "update", self._update()])
        if random.random() < 0.1:
            options["max_retries"] = random.choice([0, 1])
        if random.random() < 0.1:
            options["result_ttl"] = random.choice([0, 1, 30])
        return queue, options

    def _update(self) -> Update:
        random = self.random
        return Update(
            payload=random.random() < 0.5,
            run_at=random.choice([True, False, "if_later", "if_earlier"]),
            reset_counts=random.choice([None, True, False]),
            bounds=random.random() < 0.5,
            priority=random.random() < 0.5,
            group=random.random() < 0.5,
        )
