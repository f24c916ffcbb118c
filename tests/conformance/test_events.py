"""events: what happens, as it happens, the same on every storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from penstock.model.job import Claim
from penstock.storage.base import EventRecord, Request, Storage
from tests.model import Model
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    Clock,
    cancel_end,
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


class Scene:
    """The storage and the model, given the same calls, with the storage's feed being read."""

    def __init__(self, storage: Storage, clock: Clock, heard: list[EventRecord]) -> None:
        self.storage = storage
        self.clock = clock
        self.model = Model(clock.ms)
        self.heard = heard
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
        """Exactly these notes were heard since the last time, equal to the model's in every field."""
        expected, self.model.notes = self.model.notes, []
        assert [note.name for note in expected] == list(names)
        await eventually(lambda: len(self.heard) >= len(expected) or None)
        await self.storage.counts("q")
        got, self.heard[:] = list(self.heard), []
        assert [nameless(note) for note in got] == [nameless(note) for note in expected]


def nameless(note: EventRecord) -> EventRecord:
    """A note but for the worker of a start, which has a test of its own."""
    return msgspec.structs.replace(note, worker=None) if note.name == "started" else note


@asynccontextmanager
async def listening(storage: Storage, queue: str | None = None) -> AsyncGenerator[list[EventRecord]]:
    """The notes as they are heard; begins when the first one came through."""
    heard: list[EventRecord] = []

    async def listen() -> None:
        async for note in storage.events(queue):
            heard.append(note)

    task = asyncio.create_task(listen())
    marker = queue or "q/marker"

    async def probe() -> bool:
        await storage.put([new(marker, "probe")])
        await storage.cancel(marker, ["probe"])
        return bool(heard)

    await eventually(probe, within=10)
    await storage.put([new(marker, "last probe")])
    await storage.cancel(marker, ["last probe"])
    await eventually(lambda: heard and (heard[-1].name, heard[-1].id) == ("cancelled", "last probe"))
    heard.clear()
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def scene(storage: Storage, clock: Clock) -> AsyncGenerator[Scene]:
    async with listening(storage) as heard:
        yield Scene(storage, clock, heard)


async def test_a_job_that_completes(storage: Storage, clock: Clock) -> None:
    """A completed job was enqueued, started and completed, with its result."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        clock.advance(seconds=1)
        await s.do("settle", [complete(claim, b"\x00result")])
        await s.expect("enqueued", "started", "completed")


async def test_a_note_says_everything(storage: Storage, clock: Clock) -> None:
    """A note names its queue, its job, its time, the attempt, the worker and the result."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        clock.advance(seconds=1)
        await s.do("settle", [complete(claim, b"result")])
        await eventually(lambda: len(s.heard) >= 3)
        assert s.heard[-1] == EventRecord("completed", "q", "a", clock.ms, 1, "w", b"result", None)


async def test_a_start_is_told_as_the_model_tells_it(storage: Storage, clock: Clock) -> None:
    """The note of a start is the same on every storage."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.claim()
        await eventually(lambda: len(s.heard) >= 2)
        assert s.heard == s.model.notes


async def test_a_job_that_fails_at_last(storage: Storage, clock: Clock) -> None:
    """n failures give n - 1 retrying and one failed, each with its error."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        for _ in range(2):
            await s.do("settle", [retried(await s.claim(), error=b"boom")])
        await s.do("settle", [fail(await s.claim(), b"bang", then=(new("q/failures", "f"),))])
        await s.expect("enqueued", "started", "retrying", "started", "retrying", "started", "failed", "enqueued")


async def test_a_job_that_times_out(storage: Storage, clock: Clock) -> None:
    """A timeout is told before what became of the job."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [retried(await s.claim(), count="timeouts", delay=SECOND)])
        clock.advance(seconds=1)
        await s.do("settle", [fail(await s.claim(), count="timeouts")])
        await s.expect("enqueued", "started", "timed_out", "retrying", "started", "timed_out", "failed")


async def test_runs_that_come_back(storage: Storage, clock: Clock) -> None:
    """A release and a stall are told with their worker, a reap as a stall."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [release(await s.claim())])
        await s.do("settle", [stall(await s.claim())])
        await s.claim()
        clock.advance(ms=LEASE)
        await s.do("reap", ["q"])
        await s.expect("enqueued", "started", "released", "started", "stalled", "started", "stalled")


async def test_updates_and_successors(storage: Storage, clock: Clock) -> None:
    """An update in place is told, a successor as enqueued, and a fold as updated."""
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


async def test_cancels(storage: Storage, clock: Clock) -> None:
    """A cancel is told when it happens, a request when it is made (PJ-D23)."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a"), new("q", "b"), new("q", "c")])
        await s.do("cancel", "q", ["a"], "refuse", HOUR)
        claim = await s.claim()
        await s.do("cancel", "q", ["b"], "signal", 0)
        await s.do("settle", [retried(claim)])
        await s.do("settle", [cancel_end(await s.claim())])
        await s.expect(
            "enqueued", "enqueued", "enqueued", "cancelled", "started", "cancel_requested", "cancelled", "started",
            "cancelled",
        )  # fmt: skip


async def test_a_forgotten_run_is_not_told_of_the_request(storage: Storage, clock: Clock) -> None:
    """Forget asks nothing of the run, so there is no request to tell."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        await s.do("cancel", "q", ["a"], "forget", 0)
        await s.do("settle", [fail(claim)])
        await s.expect("enqueued", "started", "cancelled")


async def test_a_cancelled_successor(storage: Storage, clock: Clock) -> None:
    """A successor that goes is told as cancelled while the run goes on."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        claim = await s.claim()
        await s.do("put", [update("q", "a")])
        await s.do("cancel", "q", ["a"], "refuse", 0)
        await s.do("settle", [complete(claim)])
        await s.expect("enqueued", "started", "enqueued", "cancelled", "completed")


async def test_a_reaped_cancel(storage: Storage, clock: Clock) -> None:
    """A run that was to end and stalled is told as both."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.claim()
        await s.do("cancel", "q", ["a"], "kill", 0)
        clock.advance(ms=LEASE)
        await s.do("reap", ["q"])
        await s.expect("enqueued", "started", "cancel_requested", "stalled", "cancelled")


async def test_a_revived_job(storage: Storage, clock: Clock) -> None:
    """A revived job is enqueued again."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [fail(await s.claim())])
        await s.do("revive", "q", ["a"])
        await s.expect("enqueued", "started", "failed", "enqueued")


async def test_follow_ups_are_told_after_their_cause(storage: Storage, clock: Clock) -> None:
    """A follow-up is enqueued after its run completed."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a")])
        await s.do("settle", [complete(await s.claim(), then=(new("q/x", "b"), new("q", "c", delay=HOUR)))])
        await s.expect("enqueued", "started", "completed", "enqueued", "enqueued")


async def test_grouped_jobs_tell_the_same(storage: Storage, clock: Clock) -> None:
    """A group changes nothing about what is told."""
    async with scene(storage, clock) as s:
        await s.do("put", [new("q", "a", group="g"), new("q", "b", group="g")])
        await s.do("settle", [complete(await s.claim())])
        await s.do("settle", [complete(await s.claim(), ttl=0)])
        await s.expect("enqueued", "enqueued", "started", "completed", "started", "completed")


async def test_what_changes_nothing_is_not_told(storage: Storage, clock: Clock) -> None:
    """Duplicates, lost and repeated settlements, renewals, reports and reads are no events (PJ-D8)."""
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


async def test_a_deleted_queue_is_told(storage: Storage) -> None:
    """Deleting a queue is one note with its name."""
    async with listening(storage) as heard:
        await storage.put([new("q", "a")])
        await storage.delete_queue("q")
        await eventually(lambda: [note.name for note in heard] == ["enqueued", "queue_deleted"])
        assert heard[-1].queue == "q"


async def test_one_queue_alone(storage: Storage) -> None:
    """A feed of one queue tells nothing of the others."""
    async with listening(storage, "q") as heard:
        await storage.put([new("q/x", "a"), new("r", "b"), new("q", "c")])
        await eventually(lambda: [note.id for note in heard] == ["c"])


async def test_everybody_is_heard(storage: Storage, peer: Storage) -> None:
    """A feed tells what others do, too."""
    async with listening(storage) as heard:
        await peer.put([new("q", "a")])
        await eventually(lambda: [note.id for note in heard] == ["a"])


async def test_two_listeners_hear_the_same(storage: Storage, clock: Clock) -> None:
    """One listener takes nothing away from another (PJ-D29)."""
    async with listening(storage) as one, listening(storage) as other:
        await storage.put([new("q", "a"), new("q", "b")])
        for heard in (one, other):  # the first also hears, early or late, what the second one began with
            await eventually(lambda heard=heard: [note.id for note in heard if note.queue == "q"] == ["a", "b"])


async def test_a_feed_that_nobody_reads_any_more_leaves_nothing(storage: Storage) -> None:
    """After a listener has gone, the storage works on as before."""
    async with listening(storage):
        pass
    await storage.put([new("q", "a")])
    assert await storage.delete_queue("q") == 1


async def test_an_announcement_is_heard_by_everybody(storage: Storage, clock: Clock) -> None:
    """What is announced comes through the feed with every field, at the storage's own time."""
    notes = [
        EventRecord("idle", "", "", 0, 0, "w\x00é"),
        EventRecord("lease_lost", "q", "a:\n", 7, 3, "w"),
        EventRecord("error", "", "", 0, 70_000, None, b"", b"\x00\xff"),
    ]
    async with listening(storage) as heard:
        await storage.announce(notes)
        await storage.announce([])
        await eventually(lambda: len(heard) >= 3)
        assert [msgspec.structs.replace(note, attempt=0) for note in heard] == [
            msgspec.structs.replace(note, at=clock.ms, attempt=0) for note in notes
        ]
        assert [note.attempt for note in heard[:2]] == [0, 3]
        assert heard[2].attempt >= 65_535


async def test_an_announcement_of_a_queue_is_its_own(storage: Storage) -> None:
    """A feed of one queue hears only what is announced of that queue."""
    async with listening(storage, "q") as heard:
        await storage.announce(
            [
                EventRecord("idle", "", "", 0),
                EventRecord("lease_lost", "r", "a", 0),
                EventRecord("lease_lost", "q", "b", 0),
            ]
        )
        await eventually(lambda: [note.id for note in heard] == ["b"])


async def test_an_announcement_reaches_other_processes(storage: Storage, peer: Storage) -> None:
    """What one announces is heard by another."""
    async with listening(storage) as heard:
        await peer.announce([EventRecord("idle", "", "", 0, 0, "w")])
        await eventually(lambda: [note.name for note in heard] == ["idle"])


async def test_an_announcement_that_nobody_reads_leaves_nothing(storage: Storage) -> None:
    """Without a listener an announcement is lost, and nothing is stored."""
    await storage.announce([EventRecord("idle", "", "", 0, 0, "w")])
    assert await storage.queues() == []
    async with listening(storage) as heard:
        await storage.put([new("q", "a")])
        await eventually(lambda: [note.name for note in heard] == ["enqueued"])
