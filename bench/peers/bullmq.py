"""BullMQ for Python: 50 jobs at once, completed jobs removed; results come with the queue's events."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import uvloop
from bullmq import Queue, QueueEvents, Worker

from bench import run_counter
from bench.producer import Adapter, url

OPTIONS = {"removeOnComplete": True}


async def process(job: Any, token: str) -> int | None:
    if job.name == "reply":
        return job.data["user"]
    run_counter.record_run(job.data)
    return None


class Producer(Adapter):
    package = "bullmq"

    async def open(self) -> None:
        self._queue = Queue("bench", {"connection": url()})
        self._events: QueueEvents | None = None
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._answers: dict[str, Any] = {}

    async def close(self) -> None:
        if self._events is not None:
            await self._events.close()
        await self._queue.close()

    async def enqueue(self, job: dict[str, Any]) -> None:
        await self._queue.add("work", job, OPTIONS)

    async def enqueue_many(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.addBulk([{"name": "work", "data": job, "opts": OPTIONS} for job in jobs])

    async def call(self, job: dict[str, Any]) -> Any:
        if self._events is None:
            self._events = QueueEvents("bench", {"connection": url()})
            self._events.on("completed", self._completed)
            await asyncio.sleep(0.5)
        added = await self._queue.add("reply", job, OPTIONS)
        if added.id in self._answers:
            return self._answers.pop(added.id)
        waiting = self._waiting[added.id] = asyncio.get_running_loop().create_future()
        return await asyncio.wait_for(waiting, 30)

    def _completed(self, event: dict[str, Any], *_: object) -> None:
        waiting = self._waiting.pop(event["jobId"], None)
        if waiting is None:
            self._answers[event["jobId"]] = event["returnvalue"]
        else:
            waiting.set_result(event["returnvalue"])

    async def left(self) -> int:
        counts = await self._queue.getJobCounts("wait", "active", "delayed", "prioritized", "failed")
        return sum(counts.values())


async def main() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    worker = Worker("bench", process, {"connection": url(), "concurrency": 50})
    await stopped.wait()
    await worker.close()


if __name__ == "__main__":
    uvloop.run(main())
