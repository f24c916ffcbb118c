"""An operator: cancels, discards, revives, reads and deletes, now and then."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from penstock import Update
from penstock.errors import PenstockError
from penstock.model.job import State
from sim.queues import IN_ORDER
from sim.work.client import Client

__all__ = ["Operator"]


class Operator(Client):
    """Operates on jobs: often on one that runs, else on one of the last that were put."""

    async def run(self) -> None:
        """Make one or two requests about a job, as long as there are faults."""
        random, until = self.random, self.node.scheduler.now + self.shared.seconds
        while not self.shared.stopping and self.node.scheduler.now < until:
            await asyncio.sleep(random.expovariate(1.5))
            queue, id = self._target()
            for _ in range(random.choice([1, 1, 2])):  # a second request may meet the effect of the first
                with contextlib.suppress(PenstockError):
                    await self._operate(queue, id)

    def _target(self) -> tuple[str, str]:
        running, ids = self.shared.running(), self.shared.ids
        if running and self.random.random() < 0.5:
            return self.random.choice(list(running))
        if self.shared.called and self.random.random() < 0.4:
            return self.random.choice(self.shared.called[-6:])
        queue = self.random.choice(list(ids) or ["mail"])
        return queue, self.random.choice((ids.get(queue) or ["none"])[-8:])

    async def _operate(self, queue: str, id: str) -> None:
        random, chosen = self.random, self.app.queue(queue)
        running: Any = random.choice(["refuse", "forget", "signal", "kill"])
        if (queue, id) in self.shared.called and random.random() < 0.3:
            await self._run_again(queue, id)
            return
        match random.randrange(22):
            case 0 | 1 | 2 | 3:
                await chosen.cancel(id, running=running)
            case 4 if queue not in IN_ORDER:
                await chosen.discard(id)
            case 5 | 6 if queue not in (*IN_ORDER, "mail/failures", "batch/failures"):
                await chosen.retry([id], completed=random.random() < 0.5)
            case 7:
                await chosen.counts()
            case 8:
                await chosen.find(random.choice([None, *State]))
            case 9:
                await chosen.peek()
            case 10:
                await chosen.why(id)
            case 11:
                await chosen.status(id)
            case 12:
                await chosen.update_result_ttl(id, random.choice([0, 1, 60]))
            case 13 if queue == "temp":
                await chosen.delete(settings=random.random() < 0.5)
            case 14 if queue not in IN_ORDER:
                await chosen.clear(random.choice([None, "completed", "failed"]), older_than=timedelta(seconds=5))
            case 15:
                await self._walk(queue)
            case 16 if queue not in IN_ORDER:
                await (await self.app.opened()).discard(queue, [id], random.choice(list(State)), None)
            case 17 | 18:
                await chosen.attempts(id)
            case 19 | 20:
                await chosen.log(id, after=random.choice([None, 1]))
            case _:
                await self.app.queues()

    async def _run_again(self, queue: str, id: str) -> None:
        """Revive a job that was called, have its next result kept, and put its id once more after that."""
        chosen, again = self.app.queue(queue), {"call": id}
        await chosen.retry([id], completed=True)
        await chosen.enqueue(again, id=id, result_ttl=30, on_conflict=Update(bounds=True))
        await asyncio.sleep(3 * self.random.random())
        await chosen.enqueue(again, id=id)

    async def _walk(self, queue: str) -> None:
        """Read the running jobs page by page: one that runs all the time is in it."""
        storage, after, found = await self.app.opened(), None, list[str]()
        before = self.shared.running()
        while True:
            page = await storage.find(queue, State.RUNNING, after, 1)
            found += [job.id for job in page.jobs]
            after = page.cursor
            if after is None:
                break
            await asyncio.sleep(0.3 * self.random.random())
        for (of, id), token in self.shared.running().items():
            if of == queue and before.get((of, id)) == token and found.count(id) != 1:
                self.shared.fault(f"a job that ran all the time was listed {found.count(id)} times", (of, id))
