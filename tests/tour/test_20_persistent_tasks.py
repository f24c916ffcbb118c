"""Tasks that never end

A handler with `timeout=None` holds its job for as long as it runs: one worker keeps a connection open, for example.
"""

from __future__ import annotations

import asyncio

from penstock import Job, Penstock, Worker


async def test_held_by_one_worker(app: Penstock) -> None:
    """Exactly one worker has the job, and it ends when cancellation is requested."""
    held = 0
    begun = asyncio.Event()

    @app.handler("connections", timeout=None)
    async def keep(address: str, job: Job) -> str:
        nonlocal held
        held += 1
        begun.set()
        await job.cancelled
        return "closed"

    async with Worker(app, id="one"), Worker(app, id="two"):
        await app.queue("connections").enqueue("wss://example.org", id="feed")
        await begun.wait()
        await app.queue("connections").cancel("feed", running="signal")
        assert await app.queue("connections").wait("feed") == "closed"
    assert held == 1


async def test_moved_when_its_worker_stops(app: Penstock) -> None:
    """When the worker that has it stops, the job is given back, and another worker takes it without a lost attempt."""
    runs: asyncio.Queue[int] = asyncio.Queue()

    @app.handler("connections", timeout=None)
    async def keep(address: str, job: Job) -> None:
        await runs.put(job.attempt)
        await job.cancelled

    await app.queue("connections").enqueue("wss://example.org", id="feed")
    async with Worker(app) as first:
        assert await runs.get() == 1
        async with Worker(app):
            await first.stop(grace=0)
            assert await runs.get() == 1
            await app.queue("connections").cancel("feed", running="signal")
            await app.queue("connections").wait("feed")
