"""SAQ: jobs move from one Redis list to another, and a sweep recovers those of a dead worker; results in Redis."""

from __future__ import annotations

from typing import Any

import uvloop
from saq import Queue

from bench import run_counter
from bench.producer import Adapter, url

uvloop.install()  # `saq` asks asyncio for a loop

queue = Queue.from_url(url(), name="bench")


async def work(ctx: Any, *, payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


async def reply(ctx: Any, *, payload: dict[str, Any]) -> int:
    return payload["user"]


settings = {"queue": queue, "functions": [work, reply], "concurrency": 50}


class Producer(Adapter):
    package = "saq"

    async def open(self) -> None:
        await queue.connect()

    async def close(self) -> None:
        await queue.disconnect()

    async def enqueue(self, job: dict[str, Any]) -> None:
        await queue.enqueue("work", payload=job)

    async def call(self, job: dict[str, Any]) -> Any:
        return await queue.apply("reply", payload=job, poll_interval=0.0005)

    async def left(self) -> int:
        return await queue.count("queued") + await queue.count("active")
