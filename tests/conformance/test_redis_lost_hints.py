"""A wait for work that is cancelled while the server answers it: its hint wakes another worker, and is not lost."""

from __future__ import annotations

import asyncio

import pytest

from penstock.storage.base import Storage
from penstock.storage.redis.blocking import BlockingRedisStorage
from tests.support import Backend, Clock, RedisBackend, eventually, put1

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey", "cluster")]

#: Timeout of a wait, and the time within which it must be notified.
LONG, SOON = 60.0, 10.0


async def wait_for_waits(backend: Backend, count: int) -> None:
    """Wait until the server has this number of waits for work."""
    assert isinstance(backend, RedisBackend)

    def seen() -> bool:
        total = 0
        for client in backend.clients():
            with client:
                total += client.info("clients")["blocked_clients"]
        return total >= count

    await eventually(seen)


async def test_a_cancelled_wait_passes_its_hint_on(
    backend: Backend, storage: Storage, peer: Storage, clock: Clock
) -> None:
    """Two workers wait, a put wakes the first, which is cancelled before it reads that: the second is woken."""
    assert isinstance(backend, RedisBackend)
    blocking = BlockingRedisStorage(backend.url, clock=clock, namespace=backend.namespace)
    await blocking.open()
    first = asyncio.create_task(storage.wait_work(["q", "q/x"], LONG))
    await wait_for_waits(backend, 1)
    second = asyncio.create_task(peer.wait_work(["q"], LONG))
    await wait_for_waits(backend, 2)
    await put1(blocking, "q", "a")  # the event loop does not turn: the first one has its answer, and has not read it
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await asyncio.wait_for(second, SOON) is True
    await blocking.close()
