"""Huey: at most once, since a job is popped from Redis or deleted from SQLite before its run."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey, SqliteHuey

from bench import run_counter
from bench.producer import Adapter, url

if url().startswith("sqlite:"):
    # WAL is Huey's default; without fsync it is fastest.
    huey = SqliteHuey("bench", filename=url().removeprefix("sqlite:"), fsync=False)
else:
    huey = RedisHuey("bench", url=url(), notify_result=True)


@huey.task()
def work(payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


@huey.task()
def reply(payload: dict[str, Any]) -> int:
    return payload["user"]


class Producer(Adapter):
    package = "huey"

    def open(self) -> None:
        huey.pending_count()

    def close(self) -> None:
        huey.storage.close()

    def enqueue(self, job: dict[str, Any]) -> None:
        work(job)

    def call(self, job: dict[str, Any]) -> Any:
        return reply(job).get(blocking=True, timeout=30)

    def left(self) -> int:
        return huey.pending_count()
