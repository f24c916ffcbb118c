"""Asserting what was enqueued, and what one is told when it was not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest

from penstock import sync
from penstock.testing import Clock, assert_enqueued, drain
from tests.testing.conftest import Shop


@dataclass
class Mail:
    to: str
    text: str = "welcome"


async def test_what_was_enqueued_is_found(shop: Shop, clock: Clock) -> None:
    """By payload, id, state, group, priority, headers and time; the jobs are given."""
    now = datetime.fromtimestamp(clock.time(), UTC)
    async with shop.app as app:
        mail = app.queue("mail")
        await mail.enqueue(Mail("ann"), id="ann", group="g", headers={"trace": "1"})
        await mail.enqueue({"to": "bob", "text": "bye"}, priority=5, delay=60)
        [job] = await assert_enqueued(app, "mail", payload=Mail("ann"), id="ann", state="queued", group="g")
        assert job.headers == {"trace": "1"}
        await assert_enqueued(app, "mail", payload={"to": "ann", "text": ANY}, headers={"trace": "1"})
        await assert_enqueued(app, "mail", priority=5, delay=60, run_at=now + timedelta(minutes=1), count=1)
        assert len(await assert_enqueued(app, "mail")) == 2
        await assert_enqueued(app, "mail", count=2)
        await assert_enqueued(app, "mail", id="cat", count=0)
        await assert_enqueued(app, "empty", count=0)


async def test_what_has_run_was_enqueued(shop: Shop, clock: Clock) -> None:
    """A job that is kept is found whatever its state, on however many pages."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann")
        await drain(app)
        await assert_enqueued(app, "receipts", payload="ann", state="completed", count=1)
        await app.queue("many").enqueue_many(range(1201))
        await assert_enqueued(app, "many", count=1201)


async def test_the_failure_shows_what_is_there(shop: Shop, clock: Clock) -> None:
    """What was wanted, every job of the queue, how the closest one differs, and where else there is something."""
    async with shop.app as app:
        await app.queue("mail").enqueue({"to": "ann", "text": "hello"}, id="ann")
        await app.queue("mail").enqueue({"to": "bob"}, id="bob", priority=1, group=None)
        await app.queue("sms").enqueue("ann")
        with pytest.raises(AssertionError) as caught:
            await assert_enqueued(app, "mail", payload=Mail("ann"), id="ann", delay=60)
    assert str(caught.value).splitlines() == [
        "no job in 'mail' with payload=Mail(to='ann', text='welcome'), id='ann', delay=60",
        "in 'mail': 2 jobs",
        "  queued    'bob' payload={'to': 'bob'} priority=1",
        "  queued    'ann' payload={'to': 'ann', 'text': 'hello'}",
        "closest is 'ann' (- wanted, + found):",
        "  payload:",
        "    - {'text': 'welcome', 'to': 'ann'}",
        "    + {'text': 'hello', 'to': 'ann'}",
        "  delay:",
        "    - 60",
        "    + 0.0",
        "other queues: 'sms'",
    ]


async def test_the_failure_of_a_count(shop: Shop, clock: Clock) -> None:
    """How many there are is said, and a long queue is cut short."""
    async with shop.app as app:
        await app.queue("q").enqueue_many(["x"] * 30)
        with pytest.raises(AssertionError, match=r"^30 jobs in 'q' with payload='x', not 1\n") as caught:
            await assert_enqueued(app, "q", payload="x", count=1)
        assert str(caught.value).endswith("  and 10 more")
        with pytest.raises(AssertionError, match=r"^no job in 'empty'\nin 'empty': nothing\nother queues: 'q'$"):
            await assert_enqueued(app, "empty")


async def test_what_a_job_does_not_have_cannot_be_wanted(shop: Shop) -> None:
    """A misspelt name is an error, and the known ones are named."""
    with pytest.raises(TypeError, match="a job has no 'playload'; known: payload, id,"):
        assert_enqueued(shop.app, "q", playload=1)  # type: ignore[call-overload]


def test_a_sync_app_is_asked_without_await(plain: sync.Penstock, plain_clock: Clock) -> None:
    """The same, answered at once."""
    plain.queue("q").enqueue(1, id="one")
    [job] = assert_enqueued(plain, "q", payload=1)
    assert job.id == "one"
    with pytest.raises(AssertionError, match="no job in 'q' with id='two'"):
        assert_enqueued(plain, "q", id="two")
