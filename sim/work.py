"""Simulated work: producers, callers, reservations, cancels and an operator, each on a node of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any

from penstock import CallTimeout, Entry, JobCancelled, JobFailed, JobNotFound, LeaseLost, Penstock, Update
from penstock.errors import PenstockError, StorageError, StorageUnavailable
from penstock.model.job import State
from penstock.testing.simulation.loop import Node

__all__ = ["Work"]

#: Ids that several producers share, so that puts meet waiting, running and finished jobs.
SHARED_IDS = 4

#: How often a call is made until the storage answers.
TRIES = 1000


class Work:
    """The clients of a run. `stop` ends their loops; each of them then returns."""

    def __init__(
        self, seed: int, jobs: int, fault: Callable[[str], None], running: Callable[[], list[tuple[str, str]]]
    ) -> None:
        self._seed = seed
        self._jobs = jobs
        self._fault = fault
        #: Returns the jobs that run now.
        self._running = running
        self.stopping = False
        #: Whether reservations end too.
        self.closing = False
        #: The ids that were put, by queue.
        self.ids: dict[str, list[str]] = {}
        #: The number of calls that wait for a result.
        self.waiting = 0

    def _random(self, node: Node) -> Random:
        return Random(f"{self._seed}/work/{node.name}")

    async def _patient(self, call: Callable[[], Awaitable[Any]], tries: int = TRIES) -> Any:
        """Make a call until the storage answers it."""
        for _ in range(tries):
            try:
                return await call()
            except StorageUnavailable:
                await asyncio.sleep(0.5)
        if tries == TRIES:
            self._fault(f"a caller got no answer in {tries} tries")
        return None

    # producers ------------------------------------------------------------------------------------

    async def produce(self, app: Penstock, node: Node, share: int, seconds: float) -> None:
        """Put jobs of all kinds, some of them together, within these seconds."""
        random = self._random(node)
        left = share
        while left > 0 and not self.stopping:
            await asyncio.sleep(random.expovariate(share / seconds))
            if random.random() < 0.2:
                left -= await self._put_many(app, random)
            else:
                await self._put_one(app, random)
                left -= 1

    async def _put_one(self, app: Penstock, random: Random) -> None:
        queue, options = self._entry(random)
        if options.get("id") is None and random.random() < 0.5:
            options["id"] = f"{random.getrandbits(40):010x}"
        await self._put(app, queue, lambda: app.queue(queue).enqueue({"n": random.getrandbits(16)}, **options))

    async def _put_many(self, app: Penstock, random: Random) -> int:
        queue, _ = self._entry(random)
        entries: list[Any] = []
        for _ in range(random.randint(2, 6)):
            _, options = self._entry(random, queue)
            entries.append(Entry({"n": len(entries)}, **options))
        await self._put(app, queue, lambda: app.queue(queue).enqueue_many(entries))
        return len(entries)

    async def _put(self, app: Penstock, queue: str, put: Callable[[], Awaitable[Any]]) -> None:
        """Put once or, after an error, again with the same ids; an update to a group and a priority is refused."""
        try:
            answer = await self._patient(put, 3)
        except ValueError:
            return
        if answer is not None:
            for each in answer if isinstance(answer, list) else [answer]:
                self.ids.setdefault(queue, []).append(each.id)

    def _entry(self, random: Random, queue: str | None = None) -> tuple[str, dict[str, Any]]:
        """Draw a queue and the options of a job."""
        queue = queue or random.choice(
            ["mail", "mail", "lane", "lane", "mixed", "mixed", "batch", "plain", "brief", "once", "temp", "pull"]
        )
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
            options["id"] = f"shared{random.randrange(SHARED_IDS)}"
            options["on_conflict"] = random.choice(["reject", "update", "update", self._update(random)])
        if random.random() < 0.1:
            options["max_retries"] = random.choice([0, 1])
        if random.random() < 0.1:
            options["result_ttl"] = random.choice([0, 1, 30])
        return queue, options

    def _update(self, random: Random) -> Update:
        return Update(
            payload=random.random() < 0.5,
            run_at=random.choice([True, False, "if_later", "if_earlier"]),
            reset_counts=random.choice([None, True, False]),
            limits=random.random() < 0.5,
            priority=random.random() < 0.5,
            group=random.random() < 0.5,
        )

    # callers --------------------------------------------------------------------------------------

    async def call(self, app: Penstock, node: Node, calls: int, seconds: float) -> None:
        """Call jobs and wait for their results; half of the calls have no timeout."""
        random = self._random(node)
        for _ in range(calls):
            await asyncio.sleep(random.expovariate(calls / seconds))
            if self.stopping:
                return
            queue = random.choice(["mail", "mail", "mixed", "brief", "batch", "plain", "once"])
            id = f"shared{random.randrange(SHARED_IDS)}" if random.random() < 0.3 else f"{random.getrandbits(40):010x}"
            timeout = None if random.random() < 0.5 else 8 * random.random()
            self.waiting += 1
            await self._call(app, queue, id, timeout)
            self.waiting -= 1

    async def _call(self, app: Penstock, queue: str, id: str, timeout: float | None) -> None:
        try:
            value = await self._patient(lambda: app.queue(queue).call({"call": id}, id=id, timeout=timeout))
            if value not in (id, None):
                self._fault(f"the call of {queue}/{id} returned {value!r}")
        except (JobFailed, JobCancelled, CallTimeout, JobNotFound):
            pass
        self.ids.setdefault(queue, []).append(id)

    # reservations ---------------------------------------------------------------------------------

    async def pull(self, app: Penstock, node: Node) -> None:
        """Reserve jobs and settle them in every way there is, until stopped."""
        random = self._random(node)
        while not self.closing:
            try:
                held = await app.queue("pull").reserve(random.randint(1, 3), wait=3, lease=3)
            except StorageError:
                await asyncio.sleep(1.0)
                continue
            while held:  # no variable keeps a reservation that is dropped: its lease must expire
                await asyncio.sleep(random.random() * 2)
                await self._settle(held.pop(0), random)

    async def _settle(self, reservation: Any, random: Random) -> None:
        calm = self.stopping or random.random() < 0.4
        kind = "complete" if calm else random.choice(["fail", "retry", "release", "extend", "drop", "complete"])
        try:
            match kind:
                case "fail":
                    await reservation.fail(RuntimeError("drawn"))
                case "retry":
                    await reservation.retry(delay=1.0)
                case "release":
                    await reservation.release()
                case "extend":
                    await reservation.extend()
                    await reservation.complete("extended")
                case "drop":
                    pass
                case _:
                    await reservation.complete("done")
        except (LeaseLost, StorageError):
            pass

    # operator -------------------------------------------------------------------------------------

    async def operate(self, app: Penstock, node: Node, seconds: float) -> None:
        """Cancel, discard, revive, pause, read and delete, now and then."""
        random = self._random(node)
        until = node.scheduler.now + seconds
        while not self.stopping and node.scheduler.now < until:
            await asyncio.sleep(random.expovariate(1.5))
            queue, id = self._target(random)
            for _ in range(random.choice([1, 1, 2])):  # a second request may meet the effect of the first
                with contextlib.suppress(PenstockError):
                    await self._operate(app, random, queue, id)

    def _target(self, random: Random) -> tuple[str, str]:
        """Return a job to operate on: often one that runs, else one of the last that were put."""
        running = self._running()
        if running and random.random() < 0.5:
            return random.choice(running)
        queue = random.choice(list(self.ids) or ["mail"])
        return queue, random.choice((self.ids.get(queue) or ["none"])[-8:])

    async def _operate(self, app: Penstock, random: Random, queue: str, id: str) -> None:
        chosen = app.queue(queue)
        running: Any = random.choice(["refuse", "forget", "signal", "kill"])
        match random.randrange(16):
            case 0 | 1 | 2 | 3:
                await chosen.cancel(id, running=running)
            case 4 if queue != "lane":
                await chosen.discard(id)
            case 5 | 6 if queue not in ("lane", "mail/failures", "batch/failures"):
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
                await chosen.delete()
            case 14 if queue not in ("lane",):
                await chosen.clear(random.choice([None, "completed", "failed"]), older_than=timedelta(seconds=5))
            case _:
                await app.queues()
