"""`inline`: jobs that run inside the call that enqueues them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from penstock import JobFailed, Penstock, QueueFull, State, sync
from penstock.testing import Clock, drain, inline
from tests.testing.conftest import Shop, double


async def test_an_enqueue_runs_its_job_inline(shop: Shop, clock: Clock) -> None:
    """When an enqueue returns, its job and follow-ups have run, and the answer has the final state."""
    async with shop.app as app:
        with inline(app):
            enqueued = await app.queue("charge").enqueue("ann", id="ann")
            assert (enqueued.status, enqueued.state) == ("queued", State.COMPLETED)
            assert await app.queue("charge").call("bob") == "charged bob"
        assert shop.charged == ["ann 0", "receipt for ann", "bob 0", "receipt for bob"]
        assert (await app.queue("charge").enqueue("cat")).state is State.QUEUED


async def test_inline_raises_the_exception_of_the_handler(shop: Shop, clock: Clock) -> None:
    """The exception of a handler is raised by the enqueue, and the job is retrying."""
    async with shop.app as app:
        with inline(app):
            with pytest.raises(ConnectionError, match="the bank is closed"):
                await app.queue("charge").enqueue("poor", id="poor")
            with pytest.raises(JobFailed, match="not JSON of the expected type"):
                await app.queue("charge").enqueue(17)
        status = await app.queue("charge").status("poor")
        assert status is not None
        assert (status.state, status.retries) == (State.RETRYING, 1)


async def test_inline_respects_the_bound_of_a_queue(penstock: Penstock) -> None:
    """Each job runs before the next is enqueued, so only scheduled ones fill a queue with `max_queued`."""
    penstock.listen("q", lambda payload: payload, max_queued=1)
    queue = penstock.queue("q")
    with inline(penstock):
        assert (await queue.enqueue(1)).state is State.COMPLETED
        await queue.enqueue(2, delay=60)
        with pytest.raises(QueueFull):
            await queue.enqueue(3)
        with pytest.raises(QueueFull):
            await queue.enqueue_many([3])
    assert [event.result for event in await drain(penstock, scheduled=True)] == [2]
    assert (await queue.enqueue(3)).state is State.QUEUED


async def test_inline_does_not_raise_retry(shop: Shop, clock: Clock) -> None:
    """A handler's `Retry` is not raised: the job is retrying until the clock reaches its time."""
    async with shop.app as app:
        with inline(app):
            assert (await app.queue("charge").enqueue("patient")).state is State.RETRYING
        clock.advance(60)
        assert [event.attempt for event in await drain(app) if event.queue == "charge"] == [2]


async def test_jobs_enqueued_by_an_inline_handler_run_too(penstock: Penstock) -> None:
    """Jobs that a handler enqueues or calls run within the same enqueue."""
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


async def test_concurrent_inline_enqueues_return_after_their_own_job(penstock: Penstock) -> None:
    """Each of several concurrent enqueues returns after its own job has run."""
    penstock.listen("q", double)
    with inline(penstock):
        answers = await asyncio.gather(*(penstock.queue("q").enqueue(number) for number in range(10)))
    assert {answer.state for answer in answers} == {State.COMPLETED}


def test_plain_handlers_run_in_the_thread_that_enqueues(plain: sync.Penstock, plain_clock: Clock) -> None:
    """Plain handlers of a sync app run in the thread of the enqueue."""
    threads: list[threading.Thread] = []

    def record_thread(number: int) -> int:
        threads.append(threading.current_thread())
        if number < 0:
            raise ValueError("negative")
        return number

    plain.listen("here", record_thread)
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
