"""Workload `herd`: 200 idle workers wait, jobs are enqueued one by one, and the claims for each job are counted.

The workers have connections of their own in one process; the server's MONITOR lists the scripts and when they ran. Idle
workers also claim at intervals without a job. Those claims are counted as well, so the result has for comparison the
number of claims in the same time just before a job.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from bench.cases import Case, Sample
from bench.harness import Harness
from bench.monitor import Command, Monitor
from bench.systems import penstock_system
from penstock import Penstock, Worker

WORKERS = 200
JOBS = 20
WINDOW = 0.02  # seconds before and after an enqueue in which claims are counted


async def _commands_of_run(url: str, workers: int) -> list[Command]:
    async with AsyncExitStack() as stack:
        done = asyncio.Event()

        async def work(payload: Any) -> None:
            done.set()

        for _ in range(workers):
            app = await stack.enter_async_context(Penstock(url))
            app.handler("work")(work)
            await stack.enter_async_context(Worker(app))
        producer = await stack.enter_async_context(Penstock(url))
        await asyncio.sleep(3.0)
        monitor = Monitor(url)
        for _ in range(JOBS):
            await asyncio.sleep(WINDOW * 10)
            done.clear()
            await producer.queue("work").enqueue({})
            await done.wait()
        await asyncio.sleep(WINDOW * 4)
        return await asyncio.to_thread(monitor.commands)


def claims_per_job(commands: list[Command]) -> tuple[float, float]:
    """Return the claims per job within `WINDOW` after its enqueue, and within `WINDOW` before."""
    puts = [command.at for command in commands if command.name == "put"]
    claims = [command.at for command in commands if "claim" in command.name]
    after = sum(0 <= at - put < WINDOW for put in puts for at in claims)
    before = sum(0 < put - at <= WINDOW for put in puts for at in claims)
    return after / len(puts), before / len(puts)


def once(harness: Harness, workers: int = WORKERS) -> list[Sample]:
    after, before = claims_per_job(asyncio.run(_commands_of_run(harness.storage.url, workers)))
    notes = {"workers": workers, "claims_just_before": round(before, 2)}
    return [Sample("herd", "claims/job", after, jobs=JOBS, notes=notes)]


def cases(full: bool) -> list[Case]:
    return [Case("herd", penstock_system(), once)]
