"""Failures

A handler that raises is run again, later and later, up to a limit. A job that fails for good is kept and reported.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock import Failure, Job, JobFailed, Penstock, PermanentError, Retry, State, Worker
from penstock.testing import Clock


async def test_again_with_longer_pauses(app: Penstock, clock: Clock) -> None:
    """The pause doubles after each failure, from `min_backoff` up to `max_backoff`."""
    times: list[float] = []

    @app.handler("weather", min_backoff=10, max_backoff=30)
    async def fetch(city: str, job: Job) -> None:
        times.append(clock.time())
        if job.attempt < 5:
            raise ConnectionError("no route")

    await app.queue("weather").enqueue("Bern")
    while (await app.queue("weather").counts())[State.COMPLETED] == 0:
        await Worker(app).drain()
        clock.advance(seconds=1)
    assert [later - earlier for earlier, later in pairwise(times)] == [10, 20, 30, 30]


async def test_enough_is_enough(app: Penstock) -> None:
    """`max_retries=2` means three runs; then the job has failed, and its last error is kept."""

    @app.handler("weather", max_retries=2, min_backoff=0)
    async def fetch(city: str, job: Job) -> None:
        raise ConnectionError(f"no route at attempt {job.attempt}")

    await app.queue("weather").enqueue("Bern", id="b")
    await Worker(app).drain(scheduled=True)
    with pytest.raises(JobFailed) as failed:
        await app.queue("weather").result("b")
    error = failed.value.error
    assert (error.type, error.message, error.kind) == ("ConnectionError", "no route at attempt 3", "retriable")


async def test_no_second_try(app: Penstock) -> None:
    """`PermanentError`, or any exception whose `kind` is "permanent", fails the job at once."""

    @app.handler("mail")
    async def send(address: str) -> None:
        raise PermanentError("no such address")

    await app.queue("mail").enqueue("nobody")
    await Worker(app).drain()
    [job] = await app.queue("mail").find("failed")
    assert job.attempts == 1


async def test_the_handler_chooses_the_delay(app: Penstock, clock: Clock) -> None:
    """`Retry` asks for another run at a time of the handler's choice."""

    @app.handler("payments")
    async def pay(amount: int, job: Job) -> str:
        if job.attempt == 1:
            raise Retry(delay=90)
        return "paid"

    await app.queue("payments").enqueue(5, id="p")
    await Worker(app).drain()
    clock.advance(minutes=1, seconds=30)
    await Worker(app).drain()
    assert await app.queue("payments").result("p") == "paid"


async def test_a_fail_handler_is_called(app: Penstock) -> None:
    """A fail handler gets what failed for good: payload, job and error. It runs as a job of its own."""
    failures: list[str] = []

    def report(failure: Failure) -> None:
        failures.append(f"{failure.payload}: {failure.error.message} ({failure.job.queue} {failure.job.id})")

    @app.handler("uploads", max_retries=0, on_failure=report)
    async def upload(name: str) -> None:
        raise OSError("the disk is full")

    await app.queue("uploads").enqueue("film", id="f")
    await Worker(app).drain()
    assert failures == ["film: the disk is full (uploads f)"]
    assert (await app.queue("uploads/failures").counts())[State.COMPLETED] == 1


async def test_once_more(app: Penstock) -> None:
    """Failed jobs are kept for seven days, can be listed, and put back in line when the cause is mended."""
    disk = {"full": True}

    @app.handler("uploads", max_retries=0)
    async def upload(name: str) -> None:
        if disk["full"]:
            raise OSError("the disk is full")

    uploads = app.queue("uploads")
    await uploads.enqueue("film")
    await Worker(app).drain()
    disk["full"] = False
    assert await uploads.retry(job.id for job in await uploads.find("failed")) == 1
    await Worker(app).drain()
    assert (await uploads.counts())[State.COMPLETED] == 1


async def test_a_payload_that_cannot_be_read(app: Penstock) -> None:
    """A payload that does not fit the handler's type fails for good without calling it; its content is kept."""

    @app.handler("numbers")
    async def double(number: int) -> int:
        return 2 * number

    await app.queue("numbers").enqueue("seven")
    await Worker(app).drain()
    [job] = await app.queue("numbers").find("failed")
    assert job.error is not None
    assert (job.payload, job.error.kind) == ("seven", "permanent")
