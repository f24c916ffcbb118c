"""Running what is due: drain, the clock, and inline."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock import Job, JobFailed, LeaseLost, Penstock, State, sync
from penstock.testing import Clock, drain, inline
from tests.testing.conftest import Shop, double


async def test_a_drain_says_what_ran(shop: Shop, clock: Clock) -> None:
    """Every run is there in order, with its result or its error, follow-ups included."""
    async with shop.app as app:
        await app.queue("charge").enqueue_many(["ann", "poor"])
        ran = await drain(app)
        assert sorted((end.queue, end.name, end.result, end.error and end.error.type) for end in ran) == [
            ("charge", "completed", "charged ann", None),
            ("charge", "retrying", None, "ConnectionError"),
            ("receipts", "completed", None, None),
        ]
        assert await drain(app) == []
        assert not app.listeners


async def test_a_drain_leaves_later_jobs_alone(shop: Shop, clock: Clock) -> None:
    """What is not due waits for the clock: delays and backoff follow it."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", delay=2 * 86_400)
        assert await drain(app) == []
        clock.advance(days=2)
        assert [end.name for end in await drain(app)] == ["completed", "completed"]


async def test_a_drain_of_all_moves_the_clock(shop: Shop, clock: Clock) -> None:
    """With `scheduled`, days of delays and of backoff pass in no time, until nothing is left."""
    async with shop.app as app:
        start = clock.time()
        await app.queue("charge").enqueue("poor", id="poor")
        await app.queue("charge").enqueue("ann", delay=86_400)
        ran = await drain(app, scheduled=True)
        assert [end.name for end in ran if end.id == "poor"] == ["retrying"] * 3 + ["failed"]
        assert clock.time() - start == 86_400
        assert (await app.queue("charge").counts())[State.SCHEDULED] == 0


async def test_a_drain_of_all_passes_over_paused_queues(shop: Shop, clock: Clock) -> None:
    """Nobody would run them, so nobody waits for them."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", delay=60)
        await app.queue("charge").pause()
        assert await drain(app, scheduled=True) == []


async def test_a_drain_without_end_is_noticed(shop: Shop, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that enqueue themselves for later, again and again, are an error and no endless loop."""
    monkeypatch.setattr(sys.modules["penstock.testing.drain"], "MAX_CLOCK_MOVES", 10)

    async def tick(number: int, job: Job) -> None:
        job.then("ticks", number + 1, delay=60)

    shop.app.listen("ticks", tick)
    async with shop.app as app:
        await app.queue("ticks").enqueue(0)
        with pytest.raises(RuntimeError, match="still scheduled"):
            await drain(app, scheduled=True)


async def test_a_drain_on_another_clock_waits() -> None:
    """On a clock that goes by itself, what is due soon is waited for."""
    async with Penstock("memory:") as app:
        app.listen("q", double)
        await app.queue("q").enqueue(1, delay=0.05)
        assert [end.result for end in await drain(app, scheduled=True)] == [2]


async def test_a_lease_obeys_the_clock(shop: Shop, clock: Clock) -> None:
    """A reservation whose lease is over by the clock is another's, and its outcome comes too late."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann", id="ann")
        [taken] = await app.queue("charge").reserve()
        assert await drain(app) == []
        clock.advance(app.lease)
        assert (await drain(app))[0].attempt == 2
        with pytest.raises(LeaseLost):
            await taken.complete("too late")


async def test_a_sync_app_cannot_be_drained_where_a_loop_runs(plain: sync.Penstock, plain_clock: Clock) -> None:
    """It would stop the event loop: the error says what to use instead."""
    with pytest.raises(RuntimeError, match=r"use the async penstock\.Penstock"):
        drain(plain)


# inline --------------------------------------------------------------------------------------------


async def test_an_enqueue_runs_its_job_inline(shop: Shop, clock: Clock) -> None:
    """When it returns the job has run, follow-ups included, and its state is told."""
    async with shop.app as app:
        with inline(app):
            enqueued = await app.queue("charge").enqueue("ann", id="ann")
            assert (enqueued.status, enqueued.state) == ("queued", State.COMPLETED)
            assert await app.queue("charge").call("bob") == "charged bob"
        assert shop.charged == ["ann 0", "receipt for ann", "bob 0", "receipt for bob"]
        assert (await app.queue("charge").enqueue("cat")).state is State.QUEUED


async def test_what_a_handler_raises_surfaces(shop: Shop, clock: Clock) -> None:
    """The very exception is raised by the enqueue, and the job is where it would be."""
    async with shop.app as app:
        with inline(app):
            with pytest.raises(ConnectionError, match="the bank is closed"):
                await app.queue("charge").enqueue("poor", id="poor")
            with pytest.raises(JobFailed, match="no JSON of the expected type"):
                await app.queue("charge").enqueue(17)
        status = await app.queue("charge").status("poor")
        assert status is not None
        assert (status.state, status.retries) == (State.RETRYING, 1)


async def test_a_wish_to_be_retried_is_no_error(shop: Shop, clock: Clock) -> None:
    """`Retry` puts the job off, as always; the clock brings it back."""
    async with shop.app as app:
        with inline(app):
            assert (await app.queue("charge").enqueue("patient")).state is State.RETRYING
        clock.advance(60)
        assert [end.attempt for end in await drain(app) if end.queue == "charge"] == [2]


async def test_handlers_that_enqueue_are_run_by_one(penstock: Penstock) -> None:
    """What a handler enqueues, or calls, runs within the same enqueue."""
    ran: list[int] = []

    async def count(number: int) -> int:
        ran.append(number)
        if number == 2:
            await penstock.queue("q").enqueue(1)
            return 1 + await penstock.queue("q").call(0)
        return number

    penstock.listen("q", count)
    with inline(penstock):
        await penstock.queue("q").enqueue(2, id="two")
    assert (sorted(ran), await penstock.queue("q").result("two")) == ([0, 1, 2], 1)


async def test_several_enqueues_at_once_each_find_theirs_done(penstock: Penstock) -> None:
    """Whoever runs it, a job has run when its own enqueue returns."""
    penstock.listen("q", double)
    with inline(penstock):
        answers = await asyncio.gather(*(penstock.queue("q").enqueue(number) for number in range(10)))
    assert {answer.state for answer in answers} == {State.COMPLETED}


def test_plain_handlers_run_in_the_thread_that_enqueues(plain: sync.Penstock, plain_clock: Clock) -> None:
    """Inline, a sync app's handlers see this thread's connections and transactions."""
    threads: list[threading.Thread] = []

    def note(number: int) -> int:
        threads.append(threading.current_thread())
        if number < 0:
            raise ValueError("negative")
        return number

    plain.listen("here", note)
    with inline(plain):
        plain.queue("here").enqueue(1, id="one")
        plain.queue("here").enqueue(2, priority=1)
        assert plain.queue("here").result("one") == 1
        with pytest.raises(ValueError, match="negative"):
            plain.queue("here").enqueue(-1)
        assert plain.queue("here").call(3) == 3
    assert set(threads[:3]) == {threading.current_thread()}


@pytest.fixture
def penstock(runner: asyncio.Runner) -> Iterator[Penstock]:
    """An open app in memory without handlers."""
    app = Penstock("memory:", clock=Clock())
    runner.run(app.open())
    yield app
    runner.run(app.close())
