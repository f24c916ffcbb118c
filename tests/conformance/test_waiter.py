"""Jobs with a waiter: they can be read for a minute after they are finished, even with a TTL of 0."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.model.job import State, Update
from penstock.storage.base import Storage
from tests.support import (
    MINUTE,
    Clock,
    cancel_run,
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
    [(complete, State.COMPLETED), (fail, State.FAILED), (cancel_run, State.CANCELLED)],
)
async def test_a_finished_job_with_a_waiter_stays_for_a_minute(
    storage: Storage, clock: Clock, ending: Any, state: State
) -> None:
    """A job put with a waiter can be read for a minute after it is finished, though its TTL is 0."""
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


async def test_a_finished_job_without_a_waiter_is_gone(storage: Storage) -> None:
    """Without a waiter a TTL of 0 keeps nothing; a waiter of an earlier job of the id does not count."""
    await put1(storage, "q", "a", waiter="somebody")
    await settle1(storage, complete(await claim1(storage), ttl=0))
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=0))
    assert await state_of(storage) is None


async def test_the_id_of_a_job_kept_for_its_waiter_is_free(storage: Storage) -> None:
    """A result that is kept for its waiters only is no cached result: a put of the id starts a new job."""
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
async def test_a_put_with_a_waiter_over_a_waiting_job_adds_the_waiter(storage: Storage, flags: Update | None) -> None:
    """A duplicate or an update of a waiting job, put with a waiter, adds that waiter."""
    await put1(storage, "q", "a")
    await put1(storage, "q", "a", waiter="somebody", update=flags)
    await settle1(storage, complete(await claim1(storage), ttl=0))
    assert await state_of(storage) is State.COMPLETED


async def test_a_put_with_a_waiter_over_a_running_job_adds_the_waiter(storage: Storage) -> None:
    """A duplicate of a running job, put with a waiter, adds that waiter."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert (await put1(storage, "q", "a", waiter="somebody")).status == "duplicate"
    await settle1(storage, complete(claim, ttl=0))
    assert await state_of(storage) is State.COMPLETED


async def test_a_waiter_does_not_shorten_a_ttl(storage: Storage) -> None:
    """A job with a TTL is kept for that TTL, and its id is taken."""
    await put1(storage, "q", "a", waiter="somebody")
    await settle1(storage, complete(await claim1(storage), ttl=5))
    assert (await put1(storage, "q", "a")).status == "completed"


async def test_a_cancelled_job_with_a_waiter_stays(storage: Storage) -> None:
    """A waiting job with a waiter can be read after it was cancelled."""
    await put1(storage, "q", "a", waiter="somebody")
    await storage.cancel("q", ["a"])
    assert await state_of(storage) is State.CANCELLED


@pytest.mark.beyond_model
async def test_wait_done_makes_a_finished_job_stay(storage: Storage) -> None:
    """A job that `wait_done` waits for can be read after it is finished."""
    await put1(storage, "q", "a")
    task = asyncio.create_task(storage.wait_done("q", "a", 30))
    claim = await claim1(storage)
    assert await storage.wait_done("q", "a", 0.05) is False
    await settle1(storage, complete(claim, ttl=0))
    assert await asyncio.wait_for(task, 4) is True
    assert await eventually(lambda: state_of(storage)) is State.COMPLETED
