"""arq, which polls, every millisecond instead of every 0.5 s; results are kept only for calls."""

from __future__ import annotations

import os
from typing import Any

import uvloop
from arq import create_pool
from arq.connections import RedisSettings

from bench import run_counter
from bench.producer import Adapter, url

uvloop.install()  # `arq` asks asyncio for a loop
#: For `--custom-log-dict`: no line per job.
quiet = {"version": 1, "disable_existing_loggers": False, "loggers": {"arq": {"level": "WARNING"}}}

settings = RedisSettings.from_dsn(url())


async def work(ctx: Any, payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


async def reply(ctx: Any, payload: dict[str, Any]) -> int:
    return payload["user"]


class WorkerSettings:
    functions = (work, reply)
    redis_settings = settings
    max_jobs = 200
    queue_read_limit = 1000
    poll_delay = 0.001
    keep_result = 60 if os.environ.get("BENCH_RESULTS") else 0


class Producer(Adapter):
    package = "arq"

    async def open(self) -> None:
        self._pool = await create_pool(settings)

    async def close(self) -> None:
        await self._pool.aclose()

    async def enqueue(self, job: dict[str, Any]) -> None:
        await self._pool.enqueue_job("work", job)

    async def call(self, job: dict[str, Any]) -> Any:
        added = await self._pool.enqueue_job("reply", job)
        return await added.result(timeout=30, poll_delay=0.0005)

    async def left(self) -> int:
        return await self._pool.zcard("arq:queue")
