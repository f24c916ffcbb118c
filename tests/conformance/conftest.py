"""Fixtures of the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy import Proxy
from tests.servers import Server
from tests.support import RedisBackend


@pytest.fixture
def proxy(backend: RedisBackend, no_leaks: None) -> Iterator[Proxy]:
    """A proxy in front of the server, on which replies, requests and connections can be lost."""
    assert isinstance(backend.server, Server)
    with Proxy(backend.server.port) as proxy:
        yield proxy
