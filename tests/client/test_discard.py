"""`discard` and `clear`: jobs are deleted for good."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock import Event, JobCancelled, Penstock, PermanentError, State, Worker
from penstock.testing import Clock
from tests.support import eventually


@pytest.fixture
def failing(app: Penstock) -> None:
    """A handler that fails for the payload "bad"."""

    @app.handler("q")
    async def handle(payload: Any) -> None:
        if payload == "bad":
            raise PermanentError("bad")


async def test_discard_answers_for_each_id(app: Penstock) -> None:
    """A waiting and a finished job are gone, a running one is refused, an unknown id is not found."""
    queue = app.queue("q")
    for id in ("done", "running", "waiting"):
        await queue.enqueue(1, id=id)
    done, _ = await queue.reserve(2)
    await done.complete(1)
    answers = await queue.discard(["done", "running", "waiting", "unknown"])
    assert [(each.id, each.status, bool(each)) for each in answers] == [
        ("done", "discarded", True), ("running", "running", False), ("waiting", "discarded", True),
        ("unknown", "not_found", False),
    ]  # fmt: skip
    assert [each.status for each in await queue.discard("waiting")] == ["not_found"]


async def test_the_caller_of_a_discarded_job_gets_job_cancelled(app: Penstock) -> None:
    """call() does not wait for a job that is gone."""
    calling = asyncio.create_task(app.queue("q").call(1, id="a", timeout=30))
    await eventually(lambda: app.queue("q").status("a"))
    assert all(await app.queue("q").discard("a"))
    with pytest.raises(JobCancelled):
        await asyncio.wait_for(calling, 10)


async def test_an_unfinished_job_that_is_discarded_emits_cancelled(app: Penstock) -> None:
    """A listener gets one event for it, and none for a finished job."""
    seen: list[Event] = []
    app.on("cancelled")(seen.append)
    queue = app.queue("q")
    await queue.enqueue(1, id="done")
    [done] = await queue.reserve()
    await done.complete(1)
    await queue.enqueue(1, id="waiting")
    await queue.discard(["done", "waiting"])
    assert [event.id for event in seen] == ["waiting"]


@pytest.mark.usefixtures("failing")
async def test_clear_deletes_finished_jobs_by_default(app: Penstock) -> None:
    """Waiting jobs stay; the answer is the number of jobs deleted."""
    queue = app.queue("q")
    await queue.enqueue_many(["bad", "good"])
    await Worker(app).drain()
    await queue.enqueue("later", delay=60)
    assert await queue.clear() == 2
    assert {state: n for state, n in (await queue.counts()).items() if n} == {State.SCHEDULED: 1}


@pytest.mark.usefixtures("failing")
async def test_clear_by_state_and_age(app: Penstock, clock: Clock) -> None:
    """Only jobs that ended at least so long ago go; waiting ones count from their enqueue."""
    queue = app.queue("q")
    for id in ("old", "young"):
        await queue.enqueue("bad", id=id)
        await Worker(app).drain()
        clock.advance(seconds=3600)
    await queue.enqueue("good", id="waiting")
    assert await queue.clear("failed", older_than=timedelta(hours=2)) == 1
    assert [job.id for job in await queue.find("failed")] == ["young"]
    assert await queue.clear(["failed", State.QUEUED], older_than=3600) == 1
    assert await queue.clear(State.QUEUED) == 1


async def test_clear_walks_through_many_jobs(app: Penstock) -> None:
    """More jobs than one page, with and without groups, in several steps."""
    queue = app.queue("q")
    await queue.enqueue_many(range(1200))
    for n in range(3):
        await queue.enqueue(n, group="g")
    assert await queue.clear("queued") == 1203
    assert not any((await queue.counts()).values())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"state": "running"}, "state must not be running"), ({"state": "nonsense"}, "state must be one of"),
        ({"older_than": -1}, "older_than must not be negative"),
    ],
)  # fmt: skip
async def test_a_wrong_clear_is_refused(app: Penstock, arguments: dict[str, Any], text: str) -> None:
    """The error names the argument, and nothing is deleted."""
    with pytest.raises(ValueError, match=text):
        await app.queue("q").clear(**arguments)
