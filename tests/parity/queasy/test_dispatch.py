"""Dispatching, updating and cancelling, as Queasy's users know it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Job, Penstock, State, Update, Worker
from penstock.testing import Clock
from tests.parity.support import FEW, count, status_of, vanish

pytestmark = pytest.mark.only(*FEW)


async def test_any_json_value_arrives_unchanged(app: Penstock) -> None:
    """A handler gets the JSON value that was dispatched, and any value it returns is success (QE-13, QE-29, QR-27)."""
    values = [None, 0, False, "", [], {}, [1, [2, {"a": None}]], {"ключ": "значение\u0000"}, 1.5, "x" * 10_000]
    seen: list[Any] = []

    @app.handler("q")
    async def handle(data: Any) -> Any:
        seen.append(data)
        return data

    for value in values:
        assert (await app.queue("q").enqueue(value)).id
    await Worker(app).drain()
    assert seen == values
    assert await app.queues() == []


async def test_dispatch_gives_the_id(app: Penstock) -> None:
    """Dispatch answers with the given id, or with a new unique one (QE-13, QE-14, QR-23, QZ-D21)."""
    queue = app.queue("q")
    assert (await queue.enqueue(1, id="mine")).id == "mine"
    assert len({(await queue.enqueue(1)).id for _ in range(50)} | {"mine"}) == 51
    assert await count(app, State.QUEUED) == 51


async def test_a_second_dispatch_updates_the_waiting_job(app: Penstock, clock: Clock) -> None:
    """By default a second dispatch of a waiting id changes data and run-at and zeroes the counts (QR-23, QR-S1)."""
    app.listen("q", fail)
    queue = app.queue("q")
    await queue.enqueue("old", id="a")
    await Worker(app).drain()
    before = await status_of(app)
    assert (before.state, before.retries) == (State.RETRYING, 1)
    assert (await queue.enqueue("new", id="a", delay=60)).status == "updated"
    after = await status_of(app)
    assert (after.payload, after.state, after.attempts, after.retries) == ("new", State.SCHEDULED, 0, 0)
    assert after.run_at == datetime.fromtimestamp(clock.time() + 60, UTC)


def fail(data: Any) -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("flags", "payload", "later", "retries"),
    [
        (Update(), "new", 60, 0),
        (Update(payload=False), "old", 60, 1),
        (Update(run_at=False), "new", 2, 0),
        (Update(run_at="if_later"), "new", 60, 0),
        (Update(run_at="if_earlier"), "new", 2, 0),
        (Update(reset_counts=False), "new", 60, 1),
        (Update(payload=False, run_at=False, reset_counts=True), "old", 2, 0),
        (Update(payload=False, run_at=False), "old", 2, 1),
    ],
)
async def test_each_flag_updates_its_own_attribute(
    app: Penstock, clock: Clock, flags: Update, payload: str, later: int, retries: int
) -> None:
    """Data, run-at and counts of a waiting job are each changed by their own flag (QE-20, QE-21, QE-23, QR-8)."""
    app.listen("q", fail)
    await app.queue("q").enqueue("old", id="a")
    await Worker(app).drain()
    await app.queue("q").enqueue("new", id="a", delay=60, on_conflict=flags)
    status = await status_of(app)
    assert (status.payload, status.retries) == (payload, retries)
    assert status.run_at == datetime.fromtimestamp(clock.time() + later, UTC)


def test_a_flag_written_as_in_javascript_is_refused() -> None:
    """A flag written as in JavaScript is an error instead of meaning "always" (QR-S2)."""
    with pytest.raises(ValueError, match="if_later"):
        Update(run_at="ifLater")  # type: ignore[arg-type]


async def test_limits_of_a_job_are_updated_on_request(app: Penstock) -> None:
    """An update keeps a job's own bounds unless it has bounds=True (QE-12, QE-22)."""
    app.listen("q", fail, min_backoff=0)
    queue = app.queue("q")
    for id, flags in (("kept", Update()), ("changed", Update(bounds=True))):
        await queue.enqueue(1, id=id, max_retries=4)
        await queue.enqueue(2, id=id, max_retries=1, on_conflict=flags)
    await Worker(app).drain(scheduled=True)
    assert ((await status_of(app, "kept")).attempts, (await status_of(app, "changed")).attempts) == (5, 2)


async def test_cancel_of_waiting_jobs(app: Penstock) -> None:
    """Cancelled queued and scheduled jobs are gone, another runs; an unknown id is false (QE-24, QZ-T6, QZ-T15)."""
    ran: list[int] = []
    app.listen("q", ran.append)
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    await queue.enqueue(2, id="b", delay=60)
    await queue.enqueue(3, id="c")
    assert await queue.cancel("a")
    assert await queue.cancel("b")
    assert not await queue.cancel("unknown")
    assert (await queue.status("a"), await queue.status("b")) == (None, None)
    await Worker(app).drain()
    assert ran == [3]


async def test_cancel_leaves_a_running_job_alone(app: Penstock) -> None:
    """A cancel of a running job answers false and changes nothing (QE-24, QR-24)."""
    started, gate, ended = asyncio.Event(), asyncio.Event(), list[str]()

    @app.handler("q")
    async def handle(data: int, job: Job) -> None:
        started.set()
        await gate.wait()
        assert not job.cancelled
        ended.append(job.id)

    await app.queue("q").enqueue(1, id="a")
    working = asyncio.create_task(Worker(app).drain())
    await started.wait()
    assert not await app.queue("q").cancel("a")
    gate.set()
    await working
    assert ended == ["a"]


async def test_a_finished_job_is_deleted(app: Penstock) -> None:
    """Nothing is kept of a job that finished, and its id starts a new one (QR-11, QZ-T10)."""
    ran: list[int] = []
    app.listen("q", ran.append)
    for n in range(2):
        assert (await app.queue("q").enqueue(n, id="a")).status == "queued"
        await Worker(app).drain()
        assert await app.queue("q").status("a") is None
    assert ran == [0, 1]
    assert await app.queues() == []


async def test_a_job_is_not_run_before_its_time(app: Penstock, clock: Clock) -> None:
    """A scheduled job waits for its run-at, which its handler can read (QE-8, QE-15, QR-10, QR-S11, QZ-T8)."""
    seen: list[datetime] = []

    @app.handler("q")
    async def handle(data: int, job: Job) -> None:
        seen.append(job.run_at)

    due = clock.time() + 60
    await app.queue("q").enqueue(1, run_at=due)
    clock.advance(59.999)
    await Worker(app).drain()
    assert seen == []
    clock.advance(0.001)
    await Worker(app).drain()
    assert seen == [datetime.fromtimestamp(due, UTC)]


async def test_jobs_run_in_order_of_dispatch(app: Penstock) -> None:
    """Jobs without a run-at run first come, first served, in any order of ids (QZ-D11)."""
    order: list[str] = []
    app.listen("q", order.append, size=100)
    for id in "zma":
        await app.queue("q").enqueue(id, id=id)
    await Worker(app).drain()
    assert order == ["z", "m", "a"]


async def test_one_id_in_two_queues_is_two_jobs(app: Penstock) -> None:
    """The same id runs in two queues of one worker at the same time, and both complete (QZ-D10, QZ-T14)."""
    inside: set[str] = set()
    both = asyncio.Event()

    async def handle(data: int, job: Job) -> None:
        inside.add(job.queue)
        if len(inside) == 2:
            both.set()
        await both.wait()

    for name in ("q", "r"):
        app.listen(name, handle)
        await app.queue(name).enqueue(1, id="same")
    async with asyncio.timeout(10):
        await Worker(app).drain()
    assert await app.queues() == []


async def test_a_client_that_only_dispatches_needs_no_handler(app: Penstock) -> None:
    """Without a worker an app dispatches and cancels; a worker without handlers runs nothing (QR-20, QR-22)."""
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert (await status_of(app)).state is State.QUEUED
    assert [claim.id for claim in await vanish(app)] == ["a"]
