"""A job that somebody waits for can be read when it ends, even if it is not to be kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.model.job import State, Update
from penstock.storage.base import Storage
from tests.support import (
    MINUTE,
    Clock,
    cancel_end,
    claim1,
    complete,
    eventually,
    fail,
    get1,
    put1,
    settle1,
    state_of,
    tally,
)


@pytest.mark.parametrize(
    ("ending", "state"),
    [(complete, State.COMPLETED), (fail, State.FAILED), (cancel_end, State.CANCELLED)],
)
async def test_an_end_stays_for_its_waiter(storage: Storage, clock: Clock, ending: Any, state: State) -> None:
    """A job put with a waiter is readable for a minute after it ended, though its TTL is 0."""
    await put1(storage, "q", "a", waiter="somebody")
    claim = await claim1(storage)
    assert (await settle1(storage, ending(claim, ttl=0))).state is state
    assert (await settle1(storage, ending(claim, ttl=0))).state is state
    assert await state_of(storage) is state
    assert (await get1(storage)).expires == clock.ms + MINUTE
    clock.advance(ms=MINUTE)
    assert await state_of(storage) is None
    await storage.purge(["q"])
    assert await storage.queues() == []


async def test_nobody_waits_and_nothing_stays(storage: Storage) -> None:
    """Without a waiter a TTL of 0 keeps nothing; the waiter of the run before does not count."""
    await put1(storage, "q", "a", waiter="somebody")
    await settle1(storage, complete(await claim1(storage), ttl=0))
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=0))
    assert await state_of(storage) is None


async def test_the_id_of_one_that_stays_is_free(storage: Storage) -> None:
    """A result that only its waiters can see is no cached result: the id starts a new job."""
    await put1(storage, "q", "a", b"one", waiter="somebody")
    claim = await claim1(storage)
    await settle1(storage, complete(claim, b"first", ttl=0))
    assert (await get1(storage)).result == b"first"
    again = await put1(storage, "q", "a", b"two")
    assert (again.status, again.state) == ("queued", State.QUEUED)
    assert await storage.counts("q") == tally(queued=1)
    assert (await settle1(storage, complete(claim, b"first", ttl=0))).state is State.COMPLETED
    assert (await get1(storage)).payload == b"two"


@pytest.mark.parametrize("flags", [None, Update()])
async def test_whoever_joins_is_a_waiter_too(storage: Storage, flags: Update | None) -> None:
    """Putting a waiting job again, with or without an update, makes one a waiter for it."""
    await put1(storage, "q", "a")
    await put1(storage, "q", "a", waiter="somebody", update=flags)
    await settle1(storage, complete(await claim1(storage), ttl=0))
    assert await state_of(storage) is State.COMPLETED


async def test_whoever_joins_a_run_is_a_waiter_too(storage: Storage) -> None:
    """A duplicate of a running job waits for that run."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert (await put1(storage, "q", "a", waiter="somebody")).status == "duplicate"
    await settle1(storage, complete(claim, ttl=0))
    assert await state_of(storage) is State.COMPLETED


async def test_a_ttl_of_ones_own_is_kept(storage: Storage) -> None:
    """A job that is kept anyway is kept as long as it was to be, and its id is taken."""
    await put1(storage, "q", "a", waiter="somebody")
    await settle1(storage, complete(await claim1(storage), ttl=5))
    assert (await put1(storage, "q", "a")).status == "completed"


async def test_a_cancelled_one_stays_too(storage: Storage) -> None:
    """Who waits for a job that is cancelled while it waits can see it."""
    await put1(storage, "q", "a", waiter="somebody")
    await storage.cancel("q", ["a"])
    assert await state_of(storage) is State.CANCELLED


@pytest.mark.beyond_model
async def test_waiting_for_an_end_makes_it_stay(storage: Storage) -> None:
    """A job that `wait_done` waits for can be read when it ends."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", 30))
    claim = await claim1(storage)
    assert await storage.wait_done("q", "a", 0.05) is False
    await settle1(storage, complete(claim, ttl=0))
    assert await asyncio.wait_for(task, 4) is True
    assert await eventually(lambda: state_of(storage)) is State.COMPLETED
