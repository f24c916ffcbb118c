"""A worker warns when it starts on a server that may lose jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock import Penstock, Worker
from tests.servers import Server, redis_program, start_or_skip


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test's own."""
    server = start_or_skip(lambda: Server(redis_program()).start())
    yield server
    server.remove()


@pytest.mark.parametrize(("policy", "lines"), [("allkeys-lru", 1), ("volatile-ttl", 1), ("noeviction", 0)])
async def test_a_server_that_drops_jobs(
    server: Server, caplog: pytest.LogCaptureFixture, policy: str, lines: int
) -> None:
    """Each start of a worker warns once of an eviction policy that drops jobs, without the password."""
    with server.client() as client:
        client.config_set("maxmemory-policy", policy)
        client.config_set("requirepass", "s3cret-word")
    app = Penstock(f"redis://:s3cret-word@{server.address}")
    app.listen("q", print)
    with caplog.at_level(logging.WARNING, "penstock"):
        await Worker(app).drain()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * lines
    assert caplog.text.count(f"maxmemory-policy is {policy}") == lines
    assert "s3cret" not in caplog.text


async def test_a_file_drops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A worker on a file, which evicts nothing, logs no warning."""
    app = Penstock("memory:")
    app.listen("q", print)
    with caplog.at_level(logging.WARNING, "penstock"):
        await Worker(app).drain()
    assert not caplog.records
