"""app.events: the events of all processes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, cast

import pytest

from penstock import Event, Penstock, StorageUnavailable, Worker
from penstock.client.event_publisher import EventPublisher
from penstock.client.event_stream import EventStream
from penstock.model.serde import Codec
from penstock.storage.base import EventRecord, Storage
from penstock.testing import Clock
from tests.support import Backend, claim1, complete, eventually

pytestmark = pytest.mark.only("memory", "sqlite", "redis", "valkey")

EVENT_TIMEOUT = 10.0  # how long a test waits for an event, in seconds


async def receive(stream: EventStream, count: int) -> list[Event]:
    """Return the next events of a stream."""
    async with asyncio.timeout(EVENT_TIMEOUT):
        return [await anext(stream) for _ in range(count)]


async def test_a_stream_is_subscribed_from_the_beginning_of_its_block(app: Penstock, clock: Clock) -> None:
    """`async with` listens for certain when the block begins, and the events come with their values."""
    app.listen("q", lambda payload: payload + 1)
    await app.queue("q").enqueue(0, id="before")
    async with app.events() as stream:
        await app.queue("q").enqueue(1, id="a")
        await app.queue("q").cancel("before")
        await Worker(app, id="w").drain()
        events = await receive(stream, 4)
    assert [(e.name, e.queue, e.id, e.attempt) for e in events] == [
        ("enqueued", "q", "a", 0),
        ("cancelled", "q", "before", 0),
        ("started", "q", "a", 1),
        ("completed", "q", "a", 1),
    ]
    assert (events[-1].result, events[-1].worker, events[-1].at.timestamp()) == (2, "w", clock.time())


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_a_stream_gives_the_events_of_other_processes(app: Penstock, backend: Backend, clock: Clock) -> None:
    """The events of another app on the same storage arrive, errors included."""
    storage = backend.build(cast("Any", clock))
    async with Penstock(storage=storage, clock=clock) as other, app.events("failed") as stream:

        @other.handler("q", max_retries=0)
        def handle(payload: Any) -> None:
            raise ValueError("no")

        await other.queue("q").enqueue(1, id="a")
        await Worker(other).drain()
        [event] = await receive(stream, 1)
        assert event.error is not None
        assert (event.id, event.error.type, event.error.message) == ("a", "ValueError", "no")


@pytest.mark.only("cluster")
async def test_a_stream_on_a_cluster_gives_events_of_new_families(app: Penstock) -> None:
    """A queue of a new family is in the stream from its first job on, though no script reads another family's slot."""
    async with app.events("enqueued") as stream:
        await app.queue("q").enqueue(1, id="a")
        await app.queue("other").enqueue(1, id="b")
        assert [event.id for event in await receive(stream, 2)] == ["a", "b"]


async def test_a_stream_of_some_names_and_of_one_queue(app: Penstock) -> None:
    """Only events of the given names and queue arrive."""
    async with app.events(["enqueued", "queue_deleted"], queue="q") as stream:
        await app.queue("r").enqueue(1, id="other queue")
        await app.queue("q").enqueue(1, id="a")
        await app.queue("q").cancel("a")
        await app.queue("q").delete()
        assert [(e.name, e.id) for e in await receive(stream, 2)] == [("enqueued", "a"), ("queue_deleted", "")]


async def test_a_result_that_cannot_be_decoded_is_shown_as_bytes(app: Penstock) -> None:
    """A stream goes on when a result makes no sense to the queue's serde."""
    async with app.events("completed") as stream:
        await app.queue("q").enqueue(1)
        await app.storage.settle([complete(await claim1(app.storage), b"\xff")])
        assert (await receive(stream, 1))[0].result == b"\xff"


async def test_a_step_that_is_cancelled_loses_nothing(app: Penstock) -> None:
    """A timeout around a step is harmless: the next step gets the event."""
    async with app.events("enqueued") as stream:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(stream), 0.01)
        await app.queue("q").enqueue(1, id="a")
        assert (await receive(stream, 1))[0].id == "a"


async def test_async_for_subscribes_with_its_first_step(app: Penstock) -> None:
    """`async for` listens from its first step on, and may be left at any time."""
    received: list[str] = []

    async def listen() -> None:
        async for event in app.events("enqueued"):
            received.append(event.id)
            if event.id == "last":
                break

    task = asyncio.create_task(listen())

    async def probe() -> bool:
        await app.queue("q").enqueue(1)
        return bool(received)

    await eventually(probe, EVENT_TIMEOUT)
    await app.queue("q").enqueue(1, id="last")
    await asyncio.wait_for(task, EVENT_TIMEOUT)
    assert received[-1] == "last"
    gc.collect()


async def test_a_cancelled_listener_leaves_nothing_behind(app: Penstock) -> None:
    """A task that is cancelled inside its loop takes its stream with it."""

    async def listen() -> None:
        async for _ in app.events():
            pass

    task = asyncio.create_task(listen())
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    del task
    gc.collect()
    await eventually(lambda: not [t for t in asyncio.all_tasks() if t.get_name() == "penstock events"])


async def test_closing_the_app_ends_its_streams(app: Penstock) -> None:
    """A step that waits for an event when the app is closed ends the iteration."""
    async with app.events() as stream:

        async def rest() -> list[Event]:
            return [event async for event in stream]

        task = asyncio.create_task(rest())
        await asyncio.wait({task}, timeout=0.05)
        await app.close()
        assert await asyncio.wait_for(task, EVENT_TIMEOUT) == []
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_local_events_of_a_worker_are_in_the_stream(app: Penstock) -> None:
    """idle, no_queues and lease_lost come through the feed, though they are no transitions."""
    async with app.events(["idle", "no_queues", "lease_lost"]) as stream:
        async with Worker(app, id="bare"):
            [event] = await receive(stream, 1)
            assert (event.name, event.worker) == ("no_queues", "bare")

        @app.handler("q")
        async def handle(payload: Any) -> None:
            await app.queue("q").delete()

        await app.queue("q").enqueue(1, id="a")
        async with Worker(app, id="w"):
            found = {event.name: event for event in await receive(stream, 2)}
        assert (found["lease_lost"].id, found["lease_lost"].attempt, found["lease_lost"].worker) == ("a", 1, "w")
        assert found["idle"].worker == "w"


async def test_invalid_data_is_in_the_stream(app: Penstock) -> None:
    """The storage sees only a failure; the worker adds that it was the data."""

    @app.handler("q")
    def handle(payload: int) -> None: ...

    async with app.events("invalid_data") as stream:
        await app.queue("q").enqueue("text", id="a")
        await Worker(app, id="w").drain()
        [event] = await receive(stream, 1)
        assert (event.id, event.worker, event.error is not None) == ("a", "w", True)


@pytest.mark.only("redis", "valkey")
async def test_a_job_whose_record_is_gone_is_skipped(app: Penstock, backend: Any) -> None:
    """An entry without a record is skipped, with an event here and in every stream."""
    app.listen("q", lambda payload: None)
    received: list[str] = []
    app.on("skipped")(lambda event: received.append(event.id))
    async with app.events("skipped") as stream:
        await app.queue("q").enqueue(1, id="a")
        with backend.client() as client:
            [jobs] = [key for key in backend.keys() if key.endswith(b":jobs")]  # noqa: SIM118
            client.delete(jobs)
        await Worker(app).drain()
        assert [(e.name, e.id) for e in await receive(stream, 1)] == [("skipped", "a")]
    assert received == ["a"]


def test_names_and_queues_are_checked() -> None:
    """An unknown event name, no name at all, and an invalid queue name are refused at the call."""
    app = Penstock("memory:")
    unknown: Any = "complete"
    with pytest.raises(ValueError, match=r"names: unknown event 'complete'; known: .*completed"):
        app.events(unknown)
    with pytest.raises(ValueError, match="names must name at least one"):
        app.events([])
    with pytest.raises(ValueError, match="queue"):
        app.events(queue="")


class Flaky:
    """A host and a storage that lose the connection on demand."""

    def __init__(self, plan: Sequence[Sequence[EventRecord | Exception]]) -> None:
        self._plan = [list(each) for each in plan]
        self.closed = 0

    def codec(self, queue: str) -> Codec:
        raise AssertionError("no result is decoded here")

    async def opened(self) -> Storage:
        return cast("Storage", self)

    async def events(self, queue: str | None, names: Collection[str] | None) -> AsyncIterator[EventRecord]:
        try:
            for step in self._plan.pop(0):
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.closed += 1


async def test_a_stream_goes_on_after_the_storage_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost storage ends nothing: the stream begins again, and other errors are the reader's to see."""
    monkeypatch.setattr("penstock.client.event_stream.RETRY_DELAY", 0.0)
    a, b = EventRecord("enqueued", "q", "a", 0), EventRecord("enqueued", "q", "b", 0)
    host = Flaky([[a, StorageUnavailable("away")], [StorageUnavailable("away")], [b, RuntimeError("broken")]])
    stream = EventStream(cast("Any", host))
    assert [event.id for event in await receive(stream, 2)] == ["a", "b"]
    with pytest.raises(RuntimeError, match="broken"):
        await anext(stream)
    await stream.aclose()
    assert host.closed == 3


class AnnouncementLog:
    """A storage that takes announcements when it is up."""

    def __init__(self) -> None:
        self.received: list[EventRecord] = []
        self.calls = 0
        self.error: Exception | None = StorageUnavailable("away")

    async def announce(self, records: Sequence[EventRecord], /) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        self.received += records


async def test_announcements_wait_for_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is away the newest are kept; when it is back each is sent once."""
    monkeypatch.setattr("penstock.client.event_publisher.SEND_INTERVAL", 0.001)
    log = AnnouncementLog()
    publisher = EventPublisher(cast("Storage", log))
    for n in range(150):
        publisher.add(EventRecord("idle", "", "", 0, n))
    await eventually(lambda: log.calls > 2)
    log.error = None
    await eventually(lambda: log.received)
    await publisher.close()
    assert [record.attempt for record in log.received] == list(range(50, 150))


async def test_a_failing_announcement_fails_no_caller(caplog: pytest.LogCaptureFixture) -> None:
    """A storage that is unavailable, or refuses, fails no caller; closing tries once more and returns."""
    log = AnnouncementLog()
    publisher = EventPublisher(cast("Storage", log))
    publisher.add(EventRecord("idle", "", "", 0))
    await publisher.close()
    assert log.calls == 1
    log.error = RuntimeError("refused")
    publisher.add(EventRecord("idle", "", "", 0))
    await publisher.close()
    assert [record.message for record in caplog.records] == ["the storage refused an announcement"]


async def test_announcements_go_out_at_most_once_a_second() -> None:
    """The first leaves at once, the next ones together later: an idle worker costs next to nothing."""
    log = AnnouncementLog()
    log.error = None
    publisher = EventPublisher(cast("Storage", log))
    for n in range(3):
        publisher.add(EventRecord("idle", "", "", 0, n))
        await eventually(lambda: log.received)
    assert (log.calls, len(log.received)) == (1, 1)
    await publisher.close()
    assert (log.calls, len(log.received)) == (2, 3)


def test_a_record_without_a_loop_is_dropped() -> None:
    """Without an event loop no worker runs, so the record is dropped."""
    log = AnnouncementLog()
    EventPublisher(cast("Storage", log)).add(EventRecord("idle", "", "", 0))
    assert log.calls == 0
