"""Presets

One word gives users of four other systems their familiar defaults. Explicit options still win.
"""

from __future__ import annotations

import pytest

from penstock import DuplicateJob, Penstock, Worker


async def test_queasy() -> None:
    """With "queasy" the same id changes the waiting job."""
    async with Penstock("memory:", preset="queasy") as app:
        await app.queue("mail").enqueue("one", id="a")
        assert (await app.queue("mail").enqueue("two", id="a")).status == "updated"


async def test_queue_farm() -> None:
    """With "queue_farm" a queue runs its jobs one at a time, in order."""
    async with Penstock("memory:", preset="queue_farm") as app:
        await app.queue("mail").enqueue_many(["one", "two"])
        [only] = await app.queue("mail").reserve(limit=10)
        assert (only.payload, only.group) == ("one", "mail")


async def test_job_queue() -> None:
    """With "job_queue" a job has three attempts, and failures are retried at once."""
    app = Penstock("memory:", preset="job_queue")

    @app.handler("mail")
    async def send(text: str) -> None:
        raise ConnectionError("no route")

    async with app:
        await app.queue("mail").enqueue("one")
        await Worker(app).drain(scheduled=True)
        [job] = await app.queue("mail").find("failed")
        assert job.attempts == 3


async def test_worqr() -> None:
    """With "worqr" a taken id is an exception."""
    async with Penstock("memory:", preset="worqr") as app:
        await app.queue("mail").enqueue("one", id="a")
        with pytest.raises(DuplicateJob):
            await app.queue("mail").enqueue("two", id="a")
