"""Workers that die and storages that fail, where a test says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Event, State, StorageUnavailable, sync
from penstock.testing import Clock, crash, drain, trouble
from tests.testing.conftest import Shop, double


async def test_a_worker_dies_before_it_records(shop: Shop, clock: Clock) -> None:
    """The handler has run; the job is lost with its worker's lease, and runs again with one stall."""
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
async def test_a_worker_dies_after_a_call(shop: Shop, clock: Clock, moment: Any, ran: list[str], state: State) -> None:
    """It was carried out, and the worker has not heard of it: nothing has run yet, or all is recorded."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", id="ann")
        await crash(app, after=moment)
        status = await app.queue("charge").status("ann")
        assert status is not None
        assert (status.state, shop.charged) == (state, ran)


async def test_the_dead_tell_nobody(shop: Shop, clock: Clock) -> None:
    """No event is heard of what was not recorded, and the worker does not say goodbye."""
    heard: list[str] = []

    @shop.app.on("completed")
    @shop.app.on("lease_lost")
    def hear(event: Event) -> None:
        heard.append(event.name)

    async with shop.app as app:
        await app.queue("charge").enqueue("ann")
        await crash(app)
        assert heard == []
        clock.advance(app.lease)
        await drain(app)
        assert heard == ["completed", "completed"]


async def test_whatever_else_runs_is_cut_short(shop: Shop, clock: Clock) -> None:
    """A worker that dies takes all of its runs along, and nobody waits for those."""
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


async def test_a_death_that_does_not_come_is_an_error(shop: Shop, clock: Clock) -> None:
    """A test that means to crash must not pass because nothing was due."""
    async with shop.app as app:
        with pytest.raises(AssertionError, match="never called settle"):
            await crash(app)


async def test_moments_are_checked(shop: Shop) -> None:
    """Only moments that mean something can be asked for."""
    wrong: Any = {"before": "renew"}
    with pytest.raises(ValueError, match="cannot be made to die at 'renew'"):
        await crash(shop.app, **wrong)
    with pytest.raises(ValueError, match="not both"):
        await crash(shop.app, before="settle", after="settle")


def test_a_worker_of_a_sync_app_dies(plain: sync.Penstock, plain_clock: Clock) -> None:
    """Without `await`, too."""
    plain.queue("q").enqueue(1, id="one")
    crash(plain)
    status = plain.queue("q").status("one")
    assert status is not None
    assert status.state is State.RUNNING
    plain_clock.advance(plain.lease)
    assert [(end.attempt, end.result) for end in drain(plain)] == [(2, 2)]


# trouble -------------------------------------------------------------------------------------------


async def test_chosen_calls_fail(shop: Shop, clock: Clock) -> None:
    """Before the fact nothing is done, after the fact only the answer is lost; then all is well again."""
    async with shop.app as app:
        queue = app.queue("charge")
        with trouble(app) as storage:
            storage.fail("put")
            storage.fail("put", after=True, skip=1)
            with pytest.raises(StorageUnavailable, match="put is made to fail"):
                await queue.enqueue("ann")
            await queue.enqueue("bob")
            with pytest.raises(StorageUnavailable):
                await queue.enqueue("cat")
            assert storage.calls["put"] == 3
            storage.down = True
            with pytest.raises(StorageUnavailable, match="down"):
                await queue.counts()
        assert [job.payload for job in await queue.find()] == ["bob", "cat"]


async def test_a_worker_sits_trouble_out(shop: Shop, clock: Clock) -> None:
    """Settling fails twice, and the job still runs once."""
    async with shop.app as app:
        with trouble(app) as storage:
            await app.queue("charge").enqueue("ann")
            storage.fail("settle", times=2)
            await drain(app)
        assert shop.charged == ["ann 0", "receipt for ann"]


async def test_only_verbs_fail(shop: Shop, clock: Clock) -> None:
    """A misspelt verb is an error, and the known ones are named."""
    with trouble(shop.app) as storage, pytest.raises(ValueError, match="no 'sette' that can fail; known: put, claim,"):
        storage.fail("sette")


def test_trouble_of_a_sync_app(plain: sync.Penstock, plain_clock: Clock) -> None:
    """Calls of the app and of its worker fail alike."""
    with trouble(plain) as storage:
        storage.fail("put")
        with pytest.raises(StorageUnavailable):
            plain.queue("q").enqueue(1)
        plain.queue("q").enqueue(2)
        storage.fail("claim")
        assert [end.result for end in drain(plain)] == [double(2)]
