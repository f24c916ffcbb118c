"""A worker claims no more while a slow storage has many outcomes to record: after a crash those jobs run again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Penstock, State, Worker
from penstock.storage.base import MAX_BATCH
from tests.support import eventually

JOBS = 4 * MAX_BATCH


@pytest.mark.parametrize("drained", [False, True], ids=["works", "drains"])
async def test_no_run_begins_while_a_batch_of_outcomes_waits_to_be_recorded(
    app: Penstock, monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    """Runs stop at about one batch of unrecorded outcomes, and go on when the storage has recorded them."""
    gate, waiting, settle = asyncio.Event(), asyncio.Event(), app.storage.settle
    runs: list[int] = []

    async def slow(settlements: Any) -> Any:
        waiting.set()
        await gate.wait()
        return await settle(settlements)

    monkeypatch.setattr(app.storage, "settle", slow)
    # Otherwise a slow machine releases jobs that were claimed ahead, and these outcomes count as well.
    monkeypatch.setattr("penstock.worker.pool.MAX_WAIT_AHEAD", 600.0)
    app.listen("q", runs.append, concurrency=10)
    await app.queue("q").enqueue_many(range(JOBS))
    worker = Worker(app)
    async with worker if not drained else asyncio.timeout(60):
        draining = asyncio.create_task(worker.drain()) if drained else None
        try:
            await waiting.wait()
            await eventually(lambda: len(runs) >= MAX_BATCH, within=30)
            seen = -1
            while seen != len(runs):
                seen = len(runs)
                await asyncio.sleep(0.2)
            assert len(runs) < 2 * MAX_BATCH
        finally:
            gate.set()
        if draining is not None:
            await draining
        await eventually(lambda: len(runs) == JOBS, within=30)
    assert (await app.queue("q").counts())[State.COMPLETED] == JOBS
