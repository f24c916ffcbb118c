"""Workers that die, come back, or never get the answer: Queasy lost their jobs, Penstock runs them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Job, Penstock, State, Worker
from penstock.storage.base import Settled
from penstock.testing import Clock, FaultyStorage
from tests.parity.support import FEW, status_of, vanish
from tests.support import LOST, complete, eventually, retried

pytestmark = pytest.mark.only(*FEW)


@pytest.mark.parametrize("new_owner", ["finishes", "fails", "stalls"])
async def test_settle_of_a_dead_worker_changes_nothing(app: Penstock, clock: Clock, new_owner: str) -> None:
    """A worker declared dead cannot settle the job that another has now, whatever its outcome (QZ-D3, QZ-D4, QZ-D5)."""
    answers: list[Settled] = []
    runs: list[tuple[int, int, int]] = []
    completed: list[str] = []
    app.on("completed")(lambda event: completed.append(event.id))
    await app.queue("q").enqueue("data", id="a")
    [late] = await vanish(app)

    async def wake_up() -> None:
        answers.extend([*await app.storage.settle([complete(late)]), *await app.storage.settle([retried(late)])])

    @app.handler("q", min_backoff=0)
    async def handle(data: str, job: Job) -> None:
        runs.append((job.attempt, job.retries, job.stalls))
        await wake_up()
        if new_owner == "fails" and not job.retries:
            raise ValueError("once")

    clock.advance(10)
    if new_owner == "stalls":
        await app.storage.reap(["q"])
        assert len(await vanish(app)) == 1
        await wake_up()
        clock.advance(10)
    await app.queue("q").enqueue("data", id="b", delay=1)
    await Worker(app).drain()
    assert runs == {"finishes": [(2, 0, 1)], "fails": [(2, 0, 1), (3, 1, 1)], "stalls": [(3, 0, 2)]}[new_owner]
    assert all(answer == LOST for answer in answers)
    assert completed == ["a"]
    clock.advance(1)
    await Worker(app).drain()
    assert completed == ["a", "b"]
    assert await app.queues() == []


async def test_a_lost_reply_costs_one_lease(app: Penstock, clock: Clock) -> None:
    """A claim whose answer was lost is run after its lease, though its worker lives (QZ-D8)."""
    runs: list[tuple[int, int]] = []

    async def handle(data: Any, job: Job) -> None:
        runs.append((job.attempt, job.stalls))

    trouble = FaultyStorage(app.storage)
    cut_off = Penstock(storage=trouble, clock=clock, preset="queasy")  # type: ignore[arg-type]
    for each in (app, cut_off):
        each.listen("q", handle)
    await app.queue("q").enqueue(1, id="a")
    trouble.fail("claim", after=True)
    await cut_off.open()
    async with Worker(cut_off):
        await eventually(lambda: trouble.calls["claim"] > 1)
        assert ((await status_of(app)).state, runs) == (State.RUNNING, [])
        clock.advance(10)
        await Worker(app).drain()
        await eventually(lambda: runs)
    assert runs == [(2, 1)]
    await cut_off.close()
