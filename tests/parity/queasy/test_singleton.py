"""Singleton jobs of Queasy: one run per id at a time, and no dispatch is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from penstock import Job, Penstock, PermanentError, State, Update, Worker
from penstock.model.job import MoveWhen
from penstock.testing import Clock
from tests.parity.support import FEW, RunTracker, count, status_of

pytestmark = pytest.mark.only(*FEW)

MOVES: tuple[MoveWhen, ...] = (True, False, "if_later", "if_earlier")
FLAGS = [Update(payload=p, run_at=m, reset_counts=r) for p, m, r in product((True, False), MOVES, (True, False, None))]


class GatedHandler:
    """A handler whose first run waits for a gate and then does what the test set."""

    def __init__(self, app: Penstock, then: Callable[[], None] = lambda: None) -> None:
        self.started, self.gate = asyncio.Event(), asyncio.Event()
        self.tracker, self.seen = RunTracker(), list[Any]()
        self._then = then
        app.listen("q", self)

    async def __call__(self, data: Any, job: Job) -> None:
        with self.tracker.enter(job.id):
            self.seen.append(data)
            self.started.set()
            await self.gate.wait()
            if len(self.seen) == 1:
                self._then()

    async def during_first_run(self, app: Penstock, act: Callable[[], Awaitable[None]]) -> None:
        """Call a function while the first run waits for the gate, then let a drain finish."""
        working = asyncio.create_task(Worker(app).drain())
        await self.started.wait()
        try:
            await act()
        finally:
            self.gate.set()
            await working


@pytest.mark.parametrize("later", [None, 0, -60, 60], ids=["no run-at", "zero", "past", "future"])
async def test_a_second_run_starts_only_after_the_first(app: Penstock, clock: Clock, later: int | None) -> None:
    """An id dispatched again while it runs is not claimed until that run is over (QR-1, QE-9, QZ-D1)."""
    handler = GatedHandler(app)
    run_at = None if later is None else later and clock.time() + later
    await app.queue("q").enqueue("first", id="a", run_at=0)

    async def dispatch_again() -> None:
        assert (await app.queue("q").enqueue("second", id="a", run_at=run_at)).status == "blocked"
        clock.advance(5)
        await Worker(app).drain()
        assert handler.seen == ["first"]
        assert await count(app, State.BLOCKED) == 1

    await handler.during_first_run(app, dispatch_again)
    clock.advance(60)
    await Worker(app).drain()
    assert handler.seen == ["first", "second"]
    assert handler.tracker.met == set()
    assert await app.queues() == []


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.only("memory", "redis")
async def test_a_successor_always_runs(app: Penstock, flags: Update) -> None:
    """A second dispatch with any flags runs when the first has finished (QZ-D2, QR-12, QE-41)."""
    handler = GatedHandler(app)
    await app.queue("q").enqueue("first", id="a")

    async def dispatch_again() -> None:
        await app.queue("q").enqueue("second", id="a", on_conflict=flags)

    await handler.during_first_run(app, dispatch_again)
    assert handler.seen == ["first", "second"]
    assert await app.queues() == []


async def test_a_successor_runs_after_a_permanent_failure(app: Penstock) -> None:
    """When the running job fails permanently, its successor is queued, with its own counts (QR-12)."""

    def give_up() -> None:
        raise PermanentError("no")

    handler = GatedHandler(app, then=give_up)
    await app.queue("q").enqueue("first", id="a")

    async def dispatch_again() -> None:
        await app.queue("q").enqueue("second", id="a")

    await handler.during_first_run(app, dispatch_again)
    assert handler.seen == ["first", "second"]


@pytest.mark.parametrize(
    ("flags", "data", "state", "retries"),
    [
        (Update(), "second", State.QUEUED, 0),
        (Update(run_at=False), "second", State.RETRYING, 0),
        (Update(payload=False, run_at="if_later"), "first", State.RETRYING, 1),
        (Update(payload=False, run_at="if_earlier"), "first", State.QUEUED, 1),
    ],
    ids=["default", "time kept", "if later", "if earlier"],
)
async def test_a_successor_updates_a_retried_job(
    app: Penstock, flags: Update, data: str, state: State, retries: int
) -> None:
    """When the running job is retried, its successor updates it by its flags, and one job is left (QR-13, QE-42)."""

    def fail() -> None:
        raise ValueError("again")

    handler = GatedHandler(app, then=fail)
    started = asyncio.Event()

    async def dispatch_again() -> None:
        await app.queue("q").enqueue("second", id="a", on_conflict=flags)
        await app.queue("q").pause()
        started.set()

    await app.queue("q").enqueue("first", id="a")
    await handler.during_first_run(app, dispatch_again)
    status = await status_of(app)
    assert (status.payload, status.state, status.retries) == (data, state, retries)
    assert len(await app.queue("q").find()) == 1
