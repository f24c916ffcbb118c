"""Tasks: plain text in order, unique or not, cancelled and deleted."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from penstock import DuplicateJob, Entry, Job, Penstock, State, Worker
from tests.parity.job_queue.app_factory import AppFactory, status_of
from tests.support import eventually

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


def unique(task: str) -> Entry:
    """Return the id of a task that may exist once: a digest of its text."""
    return Entry(task, id=hashlib.sha256(task.encode()).hexdigest(), on_conflict="raise")


async def add_unique(app: Penstock, task: str, queue: str = "q") -> None:
    entry = unique(task)
    await app.queue(queue).enqueue(entry.payload, id=entry.id, on_conflict=entry.on_conflict)


async def test_tasks_are_kept_without_an_envelope(factory: AppFactory) -> None:
    """With the raw serde a task is stored as its own bytes, the empty text and lone quotes included (WQ-6, WQ-T11)."""
    app = await factory.app(serde="raw")
    tasks = ["", "T1", '"{', "two\nlines", "ключ"]
    seen: list[str] = []

    @app.handler("q")
    async def handle(payload: str) -> None:
        seen.append(payload)

    await app.queue("q").enqueue_many(tasks)
    assert [status.payload for status in await app.queue("q").find("queued")] == [task.encode() for task in tasks]
    await Worker(app).drain()
    assert sorted(seen) == sorted(tasks)


async def test_three_queues_of_three_tasks(app: Penstock) -> None:
    """All queues with tasks are listed; each is counted, peeked at and read in order (WQ-15, WQ-T1, WQ-T4, WQ-S3)."""
    for name in ("one", "two", "three"):
        for n in range(3):
            await app.queue(name).enqueue(f"{name}-{n}")
    assert await app.queues() == ["one", "three", "two"]
    queue = app.queue("one")
    for _ in range(2):
        peeked = await queue.peek()
        assert peeked is not None
        assert peeked.payload == "one-0"
    assert (await queue.counts())[State.QUEUED] == 3
    assert [status.payload for status in await queue.find("queued")] == ["one-0", "one-1", "one-2"]


async def test_many_tasks_in_one_call(app: Penstock) -> None:
    """A list of tasks is added in its order, and equal tasks are separate tasks (WQ-S2, WQ-T11)."""
    runs: list[str] = []
    app.listen("q", runs.append, concurrency=1)
    answers = await app.queue("q").enqueue_many(["b", "a", "b", "c"])
    assert len({answer.id for answer in answers}) == 4
    await Worker(app).drain()
    assert runs == ["b", "a", "b", "c"]


async def test_a_unique_task_exists_once(app: Penstock) -> None:
    """It is refused while it waits or runs, and accepted when it is finished (WQ-S2, WQ-T10)."""
    refused: list[str] = []

    @app.handler("q")
    async def handle(payload: str, job: Job) -> None:
        try:
            await add_unique(app, payload)
        except DuplicateJob as error:
            refused.append(str(error))

    await add_unique(app, "task")
    with pytest.raises(DuplicateJob, match="queued"):
        await add_unique(app, "task")
    assert (await app.queue("q").counts())[State.QUEUED] == 1
    await Worker(app).drain()
    assert len(refused) == 1
    assert "running" in refused[0]
    await add_unique(app, "task")


async def test_a_plain_task_beside_a_unique_one(app: Penstock) -> None:
    """Equal plain tasks are accepted at any time, and finishing one frees no unique one (WQ-T10, WQ-D6)."""
    runs: list[str] = []
    app.listen("q", runs.append)
    await app.queue("q").enqueue("task", id=unique("task").id, delay=60)
    await app.queue("q").enqueue("task")
    await app.queue("q").enqueue("task")
    await Worker(app).drain()
    assert runs == ["task", "task"]
    with pytest.raises(DuplicateJob, match="scheduled"):
        await add_unique(app, "task")
    assert (await app.queue("q").counts())[State.SCHEDULED] == 1


@pytest.mark.parametrize("way", ["finish", "cancel", "delete", "fail"])
async def test_a_unique_task_is_free_after_any_end(app: Penstock, way: str) -> None:
    """A unique task can be added again after it finished in any state, and never twice (WQ-D5)."""

    @app.handler("q", max_retries=0)
    async def handle(payload: str) -> None:
        if way == "fail":
            raise ValueError("no")

    await add_unique(app, "task")
    if way == "cancel":
        assert await app.queue("q").cancel(str(unique("task").id))
    elif way == "delete":
        assert await app.queue("q").delete() == 1
    else:
        await Worker(app).drain()
    await add_unique(app, "task")
    with pytest.raises(DuplicateJob):
        await add_unique(app, "task")
    assert (await app.queue("q").counts())[State.QUEUED] == 1


async def test_uniqueness_is_of_one_queue(app: Penstock) -> None:
    """The same unique task in two queues is two tasks (WQ-D5)."""
    await add_unique(app, "task", "one")
    await add_unique(app, "task", "two")
    assert await app.queues() == ["one", "two"]


async def test_an_enqueue_after_a_refused_one_is_stored(app: Penstock) -> None:
    """After a duplicate was refused, the next enqueue is stored as usual (WQ-D4)."""
    await add_unique(app, "task")
    with pytest.raises(DuplicateJob):
        await add_unique(app, "task")
    assert (await app.queue("q").enqueue("other")).status == "queued"
    assert (await app.queue("q").counts())[State.QUEUED] == 2


async def test_a_deleted_queue_stays_deleted(app: Penstock) -> None:
    """Deleting a queue removes its running tasks too; a new enqueue makes a new queue (WQ-D10, WQ-T9, WQ-T11)."""
    received: list[str] = []
    started, ended = asyncio.Event(), asyncio.Event()
    app.on("queue_deleted")(lambda event: received.append(event.queue))

    @app.handler("q", concurrency=1)
    async def handle(payload: str) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await app.queue("q").enqueue_many(["running", "waiting"])
    async with Worker(app, lease=1.5):
        await started.wait()
        assert await app.queue("q").delete() == 2
        await asyncio.wait_for(ended.wait(), 10)
    assert (received, await app.queues()) == (["q"], [])
    await app.queue("q").enqueue("new", id="new")
    assert [status.id for status in await app.queue("q").find()] == ["new"]


async def test_a_cancelled_running_task_does_not_come_back(app: Penstock) -> None:
    """By default a running task gets a cancel request, and is not queued again, whatever it raises (WQ-7, WQ-D10)."""
    started = asyncio.Event()
    received: list[str] = []
    for name in ("cancel_requested", "cancelled"):
        app.on(name)(lambda event: received.append(event.name))

    @app.handler("q", retain="ttl")
    async def handle(payload: str, job: Job) -> None:
        started.set()
        await job.cancelled
        raise RuntimeError("stopped")

    await app.queue("q").enqueue("task", id="a")
    async with Worker(app):
        await started.wait()
        answer = await app.queue("q").cancel("a")
        assert (answer.status, bool(answer), answer.running) == ("cancel_requested", False, True)
        await eventually(lambda: cancelled(app))
    assert received == ["cancel_requested", "cancelled"]
    assert (await status_of(app)).attempts == 1


async def cancelled(app: Penstock) -> bool:
    return (await status_of(app)).state is State.CANCELLED
