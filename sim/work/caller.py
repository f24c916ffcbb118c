"""A caller: it waits for the results of its jobs."""

from __future__ import annotations

import asyncio

from penstock import CallTimeout, JobCancelled, JobFailed, JobNotFound, QueueFull
from sim.work.client import Client

__all__ = ["Caller"]

CHOICES = ["mail", "mail", "mixed", "brief", "brief", "brief", "batch", "plain", "once", "bounded"]


class Caller(Client):
    """Calls jobs and waits for their results, several at once; half of the calls have no timeout."""

    async def run(self) -> None:
        """Make a fourth as many calls as there are jobs."""
        random, calls = self.random, self.shared.jobs // 4
        under_way: list[asyncio.Task[None]] = []
        for _ in range(calls):
            await asyncio.sleep(random.expovariate(calls / (0.6 * self.shared.seconds)))
            if self.shared.stopping:
                break
            queue = random.choice(CHOICES)
            id = self.shared_id() if random.random() < 0.3 else self.new_id()
            timeout = None if random.random() < 0.5 else 8 * random.random()
            for _ in range(random.choice([1, 1, 2])):  # a second wait for the same job, by the same client
                under_way.append(self.node.create_task(self._call(queue, id, timeout)))
            if random.random() < 0.7:
                await asyncio.gather(*under_way)
                under_way.clear()
        await asyncio.gather(*under_way)

    async def _call(self, queue: str, id: str, timeout: float | None) -> None:
        self.shared.waited.append((queue, id))
        self.shared.called.append((queue, id))
        try:
            value = await self.patient(lambda: self.app.queue(queue).call({"call": id}, id=id, timeout=timeout))
            if value not in (id, None, "refused"):
                self.shared.fault(f"the call of {queue}/{id} returned {value!r}")
        except (JobFailed, JobCancelled, CallTimeout, JobNotFound, QueueFull):
            pass
        finally:
            self.shared.waited.remove((queue, id))
        self.shared.ids.setdefault(queue, []).append(id)
