"""A first job

An app has a storage, queues and handlers. A producer puts jobs into a queue, a worker runs the queue's handler.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from penstock import Job, Penstock, State, Worker


async def test_a_handler_a_job_a_result(tmp_path: Path) -> None:
    """Jobs go into a queue, a worker runs the queue's handler, and the result can be asked for."""
    app = Penstock(f"sqlite:{tmp_path / 'penstock.db'}")  # or "redis://…", or "memory:"

    @app.handler("thumbnails")
    async def thumbnail(payload: dict[str, str], job: Job) -> str:
        return payload["name"] + ".thumb"

    async with app:
        await app.queue("thumbnails").enqueue({"name": "cat"}, id="cat")
        await Worker(app).drain()  # works until nothing due is left
        assert await app.queue("thumbnails").result("cat") == "cat.thumb"


async def test_a_producer_needs_no_handler(tmp_path: Path) -> None:
    """A producer needs the name of a queue and a storage, and not the code that does the work."""
    url = f"sqlite:{tmp_path / 'penstock.db'}"
    async with Penstock(url) as producer:
        await producer.queue("mail").enqueue("ann@example.org", id="1")

    consumer = Penstock(url)
    sent: list[str] = []
    consumer.listen("mail", sent.append)  # a handler without a decorator
    await Worker(consumer).drain()
    assert sent == ["ann@example.org"]


async def test_a_worker_in_your_own_loop(app: Penstock) -> None:
    """`async with Worker(app)` works in the background for as long as the block lasts."""
    sent = asyncio.Event()

    @app.handler("mail")
    async def send(address: str) -> None:
        sent.set()

    async with Worker(app):
        await app.queue("mail").enqueue("ann@example.org")
        await sent.wait()


async def test_a_plain_function_runs_in_a_thread(app: Penstock) -> None:
    """Handlers need not be async: a plain function may block, because it has a thread of its own."""

    @app.handler("sums")
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    await app.queue("sums").enqueue([1, 2, 3], id="a")
    await Worker(app).drain()
    assert await app.queue("sums").result("a") == 6


@dataclass
class Order:
    what: str
    price: int
    count: int


async def test_payloads_are_typed(app: Penstock) -> None:
    """The handler's annotation is what the payload is decoded to: a dataclass, a model, anything with a type."""

    @app.handler("orders")
    async def bill(order: Order) -> int:
        return order.price * order.count

    await app.queue("orders").enqueue(Order("tea", price=3, count=2), id="1")
    await Worker(app).drain()
    assert await app.queue("orders").result("1") == 6


async def test_a_job_knows_about_itself(app: Penstock) -> None:
    """A handler that takes a second argument gets the run it is in: id, queue, attempt, headers and more."""

    @app.handler("greetings")
    async def greet(name: str, job: Job) -> str:
        return f"{job.queue} {job.id}, attempt {job.attempt}, for {job.headers['tenant']}"

    await app.queue("greetings").enqueue("Ann", id="7", headers={"tenant": "acme"})
    await Worker(app).drain()
    assert await app.queue("greetings").result("7") == "greetings 7, attempt 1, for acme"


async def test_many_at_once(app: Penstock) -> None:
    """`enqueue_many` sends a few hundred jobs in each round trip."""
    await app.queue("numbers").enqueue_many(range(1000))
    assert (await app.queue("numbers").counts())[State.QUEUED] == 1000
