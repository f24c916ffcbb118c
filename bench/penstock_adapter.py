"""Penstock under test: the app that workers load, and the adapters of its async and sync producers."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

from bench import run_counter
from bench.producer import Adapter, url
from penstock import Entry, Penstock, State
from penstock import sync as penstock_sync
from penstock._version import __version__

GROUPS = 1000
COMPUTES = int(os.environ.get("BENCH_COMPUTES", "0"))

# One log line per run is off here, as it is for every peer.
logging.getLogger("penstock").setLevel(logging.WARNING)

app = Penstock(os.environ.get("BENCH_URL", "memory:"))


@app.handler("work", **json.loads(os.environ.get("BENCH_OPTIONS", "{}")))
async def work(payload: dict[str, Any]) -> int:
    run_counter.record_run(payload)
    if COMPUTES:
        sum(range(COMPUTES))
    return payload["user"]


def entry(number: int, job: dict[str, Any], kind: str) -> Any:
    """Return the job with an id, a group or a priority, as its kind asks."""
    if kind == "ids":
        return Entry(job, id=f"job-{number:012}")
    if kind == "groups":
        return Entry(job, group=f"lane-{number % GROUPS}")
    if kind == "priorities":
        return Entry(job, priority=number % 5)
    return job


class Producer(Adapter):
    chunk = 10_000_000  # enqueue_many splits its list by itself

    def version(self) -> str:
        return __version__

    async def open(self) -> None:
        self._app = Penstock(url())
        await self._app.open()
        self._queue = self._app.queue("work")

    async def close(self) -> None:
        await self._app.close()

    async def enqueue(self, job: dict[str, Any]) -> None:
        await self._queue.enqueue(job)

    async def enqueue_many(self, jobs: list[dict[str, Any]]) -> None:
        await self._queue.enqueue_many(jobs)

    async def fill(self, jobs: list[dict[str, Any]], kind: str) -> None:
        await self._queue.enqueue_many([entry(number, job, kind) for number, job in enumerate(jobs)])

    async def call(self, job: dict[str, Any]) -> Any:
        return await self._queue.call(job)

    async def left(self) -> int:
        counts = await self._queue.counts()
        return sum(counts.values()) - counts[State.COMPLETED]


class SyncProducer(Adapter):
    chunk = 10_000_000

    def version(self) -> str:
        return __version__

    def open(self) -> None:
        self._app = penstock_sync.Penstock(url())
        self._app.open()
        self._queue = self._app.queue("work")

    def close(self) -> None:
        self._app.close()

    def enqueue(self, job: dict[str, Any]) -> None:
        self._queue.enqueue(job)

    def enqueue_many(self, jobs: list[dict[str, Any]]) -> None:
        self._queue.enqueue_many(jobs)

    def call(self, job: dict[str, Any]) -> Any:
        return self._queue.call(job)

    def left(self) -> int:
        counts = self._queue.counts()
        return sum(counts.values()) - counts[State.COMPLETED]
