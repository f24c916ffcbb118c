"""Reserving

Where a handler does not fit, reserve jobs and settle them yourself.
"""

from __future__ import annotations

import pytest

from penstock import LeaseLost, Penstock, State
from penstock.testing import Clock


async def test_take_and_settle(app: Penstock) -> None:
    """A reserved job is yours until you complete, fail, retry or release it."""
    letters = app.queue("letters")
    await letters.enqueue_many(["a", "b", "c", "d"])
    a, b, c, d = await letters.reserve(limit=4)
    await a.complete("sent")
    await b.fail("no stamp")  # as if a handler had raised: it is tried again after the backoff
    await c.retry(delay=60)
    await d.release()  # back to its place, as if never taken
    counts = await letters.counts()
    assert (counts[State.COMPLETED], counts[State.RETRYING], counts[State.QUEUED]) == (1, 2, 1)


async def test_as_a_block(app: Penstock) -> None:
    """Leaving the block completes the job; an exception fails it."""
    letters = app.queue("letters")
    await letters.enqueue("a", id="a")
    async with (await letters.reserve())[0] as letter:
        assert letter.payload == "a"
    assert (await letters.counts())[State.COMPLETED] == 1


async def test_waiting_for_one(app: Penstock) -> None:
    """With `wait` the answer comes as soon as there is a job, and is empty after that time."""
    assert await app.queue("letters").reserve() == []
    assert await app.queue("letters").reserve(wait=0.01) == []
    await app.queue("letters").enqueue("a")
    [letter] = await app.queue("letters").reserve(wait=60)
    await letter.complete()


async def test_too_late(app: Penstock, clock: Clock) -> None:
    """A reservation whose lease expired can no longer change its job."""
    letters = app.queue("letters")
    await letters.enqueue("a", id="a")
    [mine] = await letters.reserve(lease=60)
    clock.advance(seconds=61)
    [theirs] = await letters.reserve()
    with pytest.raises(LeaseLost):
        await mine.complete("by me")
    await theirs.complete("by them")
    assert await letters.result("a") == "by them"
