"""A full disk under a worker: enqueue is refused, outcomes wait, and everything continues when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock import Penstock, State, StorageUnavailable, Worker, sync
from penstock.storage.sqlite import SqliteStorage
from tests.support import eventually, limit_pages

LARGE = "x" * 50_000


@asynccontextmanager
async def full_disk(app: Penstock) -> AsyncGenerator[None]:
    """Let the file of an open app not grow inside the block."""
    assert isinstance(app.storage, SqliteStorage)
    limit_pages(app.storage, 0)
    try:
        yield
    finally:
        limit_pages(app.storage, None)


async def test_an_outcome_waits_for_room_on_the_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A result that does not fit is recorded once there is room, after one run; the worker logs the full disk."""
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")
    started, gate = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> str:
        started.set()
        await gate.wait()
        return LARGE

    queue = app.queue("q")
    async with app, Worker(app, lease=150):
        await queue.enqueue(1, id="a")
        await started.wait()
        async with full_disk(app):
            gate.set()
            await eventually(lambda: "the disk is full" in caplog.text, within=30)
            status = await queue.status("a")
            assert status is not None
            assert status.state is State.RUNNING
            with pytest.raises(StorageUnavailable, match="the disk is full"):
                await queue.enqueue(LARGE)
        assert await queue.wait("a", timeout=30) == LARGE
        status = await queue.status("a")
        assert status is not None
        assert (status.attempts, status.stalls) == (1, 0)


async def test_a_worker_starts_on_a_full_disk(tmp_path: Path) -> None:
    """A worker that starts while the file cannot grow runs every job, at the latest when there is room."""
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")
    app.listen("q", lambda payload: payload)
    queue = app.queue("q")
    async with app:
        await queue.enqueue_many(list(range(50)))
        async with full_disk(app):
            with pytest.raises(StorageUnavailable, match="the disk is full"):
                await queue.enqueue(LARGE)
            worker = asyncio.create_task(Worker(app).run())
            await eventually(app.workers, within=30)
            assert not worker.done()
        await eventually(lambda: finished(app, 50), within=30)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def finished(app: Penstock, number: int) -> bool:
    return (await app.queue("q").counts())[State.COMPLETED] == number


def test_a_sync_enqueue_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    """An enqueue of a sync app raises the same error, and works again when there is room."""
    with sync.Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        storage = app.backends.loop_app.storage
        assert isinstance(storage, SqliteStorage)
        app.queue("q").enqueue(1)
        limit_pages(storage, 0)
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            app.queue("q").enqueue(LARGE)
        limit_pages(storage, None)
        app.queue("q").enqueue(LARGE)
        assert app.queue("q").counts()[State.QUEUED] == 2
