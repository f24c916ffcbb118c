"""Start jobs for three feeds, stop one of their workers with SIGTERM and one with SIGKILL, and print who takes over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import suppress

from jobs import Feed, app
from penstock import JobCancelled, JobStatus, State

PORT = int(os.environ.get("PORT", "8000"))
NAMES = ("ant", "bee", "cat")

connections = app.queue("connections")


async def holder(name: str, but: str = "") -> JobStatus:
    """Wait until a worker runs the job of a feed and return that; with `but`, another worker."""
    while True:
        job = await connections.status(name)
        if job is not None and job.state is State.RUNNING and job.worker != but:
            return job
        await asyncio.sleep(0.1)


async def pid_of(worker: str) -> int:
    while True:
        for info in await app.workers():
            if info.id == worker:
                return info.pid
        await asyncio.sleep(0.1)


async def wait_for_ticks(names: Iterable[str]) -> None:
    """Wait until a new line has come from each of the feeds."""
    missing = set(names)
    async with app.events("completed", queue="ticks") as ticks:
        async for event in ticks:
            missing.discard(event.id.partition("/")[0])
            if not missing:
                return


async def hand_over(how: signal.Signals) -> None:
    """Stop the worker that has the first feed, and wait for its successor."""
    before = await holder(NAMES[0])
    assert before.worker is not None
    print(f"{how.name} to worker {before.worker}, which has {NAMES[0]}")
    os.kill(await pid_of(before.worker), how)
    after = await holder(NAMES[0], but=before.worker)
    await wait_for_ticks(NAMES)
    print(f"{after.worker} has {NAMES[0]}, all three feeds arrive; workers lost so far: {after.stalls}")


async def main() -> None:
    async with app:
        for name in NAMES:
            await connections.enqueue(Feed(name, "127.0.0.1", PORT), id=name)
        await wait_for_ticks(NAMES)
        await hand_over(signal.SIGTERM)
        await hand_over(signal.SIGKILL)
        for name in NAMES:
            await connections.cancel(name, running="kill")
            with suppress(JobCancelled):
                await connections.wait(name)
        print("all closed")


if __name__ == "__main__":
    asyncio.run(main())
