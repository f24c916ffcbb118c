"""Shutdown

A worker that stops claims no more, lets its runs end for a while, and gives the rest back. No job is lost or charged.
"""

from __future__ import annotations

import asyncio

from penstock import Job, Penstock, State, Worker


async def test_runs_may_end(app: Penstock) -> None:
    """`stop` waits for the runs under way, up to `grace` seconds, and begins no new ones."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.handler("films")
    async def convert(name: str) -> None:
        begun.set()
        await go_on.wait()

    await app.queue("films").enqueue("first")
    async with Worker(app) as worker:
        await begun.wait()
        stopping = asyncio.create_task(worker.stop(grace=30))
        await asyncio.sleep(0)
        await app.queue("films").enqueue("second")
        go_on.set()
        await stopping
    counts = await app.queue("films").counts()
    assert (counts[State.COMPLETED], counts[State.QUEUED]) == (1, 1)


async def test_the_rest_is_given_back(app: Penstock) -> None:
    """A run that has not ended by then is released to its position in the queue, and the attempt is not counted."""
    attempts: list[int] = []
    begun = asyncio.Event()

    @app.handler("films")
    async def convert(name: str, job: Job) -> None:
        attempts.append(job.attempt)
        if len(attempts) == 1:
            begun.set()
            await asyncio.sleep(3600)

    await app.queue("films").enqueue("western", id="w")
    async with Worker(app) as worker:
        await begun.wait()
        await worker.stop(grace=0)
    assert (await app.queue("films").counts())[State.QUEUED] == 1
    await worker.drain()  # a stopped worker can be started again
    assert attempts == [1, 1]


async def test_until_nothing_is_left(app: Penstock) -> None:
    """`drain` works until nothing due is left, what the jobs themselves enqueue included, and stops."""
    seen: list[int] = []

    @app.handler("countdown")
    async def count(number: int) -> None:
        seen.append(number)
        if number > 0:
            await app.queue("countdown").enqueue(number - 1)

    await app.queue("countdown").enqueue(3)
    await Worker(app).drain()
    assert seen == [3, 2, 1, 0]


async def test_handing_over(app: Penstock) -> None:
    """`release_all` releases the jobs that run here while the worker goes on, for other workers with free capacity."""
    attempts: list[int] = []
    begun = asyncio.Event()

    @app.handler("films")
    async def convert(name: str, job: Job) -> None:
        attempts.append(job.attempt)
        if len(attempts) == 1:
            begun.set()
            await asyncio.sleep(3600)

    await app.queue("films").enqueue("western", id="w")
    async with Worker(app) as worker:
        await begun.wait()
        assert await worker.release_all() == 1
        await app.queue("films").wait("w")
    assert attempts == [1, 1]
