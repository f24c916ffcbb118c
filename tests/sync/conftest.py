"""A sync app on each storage, and a worker beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.sync import Penstock, Worker
from tests.support import Backend, RedisBackend, SqliteBackend


def url_of(backend: Backend) -> str:
    """Return the URL of a backend."""
    if isinstance(backend, RedisBackend):
        return backend.url
    assert isinstance(backend, SqliteBackend)
    return f"sqlite:{backend.path}" if backend.shared else "memory:"


@pytest.fixture
def url(backend: Backend) -> str:
    return url_of(backend)


@pytest.fixture
def app(url: str, backend: Backend, no_leaks: None) -> Iterator[Penstock]:
    """An app that was not opened; closing it must leave no thread, socket or file."""
    app = Penstock(url, namespace=backend.namespace)
    yield app
    app.close()


def drain(app: Penstock) -> None:
    """Run everything that is due, here and now."""
    Worker(app).drain()


def working(app: Penstock) -> Worker:
    """Return a worker that works on a thread of its own inside a `with` block."""
    return Worker(app)
