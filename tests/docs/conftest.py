"""Fixture of the documentation tests: a reader with an empty directory, and a Redis server if a page uses one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import Reader
from tests.servers import Server, Servers


@pytest.fixture(scope="session")
def doc_servers() -> Iterator[Servers]:
    """Servers for the documentation alone, whose programs use the default namespace."""
    servers = Servers()
    yield servers
    servers.remove()


@pytest.fixture
def reader(doc_servers: Servers, tmp_path: Path) -> Iterator[Reader]:
    """A reader who follows a page."""

    def url() -> str:
        server = doc_servers.get("redis")
        assert isinstance(server, Server)
        return f"redis://{server.address}"

    reader = Reader(tmp_path, url)
    yield reader
    reader.interrupt()
    server = doc_servers.running("redis")
    if isinstance(server, Server):
        with server.client() as client:
            client.flushall()
