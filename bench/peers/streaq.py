"""streaQ: Redis streams, acknowledged after the run; results kept for five minutes, or not at all in a drain."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import Any

from streaq import Worker

from bench import run_counter
from bench.producer import Adapter, url

logging.getLogger("streaq").setLevel(logging.WARNING)

worker = Worker(redis_url=url(), anyio_kwargs={"use_uvloop": True})


@worker.task(ttl=0, silent=True)
async def work(payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


@worker.task(silent=True)
async def reply(payload: dict[str, Any]) -> int:
    return payload["user"]


class Producer(Adapter):
    package = "streaq"

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(worker)

    async def close(self) -> None:
        await self._stack.aclose()

    async def enqueue(self, job: dict[str, Any]) -> None:
        await work.enqueue(job)

    async def enqueue_many(self, jobs: list[dict[str, Any]]) -> None:
        await worker.enqueue_many([work.enqueue(job) for job in jobs])

    async def call(self, job: dict[str, Any]) -> Any:
        added = await reply.enqueue(job)
        return (await added.result(timeout=30)).result

    async def left(self) -> int:
        return await worker.queue_size()
