"""A storage that cannot be used until an operator changes something: the worker ends and raises the reason."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from penstock import Penstock, StorageUnusable, Worker
from penstock.testing import FaultyStorage
from tests.support import eventually

GONE = StorageUnusable("jobs.db is damaged")


def make_unusable(trouble: FaultyStorage, *verbs: str) -> None:
    """Let every call of these verbs raise."""

    async def refuse(*args: Any, **options: Any) -> Any:
        raise GONE

    for verb in verbs:
        setattr(trouble, verb, refuse)


@pytest.mark.parametrize("verb", ["beat", "claim", "reap"])
async def test_run_raises_if_the_storage_is_unusable_at_the_start(
    app: Penstock, trouble: FaultyStorage, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` and `drain` raise `StorageUnusable` and log one ERROR, whichever call finds it."""
    app.listen("q", lambda payload: payload)
    make_unusable(trouble, verb)
    with pytest.raises(StorageUnusable, match="damaged"):
        await Worker(app).run()
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [f"the worker ends: {GONE}"]
    with pytest.raises(StorageUnusable, match="damaged"):
        await Worker(app).drain()


async def test_a_block_raises_at_its_end_if_the_storage_became_unusable(app: Penstock, trouble: FaultyStorage) -> None:
    """`async with Worker(app)` raises `StorageUnusable` at its end; the body is not interrupted."""
    app.listen("q", lambda payload: payload)
    ended: list[bool] = []

    async def block() -> None:
        async with Worker(app) as worker:
            make_unusable(trouble, "claim", "reap", "wait_work")
            await app.queue("q").enqueue(1)
            await eventually(lambda: "not started" in repr(worker), within=30)
            ended.append(True)

    with pytest.raises(StorageUnusable, match="damaged"):
        await block()
    assert ended


async def test_an_error_of_the_block_wins(app: Penstock, trouble: FaultyStorage) -> None:
    """An exception of the body of `async with Worker(app)` is raised, not that of the worker."""
    app.listen("q", lambda payload: payload)
    make_unusable(trouble, "beat")

    async def block() -> None:
        async with Worker(app) as worker:
            await eventually(lambda: "not started" in repr(worker), within=30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()


async def test_a_run_in_progress_is_ended(app: Penstock, trouble: FaultyStorage) -> None:
    """A run whose outcome cannot be recorded is cancelled, and the worker ends within its lease."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    @app.handler("q", timeout=None)
    async def handle(payload: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await app.queue("q").enqueue(1)
    worker = asyncio.create_task(Worker(app, lease=0.5).run())
    await started.wait()
    make_unusable(trouble, "renew", "settle", "reap")
    with pytest.raises(StorageUnusable):
        await asyncio.wait_for(worker, 30)
    assert cancelled.is_set()


async def test_a_worker_can_be_started_again_after_the_repair(app: Penstock, trouble: FaultyStorage) -> None:
    """A worker that ended because of its storage can be started again."""
    app.listen("q", lambda payload: payload)
    await app.queue("q").enqueue(1, id="a")
    make_unusable(trouble, "beat")
    worker = Worker(app)
    with pytest.raises(StorageUnusable):
        await worker.run()
    del trouble.beat  # type: ignore[attr-defined]
    await worker.drain()
    assert await app.queue("q").result("a") == 1
