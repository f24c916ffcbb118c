"""Drills of the storage alone: jobs that fell due, cancel requests, first limits, changed rates, schedules."""

from __future__ import annotations

import asyncio

from penstock import Every
from penstock.model.limit import Limit
from penstock.storage.base import Retried, Settlement
from penstock.storage.limiting import Scope
from penstock.storage.scheduling import Firing, TickJob
from sim.drills.drill import Drill

__all__ = ["StorageDrill"]

#: An hour (seconds), after which no tick of these drills is waited for.
HOUR = 3600


class StorageDrill(Drill):
    """Calls of the storage in queues without workers; the model makes all of them too."""

    async def run(self) -> None:
        """Make each situation once."""
        await self.begin()
        for queue in ("drill/room", "drill/room2"):
            await self._fill_with_due_jobs(queue)
        await self._cancel_again("drill/cancel")
        for _ in range(3):  # a comparison of the whole queue with the model makes due jobs ready too
            await self._put_while_ahead("drill/ahead")
        await self._limit_held_groups("drill/first")
        await self._change_rate("drill/faster", "1/h", "10/s")
        await self._change_rate("drill/slower", "10/s", "1/h")
        await self._edit_due("drill/edit")
        await self._edit_before_tick("drill/edit")
        await self._resume("drill/edit")

    async def _fill_with_due_jobs(self, queue: str) -> None:
        """Fire ticks into a group with room for one job, in which another one has become due since."""
        await self.app.queue(queue).schedules.put("room", Every(HOUR), group="g", overlap="queue")
        for delay in (300, 0):
            record = await self.record(queue, "room")
            now = await self.storage.time()
            job = self.later(self.job(queue, group="g"), now + delay)
            await self.storage.fire([
                Firing(queue=queue, name="room", version=record.version, ticks=(TickJob(now, job),), overlap="queue",
                       room=1, manual=True)
            ])  # fmt: skip
            await asyncio.sleep(0.4)
        await self.app.queue(queue).schedules.remove("room")
        await self.complete_all(queue)

    async def _cancel_again(self, queue: str) -> None:
        """Request the cancel of a run several times: only a stronger request is an event."""
        await self.storage.put([self.job(queue, "twice")])
        refs = await self.claim(queue)
        for mode in ("signal", "signal", "kill", "signal", "kill"):
            await self.storage.cancel(queue, ["twice"], mode, 0)
        await self.complete(refs)

    async def _put_while_ahead(self, queue: str) -> None:
        """Put a job of a group while the clock is ahead: a job that is due then stays so when the clock is back."""
        old, new = self.job(queue, delay=400), self.job(queue, group="h")
        await self.storage.put([old])
        self.stand_clock_at(await self.storage.time() + 1000)
        await self.storage.put([new])
        self.stand_clock_at(None)
        await self.storage.get(queue, [old.id, new.id])
        await self.storage.find(queue)
        await asyncio.sleep(0.5)
        await self.complete_all(queue)

    async def _limit_held_groups(self, queue: str) -> None:
        """Give a queue its first limit while a run and a backoff hold groups: both follow it."""
        scope = Scope("groups", queue)
        await self.storage.put([self.job(queue, f"{group}{n}", group=group) for n in range(3) for group in "ab"])
        refs = await self.claim(queue)
        first = [ref for ref in refs if ref.id == "a0"]
        await self.storage.settle([Settlement(queue, ref.id, ref.token, Retried(delay=60_000)) for ref in first])
        await self._set_limit(scope, Limit(concurrency=2))
        refs += await self.claim(queue)
        await self._set_limit(scope, None)
        await self.storage.cancel(queue, ["a0"], "refuse", 0)
        await self.complete([ref for ref in refs if ref not in first])
        await self.complete_all(queue)

    async def _set_limit(self, scope: Scope, limit: Limit | None) -> None:
        version = (await self.storage.get_limit(scope)).version
        rule = limit.rule("group" if scope.kind == "groups" else scope.kind, 0) if limit else None
        await self.storage.set_limit(scope, rule, b"", version)

    async def _change_rate(self, queue: str, before: str, after: str) -> None:
        """Start a job, then change the rate of its queue: the next start waits as long as the new rate asks for."""
        scope = Scope("queue", queue)
        await self._set_limit(scope, Limit(rate=before, burst=1))
        await self.storage.put([self.job(queue), self.job(queue)])
        refs = await self.claim(queue, 1)
        await self._set_limit(scope, Limit(rate=after, burst=1))
        await asyncio.sleep(0.2)
        again = await self.claim(queue, 1)
        self.expect(bool(refs), f"no job starts at a rate of {before}")
        wrong = "starts" if again else "does not start"
        self.expect(bool(again) is (after == "10/s"), f"a job {wrong} after a rate changed from {before} to {after}")
        await self._set_limit(scope, None)
        await self.complete([*refs, *again])
        await self.complete_all(queue)

    async def _edit_due(self, queue: str) -> None:
        """Edit a schedule whose ticks are due, because no worker serves its queue: they are decided in that step."""
        schedules = self.app.queue(queue).schedules
        await schedules.put("due", Every(1), overlap="skip", catch_up="all", grace=60)
        await asyncio.sleep(2.2)
        await schedules.edit("due", when=Every(7))
        await schedules.remove("due")
        await self.complete_all(queue)

    async def _edit_before_tick(self, queue: str) -> None:
        """Edit a schedule in the last millisecond before a tick: that is still to come."""
        schedules = self.app.queue(queue).schedules
        await schedules.put("early", Every(5))
        self.stand_clock_at((await self.record(queue, "early")).next - 1)
        await schedules.edit("early", priority=1)
        self.stand_clock_at(None)
        await schedules.remove("early")

    async def _resume(self, queue: str) -> None:
        """Resume a schedule after some of its times: they are not made up for."""
        schedules = self.app.queue(queue).schedules
        await schedules.put("paused", Every(1))
        await schedules.pause("paused")
        await asyncio.sleep(2.2)
        now = await self.storage.time()
        await schedules.resume("paused")
        found = (await self.record(queue, "paused")).next
        self.expect(found > now, f"a resumed schedule makes up for its pause: its next tick is {now - found} ms ago")
        await schedules.remove("paused")
        await self.complete_all(queue)
