"""`expires`: a job whose first run has not begun in time ends as cancelled."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Entry, Job, JobCancelled, Penstock, State, Worker
from penstock.ops.export import LeftOut, export_jobs, import_jobs
from penstock.testing import Clock
from tests.support import eventually


async def state_of(app: Penstock, id: str, queue: str = "q") -> State | None:
    status = await app.queue(queue).status(id)
    return None if status is None else status.state


async def test_expires_is_a_span_or_a_moment(app: Penstock, clock: Clock) -> None:
    """Seconds and timedelta count from acceptance on the storage's clock, an aware datetime is a moment."""
    queue = app.queue("q")
    now = datetime.fromtimestamp(clock.time(), UTC)
    minute = timedelta(minutes=1)
    for id, expires in (("seconds", 60), ("span", minute), ("moment", now + minute)):
        await queue.enqueue(1, id=id, expires=expires)
        status = await queue.status(id)
        assert status is not None
        assert status.start_by == now + minute
    clock.advance(seconds=60)
    assert [await state_of(app, id) for id in ("seconds", "span", "moment")] == [State.CANCELLED] * 3


async def test_a_job_that_has_begun_does_not_expire(app: Penstock, clock: Clock) -> None:
    """The handler runs past the time, and its result counts."""

    @app.handler("q")
    async def handle(payload: Any, job: Job) -> str:
        clock.advance(seconds=5)  # less than a lease
        return "done"

    await app.queue("q").enqueue(1, id="a", expires=5)
    await Worker(app).drain()
    status = await app.queue("q").status("a")
    assert status is not None
    assert (status.state, status.start_by) == (State.COMPLETED, None)


async def test_an_expired_job_shows_why_it_was_cancelled(app: Penstock, clock: Clock) -> None:
    """status() has an error of the type Expired, result() raises it, and retry() queues the job again for good."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a", expires=60)
    clock.advance(seconds=61)
    status = await queue.status("a")
    assert status is not None
    assert status.error is not None
    assert (status.error.type, status.attempts) == ("Expired", 0)
    with pytest.raises(JobCancelled, match=r"'a' in queue 'q' was cancelled: Expired: its first run") as raised:
        await queue.result("a")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.error == raised.value.error == status.error
    assert await queue.retry("a") == 1
    clock.advance(seconds=3600)
    assert await state_of(app, "a") is State.QUEUED


async def test_a_caller_of_an_expired_job_gets_job_cancelled(app: Penstock, clock: Clock) -> None:
    """As soon as any call decides it, call() raises, with the reason."""
    calling = asyncio.create_task(app.queue("q").call(1, id="a", expires=60, timeout=30))
    await eventually(lambda: state_of(app, "a"))
    clock.advance(seconds=60)
    assert (await app.queue("q").counts())[State.CANCELLED] == 1
    with pytest.raises(JobCancelled, match="Expired"):
        await asyncio.wait_for(calling, 10)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"delay": 60, "expires": 60}, "delay"), ({"delay": timedelta(minutes=2), "expires": 60}, "delay")],
)
async def test_a_job_that_would_expire_before_it_may_run_is_refused(
    app: Penstock, clock: Clock, options: dict[str, Any], name: str
) -> None:
    """The error names expires, and nothing is stored; the same holds for two moments."""
    with pytest.raises(ValueError, match=f"expires must be later than {name}"):
        await app.queue("q").enqueue(1, id="a", **options)
    moment = datetime.fromtimestamp(clock.time(), UTC) + timedelta(minutes=1)
    with pytest.raises(ValueError, match="expires must be later than run_at"):
        await app.queue("q").enqueue_many([Entry(1, id="a", run_at=moment, expires=moment)])
    assert await app.queues() == []


@pytest.mark.parametrize(
    ("expires", "error", "text"),
    [
        (0, ValueError, "expires must be more than 0"), (-1, ValueError, "expires must not be negative"),
        ("5m", TypeError, "expires must be seconds or a timedelta"), (True, TypeError, "expires must be"),
        (datetime(2030, 1, 1), ValueError, "expires must be an aware datetime"),
    ],
)  # fmt: skip
async def test_a_wrong_expiry_is_refused(app: Penstock, expires: Any, error: type[Exception], text: str) -> None:
    """The error names expires."""
    with pytest.raises(error, match=text):
        await app.queue("q").enqueue(1, expires=expires)


async def test_entries_tasks_and_follow_ups_take_expires(app: Penstock, clock: Clock) -> None:
    """enqueue_many, task.options and job.then pass it on as enqueue does."""

    @app.task(queue="task")
    async def add(a: int, b: int) -> int:
        return a + b

    @app.handler("first")
    async def first(payload: Any, job: Job) -> None:
        job.then("first/then", 1, id="then", expires=60)

    await app.queue("many").enqueue_many([Entry(1, id="entry", expires=60)])
    await add.options(id="task", expires=60).enqueue(1, 2)
    await app.queue("first").enqueue(1)
    await Worker(app, queues=["first"]).drain()
    clock.advance(seconds=60)
    states = [
        await state_of(app, id, queue) for id, queue in (("entry", "many"), ("task", "task"), ("then", "first/then"))
    ]
    assert states == [State.CANCELLED] * 3


async def test_an_export_carries_the_expiry(app: Penstock, clock: Clock) -> None:
    """An imported job expires at the same moment."""
    await app.queue("q").enqueue(1, id="a", expires=60)
    lines = [line async for line in export_jobs(app, ["q"], LeftOut())]
    await app.queue("q").delete()
    [*_] = [report async for report in import_jobs(app, lines)]
    assert await state_of(app, "a") is State.QUEUED
    clock.advance(seconds=60)
    assert await state_of(app, "a") is State.CANCELLED
