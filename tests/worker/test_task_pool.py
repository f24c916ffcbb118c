"""Runs share tasks, and jobs are claimed ahead while others run: no run is affected by either."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from penstock import Job, Penstock, State, Worker
from penstock.client.queue import Queue
from penstock.testing import FaultyStorage
from penstock.worker import pool, queue_order
from penstock.worker.queue_order import QueueTurn
from tests.support import eventually
from tests.worker.support import new_pool

label: contextvars.ContextVar[str] = contextvars.ContextVar("label", default="none")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are claimed ahead as if many had just ended."""
    monkeypatch.setattr(QueueTurn, "ahead", lambda turn, pool, now: 20 - pool.waiting(turn.queue))


async def test_context_variables_do_not_leak_into_later_runs(app: Penstock) -> None:
    """A context variable that a handler sets is not set in the runs after it."""
    seen: list[str] = []

    @app.handler("q", concurrency=5)
    async def handle(payload: int) -> None:
        seen.append(label.get())
        label.set(f"job {payload}")

    await app.queue("q").enqueue_many(range(50))
    await Worker(app).drain()
    assert seen == ["none"] * 50


async def test_a_cancelled_run_does_not_affect_later_runs(app: Penstock) -> None:
    """After a run that was cancelled at its deadline the next ones can await and use timeouts."""

    @app.handler("q", concurrency=1, max_attempts=1)
    async def handle(payload: int) -> str:
        if payload == 0:
            await asyncio.sleep(60)
        async with asyncio.timeout(30):
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return f"{task.cancelling()} requests to cancel"

    await app.queue("q").enqueue(0, id="slow", timeout=0.05)
    await app.queue("q").enqueue(1, id="next")
    await Worker(app).drain()
    assert await app.queue("q").result("next") == "0 requests to cancel"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("options", [{"concurrency": 3}, {"size": 30}])
async def test_no_more_run_than_there_is_room_for(app: Penstock, options: dict[str, Any]) -> None:
    """Jobs that were claimed ahead wait until another run has ended."""
    inside, most = 0, 0

    async def handle(payload: int) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1

    app.listen("q", handle, **options)
    await app.queue("q").enqueue_many(range(100))
    await Worker(app).drain()
    assert most == 3
    assert (await app.queue("q").counts())[State.COMPLETED] == 100


@pytest.mark.usefixtures("eager")
async def test_waiting_runs_go_on_after_a_run_that_ended_its_task(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that sets a context variable ends its task; the waiting runs go on in another, and are not released."""
    monkeypatch.setattr(pool, "MAX_WAIT_AHEAD", 1000.0)

    @app.handler("q", concurrency=2)
    async def handle(payload: int) -> None:
        label.set(f"job {payload}")

    await app.queue("q").enqueue_many(range(100))
    async with asyncio.timeout(20):
        await Worker(app).drain()
    assert (await app.queue("q").counts())[State.COMPLETED] == 100


async def test_runs_that_wait_too_long_are_released(
    app: Penstock, trouble: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that wait behind slow runs are released for other workers, with no attempt charged."""
    monkeypatch.setattr(QueueTurn, "ahead", lambda turn, pool, now: 20 if pool.empty else 0)  # as after many quick runs
    gate, other = asyncio.Event(), Penstock(storage=app.storage, clock=app.clock)
    begun, ran = list[int](), list[int]()

    @app.handler("q", concurrency=2)
    async def slow(payload: int) -> None:
        begun.append(payload)
        await gate.wait()

    async def quick(payload: int, job: Job) -> None:
        ran.append(payload)
        assert job.attempt == 1

    other.listen("q", quick, concurrency=1)
    await app.queue("q").enqueue_many(range(10))
    async with Worker(app):
        await eventually(lambda: begun == [0, 1])
        async with Worker(other):
            await eventually(lambda: len(ran) == 8, within=30)
            gate.set()
    assert ran == list(range(2, 10))
    assert trouble.calls["settle"] > 1


@pytest.mark.usefixtures("eager")
async def test_stopping_releases_runs_that_have_not_begun(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stops runs what it has begun, and nothing that it had claimed ahead."""
    monkeypatch.setattr(pool, "MAX_WAIT_AHEAD", 1000.0)
    gate, begun = asyncio.Event(), list[int]()

    @app.handler("q", concurrency=2)
    async def handle(payload: int) -> None:
        begun.append(payload)
        await gate.wait()

    await app.queue("q").enqueue_many(range(10))
    worker = Worker(app)
    async with worker:
        await eventually(lambda: len(begun) == 2)
        stopping = asyncio.create_task(worker.stop())
        queue = app.queue("q")
        await eventually(lambda: _queued(queue, 8))
        gate.set()
        await stopping
    assert begun == [0, 1]


async def _queued(queue: Queue, count: int) -> bool:
    return (await queue.counts())[State.QUEUED] == count


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"at_most_once": True}])
async def test_where_nothing_is_claimed_ahead(app: Penstock, options: dict[str, Any]) -> None:
    """No job is claimed ahead with `concurrency=1` or `at_most_once`."""
    app.listen("q", lambda payload: None, **options)
    turn, runs = QueueTurn(app.handlers["q"]), new_pool()
    runs.over["q"] = 1_000_000
    assert turn.ahead(runs, 1.0) == 0


@pytest.mark.parametrize(("ended", "batch", "ahead"), [(0, 1, 0), (1_000, 1, 10), (2_000, 50, 10), (10**6, 1, 500)])
async def test_as_many_are_claimed_ahead_as_end_within_moments(
    app: Penstock, ended: int, batch: int, ahead: int
) -> None:
    """The number claimed ahead is the number of runs that ended lately, up to a bound in jobs."""
    app.listen("q", lambda payload: None, concurrency=5, batch_size=batch)
    turn, runs = QueueTurn(app.handlers["q"]), new_pool()
    runs.over["q"] = ended
    assert queue_order.AHEAD_SECONDS == 0.01
    assert turn.ahead(runs, 1.0) == ahead
