"""Walks over the jobs of all queues: one order, each job once, and cursors that lead on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Entry, Penstock, State, Worker
from penstock.aio import gather_each
from penstock.client import job_walk
from penstock.client.answers import JobStatus
from penstock.client.job_filter import find_jobs, parse_filter
from penstock.testing import Clock

pytestmark = pytest.mark.one_per_engine


async def all_pages(app: Penstock, text: str, limit: int, **options: Any) -> list[JobStatus]:
    """Return the jobs of all pages of a search."""
    found: list[JobStatus] = []
    cursor: str | None = None
    while True:
        page = await find_jobs(app, parse_filter(text), cursor, limit, **options)
        assert len(page.jobs) <= limit
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found


async def fill(app: Penstock, clock: Clock) -> None:
    """Enqueue jobs in turns over three queues, one second apart, some scheduled, and complete those of one queue."""

    @app.handler("done", result_ttl=3600)
    async def done(payload: Any) -> None:
        return None

    for n in range(24):
        queue = ("a", "b", "done")[n % 3]
        await app.queue(queue).enqueue(n, id=f"j{n:02}", delay=3600 - n if n % 4 == 3 else None)
        clock.advance(1)
        await Worker(app).drain()


@pytest.mark.parametrize("limit", [1, 4, 5, 50])
async def test_the_newest_jobs_of_all_queues_come_first(app: Penstock, clock: Clock, limit: int) -> None:
    """With any size of pages each job is found once, state by state, and the newest of a state first."""
    await fill(app, clock)
    for state in (State.QUEUED, State.SCHEDULED, State.COMPLETED):
        jobs = await all_pages(app, f"state:{state}", limit, newest=True)
        times = [job.finished_at or job.run_at for job in jobs]
        assert times == sorted(times, reverse=True), state
        assert len({job.queue for job in jobs}) > (state is State.QUEUED), state
    everything = await all_pages(app, "", limit, newest=True)
    assert sorted(job.id for job in everything) == [f"j{n:02}" for n in range(24)]
    states = [job.state for job in everything]
    assert states == sorted(states, key=[State.QUEUED, State.SCHEDULED, State.COMPLETED].index)
    oldest = await all_pages(app, "state:queued", limit)
    assert [job.id for job in oldest] == sorted(job.id for job in oldest)


@pytest.mark.parametrize("max_looked", [1, 7, 100])
async def test_a_walk_is_shared_by_the_queues(app: Penstock, clock: Clock, max_looked: int) -> None:
    """A search that no index answers looks at the newest jobs of all queues; its pages have each fitting job once."""
    await fill(app, clock)
    first = await find_jobs(app, parse_filter("state:queued 1"), max_looked=max_looked, newest=True)
    assert first.looked == min(max_looked, 12)
    found = await all_pages(app, "payload.none:1", 50, max_looked=max_looked, newest=True)
    assert found == []
    some = await all_pages(app, "1", 50, max_looked=max_looked, newest=True)
    assert sorted(job.id for job in some) == sorted(f"j{n:02}" for n in range(24) if "1" in f"j{n:02}{n}")


async def test_more_queues_than_are_read_together_follow(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues beyond the number that is read side by side are walked after the others."""
    monkeypatch.setattr(job_walk, "MAX_TOGETHER", 2)
    for n in range(5):
        await app.queue(f"q{n}").enqueue_many([Entry(i, id=f"{n}-{i}") for i in range(3)])
    for limit in (1, 2, 50):
        jobs = await all_pages(app, "", limit, newest=True)
        assert sorted(job.id for job in jobs) == [f"{n}-{i}" for n in range(5) for i in range(3)]
    assert await find_jobs(app, parse_filter("id:4-2")) is not None


async def test_gather_each_keeps_the_order_and_bounds_the_calls() -> None:
    """No more than the given number of calls run at the same time."""
    running, most = 0, 0

    async def call(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return n * 2

    assert await gather_each(call, range(10), 3) == [n * 2 for n in range(10)]
    assert most == 3
