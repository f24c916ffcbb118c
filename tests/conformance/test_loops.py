"""A storage that was left open in one event loop goes on in the next."""

from __future__ import annotations

import asyncio
import gc

import pytest

from penstock.storage.base import Storage
from tests.support import Backend, RedisBackend, put1

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("sqlite", "redis", "valkey")]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_next_event_loop_finds_a_way(backend: Backend) -> None:
    """Scripts and notebooks call `asyncio.run` again and again with one app that nobody closes between."""
    storage: Storage = backend.build()

    async def first() -> None:
        await storage.open()
        await put1(storage, "q", "a")

    async def second() -> int:
        await put1(storage, "q", "b")
        assert not await storage.wait_work(["other"], 0.01)
        return sum((await storage.counts("q")).values())

    async def last() -> None:
        await storage.delete_queue("q")
        await storage.close()

    asyncio.run(first())
    assert asyncio.run(second()) == 2
    asyncio.run(last())
    del storage
    gc.collect()  # what nobody closed complains now, not in another test
    if isinstance(backend, RedisBackend):
        backend.clear()
