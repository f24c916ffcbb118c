"""Storages that refuse writes for a while: workers retry, log it, and charge no job."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.e2e.conftest import LONG_LEASE, Stage, until
from tests.servers import Server, redis_program

Refusal = tuple[Callable[[Any], object], Callable[[Any], object], str]

REFUSALS: dict[str, Refusal] = {
    "READONLY": (lambda c: c.replicaof("127.0.0.1", 1), lambda c: c.replicaof("NO", "ONE"), "read only replica"),
}


@pytest.fixture
def server() -> Iterator[Server]:
    """A Redis server of its own, which the test makes refuse writes."""
    server = Server(redis_program()).start()
    yield server
    server.remove()


async def sat_out(stage: Stage, refuse: Callable[[], object], accept: Callable[[], object], words: str) -> None:
    """Let a job end while nothing can be recorded; it must be recorded later, once. `words` is the log line."""
    worker = stage.worker(lease=LONG_LEASE)
    await worker.working()
    await stage.enqueue("slow", "a", {"seconds": 1})
    await stage.line("begin", "a", 1)
    refuse()
    try:
        await stage.line("end", "a", 1, seconds=20)
        await until(lambda: not words or words in worker.output_text, seconds=40)
    finally:
        accept()
    status = await stage.state("slow", "a", "completed", seconds=30)
    assert (status.attempts, status.retries, status.stalls, status.timeouts) == (1, 0, 0, 0)
    await until(lambda: not words or "the storage can be reached again" in worker.output_text, seconds=30)
    await stage.enqueue("quick", "b")
    await stage.state("quick", "b", "completed", seconds=30)
    assert worker.process.poll() is None
    assert "Traceback" not in worker.output_text
    # Supervisor and child may each log it, and once more after the other has recovered.
    assert worker.output_text.count("the storage cannot be reached") <= 4


class TestRedis:
    """A Redis server that became a replica. One without memory takes outcomes: see test_full_server.py."""

    @pytest.fixture
    def url(self, server: Server) -> str:
        return f"redis://{server.address}/0"

    @pytest.mark.parametrize("name", REFUSALS)
    async def test_an_outcome_waits_for_a_redis_that_refuses_writes(self, stage: Stage, name: str) -> None:
        """The outcome of a run is recorded once, when the server accepts writes again."""
        refuse, accept, words = REFUSALS[name]
        with redis.Redis.from_url(stage.url) as client:
            await sat_out(stage, lambda: refuse(client), lambda: accept(client), words)


class TestSqlite:
    """A file that another process has locked."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:{tmp_path / 'jobs.db'}"

    async def test_an_outcome_waits_for_a_locked_file(self, stage: Stage) -> None:
        """The outcome of a run is recorded when the file is unlocked; a short lock is not logged as an outage."""
        other = sqlite3.connect(stage.url.removeprefix("sqlite:"), isolation_level=None)
        try:
            await sat_out(stage, lambda: other.execute("BEGIN IMMEDIATE"), lambda: other.execute("ROLLBACK"), "")
        finally:
            other.close()
