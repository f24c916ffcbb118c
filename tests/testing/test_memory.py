"""`on_memory`: an app with its storage replaced by one in memory."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from penstock import Penstock, State, Worker, sync
from penstock.testing import Clock, drain, on_memory
from tests.testing.conftest import Shop, double


async def test_an_app_works_in_memory_with_its_handlers(shop: Shop, clock: Clock) -> None:
    """An app on memory runs its own handlers, and its own storage is not touched."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", id="ann")
        await Worker(app).drain()
        assert await app.queue("charge").result("ann") == "charged ann"
    assert shop.charged == ["ann 0", "receipt for ann"]


async def test_the_app_is_restored_after_the_block(shop: Shop) -> None:
    """After the block the app has its old storage, clock and handlers, and no thread is left."""
    app, threads = shop.app, set(threading.enumerate())
    before = dict(vars(app))
    with on_memory(app, Clock(1_000)) as clock:
        assert (app.clock, clock.time()) == (clock, 1_000)
        app.listen("more", double)
        await app.queue("more").enqueue(1)
        await app.close()
    assert vars(app) == before
    assert "more" not in app.handlers
    assert not [thread for thread in threading.enumerate() if thread not in threads and "penstock" in thread.name]


async def test_jobs_stay_until_the_block_ends(shop: Shop, clock: Clock) -> None:
    """Closing and opening the app inside the block keeps its jobs."""
    for name in ("ann", "bob"):
        async with shop.app as app:
            await app.queue("charge").enqueue(name)
    async with shop.app as app:
        assert (await app.queue("charge").counts())[State.QUEUED] == 2


def test_each_block_begins_empty(shop: Shop) -> None:
    """Jobs of one block are not in the next, even if the app was never closed."""

    async def one_more() -> int:
        await shop.app.queue("charge").enqueue("ann")
        return (await shop.app.queue("charge").counts())[State.QUEUED]

    for _ in range(2):
        with on_memory(shop.app):
            assert [asyncio.run(one_more()), asyncio.run(one_more())] == [1, 2]


async def test_an_open_app_is_refused(shop: Shop) -> None:
    """An open app is refused, since it is in use."""
    async with Penstock("memory:") as app:
        with pytest.raises(RuntimeError, match="the app is open"), on_memory(app):
            pass
    with sync.Penstock("memory:") as plain, pytest.raises(RuntimeError, match="the app is open"), on_memory(plain):
        pass


async def test_the_clock_stands_still_at_the_present(shop: Shop, clock: Clock) -> None:
    """The default clock stands still at the present, so wall-clock times mean the same to the storage."""
    assert abs(clock.time() - time.time()) < 60
    async with shop.app as app:
        assert await app.storage.time() == await app.storage.time() == round(clock.time() * 1000)


def test_a_sync_app_works_in_memory(plain: sync.Penstock, plain_clock: Clock) -> None:
    """A sync app on memory enqueues, drains, and may be closed in between."""
    queue = plain.queue("q")
    with plain:
        queue.enqueue(21, id="a")
    assert [event.result for event in drain(plain)] == [42]
    assert queue.result("a") == 42


def test_a_sync_app_is_restored_after_the_block(plain: sync.Penstock) -> None:
    """After the block a sync app has its old backends, handlers and clock."""
    before, inside = dict(vars(plain.backends)), dict(vars(plain.async_app))
    with on_memory(plain):
        plain.queue("q").enqueue(1)
    assert (vars(plain.backends), vars(plain.async_app)) == (before, inside)
    assert not plain.is_open
