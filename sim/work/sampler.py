"""A producer that names the behaviours of its jobs, so that every run has those that the seed draws seldom."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from penstock import Entry, QueueFull
from sim.work.client import Client

__all__ = ["EACH", "KEYED", "Sampler"]

#: The queue of these jobs, and the queue whose handler reads id, group and cost from the payload.
EACH, KEYED = "each", "by key"

#: The behaviours of single jobs, each with the number that decides its details.
ALONE = (
    ("odd", 0.1), ("odd", 0.5), ("odd", 0.9), ("lookup", 0.5), ("refused", 0.1), ("refused", 0.5), ("refused", 0.9),
    ("large", 0.5), ("permanent", 0.5),
)  # fmt: skip

#: Jobs that are put together: the runs of the others stand in line behind the first.
TOGETHER = (
    ["cancel itself", "ok", "then", "cancel itself", "slow", "cancel itself", "hang", "ok"],
    ["stop", "ok", "ok", "ok", "ok", "ok"],
)


class Sampler(Client):
    """Puts a job of each behaviour, some of them together, and jobs with keys."""

    async def run(self) -> None:
        """Put all of them within the first part of the run."""
        random = self.random
        puts: list[Any] = [[each] for each in ALONE]
        puts += [[(behaviour, random.random()) for behaviour in each] for each in (*TOGETHER, TOGETHER[1])]
        puts += [None, None, None]
        random.shuffle(puts)
        for each in puts:
            await asyncio.sleep(random.expovariate(len(puts) / (0.6 * self.shared.seconds)))
            if self.shared.stopping:
                return
            await (self._put_keys() if each is None else self._put(each))

    async def _put(self, behaviours: list[tuple[str, float]]) -> None:
        entries: list[Any] = [Entry({"do": behaviour, "size": size}) for behaviour, size in behaviours]
        queue = "burst" if behaviours[0][0] == "stop" else EACH
        await self.patient(lambda: self.app.queue(queue).enqueue_many(entries), 3)

    async def _put_keys(self) -> None:
        """Put jobs whose payload has their keys, alone and together, some of which are given as options too."""
        queue, entries = self.app.queue(KEYED), list[Any]()
        for _ in range(3):
            key, group, cost = self.new_id(), self.random.choice("uv"), self.random.choice([2, 3])
            given: dict[str, Any] = {}
            if self.random.random() < 0.5:
                given = {"id": self.new_id(), "group": "given", "cost": 4}
            want = [given.get("id", f'key="{key}"'), given.get("group", f'tenant="{group}"'), given.get("cost", cost)]
            entries.append(Entry({"key": key, "tenant": group, "tokens": cost, "want": want}, **given))
        await self.patient(lambda: queue.enqueue_many(entries[1:]), 3)
        first = entries[0]
        options = {name: value for name in ("id", "group", "cost") if (value := getattr(first, name)) is not None}
        await self.patient(lambda: queue.enqueue(first.payload, **options), 3)
        bounded: list[Any] = [Entry({}) for _ in range(2)]
        with contextlib.suppress(QueueFull):
            await self.patient(lambda: self.app.queue("bounded").enqueue_many(bounded), 2)
