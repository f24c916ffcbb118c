"""The start of a worker: the line that it logs, and the arguments that it refuses."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from penstock import Penstock, Worker
from penstock import __version__ as version
from penstock.worker import maintenance
from tests.support import eventually


async def test_a_start_logs_version_storage_namespace_and_queues(caplog: pytest.LogCaptureFixture) -> None:
    """One line names everything by which a wrong storage, namespace or queue is seen."""
    app = Penstock("memory:", namespace="shop")
    app.listen("mail", len)
    app.listen("thumbnails", len)
    with caplog.at_level(logging.INFO, "penstock.worker"):
        await Worker(app, id="w1", queues=["mail"]).drain()
    place = "on memory:, namespace shop, 1 queue (mail), no child processes"
    assert caplog.messages[0] == f"worker w1 starts: Penstock {version} {place}, pid {os.getpid()}"
    assert [record.levelno for record in caplog.records] == [logging.INFO]


async def test_a_worker_without_handlers_warns(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """A worker of an app without handlers warns that modules must be imported."""
    with caplog.at_level(logging.WARNING, "penstock.worker"):
        await Worker(app).drain()
    assert caplog.messages == [
        "no handler is registered, so no job will run: import the modules that register handlers"
    ]


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("jobs:app", "not the str 'jobs:app'; import it, or run: penstock worker jobs:app"),
        (None, "app must be a Penstock app, not NoneType"),
        (Penstock, "app must be a Penstock app, not type"),
    ],
)
def test_a_worker_of_no_app_is_refused(app: Any, message: str) -> None:
    """Anything but an app raises a TypeError that names it."""
    with pytest.raises(TypeError, match="app must be a Penstock app") as caught:
        Worker(app)
    assert message in str(caught.value)


async def test_a_worker_in_place_of_a_coroutine_names_its_methods(app: Penstock) -> None:
    """`asyncio.run(Worker(app))` and `await Worker(app)` name the methods to call."""
    worker: Any = Worker(app, id="w1")
    with pytest.raises((TypeError, ValueError), match=r"<Worker 'w1', not started: await its run\(\) or drain\(\)>"):
        await asyncio.to_thread(asyncio.run, worker)
    assert "started" in repr(worker)
    async with worker:
        assert repr(worker) == "<Worker 'w1', started>"


async def test_a_worker_lists_its_runs(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs` has the running jobs in the order in which they began, and the heartbeat counts those without units."""
    monkeypatch.setattr(maintenance, "REAP", (0.01, 0.01))
    begun, gate = asyncio.Semaphore(0), asyncio.Event()

    @app.handler("q", concurrency=3)
    async def handle(payload: int) -> None:
        begun.release()
        await gate.wait()

    worker = Worker(app)
    assert worker.runs == []
    async with worker:
        for id in ("a", "b"):
            await app.queue("q").enqueue(1, id=id)
            await begun.acquire()
        assert worker.runs == [("q", "a"), ("q", "b")]

        async def counted() -> bool:
            return [(info.busy, info.slots, info.slots_used) for info in await app.workers()] == [(0, 3, 2)]

        await eventually(counted)
        gate.set()
    assert worker.runs == []
