"""Results

The value that a handler returns is kept for an hour, or for the time that you set.
"""

from __future__ import annotations

import pytest

from penstock import Job, JobFailed, JobNotFound, NotFinished, Penstock, PermanentError, Progress, Worker
from penstock.testing import Clock


async def test_nothing_is_a_result_too(app: Penstock) -> None:
    """None, zero and empty text are values like any other."""
    app.listen("echo", lambda payload: payload)
    values = [None, 0, "", [], False]
    jobs = await app.queue("echo").enqueue_many(values)
    await Worker(app).drain()
    assert [await app.queue("echo").result(job.id) for job in jobs] == values


async def test_every_reason_to_have_none(app: Penstock) -> None:
    """Asking for a result raises what is so; a default stands in for every such reason."""

    @app.handler("divide")
    async def divide(pair: list[int]) -> float:
        if pair[1] == 0:
            raise PermanentError("no division by zero")
        return pair[0] / pair[1]

    queue = app.queue("divide")
    with pytest.raises(JobNotFound):
        await queue.result("a")
    await queue.enqueue([1, 0], id="a")
    with pytest.raises(NotFinished):
        await queue.result("a")
    await Worker(app).drain()
    with pytest.raises(JobFailed, match="no division by zero"):
        await queue.result("a")
    assert await queue.result("a", default=-1.0) == -1.0


async def test_results_are_forgotten_after_their_time(app: Penstock, clock: Clock) -> None:
    """`result_ttl` is how long a result is kept, and `update_result_ttl` changes that afterwards."""
    app.listen("echo", lambda payload: payload, result_ttl=60)
    queue = app.queue("echo")
    await queue.enqueue_many(["short", "long"])
    short, long = [job.id for job in await queue.find()]
    await Worker(app).drain()
    assert await queue.update_result_ttl(long, 3600)
    clock.advance(minutes=2)
    assert await queue.result(short, default="gone") == "gone"
    assert await queue.result(long) == "long"


async def test_keeping_nothing(app: Penstock) -> None:
    """With `retain="none"` a completed job leaves nothing behind."""
    app.listen("clicks", lambda payload: None, retain="none")
    await app.queue("clicks").enqueue("here", id="a")
    await Worker(app).drain()
    assert await app.queue("clicks").status("a") is None


async def test_how_a_job_stands(app: Penstock) -> None:
    """`status` has all the facts about a job, also the progress of its run."""

    @app.handler("films")
    async def convert(name: str, job: Job) -> None:
        await job.progress(0.5, "half way")
        status = await app.queue("films").status(job.id)
        assert status is not None
        assert (status.state, status.attempts, status.progress) == ("running", 1, Progress(0.5, "half way"))

    await app.queue("films").enqueue("western", id="f")
    await Worker(app).drain()
    status = await app.queue("films").status("f")
    assert status is not None
    assert (status.state, status.payload) == ("completed", "western")
