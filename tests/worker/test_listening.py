"""A worker without work waits for hints: by `wait_work`, or by a claim that is left open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from penstock import Penstock, Worker
from penstock.host import AppHost
from penstock.storage.base import Claimed
from penstock.testing import FaultyStorage
from penstock.worker import claimer
from penstock.worker.claimer import Claimer
from penstock.worker.loop import Loop
from tests.servers import Server, Servers
from tests.support import eventually, new_namespace
from tests.worker.support import IgnoringFlow, IgnoringReport, new_pool


async def test_an_idle_worker_waits_for_hints_however_long_none_comes(
    app: Penstock, trouble: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that finds nothing at forty slow polls in a row still waits for hints, without pauses."""
    monkeypatch.setattr(claimer, "SLOW_POLL", 0.01)
    app.listen("q", lambda payload: payload)
    async with Worker(app):
        await eventually(lambda: trouble.calls["wait_work"] >= 40, within=15)


@pytest.fixture
def far(servers: Servers, runner: asyncio.Runner) -> Iterator[Penstock]:
    """An app on a server on which claims can be left open."""
    server = servers.get("redis")
    assert isinstance(server, Server)
    app = Penstock(f"redis://{server.address}/0", namespace=new_namespace())
    runner.run(app.open())
    yield app
    runner.run(app.close())


async def forget(app: Penstock) -> None:
    for queue in await app.queues():
        await app.queue(queue).delete()


async def test_a_full_worker_goes_on_when_there_is_room(far: Penstock) -> None:
    """Jobs that come while the worker is full are run when a run has ended."""
    gate, began, ran = asyncio.Event(), asyncio.Event(), list[int]()

    @far.handler("q", concurrency=1)
    async def handle(payload: int) -> None:
        ran.append(payload)
        began.set()
        await gate.wait()

    async with Worker(far):
        await far.queue("q").enqueue(0)
        await began.wait()
        for n in range(1, 4):
            await far.queue("q").enqueue(n)
        gate.set()
        await eventually(lambda: ran == [0, 1, 2, 3], within=30)
    await forget(far)


async def test_an_open_claim_for_an_empty_queue_does_not_delay_a_busy_one(far: Penstock) -> None:
    """While a claim is open for an empty queue, a busy queue goes on with every run that ends."""
    ran: list[int] = []
    far.listen("empty", lambda payload: None)

    @far.handler("busy", concurrency=1)
    async def busy(payload: int) -> None:
        ran.append(payload)

    async with Worker(far):
        await eventually(lambda: far.workers(), within=30)
        await far.queue("busy").enqueue_many(range(50))
        await eventually(lambda: len(ran) == 50, within=30)
    assert ran == list(range(50))
    await forget(far)


async def test_a_job_that_is_claimed_while_stopping_is_released(far: Penstock) -> None:
    """A job that is enqueued while a worker stops has run, or waits for the next worker with no attempt charged."""
    ran: list[int] = []

    @far.handler("q")
    async def handle(payload: int) -> None:
        ran.append(payload)

    for n in range(10):
        async with Worker(far) as worker:
            await eventually(lambda: far.workers(), within=30)
            await asyncio.gather(far.queue("q").enqueue(n), worker.stop())
    await Worker(far).drain()
    assert sorted(ran) == list(range(10))
    assert {(s.attempts, s.stalls) for s in await far.queue("q").find()} == {(1, 0)}
    await forget(far)


class Slow:
    """A storage without work that leaves claims open, asks for a look later, and is slow to return the time."""

    opens_claims = True

    def __init__(self) -> None:
        self.hurried, self.asked, self.gate = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.look_at: int | None = 2_000

    async def claim(self, *args: object) -> Claimed:
        return Claimed([])

    def open_claim(self, *args: object) -> Slow:
        self.hurried.clear()
        return self

    async def answer(self, received: Callable[[bool, Claimed], object]) -> None:
        await self.hurried.wait()
        look_at, self.look_at = self.look_at, None
        received(False, Claimed([], look_at))

    def hurry(self) -> None:
        self.hurried.set()

    async def time(self) -> int:
        self.asked.set()
        await self.gate.wait()
        return 1_000


async def test_a_promise_to_look_outlives_being_woken(app: Penstock) -> None:
    """A worker that promised to look at a time does so, though it was woken while it worked the time out."""
    app.listen("q", lambda payload: None)
    storage = Slow()
    host = cast("AppHost", SimpleNamespace(storage=storage, emit=lambda *args, **about: None))
    claimer = Claimer(host, "w", 10_000, app.handlers.values(), new_pool(), IgnoringFlow())
    loop = Loop("claim", claimer.step, IgnoringReport(), claimer.doze, claimer.end_doze)
    loop.start()
    await eventually(lambda: claimer.end_doze())
    await storage.asked.wait()
    loop.wake()
    storage.gate.set()
    await eventually(lambda: claimer.wait_time() <= 1.0)
    await loop.stop()
