"""Ids, duplicates and updates

An id makes a job unique in its queue. If it is taken, `on_conflict` decides, in one step with the enqueue.
"""

from __future__ import annotations

import asyncio

import pytest

from penstock import DuplicateJob, Penstock, Update, Worker


async def test_one_job_per_id(app: Penstock) -> None:
    """The second enqueue changes nothing, and its answer is falsy."""
    queue = app.queue("reports")
    assert await queue.enqueue("monday", id="weekly")
    again = await queue.enqueue("tuesday", id="weekly")
    assert not again
    assert (again.status, again.state) == ("duplicate", "queued")


async def test_a_finished_job_answers_with_its_result(app: Penstock) -> None:
    """As long as its result is kept, a completed job is not run again: you get what it gave."""
    app.listen("squares", lambda number: number * number)
    await app.queue("squares").enqueue(7, id="seven")
    await Worker(app).drain()
    again = await app.queue("squares").enqueue(7, id="seven")
    assert (again.status, again.result) == ("completed", 49)


async def test_or_let_it_raise(app: Penstock) -> None:
    """With `on_conflict="raise"` a taken id is an exception."""
    await app.queue("reports").enqueue("monday", id="weekly")
    with pytest.raises(DuplicateJob):
        await app.queue("reports").enqueue("tuesday", id="weekly", on_conflict="raise")


async def test_updating_what_waits(app: Penstock) -> None:
    """With `on_conflict="update"` the waiting job gets the new payload and keeps its place in line."""
    queue = app.queue("reports")
    await queue.enqueue("monday", id="weekly")
    assert (await queue.enqueue("tuesday", id="weekly", on_conflict="update")).status == "updated"
    [job] = await queue.find()
    assert job.payload == "tuesday"


async def test_updating_what_runs(app: Penstock) -> None:
    """A running job gets one successor, which waits until that run is over; further updates change the successor."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    written: list[str] = []

    @app.handler("pages")
    async def write(text: str) -> None:
        begun.set()
        await go_on.wait()
        written.append(text)

    async with Worker(app):
        pages = app.queue("pages")
        await pages.enqueue("one", id="home")
        await begun.wait()
        assert (await pages.enqueue("two", id="home", on_conflict="update")).status == "blocked"
        assert (await pages.enqueue("three", id="home", on_conflict="update")).status == "updated"
        go_on.set()
    await Worker(app).drain()
    assert written == ["one", "three"]


async def test_updating_a_part(app: Penstock) -> None:
    """`Update` selects the changes: here an earlier time, but never a later one, and not the payload."""
    queue = app.queue("reminders")
    await queue.enqueue("call Ann", id="ann", delay=3600)
    sooner = Update(payload=False, run_at="if_earlier")
    for delay in (60, 7200):
        await queue.enqueue("ignored", id="ann", delay=delay, on_conflict=sooner)
    [job] = await queue.find()
    assert job.payload == "call Ann"
    assert (job.run_at - job.created_at).total_seconds() == 60
