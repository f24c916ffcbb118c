"""Cancelling

What waits can be taken back. What runs can be left alone, asked to end, or ended.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock import Job, JobCancelled, Penstock, Worker


async def test_taking_a_job_back(app: Penstock) -> None:
    """A waiting job is cancelled at once: it will not run."""
    sent: list[str] = []
    app.listen("mail", sent.append)
    await app.queue("mail").enqueue("hello", id="h")
    assert await app.queue("mail").cancel("h")
    await Worker(app).drain()
    assert sent == []
    with pytest.raises(JobCancelled):
        await app.queue("mail").result("h")


async def test_a_run_is_left_alone(app: Penstock) -> None:
    """By default a running job is not cancelled: the answer is falsy, and its status is `running`."""
    await app.queue("mail").enqueue("hello", id="h")
    [running] = await app.queue("mail").reserve()
    answer = await app.queue("mail").cancel("h")
    assert not answer
    assert answer.status == "running"
    await running.complete()


async def test_asking_a_run_to_end(app: Penstock) -> None:
    """With "signal" the handler is asked: it can await `job.cancelled`, or look at it now and then."""
    begun = asyncio.Event()

    @app.handler("radio")
    async def play(station: str, job: Job) -> str:
        begun.set()
        await job.cancelled
        return "faded out"

    async with Worker(app):
        await app.queue("radio").enqueue("jazz", id="j")
        await begun.wait()
        assert (await app.queue("radio").cancel("j", running="signal")).requested
        assert await app.queue("radio").wait("j") == "faded out"


async def test_in_a_thread_too(app: Penstock) -> None:
    """A plain function looks at `job.cancelled`; what it raises after that ends the job as cancelled."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.handler("radio")
    def play(station: str, job: Job) -> None:
        loop.call_soon_threadsafe(begun.set)
        while not job.cancelled:
            time.sleep(0.01)
        raise RuntimeError("switched off")

    async with Worker(app):
        await app.queue("radio").enqueue("jazz", id="j")
        await begun.wait()
        await app.queue("radio").cancel("j", running="signal")
        with pytest.raises(JobCancelled):
            await app.queue("radio").wait("j")


async def test_ending_a_run(app: Penstock) -> None:
    """With "kill" an async run is cancelled as any task is; with child processes a stubborn one costs its process."""
    begun = asyncio.Event()

    @app.handler("radio")
    async def play(station: str) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async with Worker(app):
        await app.queue("radio").enqueue("jazz", id="j")
        await begun.wait()
        await app.queue("radio").cancel("j", running="kill")
        with pytest.raises(JobCancelled):
            await app.queue("radio").wait("j")


async def test_by_payload(app: Penstock) -> None:
    """Without the id a job can be cancelled by its payload."""
    await app.queue("mail").enqueue_many(["news", "news", "alarm"])
    assert len(await app.queue("mail").cancel_matching("news")) == 2
    [left] = await app.queue("mail").find("queued")
    assert left.payload == "alarm"
