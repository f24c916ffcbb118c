"""Dramatiq: two threads in one process, acknowledged after the run; results in Redis only for calls."""

from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench import run_counter
from bench.producer import Adapter, url

broker = RedisBroker(url=url())
if os.environ.get("BENCH_RESULTS"):
    broker.add_middleware(Results(backend=RedisBackend(url=url())))
dramatiq.set_broker(broker)


@dramatiq.actor
def work(payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


@dramatiq.actor(**({"store_results": True} if os.environ.get("BENCH_RESULTS") else {}))
def reply(payload: dict[str, Any]) -> int:
    return payload["user"]


class Producer(Adapter):
    package = "dramatiq"

    def open(self) -> None:
        self._redis = broker.client
        self._redis.ping()

    def close(self) -> None:
        broker.close()

    def enqueue(self, job: dict[str, Any]) -> None:
        work.send(job)

    def call(self, job: dict[str, Any]) -> Any:
        return reply.send(job).get_result(block=True, timeout=30_000)

    def left(self) -> int:
        """Return the number of messages that are queued or held by a worker."""
        return self._redis.hlen("dramatiq:default.msgs")
