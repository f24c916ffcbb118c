"""`crash`: workers that die at a chosen call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Event, State, sync
from penstock.testing import Clock, crash, drain
from tests.testing.conftest import Shop


async def test_a_job_runs_again_after_a_crash_before_settle(shop: Shop, clock: Clock) -> None:
    """After a crash before settle the job is running until its lease expires, then runs again with one stall."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", id="ann")
        await crash(app)
        status = await app.queue("charge").status("ann")
        assert status is not None
        assert (status.state, status.attempts, shop.charged) == (State.RUNNING, 1, ["ann 0"])
        assert await drain(app) == []
        clock.advance(app.lease)
        again = (await drain(app))[0]
        assert (again.id, again.name, again.attempt) == ("ann", "completed", 2)
        assert shop.charged == ["ann 0", "ann 1", "receipt for ann"]


@pytest.mark.parametrize(
    ("moment", "ran", "state"), [("claim", [], State.RUNNING), ("settle", ["ann 0"], State.COMPLETED)]
)
async def test_a_crash_after_a_call_loses_only_its_answer(
    shop: Shop, clock: Clock, moment: Any, ran: list[str], state: State
) -> None:
    """After a crash behind claim no handler has run; behind settle the job is completed."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", id="ann")
        await crash(app, after=moment)
        status = await app.queue("charge").status("ann")
        assert status is not None
        assert (status.state, shop.charged) == (state, ran)


async def test_a_crashed_worker_emits_no_events(shop: Shop, clock: Clock) -> None:
    """A crashed worker emits neither `completed` nor `lease_lost`."""
    emitted: list[str] = []

    @shop.app.on("completed")
    @shop.app.on("lease_lost")
    def record(event: Event) -> None:
        emitted.append(event.name)

    async with shop.app as app:
        await app.queue("charge").enqueue("ann")
        await crash(app)
        assert emitted == []
        clock.advance(app.lease)
        await drain(app)
        assert emitted == ["completed", "completed"]


async def test_a_crash_ends_all_runs_of_the_worker(shop: Shop, clock: Clock) -> None:
    """Other runs of a crashed worker are cancelled, and their jobs stay running."""
    ended = asyncio.Event()

    async def endless(payload: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    shop.app.listen("endless", endless, priority=200)
    async with shop.app as app:
        await app.queue("endless").enqueue(1, id="long")
        await app.queue("charge").enqueue("ann")
        await crash(app)
        assert ended.is_set()
        status = await app.queue("endless").status("long")
        assert status is not None
        assert status.state is State.RUNNING


async def test_a_crash_that_never_happens_is_an_error(shop: Shop, clock: Clock) -> None:
    """If no job is due, `crash` raises an `AssertionError`."""
    async with shop.app as app:
        with pytest.raises(AssertionError, match="never called settle"):
            await crash(app)


async def test_crash_refuses_other_calls(shop: Shop) -> None:
    """`crash` refuses calls at which a worker cannot die, and `before` together with `after`."""
    wrong: Any = {"before": "renew"}
    with pytest.raises(ValueError, match="cannot be made to die at 'renew'"):
        await crash(shop.app, **wrong)
    with pytest.raises(ValueError, match="not both"):
        await crash(shop.app, before="settle", after="settle")


def test_crash_of_a_sync_app(plain: sync.Penstock, plain_clock: Clock) -> None:
    """With a sync app `crash` returns when the worker has died."""
    plain.queue("q").enqueue(1, id="one")
    crash(plain)
    status = plain.queue("q").status("one")
    assert status is not None
    assert status.state is State.RUNNING
    plain_clock.advance(plain.lease)
    assert [(event.attempt, event.result) for event in drain(plain)] == [(2, 2)]
