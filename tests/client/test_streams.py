"""Streams by the API that users call: parts that a handler emits, and their readers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import InvalidPayload, Job, JobFailed, JobNotFound, Part, Penstock, Worker
from penstock.worker import log_sender


async def read(stream: Any) -> list[Part]:
    return [part async for part in stream]


async def test_a_stream_of_100_parts_comes_in_order_and_ends(app: Penstock) -> None:
    """Example 65: all parts in order, `first` once, then the end, and the result."""

    @app.handler("answers")
    async def answer(question: str, job: Job) -> str:
        for n in range(100):
            job.emit({"n": n})
            if n % 10 == 0:
                await asyncio.sleep(0)
        return question.upper()

    async with Worker(app):
        stream = app.queue("answers").stream("why?", result_ttl=0)
        parts = await read(stream)
        assert [part.value["n"] for part in parts] == list(range(100))
        assert [part.n for part in parts] == list(range(1, 101))
        assert [part.n for part in parts if part.first] == [1]
        assert {part.attempt for part in parts} == {1}
        assert await stream.result() == "WHY?"


async def test_a_repeated_run_begins_with_first_again(app: Penstock) -> None:
    """Example 66, invariant F19: after ten parts the run fails; the next has attempt 2 and ascending numbers."""

    @app.handler("answers", min_backoff=0, max_backoff=0)
    async def answer(question: str, job: Job) -> None:
        for n in range(10):
            job.emit(n)
        if job.attempt == 1:
            raise ValueError("again")

    async with Worker(app):
        parts = await read(app.queue("answers").stream("why?", id="a"))
    assert [(part.n, part.attempt) for part in parts if part.first] == [(1, 1), (11, 2)]
    assert [part.value for part in parts] == [*range(10), *range(10)]
    pairs = [(part.attempt, part.n) for part in parts]
    assert pairs == sorted(pairs)
    late = await read(app.queue("answers").follow("a", after=14))
    assert [(part.n, part.first) for part in late] == [(n, False) for n in range(15, 21)]
    later = await read(app.queue("answers").follow("a", after=5))
    assert [part.n for part in later if part.first] == [11]


async def test_a_plain_function_emits_and_a_reader_gets_parts_while_it_runs(app: Penstock) -> None:
    """A part reaches its reader before the run ends, also from a thread; an awaited one is stored."""
    goes_on = asyncio.Event()
    stored: list[bool] = []

    @app.task
    def count(upto: int, job: Job | None = None) -> int:
        assert job is not None
        for n in range(upto):
            job.emit(n)
        return upto

    @app.handler("slow")
    async def slow(payload: int, job: Job) -> None:
        stored.append(await job.emit("one"))
        await goes_on.wait()

    async with Worker(app):
        stream = count.stream(3)
        assert [part.value async for part in stream] == [0, 1, 2]
        assert await stream.result() == 3
        slowly = app.queue("slow").stream(1)
        assert (await anext(slowly)).value == "one"
        assert stored == [True]
        goes_on.set()
        assert await read(slowly) == []


async def test_the_end_of_a_failed_job_is_raised_after_its_parts(app: Penstock) -> None:
    """A reader gets what was emitted, and then the error; a job that is not there raises at once."""

    @app.handler("answers", max_retries=0)
    async def answer(question: str, job: Job) -> None:
        job.emit("begin")
        raise ValueError("no model")

    async with Worker(app):
        stream = app.queue("answers").stream("why?")
        assert (await anext(stream)).value == "begin"
        with pytest.raises(JobFailed, match="no model"):
            await anext(stream)
    with pytest.raises(JobNotFound):
        await anext(app.queue("answers").follow("nothing"))
    with pytest.raises(TypeError, match="after"):
        app.queue("answers").follow("a", after="x")  # type: ignore[arg-type]


async def test_a_part_that_is_too_large_is_refused(app: Penstock) -> None:
    """More than 64 KiB raise `InvalidPayload` in the handler, which may go on."""
    raised: list[str] = []

    @app.handler("answers")
    async def answer(question: str, job: Job) -> None:
        try:
            job.emit("x" * 70_000)
        except InvalidPayload as error:
            raised.append(str(error))

    await app.queue("answers").enqueue("why?")
    await Worker(app).drain()
    assert raised == ["part is 70002 bytes, more than 65536"]


async def test_of_too_many_waiting_parts_the_oldest_go(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that emits faster than parts are sent fills no memory; the reader sees a jump in the numbers."""
    monkeypatch.setattr(log_sender, "GATHER_PARTS", 60.0)

    @app.handler("answers")
    async def answer(question: str, job: Job) -> None:
        for n in range(1, 1501):
            job.emit(n)

    async with Worker(app):
        parts = await read(app.queue("answers").stream("why?"))
    assert [part.n for part in parts] == list(range(501, 1501))
    assert [part.value for part in parts] == list(range(501, 1501))
    assert [part.n for part in parts if part.first] == [501]
