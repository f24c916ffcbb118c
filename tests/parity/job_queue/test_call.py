"""`call` and `wait`, the counterparts of enqueueAndWait, for one caller and for many."""

from __future__ import annotations

import asyncio

import pytest

from penstock import CallTimeout, Job, JobCancelled, JobFailed, JobNotFound, Penstock, PenstockError, State, Worker
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import AppFactory, status_of, vanish
from tests.support import eventually

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


async def test_a_call_gives_the_result(factory: AppFactory, app: Penstock) -> None:
    """Callers get the results of a handler in another process, several at once (PJ-3, PJ-34, PJ-43, PJ-T9)."""
    consumer = await factory.app()
    consumer.listen("q", lambda payload: payload * 1024, concurrency=3)
    async with Worker(consumer):
        assert await app.queue("q").call("x" * 100, id="large") == "x" * 102_400
        answers = await asyncio.gather(*(app.queue("q").call(text, id=text) for text in "abc"))
    assert [answer[0] for answer in answers] == ["a", "b", "c"]


async def test_call_of_a_completed_id_returns_the_first_result(app: Penstock) -> None:
    """A call of a completed id returns the first result at once, and nothing runs (PJ-3, PJ-43)."""
    app.listen("q", lambda payload: payload)
    await app.queue("q").enqueue("first", id="a")
    await Worker(app).drain()
    assert await app.queue("q").call("second", id="a", timeout=0) == "first"
    assert await app.queue("q").wait("a", timeout=0) == "first"


async def test_call_of_a_handler_that_returns_none(app: Penstock) -> None:
    """A call of a handler that returns None returns None (PJ-D14, PJ-D15)."""
    app.listen("q", lambda payload: None)
    async with Worker(app):
        assert await app.queue("q").call(1, id="a") is None
    assert await app.queue("q").call(1, id="a", timeout=0) is None


async def test_a_call_timeout_leaves_the_job_running(app: Penstock) -> None:
    """After a CallTimeout the job runs on, and a later wait gets its result (PJ-34, PJ-T10)."""
    started, gate = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def handle(payload: str) -> str:
        started.set()
        await gate.wait()
        return payload

    async with Worker(app):
        with pytest.raises(CallTimeout, match="goes on") as impatient:
            await app.queue("q").call("kept", id="a", timeout=0.05)
        assert isinstance(impatient.value, TimeoutError)
        await started.wait()
        assert (await status_of(app)).state is State.RUNNING
        gate.set()
        assert await app.queue("q").wait("a") == "kept"


async def test_two_callers_of_one_id_get_one_run(factory: AppFactory, app: Penstock) -> None:
    """A second call of a queued or running id gets the result of the first payload's run (PJ-T11)."""
    other = await factory.app()
    runs: list[str] = []
    started, gate = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def handle(payload: str) -> str:
        runs.append(payload)
        started.set()
        await gate.wait()
        return f"{payload}'s result"

    first = asyncio.create_task(app.queue("q").call("first", id="a"))
    await eventually(lambda: queued(app))
    second = asyncio.create_task(other.queue("q").call("second", id="a"))
    async with Worker(app):
        await started.wait()
        third = asyncio.create_task(app.queue("q").call("third", id="a"))
        await asyncio.sleep(0)
        gate.set()
        assert [await each for each in (first, second, third)] == ["first's result"] * 3
    assert runs == ["first"]


async def queued(app: Penstock) -> bool:
    return (await app.queue("q").counts())[State.QUEUED] == 1


async def test_a_call_timeout_does_not_end_another_call(app: Penstock) -> None:
    """Of two callers with different timeouts the longer one gets the result (PJ-D17)."""
    gate = asyncio.Event()

    @app.handler("q")
    async def handle(payload: str) -> str:
        await gate.wait()
        return payload

    async with Worker(app):
        patient = asyncio.create_task(app.queue("q").call("both", id="a", timeout=20))
        with pytest.raises(CallTimeout):
            await app.queue("q").call("both", id="a", timeout=0.05)
        gate.set()
        assert await patient == "both"


async def test_a_failure_reaches_the_caller(app: Penstock) -> None:
    """After the last attempt the caller gets JobFailed with the parts of the error (PJ-50, PJ-T12, PJ-S15)."""

    @app.handler("q")
    async def handle(payload: str) -> None:
        raise LookupError(f"no {payload}")

    async with Worker(app):
        with pytest.raises(JobFailed, match="LookupError: no way") as failed:
            await app.queue("q").call("way", id="a")
    assert (failed.value.error.type, failed.value.error.message) == ("LookupError", "no way")
    assert (await status_of(app)).attempts == 3
    with pytest.raises(JobFailed):
        await app.queue("q").wait("a", timeout=0)


async def test_a_cancel_reaches_the_caller(app: Penstock) -> None:
    """Cancelled and unknown jobs raise their own errors, all of one base class (PJ-50)."""
    caller = asyncio.create_task(app.queue("q").call(1, id="a"))
    await eventually(lambda: queued(app))
    assert await app.queue("q").cancel("a")
    with pytest.raises(JobCancelled):
        await caller
    with pytest.raises(JobNotFound):
        await app.queue("q").wait("nobody", timeout=0)
    assert all(issubclass(each, PenstockError) for each in (JobCancelled, JobNotFound, JobFailed, CallTimeout))


async def test_a_caller_outlives_a_dead_worker(app: Penstock, clock: Clock) -> None:
    """The caller of a job whose worker vanished gets the result of another worker's run (PJ-47)."""
    app.listen("q", lambda payload, job: [payload, job.stalls])
    caller = asyncio.create_task(app.queue("q").call("saved", id="a"))
    await eventually(lambda: queued(app))
    assert len(await vanish(app, lease=30)) == 1
    clock.advance(30)
    await Worker(app).drain()
    assert await caller == ["saved", 1]


async def test_a_caller_is_not_disturbed_by_retries(app: Penstock) -> None:
    """A call of a job that fails twice and then completes returns its result once (PJ-16, PJ-T13)."""

    @app.handler("q")
    async def handle(payload: int, job: Job) -> int:
        if job.attempt < 3:
            raise ValueError("not yet")
        return job.attempt

    async with Worker(app):
        assert await app.queue("q").call(1) == 3
