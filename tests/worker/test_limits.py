"""Limits in workers: declared before the first claim, obeyed by drains and batches, and no claim ahead of time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import EVERY, Entry, Job, Limit, NotSupported, Penstock, Reason, Retry, State, Worker
from penstock.limit_changes import change_limit
from penstock.model.handler import Handler
from penstock.model.ids import new_token
from penstock.model.limit_settings import LimitSettings
from penstock.model.options import HandlerOptions
from penstock.model.settings import Declarer
from penstock.storage.base import Request, Storage
from penstock.storage.limiting import Limiting, Scope
from penstock.testing import Clock
from penstock.worker import declarations
from penstock.worker.queue_order import QueueTurn
from tests.support import eventually, tally
from tests.worker.support import new_pool

FIVE, TWO = Limit(concurrency=5), Limit(concurrency=2, rate="100/s")


async def test_a_retry_pauses_the_group_of_its_job(app: Penstock, clock: Clock) -> None:
    """After `Retry(delay=60, pause="group")` the group waits 60 s, others go on, and the retried job is first."""
    runs: list[str] = []

    @app.handler("q", concurrency=1, group_limit=Limit(concurrency=2))
    async def handle(payload: str, job: Job) -> None:
        runs.append(payload)
        if payload == "a1" and job.attempt == 1:
            raise Retry(delay=60, pause="group")

    queue = app.queue("q")
    await queue.enqueue_many([Entry(id, id=id, group=id[0]) for id in ("a1", "a2", "b1", "b2")])
    await Worker(app).drain()
    assert (runs[0], sorted(runs[1:])) == ("a1", ["b1", "b2"])
    why = await queue.why("a2")
    assert why is not None
    assert (why.reason, why.group) == (Reason.PAUSED, "a")
    clock.advance(60)
    await Worker(app).drain()
    assert runs[3:] == ["a1", "a2"]


async def test_limits_are_declared_before_the_first_claim(app: Penstock) -> None:
    """A worker writes the limits of its handlers and families; what was set at run time wins."""
    app.limit("q", Limit(concurrency=50))
    app.listen("q", lambda payload: None, limit=FIVE, group_limit=TWO)
    queue = app.queue("q")
    await queue.set_limit(Limit(concurrency=1), group=EVERY)
    await Worker(app).drain()
    family, own, groups = await queue.limits()
    assert (family.declared, own.declared, groups.declared) == (Limit(concurrency=50), FIVE, TWO)
    assert (own.limit, groups.limit, groups.changed) == (FIVE, Limit(concurrency=1), Limit(concurrency=1))
    await queue.reset_limit(EVERY)
    assert (await queue.limit(EVERY)).limit == TWO


async def test_a_declared_limit_is_obeyed(app: Penstock) -> None:
    """A worker with room for many runs runs as many at once as the declared limit."""
    running = most = 0
    three = asyncio.Event()

    @app.handler("q", size=1, limit=Limit(concurrency=3))
    async def handle(payload: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            three.set()
        await three.wait()
        running -= 1

    await app.queue("q").enqueue_many(range(20))
    await Worker(app).drain()
    assert most == 3
    assert (await app.queue("q").counts())[State.COMPLETED] == 20


async def declare(app: Penstock, scope: Scope, limit: Limit, declarer: Declarer) -> None:
    """Store a declaration of another worker."""

    def change(old: LimitSettings) -> LimitSettings:
        return old.declare(limit, declarer)

    await change_limit(app, app.storage, scope, change)


async def test_a_limit_without_a_live_declarer_is_dropped(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that serves the queue and declares none removes the limit of a worker that is gone."""
    monkeypatch.setattr(declarations, "LOOK", 0.01)
    app.listen("q", lambda payload: None)
    queue = app.queue("q")
    await queue.enqueue(1)
    await declare(app, Scope("queue", "q"), FIVE, Declarer("gone", 1))
    await declare(app, Scope("family", "q"), FIVE, Declarer("gone", 1))
    await queue.set_limit(TWO, group="a")
    async with Worker(app):
        await eventually(lambda: no_limit(app))
    assert (await queue.limit("a")).limit == TWO


async def no_limit(app: Penstock) -> bool:
    return [info.scope for info in await app.queue("q").limits()] == ["group"]


async def test_the_declaration_of_a_live_worker_stays(app: Penstock) -> None:
    """A worker that declares none leaves the limit of a live one; one that started later replaces it."""
    await app.storage.beat("other", 60_000)
    await declare(app, Scope("queue", "q"), FIVE, Declarer("other", 1))
    app.listen("q", lambda payload: None)
    await app.queue("q").enqueue(1)
    await Worker(app).drain()
    assert (await app.queue("q").limit()).declared == FIVE
    app.handlers.clear()
    app.listen("q", lambda payload: None, limit=TWO)
    await Worker(app).drain()
    assert (await app.queue("q").limit()).declared == TWO


async def test_the_declaration_of_a_later_worker_holds(app: Penstock) -> None:
    """A worker does not replace the declaration of a live worker that started after it."""
    await app.storage.beat("other", 60_000)
    await declare(app, Scope("queue", "q"), FIVE, Declarer("other", 2**50))
    app.listen("q", lambda payload: None, limit=TWO)
    await Worker(app).drain()
    assert (await app.queue("q").limit()).declared == FIVE


async def test_a_drain_leaves_gated_jobs(app: Penstock, clock: Clock) -> None:
    """`drain()` ends when no gate is open; later it goes on from there."""
    app.listen("q", lambda payload: None, limit=Limit(rate="1/min"))
    await app.queue("q").enqueue_many(range(3))
    for done in (1, 2, 3):
        await Worker(app).drain()
        assert await app.queue("q").counts() == tally(queued=3 - done, completed=done)
        clock.advance(minutes=1)


@pytest.mark.parametrize("group", [None, "a"])
async def test_a_drain_with_scheduled_waits_for_openings(group: str | None) -> None:
    """`drain(scheduled=True)` runs what waits for a rate or for a pause that ends, of a queue or of a group."""
    async with Penstock("memory:") as app:
        rate = Limit(rate="50/s")
        app.listen("q", lambda payload: None, limit=None if group else rate, group_limit=rate if group else None)
        await app.queue("q").enqueue_many([Entry(n, group=group) for n in range(4)])
        await app.queue("q").pause(group, (await app.storage.time() + 50) / 1000)
        await Worker(app).drain(scheduled=True)
        assert await app.queue("q").counts() == tally(completed=4)


@pytest.mark.parametrize("group", [None, "a"])
async def test_a_drain_does_not_wait_for_a_pause_without_an_end(app: Penstock, group: str | None) -> None:
    """`drain(scheduled=True)` ends though jobs of a paused queue or group wait."""
    app.listen("q", lambda payload: None)
    await app.queue("q").enqueue(1, group="a")
    await app.queue("q").pause(group)
    await Worker(app).drain(scheduled=True)
    assert await app.queue("q").counts() == tally(queued=1)


async def test_batches_shrink_to_the_room(app: Penstock) -> None:
    """A batch has as many jobs as the limit has room for; a group of one keeps whole batches."""
    sizes: list[int] = []

    @app.handler("q", batch_size=10, limit=Limit(concurrency=4))
    async def handle(payloads: list[int]) -> None:
        sizes.append(len(payloads))

    @app.handler("grouped", batch_size=10)
    async def handle_group(payloads: list[int]) -> None:
        sizes.append(-len(payloads))

    await app.queue("q").enqueue_many(range(12))
    await app.queue("grouped").enqueue_many([Entry(n, group="a") for n in range(10)])
    await Worker(app).drain()
    assert sorted(sizes) == [-10, 4, 4, 4]


async def test_nothing_is_claimed_ahead_from_a_limited_queue() -> None:
    """The claims beyond free units are none for a queue that the storage calls limited."""
    pool, turn = new_pool(), QueueTurn(Handler("q", lambda payload: None, HandlerOptions()))
    pool.over["q"] = 1_000
    assert turn.ahead(pool, 0.1) > 0
    turn.limited = True
    pool.over["q"] = 2_000
    assert turn.ahead(pool, 0.2) == 0


async def test_the_storage_names_limited_queues(app: Penstock) -> None:
    """The answer to a claim names the queues that have limits, also if it has no jobs."""
    requests = [Request("q", 1), Request("r", 1)]
    for queue in ("q", "r"):
        await app.queue(queue).enqueue(1, delay=60)
    await app.queue("q").set_limit(FIVE)
    assert (await app.storage.claim(requests, "w", 1000, new_token())).limited == ["q"]


class WithoutLimits:
    """A storage without the optional verbs of limits."""

    opens_claims = False

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        if name in ("set_limit", "get_limit", "limits"):
            raise AttributeError(name)
        return getattr(self._storage, name)


async def test_a_storage_without_limits(app: Penstock) -> None:
    """Calls that need limits raise `NotSupported`, a worker that declares them does not start; all else works."""
    storage = WithoutLimits(app.storage)
    assert not isinstance(storage, Limiting)
    async with Penstock(storage=storage) as plain:  # type: ignore[arg-type]
        queue = plain.queue("q")
        for call in (
            queue.set_limit(FIVE),
            queue.reset_limit(),
            queue.limit(),
            queue.limits(),
            queue.pause("a"),
            queue.resume("a"),
            plain.set_limit("q", FIVE),
            plain.reset_limit("q"),
        ):
            with pytest.raises(NotSupported, match="WithoutLimits has no limits"):
                await call
        plain.listen("q", lambda payload: payload)
        await queue.enqueue(1, id="a")
        await Worker(plain).drain(scheduled=True)
        assert await queue.result("a") == 1
        assert await queue.pause()
        plain.listen("limited", lambda payload: None, limit=FIVE)
        with pytest.raises(NotSupported):
            await Worker(plain).drain()
