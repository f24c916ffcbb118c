"""A producer process: carries out the actions of its plan and records each request and its answer.

    python -m chaos.producer '{"seed": "7/a/0", "name": "a0", "first": 0, "count": 1000, …}'

A request is recorded before it is sent, so that a producer killed in between leaves a job that may exist. Actions that
share a key (a group, a singleton id) run one at a time; jobs of a group are enqueued again until they are acknowledged.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from collections import defaultdict
from typing import Any

from chaos.limited_plan import LIMITED_DRAWS, LIMITED_KINDS
from chaos.log import Log, now
from chaos.plan import DRAWS, KINDS, Action, JobSpec, PlanDraw, plan_actions
from chaos.settings_changes import change_limit, change_schedule, take_jobs
from chaos.shared_number import EnqueueLimit
from penstock import CallTimeout, Entry, JobCancelled, JobFailed, JobNotFound, Penstock, Queue, StorageError

#: Actions that run at the same time.
CONCURRENT_ACTIONS = 24
#: Seconds between two tries of a request that was not acknowledged.
RETRY_DELAY = 0.2


class Producer:
    """Producer from its start to its end or its kill; a killed one is replaced by a new process."""

    def __init__(self, app: Penstock, log: Log, options: dict[str, Any]) -> None:
        self.app, self.log = app, log
        self.options = options
        self.limit = EnqueueLimit(options["limit_file"])
        self.asked = 0
        self._numbers = itertools.count(1)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._room = asyncio.Semaphore(CONCURRENT_ACTIONS)
        self._jitter = random.Random()

    async def run(self) -> None:
        await self._open_app()
        o = self.options
        draw = PlanDraw(o["seed"], o["name"], o["first"], o["heavy"], o.get("schedules", 0))
        weights, draws = KINDS | LIMITED_KINDS, DRAWS | LIMITED_DRAWS
        async with asyncio.TaskGroup() as tasks:
            for action in plan_actions(draw, {kind: weights[kind] for kind in o["kinds"]}, draws, o["count"]):
                while self.asked >= self.limit.allowed // o["producers"]:  # noqa: ASYNC110 - another process raises it
                    await asyncio.sleep(0.02)
                self.asked += len(action.jobs)
                await self._room.acquire()
                # The locks of one key are granted in the order of these tasks, so its actions keep their order.
                tasks.create_task(self._run_action(action))
        self.log.write("done", asked=self.asked)

    async def _open_app(self) -> None:
        while True:
            try:
                await self.app.open()
                return
            except StorageError:
                await asyncio.sleep(RETRY_DELAY)

    async def _run_action(self, action: Action) -> None:
        try:
            if action.key is None:
                await self._perform(action)
            else:
                async with self._locks[action.key]:
                    await self._perform(action)
        finally:
            self._room.release()

    async def _perform(self, action: Action) -> None:
        queue = self.app.queue(action.queue)
        match action.kind:
            case "lane" | "lanes":
                await self._enqueue_until_acknowledged(queue, action)
            case "single":
                await self._update(queue, action)
            case "call":
                await self._call(queue, action.jobs[0], action.timeout)
            case "cancel":
                await self._cancel(queue, action)
            case "gate":
                await self._pause_and_resume(queue, action)
            case "set_limit":
                await change_limit(self.app, action)
            case "schedule":
                await change_schedule(queue, action)
            case "take":
                await take_jobs(queue, action)
            case _:
                await self._enqueue(queue, action.jobs)

    # puts -----------------------------------------------------------------------------------------

    async def _enqueue(self, queue: Queue, specs: list[JobSpec], on_conflict: Any = None) -> bool:
        """Enqueue jobs in one call; return whether it was acknowledged."""
        number = next(self._numbers)
        jobs = [
            [a.id, a.payload["n"], a.group, a.delay, a.payload["behaviour"], a.payload.get("times", 0), a.cost]
            for a in specs
        ]
        self.log.write("put", s=number, q=queue.name, jobs=jobs, update=on_conflict == "update")
        entries = [
            Entry(spec.payload, id=spec.id, group=spec.group, delay=spec.delay, on_conflict=on_conflict, cost=spec.cost)
            for spec in specs
        ]
        try:
            answers = await queue.enqueue_many(entries)
        except StorageError as error:
            self.log.write("put_answer", s=number, error=type(error).__name__)
            return False
        self.log.write("put_answer", s=number, put=[[each.id, each.status] for each in answers])
        return True

    async def _enqueue_until_acknowledged(self, queue: Queue, action: Action) -> None:
        while not await self._enqueue(queue, action.jobs):  # noqa: ASYNC110 - no event marks the end of an outage
            await asyncio.sleep(RETRY_DELAY * self._jitter.uniform(0.5, 1.5))

    async def _update(self, queue: Queue, action: Action) -> None:
        await self._enqueue(queue, action.jobs, on_conflict="update")
        if action.mode:
            await self._send_cancel(queue, action.jobs[0], action.mode)

    # the rest -------------------------------------------------------------------------------------

    async def _call(self, queue: Queue, spec: JobSpec, timeout: float) -> None:
        number = next(self._numbers)
        jobs = [[spec.id, spec.payload["n"], None, None, spec.payload["behaviour"], spec.payload.get("times", 0), 1]]
        self.log.write("put", s=number, q=queue.name, jobs=jobs, update=False, call=True)
        answer: dict[str, Any] = {}
        try:
            result = await queue.call(spec.payload, id=spec.id, timeout=timeout)
            answer = {"state": "completed", "tok": result["tok"]}
        except JobFailed as error:
            answer = {"state": "failed", "kind": error.error.kind}
        except JobCancelled:
            answer = {"state": "cancelled"}
        except (CallTimeout, JobNotFound, StorageError) as error:
            answer = {"error": type(error).__name__}
        self.log.write("call_answer", s=number, q=queue.name, n=spec.payload["n"], id=spec.id, **answer)

    async def _cancel(self, queue: Queue, action: Action) -> None:
        await self._enqueue(queue, action.jobs)
        await asyncio.sleep(action.pause)
        await self._send_cancel(queue, action.jobs[0], action.mode)

    async def _send_cancel(self, queue: Queue, spec: JobSpec, mode: Any) -> None:
        assert spec.id is not None
        asked = now()
        answer: dict[str, Any]
        try:
            cancelled = await queue.cancel(spec.id, running=mode)
            answer = {"status": cancelled.status, "running": cancelled.running}
        except StorageError as error:
            answer = {"error": type(error).__name__}
        self.log.write("cancel", a=asked, q=queue.name, id=spec.id, mode=mode, **answer)

    async def _pause_and_resume(self, queue: Queue, action: Action) -> None:
        """Pause the queue, enqueue jobs, wait, and resume the queue."""
        await self._set_pause(queue, True)
        await self._enqueue(queue, action.jobs)
        await asyncio.sleep(action.pause)
        while not await self._set_pause(queue, False):  # noqa: ASYNC110 - no event marks the end of an outage
            await asyncio.sleep(RETRY_DELAY)

    async def _set_pause(self, queue: Queue, paused: bool) -> bool:
        number = next(self._numbers)
        self.log.write("set_pause", s=number, q=queue.name, paused=paused)
        try:
            await (queue.pause() if paused else queue.resume())
        except StorageError as error:
            self.log.write("set_pause_answer", s=number, error=type(error).__name__)
            return False
        self.log.write("set_pause_answer", s=number)
        return True


async def main() -> None:
    from chaos.jobs import app, log  # built at import, from the environment of this process

    await Producer(app, log, json.loads(sys.argv[1])).run()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
