"""Tasks

`@app.task` makes a function a job: ordinary arguments, known to your type checker.
"""

from __future__ import annotations

from datetime import date

import pytest

from penstock import Job, Penstock, Worker


async def test_calling_a_function_elsewhere(app: Penstock) -> None:
    """`call` lets a worker run the function and returns its result, in the type of the annotation."""

    @app.task
    async def tomorrow(day: date) -> date:
        return day.replace(day=day.day + 1)

    async with Worker(app):
        assert await tomorrow.call(date(2030, 5, 1)) == date(2030, 5, 2)
    assert await tomorrow(date(2030, 5, 1)) == date(2030, 5, 2)  # just runs it, here


async def test_not_waiting(app: Penstock) -> None:
    """`enqueue` does not wait; `options` takes the options of a queue's `enqueue`."""

    @app.task(max_retries=3)
    def add(a: int, b: int = 1) -> int:
        return a + b

    job = await add.options(id="sum", group="sums").enqueue(1, b=2)
    assert not await add.options(id="sum").enqueue(5)
    await Worker(app).drain()
    assert await add.result(job.id) == 3


async def test_wrong_arguments_raise_at_once(app: Penstock) -> None:
    """Wrong arguments are a `TypeError` at the call, and nothing is enqueued."""

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(TypeError, match="add"):
        await add.enqueue(1)  # type: ignore[call-arg]
    assert await app.queues() == []


async def test_a_task_that_wants_its_job(app: Penstock) -> None:
    """A parameter annotated `Job` gets the run it is in, and is not part of the call."""

    @app.task
    async def greet(name: str, job: Job | None = None) -> str:
        return f"{name}, attempt {job.attempt if job else 0}"

    async with Worker(app):
        assert await greet.call("Ann") == "Ann, attempt 1"
    assert await greet("Ann") == "Ann, attempt 0"
