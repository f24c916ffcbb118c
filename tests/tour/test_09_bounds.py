"""Bounds of runs

Retries, timeouts and stalls (runs whose worker vanished) are counted apart, each with its own limit.
"""

from __future__ import annotations

import asyncio

from penstock import Job, Penstock, Worker
from penstock.testing import Clock


async def test_a_run_may_take_so_long(app: Penstock) -> None:
    """At its timeout a run is cancelled; the job is tried again, up to `max_timeouts`."""

    @app.handler("exports", timeout=0.05, max_timeouts=2, min_backoff=0)
    async def export(name: str) -> None:
        await asyncio.sleep(3600)

    await app.queue("exports").enqueue("everything")
    await Worker(app).drain(scheduled=True)
    [job] = await app.queue("exports").find("failed")
    assert job.error is not None
    assert (job.timeouts, job.retries) == (2, 0)
    assert (job.error.type, job.error.kind) == ("RunTimeout", "timeout")


async def test_a_job_has_its_own_bounds(app: Penstock) -> None:
    """Bounds given at enqueue win over the handler's."""

    @app.handler("mail", max_retries=10, min_backoff=0)
    async def send(text: str) -> None:
        raise ConnectionError("no route")

    await app.queue("mail").enqueue("hello", max_retries=1)
    await Worker(app).drain(scheduled=True)
    [job] = await app.queue("mail").find("failed")
    assert job.attempts == 2


async def test_a_worker_that_vanishes(app: Penstock, clock: Clock) -> None:
    """A worker holds its jobs by a lease that it renews; when that runs out, another worker takes them over."""
    runs: list[tuple[str, int, int]] = []

    @app.handler("letters")
    async def send(text: str, job: Job) -> None:
        runs.append((text, job.attempt, job.stalls))

    await app.queue("letters").enqueue("hello")
    await app.queue("letters").reserve(lease=60)  # a worker claims it and vanishes
    clock.advance(seconds=61)
    await Worker(app).drain()
    assert runs == [("hello", 2, 1)]


async def test_too_many_vanish(app: Penstock, clock: Clock) -> None:
    """A job whose workers keep vanishing may be what kills them: after `max_stalls` it fails without being run."""
    runs: list[str] = []
    app.listen("poison", runs.append, max_stalls=3)
    await app.queue("poison").enqueue("a")
    for _ in range(3):
        await app.queue("poison").reserve(lease=60)
        clock.advance(seconds=61)
    await Worker(app).drain()
    [job] = await app.queue("poison").find("failed")
    assert job.error is not None
    assert (runs, job.error.kind) == ([], "stall")


async def test_at_most_once(app: Penstock, clock: Clock) -> None:
    """Where running twice is worse than not at all, `at_most_once` fails a job whose run was lost."""
    runs: list[str] = []
    app.listen("transfers", runs.append, at_most_once=True)
    await app.queue("transfers").enqueue("1000 francs")
    await app.queue("transfers").reserve(lease=60)
    clock.advance(seconds=61)
    await Worker(app).drain()
    [job] = await app.queue("transfers").find("failed")
    assert (runs, job.stalls) == ([], 1)
