"""The cost of a job: stored with it, kept through its runs, replaced together with its payload."""

from __future__ import annotations

import pytest

from penstock.model.checks import MAX_COST
from penstock.model.job import Update
from penstock.storage.base import Storage
from tests.support import LEASE, SECOND, TTL, Clock, claim1, complete, get1, new, put1, retried, settle1, update


async def cost_of(storage: Storage, id: str = "a") -> int:
    return (await get1(storage, id)).cost


@pytest.mark.parametrize("cost", [1, 2, MAX_COST])
async def test_a_cost_reads_back_as_it_was_put(storage: Storage, cost: int) -> None:
    """A job has the cost it was put with, alone and next to every other field."""
    await put1(storage, "q", "a", cost=cost)
    await storage.put([new("q", "b", b"p", cost=cost, group="g", headers=b"h", bounds=b"l", start_within=SECOND)])
    assert [await cost_of(storage, id) for id in "ab"] == [cost, cost]
    full = await get1(storage, "b")
    assert (full.payload, full.headers, full.bounds, full.group) == (b"p", b"h", b"l", "g")


async def test_a_job_without_a_cost_has_the_cost_1(storage: Storage) -> None:
    """The default is 1."""
    await put1(storage, "q", "a")
    assert await cost_of(storage) == 1


async def test_a_job_keeps_its_cost_through_retries_and_reaps_and_when_it_is_finished(
    storage: Storage, clock: Clock
) -> None:
    """Runs that are retried, reaped and completed leave the cost as it was."""
    await put1(storage, "q", "a", cost=7)
    first = await claim1(storage)
    assert (first.payload, await cost_of(storage)) == (b"x", 7)
    await storage.settle([retried(first, delay=0)])
    assert await cost_of(storage) == 7
    await claim1(storage)
    clock.advance(seconds=LEASE // SECOND + 1)
    await storage.reap(["q"])
    assert await cost_of(storage) == 7
    await settle1(storage, complete(await claim1(storage), b"r", TTL))
    assert await cost_of(storage) == 7
    assert await storage.revive("q", ["a"], True) == [True]
    assert await cost_of(storage) == 7


async def test_an_update_of_the_payload_replaces_the_cost(storage: Storage) -> None:
    """The cost belongs to the payload: an update that replaces the payload replaces the cost, any other keeps it."""
    await put1(storage, "q", "a", cost=7)
    await storage.put([update(flags=Update(payload=False), cost=3)])
    assert await cost_of(storage) == 7
    await storage.put([update(flags=Update(), cost=3)])
    assert await cost_of(storage) == 3
    await storage.put([update()])
    assert await cost_of(storage) == 1


async def test_a_successor_brings_its_cost(storage: Storage) -> None:
    """A successor has its own cost when it is released, and gives it to the run that it is merged into."""
    await put1(storage, "q", "a", cost=2)
    claim = await claim1(storage)
    await storage.put([update(flags=Update(), cost=5)])
    assert await cost_of(storage) == 2
    await storage.settle([retried(claim, delay=0)])
    assert await cost_of(storage) == 5
    claim = await claim1(storage)
    await storage.put([update(flags=Update(), cost=9)])
    await settle1(storage, complete(claim))
    assert await cost_of(storage) == 9
