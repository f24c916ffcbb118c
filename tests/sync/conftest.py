"""A sync app on each storage, and a worker beside it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from penstock import Worker
from penstock.sync import Penstock
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
    asyncio.run(Worker(app.async_app).drain())


@contextlib.contextmanager
def working(app: Penstock) -> Generator[None]:
    """Run a worker on a thread of its own inside the block."""
    begun = threading.Event()
    known: dict[str, Any] = {}

    async def work() -> None:
        known["loop"], known["end"] = asyncio.get_running_loop(), asyncio.Event()
        async with Worker(app.async_app):
            begun.set()
            await known["end"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert begun.wait(10)
    try:
        yield
    finally:
        known["loop"].call_soon_threadsafe(known["end"].set)
        thread.join()
