"""`assert_enqueued`: jobs that are found, and the message of a failure."""

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


async def test_jobs_are_found_by_any_property(shop: Shop, clock: Clock) -> None:
    """Jobs are found by payload, id, state, group, priority, headers and time, and returned."""
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


async def test_finished_jobs_are_found_too(shop: Shop, clock: Clock) -> None:
    """A kept job is found in every state and on every page."""
    async with shop.app as app:
        await app.queue("charge").enqueue("ann")
        await drain(app)
        await assert_enqueued(app, "receipts", payload="ann", state="completed", count=1)
        await app.queue("many").enqueue_many(range(1201))
        await assert_enqueued(app, "many", count=1201)


async def test_the_failure_lists_jobs_and_the_closest_difference(shop: Shop, clock: Clock) -> None:
    """The failure has the criteria, every job of the queue, how the closest differs, and the other queues."""
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
    """The failure of `count` has the number of jobs found, and a shortened list."""
    async with shop.app as app:
        await app.queue("q").enqueue_many(["x"] * 30)
        with pytest.raises(AssertionError, match=r"^30 jobs in 'q' with payload='x', not 1\n") as caught:
            await assert_enqueued(app, "q", payload="x", count=1)
        assert str(caught.value).endswith("  and 10 more")
        with pytest.raises(AssertionError, match=r"^no job in 'empty'\nin 'empty': nothing\nother queues: 'q'$"):
            await assert_enqueued(app, "empty")


async def test_an_unknown_property_is_a_type_error(shop: Shop) -> None:
    """An unknown property is a `TypeError` that lists the known ones."""
    with pytest.raises(TypeError, match="a job has no 'playload'; known: payload, id,"):
        assert_enqueued(shop.app, "q", playload=1)  # type: ignore[call-overload]


def test_a_sync_app_is_asked_without_await(plain: sync.Penstock, plain_clock: Clock) -> None:
    """With a sync app the jobs are returned at once."""
    plain.queue("q").enqueue(1, id="one")
    [job] = assert_enqueued(plain, "q", payload=1)
    assert job.id == "one"
    with pytest.raises(AssertionError, match="no job in 'q' with id='two'"):
        assert_enqueued(plain, "q", id="two")
