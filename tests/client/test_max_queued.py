"""`max_queued`: producers of a full queue are refused with `QueueFull`, and jobs that come back never are."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from penstock import Entry, Job, Penstock, QueueFull, Update, Worker
from penstock.client import queue as queue_module
from penstock.model.job import NewJob, State
from penstock.storage.base import Put
from penstock.testing import drain
from penstock.testing.apps import patched_verbs
from tests.support import tally

FULL = (
    "queue 'q' is full, 2 waiting (max_queued is 2), so nothing was stored: enqueue again when workers have caught up, "
    "or raise max_queued"
)


@pytest.mark.parametrize("given_to", ["queue", "handler"])
async def test_a_full_queue_refuses_every_way_to_enqueue(app: Penstock, given_to: str) -> None:
    """`enqueue`, `enqueue_many` and `call` raise `QueueFull`, and store nothing."""
    if given_to == "queue":
        app.queue("q", max_queued=2)
    else:
        app.listen("q", lambda payload: payload, max_queued=2)
    queue = app.queue("q")
    await queue.enqueue(1)
    await queue.enqueue(2, delay=60)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: queue.enqueue(3),
        lambda: queue.enqueue(3, id="three", delay=60, group="g"),
        lambda: queue.enqueue_many([3]),
        lambda: queue.enqueue_many(iter([3])),
        lambda: queue.call(3, timeout=5),
    ]
    for call in calls:
        with pytest.raises(QueueFull) as refused:
            await call()
        full = refused.value
        assert str(full) == str(pickle.loads(pickle.dumps(full))) == FULL
        assert (full.queue, full.waiting, full.max_queued, full.enqueued) == ("q", 2, 2, [])
    assert await queue.counts() == tally(queued=1, scheduled=1)


async def test_a_task_has_the_bound_of_its_declaration(app: Penstock) -> None:
    """`task.enqueue`, `task.enqueue_many` and `task.call` raise `QueueFull`."""

    @app.task(queue="q", max_queued=1)
    async def double(number: int) -> int:
        return 2 * number

    await double.enqueue(1)
    for call in (double.enqueue(2), double.enqueue_many([(2,)]), double.call(2)):
        with pytest.raises(QueueFull):
            await call
    await Worker(app).drain()
    await double.enqueue(2)


async def test_jobs_that_add_nothing_are_not_refused(app: Penstock) -> None:
    """A full queue answers duplicates and updates, and `call` joins a job that waits."""
    app.listen("q", lambda payload: payload, max_queued=1)
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    assert (await queue.enqueue(2, id="a")).status == "duplicate"
    assert (await queue.enqueue(2, id="a", on_conflict=Update(run_at=False))).status == "updated"
    calling = asyncio.create_task(queue.call(3, id="a", timeout=20))
    await Worker(app).drain()
    assert await calling == 2
    assert (await queue.enqueue(3, id="a")).status == "completed"


async def test_enqueue_many_stores_all_of_a_chunk_or_nothing(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the room that there is; `.enqueued` has the answers of the chunks before."""
    queue = app.queue("q", max_queued=5)
    with pytest.raises(QueueFull, match="queue 'q' has room for 5 more, not for 6") as refused:
        await queue.enqueue_many(range(6))
    assert refused.value.enqueued == []
    assert await queue.counts() == tally()
    monkeypatch.setattr(queue_module, "CHUNK", 2)
    for entries in ([Entry(n) for n in range(6)], iter(range(6))):
        with pytest.raises(QueueFull, match=r"has room for 1 more, not for 2 .* only the first 4 were") as refused:
            await queue.enqueue_many(entries)
        assert [each.status for each in refused.value.enqueued] == ["queued"] * 4
        assert await queue.counts() == tally(queued=4)
        await queue.clear("queued")


async def test_a_chunk_for_a_bounded_queue_has_few_bytes(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call carries at most `CHUNK_BYTES` of payload, or one job."""
    monkeypatch.setattr(queue_module, "CHUNK_BYTES", 10)
    sizes: list[int] = []
    real = app.producer_storage.put

    async def put(jobs: Sequence[NewJob], *bound: int) -> list[Put]:
        sizes.append(len(jobs))
        return await real(jobs, *bound)

    with patched_verbs(app.producer_storage, {"put": put}):
        await app.queue("q", max_queued=10).enqueue_many(["x", "x", "x", "x", "x" * 20, "x", "x"])
    assert sizes == [3, 1, 1, 2]
    assert (await app.queue("q").counts())[State.QUEUED] == 7


async def test_jobs_that_come_back_are_never_refused(app: Penstock) -> None:
    """Retries, follow-up jobs, fail jobs and `Queue.retry` enter a full queue."""
    outcomes: list[str] = []

    @app.handler("q", max_queued=1, max_retries=1, on_failure=lambda failure: None, failure_options={"max_queued": 1})
    async def handle(payload: str, job: Job) -> None:
        outcomes.append(payload)
        if payload == "fails":
            await app.queue("q").enqueue("fills")
            raise ValueError
        if payload == "follows":
            job.then("q", "one")
            job.then("q", "two")

    await app.queue("q").enqueue("fails", id="f")
    await drain(app, scheduled=True)
    await app.queue("q").enqueue("follows")
    await drain(app)
    await app.queue("q").enqueue("waits", delay=60)
    assert await app.queue("q").retry("f") == 1
    assert outcomes == ["fails", "fills", "fails", "fills", "follows", "one", "two"]


async def test_a_queue_has_one_bound(app: Penstock) -> None:
    """Another bound for the same queue is a `ValueError`, and a wrong one names the option."""
    app.queue("q", max_queued=2)
    app.queue("q", max_queued=2)
    with pytest.raises(ValueError, match=r"queue 'q' has max_queued=2 already; it cannot also have 3"):
        app.queue("q", max_queued=3)
    with pytest.raises(ValueError, match="max_queued=2 already"):
        app.listen("q", lambda payload: payload, max_queued=1)
    assert app.handlers == {}
    with pytest.raises(ValueError, match="max_queued must be at least 1, not 0"):
        app.queue("r", max_queued=0)
    with pytest.raises(TypeError, match="max_queued"):
        app.listen("r", lambda payload: payload, max_queued="1")  # type: ignore[arg-type]
