"""An app that is moved to memory for a while."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from penstock import Penstock, State, Worker, sync
from penstock.testing import Clock, drain, on_memory
from tests.testing.conftest import Shop, double


async def test_an_app_works_in_memory_with_its_handlers(shop: Shop, clock: Clock) -> None:
    """A module's own app runs its handlers, and what it is connected to otherwise is not touched."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", id="ann")
        await Worker(app).drain()
        assert await app.queue("charge").result("ann") == "charged ann"
    assert shop.charged == ["ann 0", "receipt for ann"]


async def test_afterwards_everything_is_as_before(shop: Shop) -> None:
    """The storage, the clock and the handlers of before are back, and no thread is left."""
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
    """Code that opens and closes the app itself loses no jobs; the next block begins with none."""
    for name in ("ann", "bob"):
        async with shop.app as app:
            await app.queue("charge").enqueue(name)
    async with shop.app as app:
        assert (await app.queue("charge").counts())[State.QUEUED] == 2


def test_each_block_begins_empty(shop: Shop) -> None:
    """What one test left is not there in the next, though nobody closed the app."""

    async def one_more() -> int:
        await shop.app.queue("charge").enqueue("ann")
        return (await shop.app.queue("charge").counts())[State.QUEUED]

    for _ in range(2):
        with on_memory(shop.app):
            assert [asyncio.run(one_more()), asyncio.run(one_more())] == [1, 2]


async def test_an_open_app_is_refused(shop: Shop) -> None:
    """An app that is open is in use: it is not moved under somebody's feet."""
    async with Penstock("memory:") as app:
        with pytest.raises(RuntimeError, match="the app is open"), on_memory(app):
            pass
    with sync.Penstock("memory:") as plain, pytest.raises(RuntimeError, match="the app is open"), on_memory(plain):
        pass


async def test_the_clock_stands_still_at_the_present(shop: Shop, clock: Clock) -> None:
    """Times that the code under test takes from the wall clock mean the same to the storage."""
    assert abs(clock.time() - time.time()) < 60
    async with shop.app as app:
        assert await app.storage.time() == await app.storage.time() == round(clock.time() * 1000)


def test_a_sync_app_works_in_memory(plain: sync.Penstock, plain_clock: Clock) -> None:
    """The sync surface too: calls, tasks that were declared before, and closing meanwhile."""
    queue = plain.queue("q")
    with plain:
        queue.enqueue(21, id="a")
    assert [end.result for end in drain(plain)] == [42]
    assert queue.result("a") == 42


def test_a_sync_app_is_as_before(plain: sync.Penstock) -> None:
    """Its ways to the storage, its handlers and its clock are back."""
    before, inside = dict(vars(plain.backends)), dict(vars(plain.async_app))
    with on_memory(plain):
        plain.queue("q").enqueue(1)
    assert (vars(plain.backends), vars(plain.async_app)) == (before, inside)
    assert not plain.is_open
