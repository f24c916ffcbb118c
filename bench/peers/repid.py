"""repid: Redis streams, acknowledged after the run; on Redis it has no results and no calls."""

from __future__ import annotations

import logging
from typing import Any

import uvloop
from redis.asyncio import Redis
from repid import RedisServer, Repid, Router

from bench import run_counter
from bench.producer import Adapter, url

STREAM, GROUP = "repid:default", "repid:default:group"

app = Repid()
# Without claim_interval the messages of a dead worker would stay pending for ever.
server = RedisServer(url(), claim_interval=30.0)
app.servers.register_server("default", server, is_default=True)
router = Router()


@router.actor(timeout=0, keep_alive=False)
async def work(user: int, action: str, size: list[int], at: int = 0) -> None:
    run_counter.record_run({"at": at} if at else {})


app.include_router(router)


class Producer(Adapter):
    package = "repid"

    async def open(self) -> None:
        self._connection = app.servers.default.connection()
        await self._connection.__aenter__()
        self._redis = Redis.from_url(url())

    async def close(self) -> None:
        await self._redis.aclose()
        await self._connection.__aexit__(None, None, None)

    async def enqueue(self, job: dict[str, Any]) -> None:
        await app.send_message_json(channel="default", payload=job, headers={"topic": "work"})

    async def left(self) -> int:
        length = await self._redis.xlen(STREAM)
        groups = await self._redis.xinfo_groups(STREAM) if length else []
        return sum(group["lag"] + group["pending"] for group in groups) if groups else length


async def main() -> None:
    async with app.servers.default.connection():
        await app.run_worker(tasks_limit=100)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(main())
