"""Hooks around runs, and the current job: on the event loop, in threads, in batches, in child processes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from contextvars import ContextVar
from typing import Any, cast

import pytest

from penstock import Job, Outcome, Penstock, PermanentError, Retry, Running, Sending, State, Worker, current_job
from penstock.testing import Clock
from tests.worker.test_drain import state

tenant: ContextVar[str] = ContextVar("tenant", default="none")


def use_tenant(app: Penstock) -> list[str]:
    """Register two hooks; returns the list of their steps."""
    steps: list[str] = []

    @app.around("run")
    @contextlib.contextmanager
    def outer(running: Running) -> Generator[None]:
        steps.append(f"outer {running.queue} {running.job.id}")
        token = tenant.set(running.job.headers.get("tenant", "none"))
        try:
            yield
        finally:
            tenant.reset(token)
            steps.append("outer ends")

    @app.around("run")
    @contextlib.contextmanager
    def inner(running: Running) -> Generator[None]:
        steps.append(f"inner {tenant.get()} {threading.current_thread() is threading.main_thread()}")
        yield
        steps.append(f"inner ends {running.returned}")

    return steps


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_hooks_are_entered_where_the_handler_runs_the_first_one_outermost(app: Penstock, style: str) -> None:
    """The handler sees the context that they set; afterwards the context is as before."""
    steps = use_tenant(app)

    async def handle_async(payload: Any) -> str:
        return tenant.get()

    def handle(payload: Any) -> str:
        return tenant.get()

    app.listen("q", handle_async if style == "async" else handle)
    await app.queue("q").enqueue(1, id="a", headers={"tenant": "blue"})
    await Worker(app).drain()
    assert await app.queue("q").result("a") == "blue"
    assert steps == ["outer q a", f"inner blue {style == 'async'}", "inner ends blue", "outer ends"]


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_a_batch_is_one_run_of_its_hooks(app: Penstock, style: str) -> None:
    """The hooks get all its jobs; the current job is the first of them."""
    seen: list[Any] = []

    @app.around("run")
    @contextlib.contextmanager
    def hook(running: Running) -> Generator[None]:
        seen.append([job.id for job in running.jobs])
        yield
        seen.append((running.returned, running.outcome()))

    def handle(payloads: list[int]) -> list[Any]:
        seen.append(getattr(current_job(), "id", None))
        return [payloads[0], Outcome.fail("no")]

    async def handle_async(payloads: list[int]) -> list[Any]:
        return handle(payloads)

    app.listen("q", handle_async if style == "async" else handle, batch_size=2)
    for id in "ab":
        await app.queue("q").enqueue(1, id=id)
    await Worker(app).drain()
    assert seen[:2] == [["a", "b"], "a"]
    assert seen[2][1] == "retrying"
    assert (await state(app, "a"), await state(app, "b")) == (State.COMPLETED, State.RETRYING)


@pytest.mark.parametrize("style", ["async", "plain"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_hook_raises_counts_as_raised_by_the_handler(app: Penstock, when: str, style: str) -> None:
    """A permanent error of a hook fails the job; hooks around it see the exception."""
    seen: list[str] = []

    @app.around("run")
    @contextlib.contextmanager
    def outer(running: Running) -> Generator[None]:
        try:
            yield
        except PermanentError as error:
            seen.append(f"{error} {running.outcome(error)}")
            raise

    @app.around("run")
    @contextlib.contextmanager
    def inner(running: Running) -> Generator[None]:
        if when == "before":
            raise PermanentError("from the hook")
        yield
        raise PermanentError("from the hook")

    async def handle_async(payload: Any) -> None: ...

    app.listen("q", handle_async if style == "async" else lambda payload: None)
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.message) == (State.FAILED, "from the hook")
    assert seen == ["from the hook failed"]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("style", ["async", "plain"])
async def test_a_hook_that_swallows_an_exception_does_not_complete_the_job(
    app: Penstock, style: str, batch: int
) -> None:
    """The exception still reaches the hooks around it, and the run fails with it."""
    seen: list[str] = []

    class Noting:
        def __init__(self, running: Running) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            seen.append(repr(error))
            return True

    app.around("run")(Noting)
    app.around("run")(lambda running: contextlib.suppress(ValueError))

    def handle(payload: Any) -> None:
        raise ValueError("kept")

    async def handle_async(payload: Any) -> None:
        raise ValueError("kept")

    app.listen("q", handle_async if style == "async" else handle, max_retries=0, batch_size=batch)
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.type) == (State.FAILED, "ValueError")
    assert seen == ["ValueError('kept')"]


async def test_a_hook_knows_the_last_attempt_and_the_outcome(app: Penstock, clock: Clock) -> None:
    """`last_attempt` is true when no retry is left; `outcome` is `retrying` for an asked-for retry."""
    seen: list[Any] = []

    @app.around("run")
    @contextlib.contextmanager
    def hook(running: Running) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            seen.append((running.last_attempt, running.outcome(error)))
            raise
        seen.append((running.last_attempt, running.outcome()))

    raises: list[Any] = [
        Retry(delay=1, count=False),
        ValueError(),
        Outcome.retry(delay=1),
        Outcome.fail("once more"),
    ]

    @app.handler("q", max_retries=2)
    async def handle(payload: Any) -> Any:
        each = raises.pop(0)
        if isinstance(each, Exception):
            raise each
        return each

    await app.queue("q").enqueue(1, id="a")
    for _ in range(4):
        await Worker(app).drain()
        clock.advance(60)
    assert seen == [(False, "retrying"), (False, "retrying"), (False, "retrying"), (True, "failed")]
    assert await state(app) is State.FAILED


async def test_a_hook_that_returns_no_context_manager_fails_the_run(app: Penstock) -> None:
    """An async context manager, a generator or None is an error that names the hook."""

    @contextlib.asynccontextmanager
    async def hook(running: Running) -> AsyncGenerator[None]:
        yield

    app.around("run")(cast("Any", hook))
    app.listen("q", lambda payload: None, max_retries=0)
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.error is not None
    assert "hook must return a context manager, not _AsyncGeneratorContextManager" in status.error.message.replace(
        "test_a_hook_that_returns_no_context_manager_fails_the_run.<locals>.", ""
    )


def test_a_hook_of_an_unknown_point_is_refused() -> None:
    """The error names both points."""
    app = Penstock("memory:")
    with pytest.raises(ValueError, match=r'around\("run"\) or around\("enqueue"\)'):
        app.around(cast("Any", "settle"))(lambda running: contextlib.nullcontext())
    with pytest.raises(TypeError, match="a hook must be a function"):
        app.around("run")(cast("Any", 3))


async def test_a_timeout_reaches_the_hooks_as_the_cancellation_that_it_is(app: Penstock) -> None:
    """The interruption has a name, and the outcome is that of a timeout."""
    seen: list[Any] = []

    @app.around("run")
    @contextlib.contextmanager
    def hook(running: Running) -> Generator[None]:
        try:
            yield
        except asyncio.CancelledError as error:
            seen.append((running.interruption, running.outcome(error)))
            raise

    @app.handler("q", timeout=0.01, max_timeouts=1)
    async def handle(payload: Any) -> None:
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert seen == [("timeout", "failed")]
    assert await state(app) is State.FAILED


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_the_current_job_is_known_in_the_handler_its_tasks_and_threads(app: Penstock, style: str) -> None:
    """Outside of runs there is none; a follow-up that it gets exists if the run completes."""
    seen: list[Any] = []

    def note() -> None:
        job = current_job()
        assert job is not None
        seen.append((job.queue, job.id, job.attempt, job.worker))

    async def note_soon() -> None:
        note()

    async def handle_async(payload: Any) -> None:
        await asyncio.create_task(note_soon())
        await asyncio.to_thread(note)

    def handle(payload: Any) -> None:
        note()
        job = current_job()
        assert job is not None
        job.then("next", payload, id="n")

    app.listen("q", handle_async if style == "async" else handle)
    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="w1").drain()
    assert set(seen) == {("q", "a", 1, "w1")}
    assert len(seen) == (2 if style == "async" else 1)
    assert current_job() is None
    assert await state(app, "n", "next") is (None if style == "async" else State.QUEUED)


async def test_the_current_job_leaves_the_context_as_it_was_so_that_a_task_runs_many_jobs(app: Penstock) -> None:
    """A task that a run leaves with another context ends; a task for each run would cost more than most runs."""
    tasks: list[asyncio.Task[Any] | None] = []

    @app.handler("q")
    async def handle(payload: Any) -> None:
        tasks.append(asyncio.current_task())

    await app.queue("q").enqueue_many(range(50))
    await Worker(app).drain()
    assert len(tasks) == 50
    assert len(set(tasks)) < 10


async def test_a_follow_up_passes_through_the_enqueue_hooks(app: Penstock) -> None:
    """Its hook runs in the run that adds it, and has no answers; headers are stored with it."""
    seen: list[Any] = []

    @app.around("enqueue")
    @contextlib.contextmanager
    def stamp(sending: Sending) -> Generator[None]:
        job = current_job()
        sending.headers["from"] = "outside" if job is None else job.id
        yield
        seen.append((sending.queue, sending.follow_up, len(sending.answers)))

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        job.then("next", payload, id="n")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    status = await app.queue("next").status("n")
    assert status is not None
    assert status.headers == {"from": "a"}
    assert seen == [("q", False, 1), ("next", True, 0)]


@pytest.mark.parametrize("style", ["async", "plain"])
@pytest.mark.parametrize("value", [5, {"a": 1}, [1], []])
async def test_hooks_see_that_a_batch_has_returned_the_wrong_number_of_values(
    app: Penstock, style: str, value: Any
) -> None:
    """A batch of 2 whose handler returns no list of 2 fails inside of its hooks: its outcome is not "completed"."""
    outcomes: list[str] = []

    @app.around("run")
    @contextlib.contextmanager
    def hook(running: Running) -> Generator[None]:
        try:
            yield
        except TypeError as error:
            outcomes.append(running.outcome(error))
            raise
        outcomes.append(running.outcome())

    async def handle_async(payloads: list[int]) -> Any:
        return value

    def handle(payloads: list[int]) -> Any:
        return value

    app.listen("q", handle_async if style == "async" else handle, batch_size=2, max_retries=0)
    await app.queue("q").enqueue_many([1, 2])
    await Worker(app).drain()
    failed = await app.queue("q").find("failed")
    assert {job.error.message[:27] for job in failed if job.error} == {"a batch handler must return"}
    assert outcomes[-1] == "failed"
