"""Workload `cycle`: put, then claim and settle, called on the storage directly, in batches, by one client."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.cases import Sample, record
from bench.results import REPETITIONS, Measurements
from bench.storages import BenchStorage
from bench.systems import penstock_system
from penstock._version import __version__
from penstock.model.ids import new_ids, new_token
from penstock.model.job import NewJob
from penstock.storage import connect
from penstock.storage.base import Complete, Request, Settlement, Storage

PAYLOAD = b'{"user":12345,"action":"resize","size":[640,480]}'
KINDS = ("plain", "ids", "priorities", "groups")
BATCH = 100


def _jobs(kind: str, at: int, count: int) -> list[NewJob]:
    jobs: list[NewJob] = []
    for i, id in enumerate(new_ids(count), at):
        options: dict[str, Any] = {"fresh": kind != "ids"}
        if kind == "priorities":
            options["priority"] = i % 5
        elif kind == "groups":
            options["group"] = f"group-{i % 1000}"
        jobs.append(NewJob(queue="bench", id=id, payload=PAYLOAD, **options))
    return jobs


async def _once(storage: Storage, kind: str, count: int) -> tuple[float, float]:
    """Return the puts per second, and the jobs claimed and settled per second."""
    start = time.perf_counter()
    for at in range(0, count, BATCH * 5):
        await storage.put(_jobs(kind, at, BATCH * 5))
    put = time.perf_counter() - start
    start = time.perf_counter()
    done = 0
    while done < count:
        claimed = await storage.claim([Request("bench", BATCH)], "bench", 60_000, new_token())
        await storage.settle([Settlement(c.queue, c.id, c.token, Complete(b"null", 3_600_000)) for c in claimed.claims])
        done += len(claimed.claims)
    work = time.perf_counter() - start
    await storage.delete_queue("bench")
    return count / put, count / work


async def _run(bench_storage: BenchStorage, measurements: Measurements, count: int) -> None:
    about = {"version": __version__, "loop": None}
    for kind in KINDS:
        bench_storage.clear()
        storage = connect(bench_storage.url)
        await storage.open()
        for _ in range(REPETITIONS):
            put, work = await _once(storage, kind, count)
            record(
                measurements,
                penstock_system(),
                bench_storage,
                about,
                Sample(f"cycle/put/{kind}", "jobs/s", put, jobs=count),
            )
            record(
                measurements,
                penstock_system(),
                bench_storage,
                about,
                Sample(f"cycle/work/{kind}", "jobs/s", work, jobs=count),
            )
        await storage.close()


def run(bench_storage: BenchStorage, measurements: Measurements, full: bool) -> list[str]:
    asyncio.run(_run(bench_storage, measurements, 50_000 if full else 5_000))
    return []
