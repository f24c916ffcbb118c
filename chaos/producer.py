"""A producer process: does the acts of its plan and writes down what was asked and what was answered.

    python -m chaos.producer '{"seed": "7/a/0", "name": "a0", "first": 0, "count": 1000, …}'

Every ask is written before it is sent, so that a producer killed in between leaves a job that may exist. What has an
order (a group, a singleton id) is asked for one act at a time, and again until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from collections import defaultdict
from typing import Any

from chaos.log import Log, now
from chaos.pace import Pace
from chaos.plan import Act, Ask, acts
from penstock import CallTimeout, Entry, JobCancelled, JobFailed, JobNotFound, Penstock, Queue, StorageError

#: So many acts at once.
AT_ONCE = 24
#: Between two tries to have something acknowledged (seconds).
REST = 0.2


class Producer:
    """One life of a producer."""

    def __init__(self, app: Penstock, log: Log, options: dict[str, Any]) -> None:
        self.app, self.log = app, log
        self.options = options
        self.pace = Pace(options["pace"])
        self.asked = 0
        self._numbers = itertools.count(1)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._jitter = random.Random()

    async def run(self) -> None:
        await self._open()
        o = self.options
        async with asyncio.TaskGroup() as tasks:
            for act in acts(o["seed"], o["name"], o["first"], o["count"], o["kinds"], o["heavy"]):
                while self.asked >= self.pace.allowed // o["producers"]:  # noqa: ASYNC110 - another process raises it
                    await asyncio.sleep(0.02)
                self.asked += len(act.asks)
                await self._room.acquire()
                # A lock is taken in the order of asking, so that acts of one key keep their order.
                tasks.create_task(self._act(act))
        self.log.write("done", asked=self.asked)

    async def _open(self) -> None:
        while True:
            try:
                await self.app.open()
                return
            except StorageError:
                await asyncio.sleep(REST)

    async def _act(self, act: Act) -> None:
        try:
            if act.key is None:
                await self._perform(act)
            else:
                async with self._locks[act.key]:
                    await self._perform(act)
        finally:
            self._room.release()

    async def _perform(self, act: Act) -> None:
        queue = self.app.queue(act.queue)
        match act.kind:
            case "lane" | "lanes":
                await self._surely(queue, act)
            case "single":
                await self._update(queue, act)
            case "call":
                await self._call(queue, act.asks[0], act.patience)
            case "cancel":
                await self._cancel(queue, act)
            case "gate":
                await self._gate(queue, act)
            case _:
                await self._enqueue(queue, act.asks)

    # puts -----------------------------------------------------------------------------------------

    async def _enqueue(self, queue: Queue, asks: list[Ask], on_conflict: Any = None) -> bool:
        """Ask for jobs in one call; True when it was acknowledged."""
        number = next(self._numbers)
        jobs = [[a.id, a.payload["n"], a.group, a.delay, a.payload["mood"], a.payload.get("times", 0)] for a in asks]
        self.log.write("put", s=number, q=queue.name, jobs=jobs, update=on_conflict == "update")
        entries = [
            Entry(ask.payload, id=ask.id, group=ask.group, delay=ask.delay, on_conflict=on_conflict) for ask in asks
        ]
        try:
            answers = await queue.enqueue_many(entries)
        except StorageError as error:
            self.log.write("answer", s=number, error=type(error).__name__)
            return False
        self.log.write("answer", s=number, put=[[each.id, each.status] for each in answers])
        return True

    async def _surely(self, queue: Queue, act: Act) -> None:
        while not await self._enqueue(queue, act.asks):  # noqa: ASYNC110 - nobody says when
            await asyncio.sleep(REST * self._jitter.uniform(0.5, 1.5))

    async def _update(self, queue: Queue, act: Act) -> None:
        await self._enqueue(queue, act.asks, on_conflict="update")
        if act.mode:
            await self._withdraw(queue, act.asks[0], act.mode)

    # the rest -------------------------------------------------------------------------------------

    async def _call(self, queue: Queue, ask: Ask, patience: float) -> None:
        number = next(self._numbers)
        jobs = [[ask.id, ask.payload["n"], None, None, ask.payload["mood"], ask.payload.get("times", 0)]]
        self.log.write("put", s=number, q=queue.name, jobs=jobs, update=False, call=True)
        answer: dict[str, Any] = {}
        try:
            result = await queue.call(ask.payload, id=ask.id, timeout=patience)
            answer = {"state": "completed", "tok": result["tok"]}
        except JobFailed as error:
            answer = {"state": "failed", "kind": error.error.kind}
        except JobCancelled:
            answer = {"state": "cancelled"}
        except (CallTimeout, JobNotFound, StorageError) as error:
            answer = {"error": type(error).__name__}
        self.log.write("called", s=number, q=queue.name, n=ask.payload["n"], id=ask.id, **answer)

    async def _cancel(self, queue: Queue, act: Act) -> None:
        await self._enqueue(queue, act.asks)
        await asyncio.sleep(act.pause)
        await self._withdraw(queue, act.asks[0], act.mode)

    async def _withdraw(self, queue: Queue, ask: Ask, mode: Any) -> None:
        assert ask.id is not None
        asked = now()
        answer: dict[str, Any]
        try:
            told = await queue.cancel(ask.id, running=mode)
            answer = {"status": told.status, "running": told.running}
        except StorageError as error:
            answer = {"error": type(error).__name__}
        self.log.write("cancel", a=asked, q=queue.name, id=ask.id, mode=mode, **answer)

    async def _gate(self, queue: Queue, act: Act) -> None:
        """Pause, put, wait, go on."""
        await self._switch(queue, True)
        await self._enqueue(queue, act.asks)
        await asyncio.sleep(act.pause)
        while not await self._switch(queue, False):  # noqa: ASYNC110 - nobody says when
            await asyncio.sleep(REST)

    async def _switch(self, queue: Queue, paused: bool) -> bool:
        number = next(self._numbers)
        self.log.write("switch", s=number, q=queue.name, paused=paused)
        try:
            await (queue.pause() if paused else queue.resume())
        except StorageError as error:
            self.log.write("switched", s=number, error=type(error).__name__)
            return False
        self.log.write("switched", s=number)
        return True


async def main() -> None:
    from chaos.jobs import app, log  # what they are, the environment of a process says

    await Producer(app, log, json.loads(sys.argv[1])).run()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
