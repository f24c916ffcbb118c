"""Workload `stats`: what the measuring of runs costs, drains with it and without it in turns in one process.

`stats/drain/on` and `stats/drain/off` are jobs per second of CPU time of worker and server together: on a machine that
is not idle this differs less from run to run than time does.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from bench.cases import Sample, record
from bench.results import Measurements
from bench.storages import BenchStorage
from bench.systems import penstock_system
from penstock import Penstock, Worker
from penstock._version import __version__

ROUNDS = 8


async def _handle(payload: Any) -> None:
    """Do nothing."""


async def _drain(bench_storage: BenchStorage, count: int, stats: str) -> tuple[float, float, float]:
    """Return the seconds that a drain took, and the CPU time of the worker and of the server."""
    os.environ["PENSTOCK_STATS"] = stats
    app = Penstock(bench_storage.url)
    app.handler("bench")(_handle)
    async with app:
        queue = app.queue("bench")
        for at in range(0, count, 1000):
            await queue.enqueue_many([{"user": at + i} for i in range(min(1000, count - at))])
        worker = Worker(app, capacity=100)
        began, client, server = time.perf_counter(), time.process_time(), bench_storage.cpu()
        await worker.drain()
        took = time.perf_counter() - began
        spent = time.process_time() - client, bench_storage.cpu() - server
        await queue.delete()
    return took, *spent


async def _run(bench_storage: BenchStorage, measurements: Measurements, count: int) -> None:
    system, about = penstock_system(), {"version": __version__, "loop": None}
    before = os.environ.get("PENSTOCK_STATS")
    await _drain(bench_storage, count // 4, "on")  # imports and caches
    try:
        for round_ in range(ROUNDS):
            for stats in ("on", "off") if round_ % 2 else ("off", "on"):
                _, client, server = await _drain(bench_storage, count, stats)
                value = count / (client + server)
                sample = Sample(
                    f"stats/drain/{stats}", "jobs/s", value, 1e6 * client / count, 1e6 * server / count, count
                )
                record(measurements, system, bench_storage, about, sample)
    finally:
        if before is None:
            del os.environ["PENSTOCK_STATS"]
        else:
            os.environ["PENSTOCK_STATS"] = before


def run(bench_storage: BenchStorage, measurements: Measurements, full: bool) -> list[str]:
    """Measure what statistics cost."""
    asyncio.run(_run(bench_storage, measurements, 50_000 if full else 10_000))
    return []
