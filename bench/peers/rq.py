"""RQ with SimpleWorker, which runs jobs in its own process instead of forking for each; results in Redis."""

from __future__ import annotations

from typing import Any

from redis import Redis
from rq import Queue

from bench import run_counter
from bench.producer import Adapter, url


def work(payload: dict[str, Any]) -> None:
    run_counter.record_run(payload)


def reply(payload: dict[str, Any]) -> int:
    return payload["user"]


class Producer(Adapter):
    package = "rq"

    def open(self) -> None:
        self._redis = Redis.from_url(url())
        self._queue = Queue("bench", connection=self._redis)

    def close(self) -> None:
        self._redis.close()

    def enqueue(self, job: dict[str, Any]) -> None:
        self._queue.enqueue(work, job, result_ttl=0)

    def enqueue_many(self, jobs: list[dict[str, Any]]) -> None:
        self._queue.enqueue_many([Queue.prepare_data(work, (job,), result_ttl=0) for job in jobs])

    def call(self, job: dict[str, Any]) -> Any:
        result = self._queue.enqueue(reply, job).latest_result(timeout=30)
        return result.return_value

    def left(self) -> int:
        return len(self._queue) + len(self._queue.started_job_registry) + len(self._queue.failed_job_registry)
