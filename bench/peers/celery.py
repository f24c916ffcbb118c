"""Celery: acknowledged after the run, so at least once; results in Redis only for calls."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from bench import run_counter
from bench.producer import Adapter, url

app = Celery("bench", broker=url(), backend=url() if os.environ.get("BENCH_RESULTS") else None)
app.conf.update(
    task_acks_late=True,
    task_ignore_result=not os.environ.get("BENCH_RESULTS"),
    worker_prefetch_multiplier=128,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_serializer="json",
)


@app.task(name="work", ignore_result=True)
def work(payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


@app.task(name="reply")
def reply(payload: dict[str, Any]) -> int:
    return payload["user"]


class Producer(Adapter):
    package = "celery"

    def open(self) -> None:
        from redis import Redis

        self._redis = Redis.from_url(url())

    def close(self) -> None:
        self._redis.close()
        app.close()

    def enqueue(self, job: dict[str, Any]) -> None:
        work.delay(job)

    def call(self, job: dict[str, Any]) -> Any:
        return reply.delay(job).get(timeout=30)

    def left(self) -> int:
        return self._redis.llen("celery") + self._redis.hlen("unacked")
