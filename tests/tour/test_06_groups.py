"""Groups

A group is a lane inside a queue: one customer, one account, one document. Its jobs run one at a time, in order.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock import Entry, Job, Penstock, Worker
from penstock.testing import Clock


async def test_one_at_a_time_and_in_order(app: Penstock) -> None:
    """Jobs of one group never overlap and never overtake each other, while groups run side by side."""
    running: set[str] = set()
    seen: dict[str, list[int]] = {"ann": [], "bob": []}

    @app.handler("accounts")
    async def apply(change: int, job: Job) -> None:
        assert job.group is not None
        assert job.group not in running
        running.add(job.group)
        await asyncio.sleep(0)
        seen[job.group].append(change)
        running.remove(job.group)

    await app.queue("accounts").enqueue_many(Entry(n, group=name) for n in range(5) for name in ("ann", "bob"))
    await Worker(app).drain()
    assert seen == {"ann": [0, 1, 2, 3, 4], "bob": [0, 1, 2, 3, 4]}


async def test_a_failing_head_holds_its_group(app: Penstock, clock: Clock) -> None:
    """While the first job of a group waits to be tried again, the others of its group wait with it."""
    seen: list[str] = []

    @app.handler("accounts", min_backoff=60)
    async def apply(change: str, job: Job) -> None:
        if change == "open" and job.attempt == 1:
            raise ConnectionError("the bank is closed")
        seen.append(change)

    await app.queue("accounts").enqueue_many([Entry("open", group="ann"), Entry("pay in", group="ann")])
    await app.queue("accounts").enqueue("close", group="bob")
    await Worker(app).drain()
    assert seen == ["close"]
    clock.advance(minutes=1)
    await Worker(app).drain()
    assert seen == ["close", "open", "pay in"]


async def test_groups_take_turns(app: Penstock) -> None:
    """A group with many jobs does not keep a group with one waiting."""
    seen: list[str] = []
    app.listen("letters", seen.append, concurrency=1)
    await app.queue("letters").enqueue_many(Entry(f"busy {n}", group="busy") for n in range(3))
    await app.queue("letters").enqueue("quiet", group="quiet")
    await Worker(app).drain()
    assert seen == ["busy 0", "quiet", "busy 1", "busy 2"]


async def test_no_overtaking_by_priority(app: Penstock) -> None:
    """A priority cannot reorder a group, so giving both is an error at once."""
    with pytest.raises(ValueError, match="priority"):
        await app.queue("accounts").enqueue("me first", group="ann", priority=5)
