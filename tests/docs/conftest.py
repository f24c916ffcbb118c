"""A reader with an empty directory, and a server where a page wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import Reader
from tests.servers import Server, Servers


@pytest.fixture(scope="session")
def doc_servers() -> Iterator[Servers]:
    """Servers for the documentation alone: its programs use the usual namespace."""
    servers = Servers()
    yield servers
    servers.remove()


@pytest.fixture
def reader(doc_servers: Servers, tmp_path: Path) -> Iterator[Reader]:
    """Somebody who does what a page says."""

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
