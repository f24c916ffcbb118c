"""Workers

A worker has 100 units of capacity, and each run holds its handler's `size` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock import Penstock, Worker
from tests.support import eventually


async def test_so_many_at_once(app: Penstock) -> None:
    """`concurrency=3` runs exactly three jobs of a handler at once, in each process."""
    running, most = 0, 0

    @app.handler("pages", concurrency=3)
    async def fetch(url: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    await app.queue("pages").enqueue_many(f"/{n}" for n in range(9))
    await Worker(app).drain()
    assert most == 3


async def test_heavy_and_light_jobs(app: Penstock) -> None:
    """With sizes, jobs of all kinds share what a process can bear: never more than its capacity at once."""
    in_use, most = 0, 0

    async def work(size: int) -> None:
        nonlocal in_use, most
        in_use += size
        most = max(most, in_use)
        await asyncio.sleep(0.01)
        in_use -= size

    app.listen("films", work, size=60)
    app.listen("icons", work, size=20)
    await app.queue("films").enqueue_many([60] * 3)
    await app.queue("icons").enqueue_many([20] * 9)
    await Worker(app, capacity=100).drain()
    assert 60 < most <= 100


async def test_a_worker_for_some_queues(app: Penstock) -> None:
    """A worker may serve only some of the queues, so that others have machines of their own."""
    done: list[str] = []
    app.listen("films", done.append)
    app.listen("icons", done.append)
    await app.queue("films").enqueue("western")
    await app.queue("icons").enqueue("star")
    await Worker(app, queues=["icons"]).drain()
    assert done == ["star"]


async def test_who_works(app: Penstock) -> None:
    """`app.workers()` lists the workers that are there, what they serve and how much they can bear."""
    app.listen("icons", lambda name: None)
    async with Worker(app, id="painter", capacity=50):
        [worker] = await eventually(app.workers)
        assert (worker.id, list(worker.queues), worker.capacity) == ("painter", ["icons"], 50)
    assert await app.workers() == []


JOBS = """
from penstock import Penstock

app = Penstock("sqlite:penstock.db")

@app.handler("sums")
def add(numbers: list[int]) -> int:
    return sum(numbers)
"""


async def test_processes(tmp_path: Path, run: Callable[[str], Awaitable[int]]) -> None:
    """`penstock worker jobs:app` runs the handlers of `jobs.py` in a process per core, and minds them from outside."""
    (tmp_path / "jobs.py").write_text(JOBS)
    async with Penstock(f"sqlite:{tmp_path / 'penstock.db'}") as app:
        await app.queue("sums").enqueue([1, 2, 3], id="a")
        assert await run("penstock worker jobs:app --processes 2 --drain") == 0
        assert await app.queue("sums").result("a") == 6
