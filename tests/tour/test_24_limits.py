"""Limits

A limit bounds how many jobs run at once and how many start in a span of time, over all workers together: of a queue, of
each group of it, or of a family of queues. A job that waits for a limit is queued, in its place.
"""

from __future__ import annotations

import asyncio

from penstock import EVERY, Entry, Job, Limit, Penstock, Reason, Retry, Worker
from penstock.testing import Clock


async def test_three_at_once(app: Penstock) -> None:
    """A worker with room for more runs no more of the queue than its limit."""
    running, most, three = 0, 0, asyncio.Event()

    @app.handler("exports", size=1, limit=Limit(concurrency=3))
    async def export(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            three.set()
        await three.wait()
        running -= 1

    await app.queue("exports").enqueue_many(range(20))
    await Worker(app).drain()
    assert most == 3


async def test_a_rate_for_each_customer(app: Penstock, clock: Clock) -> None:
    """Each group has a limit of its own: here one start a second."""
    sent: list[str] = []
    app.listen("mail", sent.append, concurrency=1, group_limit=Limit(rate="1/s"))
    await app.queue("mail").enqueue_many(Entry(f"{name} {n}", group=name) for n in (1, 2) for name in ("ann", "bob"))
    await Worker(app).drain()
    assert sent == ["ann 1", "bob 1"]
    clock.advance(seconds=1)
    await Worker(app).drain()
    assert sent[2:] == ["ann 2", "bob 2"]


async def test_a_larger_share(app: Penstock) -> None:
    """Groups take turns; a group with weight 3 gets three starts in its turn."""
    started: list[str] = []
    app.listen("reports", started.append, concurrency=1)
    await app.queue("reports").set_limit(Limit(weight=3), group="acme")
    await app.queue("reports").enqueue_many(Entry(name, group=name) for name in ("acme", "bob") for _ in range(6))
    await Worker(app).drain()
    assert started[:8].count("acme") == 6


async def test_a_service_that_asks_to_wait(app: Penstock, clock: Clock) -> None:
    """A handler pauses its group until the retry is due; other groups go on."""
    sent: list[str] = []

    @app.handler("sms", concurrency=1, group_limit=Limit(concurrency=2))
    async def send(text: str, job: Job) -> None:
        if text == "ann 1" and job.attempt == 1:
            raise Retry("429 Too Many Requests", delay=60, pause="group")
        sent.append(text)

    await app.queue("sms").enqueue_many(Entry(text, group=text[:3]) for text in ("ann 1", "ann 2", "bob 1"))
    await Worker(app).drain()
    assert sent == ["bob 1"]
    clock.advance(seconds=60)
    await Worker(app).drain()
    assert sent == ["bob 1", "ann 1", "ann 2"]


async def test_the_limit_that_a_job_waits_for(app: Penstock) -> None:
    """`why` names the limit and the runs that hold it; limits change at run time."""
    mail = app.queue("mail")
    await mail.set_limit(Limit(concurrency=1, ordered=False), group=EVERY)
    await mail.enqueue_many(Entry(id, id=id, group="ann") for id in ("a", "b"))
    [first] = await mail.reserve(limit=2)
    why = await mail.why("b")
    assert why is not None
    assert (why.reason, why.group, why.holders) == (Reason.LIMIT_REACHED, "ann", ["a"])
    await mail.set_limit(Limit(concurrency=2), group="ann")
    [second] = await mail.reserve(limit=2)
    assert (first.id, second.id) == ("a", "b")
