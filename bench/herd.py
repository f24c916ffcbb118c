"""Do all idle workers wake up for one job? 200 of them wait, jobs come one by one, and the claims are counted.

The workers have connections of their own in one process; the server's MONITOR tells which scripts ran, and
when. Idle workers also look around at times: those claims are among the counted ones, and how many there
are in as much time just before a job comes is told beside.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from bench.cases import Case, Reading
from bench.monitor import Command, Monitor
from bench.rig import Rig
from bench.systems import ours
from penstock import Penstock, Worker

WORKERS = 200
JOBS = 20
WINDOW = 0.02  # seconds before and after a job in which claims are counted


async def _watch(url: str, workers: int) -> list[Command]:
    async with AsyncExitStack() as stack:
        done = asyncio.Event()

        async def work(payload: Any) -> None:
            done.set()

        for _ in range(workers):
            app = await stack.enter_async_context(Penstock(url))
            app.handler("work")(work)
            await stack.enter_async_context(Worker(app))
        asking = await stack.enter_async_context(Penstock(url))
        await asyncio.sleep(3.0)
        monitor = Monitor(url)
        for _ in range(JOBS):
            await asyncio.sleep(WINDOW * 10)
            done.clear()
            await asking.queue("work").enqueue({})
            await done.wait()
        await asyncio.sleep(WINDOW * 4)
        return await asyncio.to_thread(monitor.commands)


def claims_per_job(commands: list[Command]) -> tuple[float, float]:
    """Claims in the moment after a job came, and in the moment before."""
    puts = [command.at for command in commands if command.name == "put"]
    claims = [command.at for command in commands if "claim" in command.name]
    after = sum(0 <= at - put < WINDOW for put in puts for at in claims)
    before = sum(0 < put - at <= WINDOW for put in puts for at in claims)
    return after / len(puts), before / len(puts)


def once(rig: Rig, workers: int = WORKERS) -> list[Reading]:
    after, before = claims_per_job(asyncio.run(_watch(rig.storage.url, workers)))
    notes = {"workers": workers, "claims_just_before": round(before, 2)}
    return [Reading("herd", "claims/job", after, jobs=JOBS, notes=notes)]


def cases(full: bool) -> list[Case]:
    return [Case("herd", ours(), once)]
