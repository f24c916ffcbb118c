"""Outages of the server: expired runs are ended, and the worker continues afterwards."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Stage, until
from tests.servers import Server, redis_program


@pytest.fixture
def server() -> Iterator[Server]:
    """A Redis server of its own, which the test stops."""
    server = Server(redis_program()).start()
    yield server
    server.remove()


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return f"redis://{server.address}/0"


async def test_a_worker_outlives_an_outage(stage: Stage, server: Server) -> None:
    """In an outage longer than the lease runs are ended; afterwards the job is run again, and new ones too."""
    assert server.process is not None
    await stage.enqueue("thread", "a", {"seconds": 60, "again": 0.1})
    worker = stage.worker(lease=1)
    pid = int((await stage.line("begin", "a", 1))[-1])
    assert await worker.working() == [pid]
    server.process.send_signal(signal.SIGSTOP)
    try:
        await until(lambda: "leases were not confirmed in time" in worker.output_text)
        await until(lambda: pid not in worker.workers())
    finally:
        server.process.send_signal(signal.SIGCONT)
    status = await stage.state("thread", "a", "completed")
    assert (status.attempts, status.stalls) == (2, 1)
    await stage.enqueue("quick", "b")
    await stage.state("quick", "b", "completed")
    assert worker.process.poll() is None


async def test_a_stop_does_not_wait_for_a_dead_server(stage: Stage, server: Server) -> None:
    """A worker that is stopped during an outage exits without releasing its jobs; their leases expire."""
    await stage.enqueue("slow", "a")
    worker = stage.worker(lease=1)
    await stage.line("begin", "a", 1)
    server.kill()
    await asyncio.sleep(0.1)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.output_text
    assert worker.output_text.count("the storage cannot be reached") <= 3
    assert "Traceback" not in worker.output_text
