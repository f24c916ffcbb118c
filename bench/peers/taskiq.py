"""taskiq with Redis streams, acknowledged after the run; results in Redis only for calls."""

from __future__ import annotations

import os
from typing import Any

from redis.asyncio import Redis
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench import run_counter
from bench.producer import Adapter, url

broker = RedisStreamBroker(url(), xread_count=100)
if os.environ.get("BENCH_RESULTS"):
    broker = broker.with_result_backend(RedisAsyncResultBackend(url(), result_ex_time=3600))


@broker.task
async def work(payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


@broker.task
async def reply(payload: dict[str, Any]) -> int:
    return payload["user"]


class Producer(Adapter):
    package = "taskiq"

    async def open(self) -> None:
        await broker.startup()
        self._redis = Redis.from_url(url())

    async def close(self) -> None:
        await self._redis.aclose()
        await broker.shutdown()

    async def enqueue(self, job: dict[str, Any]) -> None:
        await work.kiq(job)

    async def call(self, job: dict[str, Any]) -> Any:
        added = await reply.kiq(job)
        result = await added.wait_result(check_interval=0.0005, timeout=30)
        return result.return_value

    async def left(self) -> int:
        groups = await self._redis.xinfo_groups("taskiq")
        return sum(group["lag"] + group["pending"] for group in groups)
