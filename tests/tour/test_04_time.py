"""Time

Jobs can be for later. Time is the storage's clock; in tests it can be a clock that you move.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock import Penstock, Worker
from penstock.testing import Clock


async def test_later(app: Penstock, clock: Clock) -> None:
    """A job with a delay runs when its time has come, and never before."""
    sent: list[str] = []
    app.listen("reminders", sent.append)
    job = await app.queue("reminders").enqueue("stand up", delay=3600)
    assert job.state == "scheduled"
    clock.advance(minutes=59)
    await Worker(app).drain()
    assert sent == []
    clock.advance(minutes=1)
    await Worker(app).drain()
    assert sent == ["stand up"]


async def test_at_a_time(app: Penstock, clock: Clock) -> None:
    """`run_at` takes an aware datetime or a Unix timestamp; a time that is past means now."""
    now = datetime.fromtimestamp(clock.time(), UTC)
    queue = app.queue("reminders")
    assert (await queue.enqueue("tomorrow", run_at=now + timedelta(days=1))).state == "scheduled"
    assert (await queue.enqueue("at once", run_at=clock.time() - 10)).state == "queued"
    with pytest.raises(ValueError, match="run_at must be an aware datetime"):
        await queue.enqueue("when?", run_at=datetime(2030, 1, 1))


async def test_durations(app: Penstock) -> None:
    """Wherever a duration is asked for, give seconds or a timedelta."""
    queue = app.queue("reminders")
    await queue.enqueue("a", id="a", delay=90)
    await queue.enqueue("b", id="b", delay=timedelta(minutes=1, seconds=30))
    a, b = await queue.find("scheduled")
    assert a.run_at == b.run_at


async def test_the_earlier_first(app: Penstock, clock: Clock) -> None:
    """Jobs that fell due together run in the order of their times."""
    order: list[str] = []
    app.listen("calls", order.append, concurrency=1)
    for name, delay in (("third", 30), ("first", 10), ("second", 20)):
        await app.queue("calls").enqueue(name, delay=delay)
    clock.advance(minutes=1)
    await Worker(app).drain()
    assert order == ["first", "second", "third"]
