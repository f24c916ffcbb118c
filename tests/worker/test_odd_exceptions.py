"""Handlers that raise anything: the run ends at once with an outcome, and nothing beside it is held up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Entry, Job, Outcome, Penstock, PermanentError, Retry, State, Worker
from penstock import claims as claims_module
from penstock.model.job import Claim
from penstock.model.outcome import resolve
from penstock.testing import FaultyStorage
from tests.support import eventually

BAD = os.fsdecode(b"\xff.txt")


class OwnBaseError(BaseException):
    """An exception that `except Exception` does not catch."""


async def status_of(app: Penstock, id: str = "a", queue: str = "q") -> Any:
    status = await app.queue(queue).status(id)
    assert status is not None
    return status


def listen(app: Penstock, style: str, action: Callable[[], object], **options: Any) -> None:
    """Register a handler of queue "q" that does this: async or plain, for one job or a batch."""

    async def run_async(payload: Any) -> object:
        return action()

    def run(payload: Any) -> object:
        return action()

    batch = {"batch_size": 3} if "batch" in style else {}
    app.listen("q", run_async if "async" in style else run, **batch, **options)


STYLES = pytest.mark.parametrize("style", ["async", "plain", "async batch", "plain batch"])


def throw(error: BaseException) -> Callable[[], object]:
    def action() -> object:
        raise error

    return action


@STYLES
@pytest.mark.parametrize(
    "error",
    [
        ValueError("cannot read " + BAD),
        PermanentError(BAD),
        Retry(BAD, delay=60),
        ExceptionGroup(BAD, [ValueError(BAD)]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_text_with_a_surrogate_is_stored_escaped(app: Penstock, style: str, error: Exception) -> None:
    """The run ends, its error can be read, and the next job of its group runs."""
    listen(app, style, throw(error), max_retries=None if isinstance(error, Retry) else 0)
    await app.queue("q").enqueue_many([Entry(n, id=id, group="g") for n, id in enumerate("ab")])
    async with asyncio.timeout(20):
        await Worker(app).drain()
    status = await status_of(app)
    assert status.state is (State.RETRYING if isinstance(error, Retry) else State.FAILED)
    assert "\\udcff.txt" in status.error.message
    assert BAD not in status.error.traceback


async def test_a_group_goes_on_behind_a_run_whose_error_has_a_surrogate(app: Penstock) -> None:
    """A job that failed for good frees its group, whatever its error text is."""

    @app.handler("q", max_retries=0)
    async def handle(payload: str) -> str:
        if payload == "bad":
            raise ValueError(BAD) from OSError(BAD)
        return payload

    await app.queue("q").enqueue_many([Entry("bad", id="a", group="g"), Entry("good", id="b", group="g")])
    async with asyncio.timeout(20):
        await Worker(app).drain()
    assert ((await status_of(app)).state, (await status_of(app, "b")).state) == (State.FAILED, State.COMPLETED)


async def test_progress_with_a_surrogate_is_reported_escaped(app: Penstock) -> None:
    """A progress message is escaped as an error is, and the run goes on."""

    @app.handler("q")
    async def handle(payload: int, job: Job) -> Any:
        assert await job.progress(0.5, "reading " + BAD)
        return (await status_of(app)).progress.message

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == "reading \\udcff.txt"


async def test_a_reservation_fails_with_a_surrogate_in_its_text(app: Penstock) -> None:
    """`fail` stores the escaped text, given as text or as an exception."""
    await app.queue("q").enqueue_many([Entry(1, id="a"), Entry(2, id="b")])
    first, second = await app.queue("q").reserve(2)
    assert await first.fail("cannot read " + BAD) is State.RETRYING
    assert await second.fail(PermanentError(BAD)) is State.FAILED
    assert (await status_of(app)).error.message == "cannot read \\udcff.txt"
    assert (await status_of(app, "b")).error.message == "\\udcff.txt"


BASE_EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "own": lambda: OwnBaseError("own"),
    "GeneratorExit": lambda: GeneratorExit("exit"),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("group", [OwnBaseError("own"), ValueError("no")]),
    "CancelledError": lambda: asyncio.CancelledError("stray"),
    "SystemExit": lambda: SystemExit(3),
    "StopIteration": lambda: StopIteration("stop"),
}


@STYLES
@pytest.mark.parametrize("name", BASE_EXCEPTIONS)
async def test_any_base_exception_ends_the_run_as_a_failed_attempt(app: Penstock, style: str, name: str) -> None:
    """Without a timeout nothing else would end it; the worker, and the jobs behind it, go on."""
    listen(app, style, throw(BASE_EXCEPTIONS[name]()), max_retries=1, min_backoff=0, timeout=None)
    app.listen("other", lambda payload: payload)
    await app.queue("q").enqueue(1, id="a")
    await app.queue("other").enqueue(1, id="b")
    async with asyncio.timeout(20):
        await Worker(app).drain(scheduled=True)
    status = await status_of(app)
    assert (status.state, status.attempts, status.retries) == (State.FAILED, 2, 1)
    expected = "OwnBaseError" if name == "own" else name
    if name == "StopIteration" and "async" in style:
        expected = "RuntimeError"  # Python itself replaces it
    assert status.error.type == expected
    assert (await status_of(app, "b", "other")).state is State.COMPLETED


async def test_a_handler_that_cancels_its_own_task_fails_its_run_alone(app: Penstock) -> None:
    """Its run ends at once as a failed attempt; runs that wait behind it, in the same task, are not cancelled."""
    ran: list[int] = []

    @app.handler("q", max_retries=0, timeout=None, concurrency=2)
    async def handle(payload: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        if payload % 3 == 0:
            task.cancel()
            await asyncio.sleep(10)
        if payload % 3 == 1:
            task.cancel()  # without an await: nothing of the run is cancelled, so it completes
        if payload % 3 == 2:
            await asyncio.sleep(0)
        ran.append(payload)
        return payload

    await app.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(60)])
    async with asyncio.timeout(20):
        await Worker(app).drain()
    counts = await app.queue("q").counts()
    assert (counts[State.FAILED], counts[State.COMPLETED]) == (20, 40)
    assert sorted(ran) == [n for n in range(60) if n % 3]
    assert (await status_of(app, "0")).error.type == "CancelledError"


async def test_an_outcome_that_cannot_be_resolved_fails_its_own_job(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails for good with the reason; jobs of the same settle call, other queues and stop() go on."""

    def resolve_badly(claim: Claim, *args: Any) -> Any:
        if claim.id == "b":
            raise RecursionError("a bug")
        return resolve(claim, *args)

    monkeypatch.setattr(claims_module, "resolve", resolve_badly)
    app.listen("q", lambda payload: payload)
    app.listen("other", lambda payload: payload)
    await app.queue("q").enqueue_many([Entry(1, id=id) for id in "abc"])
    await app.queue("other").enqueue(1, id="o")
    async with Worker(app), asyncio.timeout(20):
        await eventually(lambda: is_done(app, 2, 1))
    status = await status_of(app, "b")
    assert (status.error.kind, status.error.message) == (
        "permanent",
        "the outcome of the run cannot be recorded: RecursionError: a bug",
    )
    assert (await status_of(app, "o", "other")).state is State.COMPLETED


async def is_done(app: Penstock, completed: int, failed: int) -> bool:
    counts = await app.queue("q").counts()
    return (counts[State.COMPLETED], counts[State.FAILED]) == (completed, failed)


async def test_a_fail_job_that_the_storage_refuses_does_not_hold_its_job(app: Penstock, trouble: FaultyStorage) -> None:
    """After the outcome and the failure with its fail job, the failure alone is recorded."""
    app.listen("q", lambda payload: payload, on_failure=lambda failure: None)
    trouble.fail("settle", times=3, error=OverflowError("too large"))
    await app.queue("q").enqueue(1, id="a")
    async with asyncio.timeout(20):
        await Worker(app).drain()
    status = await status_of(app)
    assert (status.state, status.error.kind) == (State.FAILED, "permanent")
    reason = "OverflowError: too large; its result has 1 bytes"
    assert status.error.message == f"the outcome of the run cannot be recorded: {reason}"


async def test_a_claim_whose_every_outcome_is_refused_is_given_up(app: Penstock, trouble: FaultyStorage) -> None:
    """Its lease expires; its neighbours are recorded, and stop() ends."""
    app.listen("q", lambda payload: payload, concurrency=2)
    trouble.fail("settle", times=4, error=ValueError("never"))
    await app.queue("q").enqueue_many([Entry(n, id=id) for n, id in enumerate("ab")])
    async with Worker(app), asyncio.timeout(20):
        await eventually(lambda: is_done(app, 1, 0))
    states = {(await status_of(app, id)).state for id in "ab"}
    assert states == {State.RUNNING, State.COMPLETED}


async def test_a_reservation_whose_outcome_cannot_be_resolved_fails(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is the state that the job is in."""

    def resolve_badly(*args: Any) -> Any:
        raise ZeroDivisionError("a bug")

    await app.queue("q").enqueue(1, id="a")
    [reservation] = await app.queue("q").reserve()
    monkeypatch.setattr(claims_module, "resolve", resolve_badly)
    assert await reservation.complete("result") is State.FAILED
    assert "ZeroDivisionError: a bug" in (await status_of(app)).error.message


@pytest.mark.parametrize("style", ["async", "plain"])
async def test_a_stored_traceback_begins_with_the_handler(app: Penstock, style: str) -> None:
    """No frame of this package is before the user's own."""
    listen(app, style, throw(ValueError("no")), max_retries=0)

    @app.task(max_retries=0)
    def divide(a: int, b: int) -> float:
        return a / b

    await app.queue("q").enqueue(1, id="a")
    await divide.options(id="a").enqueue(1, 0)
    await Worker(app).drain()
    for queue, function in (("q", "run"), (divide.queue.name, "divide")):
        error = (await status_of(app, "a", queue)).error
        first = error.traceback.splitlines()[1]
        assert __file__ in first
        assert f" in {function}" in first


async def test_a_traceback_without_a_frame_of_the_user_is_kept_whole(app: Penstock) -> None:
    """An error of this package itself shows where it came from."""

    @app.task(max_retries=0)
    def add(a: int, b: int) -> int:
        return a + b

    await app.queue(add.queue.name).enqueue({"a": 1}, id="a")
    await Worker(app).drain()
    error = (await status_of(app, "a", add.queue.name)).error
    assert "penstock/" in error.traceback


class RefusedError(Exception):
    """An error of a mail server."""


@STYLES
async def test_an_exception_of_a_permanent_class_fails_at_once(app: Penstock, style: str) -> None:
    """The job fails for good after one run, of kind permanent; its fail handler gets it."""
    failures: list[str] = []
    listen(
        app,
        style,
        throw(RefusedError("no")),
        permanent=RefusedError,
        on_failure=lambda f: failures.append(f.error.kind),
    )
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    status = await status_of(app)
    assert (status.state, status.attempts, status.error.kind) == (State.FAILED, 1, "permanent")
    assert failures == ["permanent"]


async def test_an_outcome_of_a_permanent_class_fails_its_job_of_a_batch(app: Penstock) -> None:
    """`Outcome.fail` is judged as a raised exception is."""

    @app.handler("q", batch_size=2, permanent=(RefusedError, KeyError))
    async def handle(payloads: list[int]) -> list[Outcome]:
        return [Outcome.fail(RefusedError("no")), Outcome.fail(ValueError("no"))]

    await app.queue("q").enqueue_many([Entry(1, id="a"), Entry(2, id="b")])
    await Worker(app).drain()
    assert [(await status_of(app, id)).state for id in "ab"] == [State.FAILED, State.RETRYING]


async def test_permanent_classes_hold_for_tasks_reservations_and_fail_jobs(app: Penstock) -> None:
    """Each reads the options of its handler."""

    def on_failure(failure: Any) -> None:
        raise KeyError("gone")

    @app.task(permanent=RefusedError, on_failure=on_failure, failure_options={"permanent": (KeyError,)})
    def refuse() -> None:
        raise RefusedError("no")

    name = refuse.queue.name
    await refuse.options(id="a").enqueue()
    await Worker(app).drain()
    assert (await status_of(app, "a", name)).error.kind == "permanent"
    [failed] = await app.queue(f"{name}/failures").find(State.FAILED)
    assert failed.error is not None
    assert (failed.error.kind, failed.attempts) == ("permanent", 1)
    await refuse.options(id="b").enqueue()
    [reservation] = await app.queue(name).reserve()
    assert await reservation.fail(RefusedError("no")) is State.FAILED
