"""Handlers that block the event loop of their worker: a thread renews the leases meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Job, Penstock, Worker
from tests.servers import Server, Servers
from tests.support import new_namespace


@pytest.fixture(params=["memory", "sqlite", "redis"])
def app(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, runner: asyncio.Runner) -> Iterator[Penstock]:
    url = {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}.get(request.param)
    if url is None:
        server = servers.get("redis")
        assert isinstance(server, Server)
        url = f"redis://{server.address}/0"
    app = Penstock(url, namespace=new_namespace())
    runner.run(app.open())
    yield app
    runner.run(app.close())


async def test_a_blocked_loop_loses_no_lease(app: Penstock) -> None:
    """A handler that blocks the loop for longer than the lease is run once, and its neighbour goes on."""
    attempts: list[int] = []
    began = asyncio.Event()

    @app.handler("blocks")
    async def blocks(payload: float, job: Job) -> str:
        await began.wait()
        attempts.append(job.attempt)
        time.sleep(payload)  # noqa: ASYNC251
        return "done"

    @app.handler("waits")
    async def waits(payload: None, job: Job) -> str:
        attempts.append(job.attempt)
        began.set()
        await asyncio.sleep(0.2)
        return "waited"

    async with Worker(app, lease=0.6):
        await app.queue("blocks").enqueue(1.5, id="a")
        await app.queue("waits").enqueue(None, id="b")
        assert await app.queue("blocks").wait("a", timeout=5) == "done"
        assert await app.queue("waits").wait("b", timeout=5) == "waited"
    assert attempts == [1, 1]
