"""Asking and waiting for an answer

A queue can be used like a function that runs somewhere else.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock import CallTimeout, JobFailed, Penstock, PermanentError, Worker


async def test_call(app: Penstock) -> None:
    """`call` enqueues a job and waits for its result."""
    app.listen("squares", lambda number: number * number)
    async with Worker(app):
        assert await app.queue("squares").call(7) == 49


async def test_a_call_that_fails(app: Penstock) -> None:
    """A job that fails raises `JobFailed` where it was called, with what went wrong over there."""

    @app.handler("divide")
    def divide(pair: list[int]) -> float:
        if pair[1] == 0:
            raise PermanentError("no division by zero")
        return pair[0] / pair[1]

    async with Worker(app):
        with pytest.raises(JobFailed) as failed:
            await app.queue("divide").call([1, 0])
    assert (failed.value.error.type, failed.value.error.message) == ("PermanentError", "no division by zero")


async def test_a_timeout(app: Penstock) -> None:
    """`timeout` is how long the caller waits; the job goes on without it, and can be waited for again."""
    app.listen("squares", lambda number: number * number)
    with pytest.raises(CallTimeout):
        await app.queue("squares").call(7, id="seven", timeout=0.05)  # no worker yet
    async with Worker(app):
        assert await app.queue("squares").wait("seven") == 49


async def test_calls_with_one_id_share_one_run(app: Penstock) -> None:
    """A call with the id of a job that waits or runs joins it; one with the id of a completed job gets its result."""
    runs: list[int] = []

    @app.handler("squares")
    async def square(number: int) -> int:
        runs.append(number)
        return number * number

    async with Worker(app):
        queue = app.queue("squares")
        answers = await asyncio.gather(*(queue.call(7, id="seven") for _ in range(5)))
        answers.append(await queue.call(7, id="seven"))
    assert answers == [49] * 6
    assert runs == [7]
