"""A tour of Penstock: one idea per test, in reading order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import Entry, Failure, Job, Penstock, Retry, State, Worker
from penstock.testing import Clock


async def test_01_a_handler_a_job_a_result(tmp_path: Path) -> None:
    """Jobs go into a queue, a worker runs the queue's handler, and the result can be asked for."""
    app = Penstock(f"sqlite:{tmp_path / 'penstock.db'}")

    @app.handler("thumbnails", timeout=30)
    async def thumbnail(payload: dict[str, str], job: Job) -> str:
        return payload["name"] + ".thumb"

    async with app:
        await app.queue("thumbnails").enqueue({"name": "cat"}, id="cat")
        await Worker(app).drain()
        assert await app.queue("thumbnails").result("cat") == "cat.thumb"


async def test_02_a_worker_in_your_own_loop() -> None:
    """`async with Worker(app)` works in the background for as long as the block lasts."""
    app = Penstock("memory:")
    done = asyncio.Event()

    @app.handler("mail")
    async def send(address: str) -> None:
        done.set()

    async with app, Worker(app):
        await app.queue("mail").enqueue("ann@example.org")
        await done.wait()


async def test_03_payloads_are_typed() -> None:
    """The handler's annotation is what the payload is decoded to."""

    app = Penstock("memory:")

    @app.handler("orders")
    async def bill(order: Order) -> int:
        return order.price * order.count

    async with app:
        await app.queue("orders").enqueue(Order("tea", 3, 2), id="1")
        await Worker(app).drain()
        assert await app.queue("orders").result("1") == 6


@dataclass
class Order:
    what: str
    price: int
    count: int


async def test_04_one_job_per_id() -> None:
    """An id makes a job unique: the second enqueue changes nothing and says so."""
    async with Penstock("memory:") as app:
        queue = app.queue("reports")
        assert await queue.enqueue("monday", id="weekly")
        again = await queue.enqueue("tuesday", id="weekly")
        assert not again
        assert again.status == "duplicate"
        assert (await queue.enqueue("tuesday", id="weekly", on_conflict="update")).status == "updated"


async def test_05_time_can_be_moved() -> None:
    """With a clock of your own, delays and backoffs need no waiting in tests."""
    clock = Clock()
    app = Penstock("memory:", clock=clock)
    sent: list[str] = []
    app.listen("reminders", sent.append)
    async with app:
        await app.queue("reminders").enqueue("stand up", delay=3600)
        await Worker(app).drain()
        assert sent == []
        clock.advance(hours=1)
        await Worker(app).drain()
        assert sent == ["stand up"]


async def test_06_groups_keep_their_order() -> None:
    """Jobs of one group run one at a time and in order, even when one must be tried again."""
    app = Penstock("memory:")
    seen: list[Any] = []

    @app.handler("accounts", min_backoff=0)
    async def apply(change: int, job: Job) -> None:
        if change == 2 and job.attempt == 1:
            raise ConnectionError("try me again")
        seen.append(change)

    async with app:
        await app.queue("accounts").enqueue_many([Entry(n, group="ann") for n in (1, 2, 3)])
        await Worker(app).drain(scheduled=True)
    assert seen == [1, 2, 3]


async def test_07_the_handler_says_when_to_try_again() -> None:
    """Retry asks for another run at a time of the handler's choice."""
    clock = Clock()
    app = Penstock("memory:", clock=clock)

    @app.handler("payments")
    async def pay(payload: int, job: Job) -> str:
        if job.attempt == 1:
            raise Retry(delay=90)
        return "paid"

    async with app:
        await app.queue("payments").enqueue(5, id="p")
        await Worker(app).drain()
        clock.advance(minutes=1, seconds=30)
        await Worker(app).drain()
        assert await app.queue("payments").result("p") == "paid"


async def test_08_failures_are_kept_and_told() -> None:
    """A job that failed for good is kept, told to the fail handler, and can be tried once more."""
    app = Penstock("memory:")
    told: list[Failure] = []

    @app.handler("uploads", max_retries=0, on_failure=told.append)
    async def upload(name: str) -> None:
        raise OSError("the disk is full")

    async with app:
        queue = app.queue("uploads")
        await queue.enqueue("film", id="film")
        await Worker(app).drain()
        assert [(failure.payload, failure.error.message) for failure in told] == [("film", "the disk is full")]
        [failed] = await queue.find("failed")
        assert failed.id == "film"
        assert await queue.retry("film") == 1
        assert (await queue.counts())[State.QUEUED] == 1


async def test_09_what_follows_exists_only_if_this_completes() -> None:
    """Follow-up jobs are stored in the same step as the result, or not at all."""
    app = Penstock("memory:")
    steps: list[str] = []

    @app.handler("import")
    async def load(name: str, job: Job) -> None:
        steps.append(f"load {name}")
        job.then("index", name)

    app.listen("index", lambda name: steps.append(f"index {name}"))
    async with app:
        await app.queue("import").enqueue("books")
        await Worker(app).drain()
    assert steps == ["load books", "index books"]


async def test_10_events() -> None:
    """Listeners hear what the app and its workers do."""
    app = Penstock("memory:")
    heard: list[str] = []
    for name in ("enqueued", "started", "completed"):
        app.on(name)(lambda event: heard.append(event.name))
    app.listen("q", lambda payload: payload)
    async with app:
        await app.queue("q").enqueue(1)
        await Worker(app).drain()
    assert heard == ["enqueued", "started", "completed"]
