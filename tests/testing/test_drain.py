"""`drain`: due jobs, scheduled jobs and the clock."""

from __future__ import annotations

import sys

import pytest

from penstock import Job, LeaseLost, Penstock, State, sync
from penstock.testing import Clock, drain
from tests.testing.conftest import Shop, double


async def test_drain_returns_an_event_per_run(shop: Shop, clock: Clock) -> None:
    """`drain` returns an event for each run, follow-up jobs included, with its result or error."""
    async with shop.app as app:
        await app.queue("charge").enqueue_many(["ann", "poor"])
        ran = await drain(app)
        assert sorted((event.queue, event.name, event.result, event.error and event.error.type) for event in ran) == [
            ("charge", "completed", "charged ann", None),
            ("charge", "retrying", None, "ConnectionError"),
            ("receipts", "completed", None, None),
        ]
        assert await drain(app) == []
        assert not app.listeners


async def test_a_drain_leaves_later_jobs_alone(shop: Shop, clock: Clock) -> None:
    """Scheduled jobs are run only when the clock has reached their time."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", delay=2 * 86_400)
        assert await drain(app) == []
        clock.advance(days=2)
        assert [event.name for event in await drain(app)] == ["completed", "completed"]


async def test_drain_scheduled_moves_the_clock(shop: Shop, clock: Clock) -> None:
    """With `scheduled` the clock is moved over delays and backoffs until no job is left."""
    async with shop.app as app:
        start = clock.time()
        await app.queue("charge").enqueue("poor", id="poor")
        await app.queue("charge").enqueue("ann", delay=86_400)
        ran = await drain(app, scheduled=True)
        assert [event.name for event in ran if event.id == "poor"] == ["retrying"] * 3 + ["failed"]
        assert clock.time() - start == 86_400
        assert (await app.queue("charge").counts())[State.SCHEDULED] == 0


async def test_drain_scheduled_ignores_paused_queues(shop: Shop, clock: Clock) -> None:
    """With `scheduled`, jobs of a paused queue are not waited for."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", delay=60)
        await app.queue("charge").pause()
        assert await drain(app, scheduled=True) == []


async def test_an_endless_drain_is_an_error(shop: Shop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that schedule themselves again without end raise a `RuntimeError`."""
    monkeypatch.setattr(sys.modules["penstock.testing.drain"], "MAX_CLOCK_MOVES", 10)

    async def tick(number: int, job: Job) -> None:
        job.then("ticks", number + 1, delay=60)

    shop.app.listen("ticks", tick)
    async with shop.app as app:
        await app.queue("ticks").enqueue(0)
        with pytest.raises(RuntimeError, match="still scheduled"):
            await drain(app, scheduled=True)


async def test_drain_scheduled_waits_on_the_real_clock() -> None:
    """With the real clock, `scheduled` waits for jobs that are due soon."""
    async with Penstock("memory:") as app:
        app.listen("q", double)
        await app.queue("q").enqueue(1, delay=0.05)
        assert [event.result for event in await drain(app, scheduled=True)] == [2]


async def test_a_lease_obeys_the_clock(shop: Shop, clock: Clock) -> None:
    """A reservation whose lease expired by the clock is claimed again, and its late outcome is refused."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", id="ann")
        [taken] = await app.queue("charge").reserve()
        assert await drain(app) == []
        clock.advance(app.lease)
        assert (await drain(app))[0].attempt == 2
        with pytest.raises(LeaseLost):
            await taken.complete("too late")


async def test_a_sync_app_cannot_be_drained_where_a_loop_runs(plain: sync.Penstock, plain_clock: Clock) -> None:
    """Draining a sync app inside a running event loop raises an error that names the async app."""
    with pytest.raises(RuntimeError, match=r"use the async penstock\.Penstock"):
        drain(plain)
