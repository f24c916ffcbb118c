"""Order

First come, first served, unless a job has a priority. Order is by time and number, never by name.
"""

from __future__ import annotations

from penstock import Penstock, Worker


async def test_first_come_first_served(app: Penstock) -> None:
    """Jobs begin in the order in which they were accepted."""
    order: list[int] = []
    app.listen("numbers", order.append, concurrency=1)
    await app.queue("numbers").enqueue_many([3, 1, 2])
    await Worker(app).drain()
    assert order == [3, 1, 2]


async def test_more_important_jobs_overtake(app: Penstock) -> None:
    """A higher priority goes first; among equals the order of acceptance holds."""
    order: list[str] = []
    app.listen("mail", order.append, concurrency=1)
    for text, priority in (("news", 0), ("alarm", 10), ("offer", -5), ("second alarm", 10)):
        await app.queue("mail").enqueue(text, priority=priority)
    await Worker(app).drain()
    assert order == ["alarm", "second alarm", "news", "offer"]


async def test_more_important_queues_go_first(app: Penstock) -> None:
    """A handler's priority ranks its queue: a worker with one free place serves the higher one first."""
    order: list[str] = []
    app.listen("newsletters", order.append, size=100, priority=10)
    app.listen("passwords", order.append, size=100, priority=500)
    await app.queue("newsletters").enqueue("spring offers")
    await app.queue("passwords").enqueue("reset for Ann")
    await Worker(app, capacity=100).drain()
    assert order == ["reset for Ann", "spring offers"]


async def test_a_retry_keeps_its_place(app: Penstock) -> None:
    """A job that is to be tried again stands where it stood, before all that came after it."""
    steps = app.queue("steps")
    await steps.enqueue_many(["first", "second"])
    [first] = await steps.reserve()
    await first.retry(delay=0)
    job = await steps.peek()
    assert job is not None
    assert (job.payload, job.retries) == ("first", 1)


async def test_what_is_next(app: Penstock) -> None:
    """`peek` shows the job that would be run next, without touching it."""
    queue = app.queue("mail")
    await queue.enqueue("news")
    await queue.enqueue("alarm", priority=1)
    job = await queue.peek()
    assert job is not None
    assert job.payload == "alarm"
