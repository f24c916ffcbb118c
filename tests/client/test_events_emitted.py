"""Every event is emitted to this app's listeners once per transition, equal to the one in the event stream."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import Event, Every, Job, Limit, Penstock, PermanentError, Worker
from penstock.model.events import EVENTS, LOCAL_EVENTS
from penstock.model.job import NewJob
from penstock.storage import connect
from penstock.storage.scheduling import Fired, Firing, TickJob
from penstock.testing import Clock, FaultyStorage
from penstock.ticking import emit_fired
from tests.support import LEASE, claim1, eventually

#: On a Cluster the events of a new family arrive after a moment only: see test_events.py.
pytestmark = pytest.mark.only("memory", "sqlite", "redis", "valkey")

Fields = dict[str, Any]
Scene = Callable[[Penstock, Clock], Awaitable[list[Fields]]]


def expected(name: str, **fields: Any) -> Fields:
    return {"name": name, "queue": "q", "id": "a", "attempt": 0, "worker": None, **fields}


def by_worker(name: str, attempt: int = 1, **fields: Any) -> Fields:
    return expected(name, attempt=attempt, worker="w", **fields)


async def completes(app: Penstock, clock: Clock) -> list[Fields]:
    app.listen("q", lambda payload: payload * 2)
    await app.queue("q").enqueue(2, id="a")
    await Worker(app, id="w").drain()
    return [expected("enqueued"), by_worker("started"), by_worker("completed", result=4)]


async def is_updated_and_cancelled(app: Penstock, clock: Clock) -> list[Fields]:
    await app.queue("q").enqueue(1, id="a", delay=60)
    await app.queue("q").enqueue(1, id="a")
    await app.queue("q").enqueue(2, id="a", on_conflict="update")
    await app.queue("q").cancel("a")
    await app.queue("q").cancel("a")
    return [expected("enqueued"), expected("updated"), expected("cancelled")]


async def fails_at_last(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q", max_retries=1, min_backoff=0)
    def handle(payload: Any) -> None:
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="w").drain(scheduled=True)
    return [
        expected("enqueued"),
        by_worker("started"),
        by_worker("retrying", error="ValueError"),
        by_worker("started", 2),
        by_worker("failed", 2, error="ValueError"),
    ]


async def leads_to_others(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q", on_failure=lambda failure: None)
    def handle(payload: str, job: Job) -> None:
        if payload == "bad":
            raise PermanentError("no")
        job.then("q/next", 1, id="b")

    await app.queue("q").enqueue("good", id="a")
    await Worker(app, id="w", queues=["q"]).drain()
    return [
        expected("enqueued"),
        by_worker("started"),
        by_worker("completed"),
        expected("enqueued", queue="q/next", id="b"),
    ]


async def starts_its_fail_handler(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q", on_failure=lambda failure: failure.job.id)
    def handle(payload: str) -> None:
        raise PermanentError("no")

    await app.queue("q").enqueue("bad", id="a")
    await Worker(app, id="w").drain()
    [fail] = await app.queue("q/failures").find("completed")
    of_fail: Fields = {"queue": "q/failures", "id": fail.id}
    return [
        expected("enqueued"),
        by_worker("started"),
        by_worker("failed", error="PermanentError"),
        expected("enqueued", **of_fail),
        by_worker("started", **of_fail),
        by_worker("completed", **of_fail, result="a"),
    ]


async def times_out(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q", timeout=0.02, max_timeouts=1)
    async def handle(payload: Any) -> None:
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="w").drain()
    return [
        expected("enqueued"),
        by_worker("started"),
        by_worker("timed_out", error="RunTimeout"),
        by_worker("failed", error="RunTimeout"),
    ]


async def is_asked_to_end(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q")
    async def handle(payload: Any, job: Job) -> None:
        await app.queue("q").cancel("a", running="signal")
        raise ValueError("stopped")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="w").drain()
    return [expected("enqueued"), by_worker("started"), expected("cancel_requested"), by_worker("cancelled")]


async def makes_no_sense(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q")
    def handle(payload: int) -> None: ...

    await app.queue("q").enqueue("text", id="a")
    await Worker(app, id="w").drain()
    return [
        expected("enqueued"),
        by_worker("started"),
        by_worker("invalid_data", error="InvalidPayload"),
        by_worker("failed", error="InvalidPayload"),
    ]


async def is_released(app: Penstock, clock: Clock) -> list[Fields]:
    running = asyncio.Event()

    @app.handler("q")
    async def handle(payload: Any) -> None:
        running.set()
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1, id="a")
    worker = Worker(app, id="w")
    async with worker:
        await running.wait()
        await worker.stop(grace=0)
    return [expected("enqueued"), by_worker("started"), by_worker("released")]


async def loses_its_lease(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q")
    async def handle(payload: Any) -> None:
        await app.queue("q").delete()

    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="w").drain()
    return [expected("enqueued"), by_worker("started"), expected("queue_deleted", id=""), by_worker("lease_lost")]


async def is_revived(app: Penstock, clock: Clock) -> list[Fields]:
    await app.queue("q").enqueue(1, id="a")
    app.listen("q", lambda payload: None, retain="forever")
    await app.queue("q").cancel("a")
    await app.queue("q").retry("a")
    return [expected("enqueued"), expected("cancelled"), expected("enqueued")]


async def waits_for_a_signal(app: Penstock, clock: Clock) -> list[Fields]:
    @app.handler("q")
    async def handle(payload: Any, job: Job) -> Any:
        return await job.signal("go")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="w").drain()
    await app.queue("q").signal("a", "go", 7)
    await Worker(app, id="w").drain()
    return [
        expected("enqueued"),
        by_worker("started"),
        by_worker("suspended", 0),
        expected("signalled"),
        expected("resumed"),
        by_worker("started"),
        by_worker("completed", result=7),
    ]


SCENES: list[Scene] = [
    completes, is_updated_and_cancelled, fails_at_last, leads_to_others, starts_its_fail_handler, times_out,
    is_asked_to_end, makes_no_sense, is_released, loses_its_lease, is_revived,
    waits_for_a_signal,
]  # fmt: skip


def shown(event: Event, wanted: Fields) -> Fields:
    """Return the fields of an event that the expectation names."""
    fields = {key: getattr(event, key) for key in wanted}
    if fields.get("error") is not None:
        fields["error"] = fields["error"].type
    return fields


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_each_transition_is_emitted_once(app: Penstock, clock: Clock, scene: Scene) -> None:
    """Each transition is emitted once, in order, with its fields; the event stream has the same."""
    received: list[Event] = []
    app.on("*")(received.append)
    async with app.events() as stream:
        expected = await scene(app, clock)
        own = [event for event in received if event.queue]
        assert [shown(*each) for each in zip(own, expected, strict=True)] == expected
        async with asyncio.timeout(10):
            feed = [await anext(stream) for _ in expected]
    assert Counter((e.name, e.queue, e.id) for e in feed) == Counter((e.name, e.queue, e.id) for e in own)


async def test_a_job_of_a_dead_worker_emits_stalled(app: Penstock, clock: Clock) -> None:
    """The event of a reaped job names the worker that had it."""
    received: list[Event] = []
    app.on("*")(received.append)
    app.listen("q", lambda payload: None)
    await app.queue("q").enqueue(1, id="a")
    await claim1(app.storage, worker="dead")
    clock.advance(seconds=LEASE / 1000)
    async with app.events("stalled") as stream:
        await Worker(app, id="w").drain()
        assert [(e.name, e.worker, e.attempt) for e in received if e.id] == [
            ("enqueued", None, 0), ("stalled", "dead", 1), ("started", "w", 2), ("completed", "w", 2),
        ]  # fmt: skip
        async with asyncio.timeout(10):
            event = await anext(stream)
        assert (event.id, event.worker, event.attempt) == ("a", "dead", 1)


async def test_a_worker_emits_no_queues_and_idle(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """no_queues when it has nothing to serve, idle once each time it looks and finds no more work."""
    monkeypatch.setattr("penstock.worker.claimer.SLOW_POLL", 0.05)
    received: list[Event] = []
    app.on("idle")(received.append)
    app.on("no_queues")(received.append)
    async with Worker(app, id="bare"):
        await eventually(lambda: received)
    assert [(e.name, e.worker) for e in received] == [("no_queues", "bare")]
    received.clear()
    app.listen("q", lambda payload: None)
    async with Worker(app, id="w"):
        await eventually(lambda: received)
        await app.queue("q").enqueue(1)
        await eventually(lambda: len(received) == 2)
    assert [(e.name, e.worker, e.queue, e.id) for e in received] == [("idle", "w", "", "")] * 2


async def test_a_lost_storage_emits_disconnected_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many tries fail, a worker is disconnected once; after it was back, once more."""
    caplog.set_level("INFO", "penstock.worker")
    monkeypatch.setattr("penstock.worker.loop.LONGEST_REST", 0.02)
    monkeypatch.setattr("penstock.worker.loop.FIRST_REST", 0.005)
    monkeypatch.setattr("penstock.worker.claimer.SLOW_POLL", 0.01)
    trouble = FaultyStorage(connect("memory:", clock=clock))
    received: list[Event] = []
    async with Penstock(storage=trouble, clock=clock) as app:  # type: ignore[arg-type]
        app.on("disconnected")(received.append)
        app.listen("q", lambda payload: payload)
        async with Worker(app, id="w"):
            for times in (1, 2):
                trouble.down = True
                tries = trouble.calls["claim"]
                await eventually(lambda tries=tries: trouble.calls["claim"] > tries + 5)
                trouble.down = False
                await app.queue("q").enqueue(times, id=f"{times}")
                await eventually(lambda times=times: app.queue("q").result(f"{times}", default=None))
                await eventually(lambda times=times: caplog.text.count("can be reached again") == times)
                assert len(received) == times
    assert received[0].worker == "w"
    assert received[0].error is not None
    assert received[0].error.type == "StorageUnavailable"


async def test_an_unexpected_error_emits_error(clock: Clock) -> None:
    """A step that fails with an unexpected exception is an `error` event, and the worker goes on."""
    trouble = FaultyStorage(connect("memory:", clock=clock))
    received: list[Event] = []
    async with Penstock(storage=trouble, clock=clock) as app:  # type: ignore[arg-type]
        app.on("error")(received.append)
        app.listen("q", lambda payload: payload)
        await app.queue("q").enqueue(1, id="a")
        trouble.fail("claim", error=RuntimeError("a bug"))
        await Worker(app, id="w").drain()
        assert await app.queue("q").result("a") == 1
    assert [(e.worker, e.error and e.error.message) for e in received] == [("w", "a bug")]


async def test_ticks_without_a_job_are_emitted(app: Penstock, clock: Clock) -> None:
    """A change of a schedule, a missed and a skipped tick: once each for listeners and in the event stream."""
    received: list[tuple[str, str]] = []
    names = ("schedule_changed", "tick_missed", "tick_skipped", "enqueued")
    for name in names:
        app.on(name)(lambda event: received.append((event.name, event.id)))
    start = clock.time() // 60 * 60
    clock.advance(start + 60 - clock.time())
    async with app.events(names) as stream:
        await app.queue("q").schedules.put("s", Every(60))
        clock.advance(120)
        [held] = await app.queue("q").reserve(lease=3600)
        clock.advance(60)
        assert await app.queue("q").reserve() == []
        await held.release()
        at = [f"s@{datetime.fromtimestamp(start + 60 * n, UTC):%Y-%m-%dT%H:%M:%S}Z" for n in (2, 3, 4)]
        expected = [("schedule_changed", "s"), ("enqueued", at[1]), ("tick_missed", at[0]), ("tick_skipped", at[2])]
        assert received == expected
        async with asyncio.timeout(10):
            feed = [await anext(stream) for _ in expected]
    assert sorted((event.name, event.id) for event in feed) == sorted(expected)


@pytest.mark.only("sqlite")
async def test_a_dropped_tick_is_emitted(app: Penstock) -> None:
    """A firing whose tick was dropped, because too many jobs wait: one event with the id of the tick."""
    received: list[tuple[str, str]] = []
    app.on("tick_dropped")(lambda event: received.append((event.name, event.id)))
    ticks = tuple(TickJob(at, NewJob(queue="q", id=f"s@{at}", payload=b"")) for at in (1, 2))
    firing = Firing(queue="q", name="s", version=1, ticks=ticks, overlap="queue")
    emit_fired(app, firing, Fired(2, fired=1, dropped=1, ids=("s@1",)))
    emit_fired(app, firing, Fired(2, stale=True))
    assert received == [("tick_dropped", "s@2")]


async def test_a_changed_limit_is_emitted(app: Penstock) -> None:
    """A change of a limit is one event for listeners and in the stream, with the queue or family, and the group."""
    received: list[tuple[str, str, str]] = []
    app.on("limit_changed")(lambda event: received.append((event.name, event.queue, event.id)))
    async with app.events("limit_changed") as stream:
        for _ in range(2):
            await app.queue("q").set_limit(Limit(concurrency=1), group="a")
        await app.set_limit("q", Limit(concurrency=2))
        assert received == [("limit_changed", "q", "a"), ("limit_changed", "q", "")]
        async with asyncio.timeout(10):
            feed = [await anext(stream) for _ in received]
    assert [(event.name, event.queue, event.id) for event in feed] == received
    await app.reset_limit("q")
    await app.queue("q").delete(settings=True)


def test_every_event_is_shown_here() -> None:
    """The scenes and tests of this file and of test_events.py produce all names there are."""
    source = "".join(Path(__file__.replace("_emitted", extra)).read_text("utf-8") for extra in ("", "_emitted"))
    assert [name for name in EVENTS if f'"{name}"' not in source] == []
    assert set(EVENTS) >= LOCAL_EVENTS


async def test_without_listeners_no_event_is_built(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a listener the hot path builds no event."""

    def refuse(**fields: Any) -> None:
        raise AssertionError(f"an event was built without a listener: {fields}")

    monkeypatch.setattr("penstock.client.app.Event", refuse)
    app.on("failed")(lambda event: None)
    app.listen("q", lambda payload: payload)
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == 1
