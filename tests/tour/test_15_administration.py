"""Looking after queues

Count, list, pause, delete.
"""

from __future__ import annotations

from penstock import Penstock, State, Worker


async def test_pausing(app: Penstock) -> None:
    """A paused queue accepts jobs, and no worker can claim one until it is resumed."""
    sent: list[str] = []
    app.listen("mail", sent.append)
    mail = app.queue("mail")
    await mail.pause()
    await mail.enqueue("hello")
    await Worker(app).drain()
    assert sent == []
    await mail.resume()
    await Worker(app).drain()
    assert sent == ["hello"]


async def test_counting(app: Penstock) -> None:
    """A job is in exactly one of eight states, and each is counted."""
    await app.queue("mail").enqueue("now")
    await app.queue("mail").enqueue("later", delay=60)
    counts = await app.queue("mail").counts()
    assert list(counts) == list(State)
    assert (counts[State.QUEUED], counts[State.SCHEDULED], counts[State.COMPLETED]) == (1, 1, 0)


async def test_listing(app: Penstock) -> None:
    """`find` gives pages in queue order; a page's cursor leads to the next one."""
    await app.queue("mail").enqueue_many(range(5))
    first = await app.queue("mail").find("queued", limit=3)
    second = await app.queue("mail").find("queued", after=first.cursor, limit=3)
    assert [job.payload for job in [*first, *second]] == [0, 1, 2, 3, 4]
    assert second.cursor is None


async def test_deleting(app: Penstock) -> None:
    """A deleted queue is gone with everything in it; the answer is how many jobs that were."""
    await app.queue("mail").enqueue_many(range(5))
    assert await app.queues() == ["mail"]
    assert await app.queue("mail").delete() == 5
    assert await app.queues() == []
