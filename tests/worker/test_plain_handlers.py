"""Plain handlers that call an async app: the coroutine is never awaited, so the call raises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Job, Penstock, State, Task, Worker
from penstock.sync import Penstock as SyncPenstock

CALLS: dict[str, Callable[[Penstock, Task[[int], int, int]], Any]] = {
    "Queue.enqueue": lambda app, task: app.queue("x").enqueue(1),
    "Queue.enqueue_many": lambda app, task: app.queue("x").enqueue_many([1]),
    "Queue.call": lambda app, task: app.queue("x").call(1),
    "Queue.cancel": lambda app, task: app.queue("x").cancel("a"),
    "QueueReader.status": lambda app, task: app.queue("x").status("a"),
    "TaskCall.enqueue": lambda app, task: task.enqueue(1),
    "TaskCall.call": lambda app, task: task.options(timeout=1).call(1),
    "TaskCall.enqueue_many": lambda app, task: task.enqueue_many([(1,)]),
    "Task.wait": lambda app, task: task.wait("a"),
    "Penstock.queues": lambda app, task: app.queues(),
    "asyncio.run": lambda app, task: asyncio.run(app.queue("x").enqueue(1)),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_plain_handler_that_calls_an_async_app_fails(app: Penstock, name: str) -> None:
    """The run fails at the call, with an error that names the ways out; no coroutine is left unawaited."""

    @app.task(queue="t")
    def task(n: int) -> int:
        return n

    @app.handler("q", max_retries=0)
    def handle(payload: int) -> None:
        CALLS[name](app, task)

    await app.queue("q").enqueue(1, id="a")
    await Worker(app, queues=["q"]).drain()
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.type) == (State.FAILED, "RuntimeError")
    method = "Queue.enqueue" if name == "asyncio.run" else name
    assert status.error.message.startswith(f"{method}() of an async app returns a coroutine")
    assert "job.then" in status.error.message
    assert "penstock.sync.Penstock" in status.error.message


async def test_a_plain_handler_may_use_then_a_sync_app_and_event_loops(app: Penstock, tmp_path: Path) -> None:
    """`job.then`, a sync app, the worker's event loop and an event loop of its own are not refused."""
    other = SyncPenstock(f"sqlite:{tmp_path / 'other.db'}")
    loop = asyncio.get_running_loop()

    @other.task
    def add(a: int, b: int) -> int:
        return a + b

    async def on_the_loop() -> None:
        await app.queue("x").enqueue(2)

    async def in_a_new_loop() -> None:
        async with Penstock(f"sqlite:{tmp_path / 'third.db'}") as third:
            await third.queue("x").enqueue(3)

    @app.handler("q", max_retries=0)
    def handle(payload: int, job: Job) -> Any:
        job.then("x", 1)
        asyncio.run_coroutine_threadsafe(on_the_loop(), loop).result(10)
        other.queue("x").enqueue(1)
        add.enqueue(1, 2)
        asyncio.run(in_a_new_loop())
        return [other.queue("x").counts()[State.QUEUED], other.queue(add.queue.name).counts()[State.QUEUED]]

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == [1, 1]
    assert (await app.queue("x").counts())[State.QUEUED] == 2
    other.close()


def test_an_event_loop_outside_of_handlers_takes_the_coroutine() -> None:
    """`asyncio.run(app.queue("x").enqueue(1))` in a program without handlers enqueues."""
    app = Penstock("memory:")
    assert asyncio.run(app.queue("x").enqueue(1)).status == "queued"
