"""events: the feed of what happens in a storage, the same on every storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from penstock.model.job import Claim
from penstock.storage.base import EventRecord, Request, Storage
from tests import schedules
from tests.model import Model
from tests.schedules import firing, tick
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    Clock,
    cancel_run,
    complete,
    eventually,
    fail,
    new,
    release,
    retried,
    stall,
    update,
)

pytestmark = pytest.mark.beyond_model


class EventScenario:
    """A storage and the model that get the same calls, and the events that the storage's feed delivered."""

    def __init__(self, storage: Storage, clock: Clock, delivered: list[EventRecord]) -> None:
        self.storage = storage
        self.clock = clock
        self.model = Model(clock.ms)
        self.delivered = delivered
        self.tokens = 0

    async def do(self, verb: str, *args: Any) -> Any:
        self.model.now = self.clock.ms
        getattr(self.model, verb)(*args)
        return await getattr(self.storage, verb)(*args)

    async def claim(self, queue: str = "q") -> Claim:
        self.tokens += 1
        answer = await self.do("claim", [Request(queue, 1)], "w", LEASE, f"scenetoken{self.tokens:06}")
        return answer.claims[0]

    async def expect(self, *names: str) -> None:
        """Assert that exactly these events were delivered since the last call, equal to the model's in every field."""
        expected, self.model.events = self.model.events, []
        assert [record.name for record in expected] == list(names)
        await self.storage.put([new("q/marker", "marker")])  # its events come behind all others
        await self.storage.cancel("q/marker", ["marker"])
        await eventually(self._is_marked)
        got, self.delivered[:] = self.delivered[:-2], []
        assert [without_start_worker(record) for record in got] == [without_start_worker(record) for record in expected]

    def _is_marked(self) -> bool:
        """Return whether the last two events are those of the marker."""
        return [record.id for record in self.delivered[-2:]] == ["marker", "marker"]


def without_start_worker(record: EventRecord) -> EventRecord:
    """Return a record without the worker of a start, which has its own test."""
    return msgspec.structs.replace(record, worker=None) if record.name == "started" else record


@asynccontextmanager
async def listening(
    storage: Storage, queue: str | None = None, names: Collection[str] | None = None
) -> AsyncGenerator[list[EventRecord]]:
    """Yield the list of delivered events; it is complete from the moment at which the body begins.

    The names must have `idle`, which is announced as a probe.
    """
    delivered: list[EventRecord] = []

    async def listen() -> None:
        async for record in storage.events(queue, names):
            delivered.append(record)

    task = asyncio.create_task(listen())
    marker = queue or "q/marker"

    async def send(id: str) -> bool:
        if names is not None:
            await storage.announce([EventRecord("idle", marker, id, 0)])
        else:
            await storage.put([new(marker, id)])
            await storage.cancel(marker, [id])
        return bool(delivered)

    await eventually(lambda: send("probe"), within=10)
    await send("last probe")
    last = "cancelled" if names is None else "idle"
    await eventually(lambda: delivered and (delivered[-1].name, delivered[-1].id) == (last, "last probe"))
    delivered.clear()
    try:
        yield delivered
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def without_probes(delivered: list[EventRecord]) -> list[EventRecord]:
    """Return the events of a feed without the probes of other feeds, which it may deliver after those have begun."""
    return [record for record in delivered if not record.id.endswith("probe")]


@asynccontextmanager
async def scene(storage: Storage, clock: Clock) -> AsyncGenerator[EventScenario]:
    async with listening(storage) as delivered:
        yield EventScenario(storage, clock, delivered)


async def test_events_of_a_job_that_completes(storage: Storage, clock: Clock) -> None:
    """A completed job was enqueued, started and completed, with its result."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        clock.advance(seconds=1)
        await s.do("settle", [complete(claim, b"\x00result")])
        await s.expect("enqueued", "started", "completed")


async def test_a_completed_event_has_every_field(storage: Storage, clock: Clock) -> None:
    """An event names its queue, its job, its time, the attempt, the worker and the result."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        clock.advance(seconds=1)
        await s.do("settle", [complete(claim, b"result")])
        await eventually(lambda: len(s.delivered) >= 3)
        assert s.delivered[-1] == EventRecord("completed", "q", "a", clock.ms, 1, "w", b"result", None)


async def test_a_started_event_is_that_of_the_model(storage: Storage, clock: Clock) -> None:
    """The started event is the same on every storage."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.claim()
        await eventually(lambda: len(s.delivered) >= 2)
        assert s.delivered == s.model.events


async def test_events_of_a_job_that_fails_for_good(storage: Storage, clock: Clock) -> None:
    """n failures give n - 1 retrying and one failed, each with its error."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        for _ in range(2):
            await s.do("settle", [retried(await s.claim(), error=b"boom")])
        await s.do("settle", [fail(await s.claim(), b"bang", then=(new("q/failures", "f"),))])
        await s.expect("enqueued", "started", "retrying", "started", "retrying", "started", "failed", "enqueued")


async def test_events_of_a_job_that_times_out(storage: Storage, clock: Clock) -> None:
    """timed_out comes before the retrying or failed event of the same run."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [retried(await s.claim(), count="timeouts", delay=SECOND)])
        clock.advance(seconds=1)
        await s.do("settle", [fail(await s.claim(), count="timeouts")])
        await s.expect("enqueued", "started", "timed_out", "retrying", "started", "timed_out", "failed")


async def test_events_of_release_stall_and_reap(storage: Storage, clock: Clock) -> None:
    """A release is released, a stall and a reap are stalled, each with the worker."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [release(await s.claim())])
        await s.do("settle", [stall(await s.claim())])
        await s.claim()
        clock.advance(ms=LEASE)
        await s.do("reap", ["q"])
        await s.expect("enqueued", "started", "released", "started", "stalled", "started", "stalled")


async def test_events_of_updates_and_successors(storage: Storage, clock: Clock) -> None:
    """An update in place is updated, a successor is enqueued, and one folded into a returning run is updated."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a"), update("q", "a", b"2")])
        claim = await s.claim()
        await s.do("put", [update("q", "a", b"3"), update("q", "a", b"4")])
        await s.do("settle", [retried(claim)])
        claim = await s.claim()
        await s.do("put", [update("q", "a", b"5")])
        await s.do("settle", [complete(claim)])
        await s.expect(
            "enqueued", "updated", "started", "enqueued", "updated", "retrying", "updated", "started", "enqueued",
            "completed",
        )  # fmt: skip


async def test_events_of_cancels(storage: Storage, clock: Clock) -> None:
    """cancelled is emitted when a job is cancelled, cancel_requested when a run is asked to end (PJ-D23)."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a"), new("q", "b"), new("q", "c")])
        await s.do("cancel", "q", ["a"], "refuse", HOUR)
        claim = await s.claim()
        await s.do("cancel", "q", ["b"], "signal", 0)
        await s.do("settle", [retried(claim)])
        await s.do("settle", [cancel_run(await s.claim())])
        await s.expect(
            "enqueued", "enqueued", "enqueued", "cancelled", "started", "cancel_requested", "cancelled", "started",
            "cancelled",
        )  # fmt: skip


async def test_events_of_ticks(storage: Storage, clock: Clock) -> None:
    """A tick that fires emits `enqueued`; a job that it replaces emits what a cancel emits; others emit nothing."""
    async with scene(storage, clock) as s:
        version = await s.do("set_schedule", schedules.record(), 0, firing(0, tick(1), manual=True))
        await s.expect("enqueued")
        [fired] = await s.do("fire", [firing(version, tick(2), overlap="skip")])
        [fired] = await s.do("fire", [firing(fired.version, tick(1), overlap="allow")])
        await s.expect()
        [fired] = await s.do("fire", [firing(fired.version, tick(3), tick(4), overlap="replace")])
        await s.expect("cancelled", "enqueued", "cancelled", "enqueued")
        await s.claim()
        await s.expect("started")
        [fired] = await s.do("fire", [firing(fired.version, tick(5), overlap="kill")])
        await s.expect("cancel_requested", "enqueued")
        await s.do("fire", [firing(version, tick(6), overlap="allow")])
        await s.do("drop_schedule", "q", "s", fired.version)
        await s.expect()


async def test_a_second_cancel_emits_nothing(storage: Storage, clock: Clock) -> None:
    """A cancelled job, and a run with a cancel request, emit no second event; a stronger request emits one."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("cancel", "q", ["a", "a"], "refuse", HOUR)
        await s.do("cancel", "q", ["a"], "kill", HOUR)
        await s.do("put", [new("q", "b")])
        await s.claim()
        for mode in ("signal", "signal", "kill", "signal"):
            await s.do("cancel", "q", ["b"], mode, 0)
        await s.expect("enqueued", "cancelled", "enqueued", "started", "cancel_requested", "cancel_requested")


async def test_cancel_forget_emits_no_cancel_requested(storage: Storage, clock: Clock) -> None:
    """Forget does not ask the run to end, so there is no cancel_requested."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        await s.do("cancel", "q", ["a"], "forget", 0)
        await s.do("settle", [fail(claim)])
        await s.expect("enqueued", "started", "cancelled")


async def test_events_of_a_cancelled_successor(storage: Storage, clock: Clock) -> None:
    """A successor that is cancelled is one cancelled event while the run goes on."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        await s.do("put", [update("q", "a")])
        await s.do("cancel", "q", ["a"], "refuse", 0)
        await s.do("settle", [complete(claim)])
        await s.expect("enqueued", "started", "enqueued", "cancelled", "completed")


async def test_events_of_a_reaped_run_with_a_cancel_request(storage: Storage, clock: Clock) -> None:
    """A reaped run with a cancel request is stalled and then cancelled."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.claim()
        await s.do("cancel", "q", ["a"], "kill", 0)
        clock.advance(ms=LEASE)
        await s.do("reap", ["q"])
        await s.expect("enqueued", "started", "cancel_requested", "stalled", "cancelled")


async def test_events_of_a_revived_job(storage: Storage, clock: Clock) -> None:
    """A revived job is enqueued again."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [fail(await s.claim())])
        await s.do("revive", "q", ["a"])
        await s.expect("enqueued", "started", "failed", "enqueued")


async def test_a_follow_up_is_enqueued_after_its_run_completed(storage: Storage, clock: Clock) -> None:
    """The enqueued event of a follow-up job comes after the completed event of its run."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [complete(await s.claim(), then=(new("q/x", "b"), new("q", "c", delay=HOUR)))])
        await s.expect("enqueued", "started", "completed", "enqueued", "enqueued")


async def test_events_of_grouped_jobs(storage: Storage, clock: Clock) -> None:
    """Jobs in a group emit the same events as jobs without one."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a", group="g"), new("q", "b", group="g")])
        await s.do("settle", [complete(await s.claim())])
        await s.do("settle", [complete(await s.claim(), ttl=0)])
        await s.expect("enqueued", "enqueued", "started", "completed", "started", "completed")


async def test_calls_that_change_nothing_emit_no_event(storage: Storage, clock: Clock) -> None:
    """Duplicates, lost and repeated settlements, renewals, reports and reads emit no events (PJ-D8)."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a"), new("q", "a")])
        claim = await s.claim()
        forged = Claim(queue="q", id="a", token="forged", payload=b"")
        await s.do("settle", [complete(forged)])
        await s.do("settle", [complete(claim), complete(claim)])
        await s.do("cancel", "q", ["a", "none"], "kill", 0)
        await s.do("revive", "q", ["a"])
        await s.do("purge", ["q"])
        await s.do("put", [new("q", "a")])
        await s.expect("enqueued", "started", "completed")


async def test_delete_queue_emits_one_event(storage: Storage) -> None:
    """Deleting a queue is one queue_deleted event with its name."""
    async with listening(storage) as delivered:
        await storage.put([new("q", "a")])
        await storage.delete_queue("q")
        await eventually(lambda: [record.name for record in delivered] == ["enqueued", "queue_deleted"])
        assert delivered[-1].queue == "q"


async def test_a_feed_of_one_queue_has_no_events_of_others(storage: Storage) -> None:
    """A feed of one queue delivers no event of the others."""
    async with listening(storage, "q") as delivered:
        await storage.put([new("q/x", "a"), new("r", "b"), new("q", "c")])
        await eventually(lambda: [record.id for record in delivered] == ["c"])


async def test_a_feed_of_one_queue_has_its_follow_ups_of_runs_in_another(storage: Storage) -> None:
    """A run in a queue without a listener enqueues a follow-up in one that has a listener: the event is delivered."""
    async with listening(storage, "q/x") as delivered:
        await storage.put([new("q", "a")])
        [claim] = (await storage.claim([Request("q", 1)], "w", LEASE, "scenetoken000001")).claims
        await storage.settle([complete(claim, then=(new("q/x", "b"),))])
        await eventually(lambda: [(record.name, record.id) for record in delivered] == [("enqueued", "b")])


async def test_a_feed_delivers_events_of_other_processes(storage: Storage, peer: Storage) -> None:
    """A feed delivers the events of another storage object, too."""
    async with listening(storage) as delivered:
        await peer.put([new("q", "a")])
        await eventually(lambda: [record.id for record in delivered] == ["a"])


async def test_two_listeners_get_the_same_events(storage: Storage, clock: Clock) -> None:
    """Each of two listeners gets every event (PJ-D29)."""
    async with listening(storage) as one, listening(storage) as other:
        await storage.put([new("q", "a"), new("q", "b")])
        for delivered in (one, other):  # the first one also gets the events with which the second began
            await eventually(
                lambda delivered=delivered: [record.id for record in delivered if record.queue == "q"] == ["a", "b"]
            )


async def test_a_closed_feed_leaves_nothing(storage: Storage) -> None:
    """After its last listener has gone, the storage works on as before."""
    async with listening(storage):
        pass
    await storage.put([new("q", "a")])
    assert await storage.delete_queue("q") == 1


async def test_announce_delivers_records_with_every_field(storage: Storage, clock: Clock) -> None:
    """An announced record is delivered with every field, at the storage's own time."""
    records = [
        EventRecord("idle", "", "", 0, 0, "w\x00é"),
        EventRecord("lease_lost", "q", "a:\n", 7, 3, "w"),
        EventRecord("error", "", "", 0, 70_000, None, b"", b"\x00\xff"),
    ]
    async with listening(storage) as delivered:
        await storage.announce(records)
        await storage.announce([])
        await eventually(lambda: len(delivered) >= 3)
        assert [msgspec.structs.replace(record, attempt=0) for record in delivered] == [
            msgspec.structs.replace(record, at=clock.ms, attempt=0) for record in records
        ]
        assert [record.attempt for record in delivered[:2]] == [0, 3]
        assert delivered[2].attempt >= 65_535


async def test_a_feed_of_one_queue_has_its_announcements_only(storage: Storage) -> None:
    """A feed of one queue delivers only the records announced for that queue."""
    async with listening(storage, "q") as delivered:
        await storage.announce(
            [
                EventRecord("idle", "", "", 0),
                EventRecord("lease_lost", "r", "a", 0),
                EventRecord("lease_lost", "q", "b", 0),
            ]
        )
        await eventually(lambda: [record.id for record in delivered if not record.id.endswith("probe")] == ["b"])


async def test_an_announcement_reaches_other_processes(storage: Storage, peer: Storage) -> None:
    """A record that one storage object announces is delivered by another."""
    async with listening(storage) as delivered:
        await peer.announce([EventRecord("idle", "", "", 0, 0, "w")])
        await eventually(lambda: [record.name for record in delivered] == ["idle"])


async def test_an_announcement_without_a_listener_leaves_nothing(storage: Storage) -> None:
    """Without a listener an announcement is dropped, and nothing is stored."""
    await storage.announce([EventRecord("idle", "", "", 0, 0, "w")])
    assert await storage.queues() == []
    async with listening(storage) as delivered:
        await storage.put([new("q", "a")])
        await eventually(lambda: [record.name for record in delivered] == ["enqueued"])


async def test_each_feed_has_the_events_of_its_queue_and_names_only(storage: Storage) -> None:
    """Of four feeds with different filters each delivers the events that it wants, also those of follow-up jobs."""
    filters: list[tuple[str | None, set[str] | None]] = [
        ("q", {"idle", "completed"}), (None, {"idle", "enqueued"}), ("q/side", None), ("none", {"idle", "started"}),
    ]  # fmt: skip
    await storage.put([new("q", "first")])  # the first job of a queue takes no fast path
    await storage.cancel("q", ["first"])
    async with AsyncExitStack() as stack:
        feeds = [await stack.enter_async_context(listening(storage, *wanted)) for wanted in filters]
        for delivered in feeds:
            delivered.clear()
        await storage.put([new("q", "a", fresh=True), new("q", "b", fresh=True), new("other", "c")])
        claims = (await storage.claim([Request("q", 2)], "w", LEASE, "t" * 16)).claims
        await storage.settle([complete(claims[0]), complete(claims[1], then=(new("q/side", "d"),))])
        await storage.announce([EventRecord("idle", "q", "last", 0), EventRecord("lease_lost", "q/side", "last", 0)])
        expected = [
            [("completed", "a"), ("completed", "b"), ("idle", "last")],
            [("enqueued", "a"), ("enqueued", "b"), ("enqueued", "c"), ("enqueued", "d"), ("idle", "last")],
            [("enqueued", "d"), ("lease_lost", "last")],
            [],
        ]

        def names() -> list[list[tuple[str, str]]]:
            return [sorted((record.name, record.id) for record in without_probes(delivered)) for delivered in feeds]

        await eventually(lambda: names() == expected, within=10)


async def test_a_feed_that_ends_leaves_others_with_its_filter_their_events(storage: Storage) -> None:
    """Two feeds have one filter; one ends, and the other delivers what follows."""
    async with listening(storage, "q") as delivered:
        async with listening(storage, "q"):
            pass
        delivered.clear()
        await storage.put([new("q", "b")])
        await eventually(lambda: [record.id for record in without_probes(delivered)] == ["b"])
