"""report and read: the stream of a job, the parts that its runs emit, kept with the job."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.model.history import MAX_PART, MAX_PARTS, MAX_STREAM, HistoryEntry, part_data, read_part
from penstock.model.job import Update
from penstock.storage.base import Report, Storage
from penstock.storage.recording import Recording
from tests.model_histories import Histories
from tests.support import HOUR, LEASE, SECOND, T0, Clock, HasToken, claim1, complete, fail, new, put1, retried, settle1

pytestmark = pytest.mark.one_per_engine


def recording(storage: Storage) -> Recording:
    assert isinstance(storage, Recording)
    return storage


async def stream(storage: Storage, after: int = 0, limit: int = 1000) -> list[HistoryEntry]:
    page = await recording(storage).read("q", "a", "stream", after, limit)
    assert page is not None
    return page.entries


async def emit(storage: Storage, claim: HasToken, *values: bytes, first: int = 1) -> bool:
    """Report parts of a run; return whether its claim is live."""
    parts = tuple(part_data(number, value) for number, value in enumerate(values, first))
    report = Report(queue=claim.queue, id=claim.id, token=claim.token, parts=parts, first_part=first)
    [answer] = await storage.report([report])
    return answer.kept


def values(entries: list[HistoryEntry]) -> list[bytes]:
    return [found[1] for entry in entries if (found := read_part(entry)) is not None]


async def test_a_stream_has_the_parts_of_all_runs_in_order(storage: Storage, clock: Clock) -> None:
    """Parts have their number, time and attempt, and the number at which their run began."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await emit(storage, claim, b"one", b"")
    await settle1(storage, retried(claim, delay=0))
    clock.advance(ms=SECOND)
    assert await emit(storage, await claim1(storage), b"\x00\xff")
    found = await stream(storage)
    assert [(entry.n, entry.at - T0, entry.attempt) for entry in found] == [(1, 0, 1), (2, 0, 1), (3, SECOND, 2)]
    assert [read_part(entry) for entry in found] == [(1, b"one"), (1, b""), (3, b"\x00\xff")]
    assert await stream(storage, after=2) == found[2:]
    page = await recording(storage).read("q", "a", "stream", 0, 2)
    assert page is not None
    assert (page.entries, page.more) == (found[:2], True)


async def test_parts_that_are_reported_again_are_stored_once(storage: Storage) -> None:
    """A report whose answer was lost, and one that overlaps with it, add only what is new; dropped parts are a gap."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    for first, parts in ((1, [b"1", b"2"]), (1, [b"1", b"2"]), (2, [b"2", b"3"]), (6, [b"6"])):
        await emit(storage, claim, *parts, first=first)
    found = await stream(storage)
    assert [(entry.n, value) for entry, value in zip(found, values(found), strict=True)] == [
        (1, b"1"), (2, b"2"), (3, b"3"), (6, b"6"),
    ]  # fmt: skip
    assert await stream(storage, after=4) == found[3:]


async def test_a_run_that_has_lost_its_claim_emits_nothing(storage: Storage, clock: Clock) -> None:
    """Parts with a stale token are refused, also for a job that is over."""
    await put1(storage, "q", "a")
    stale = await claim1(storage)
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert not await emit(storage, stale, b"late")
    fresh = await claim1(storage)
    assert not await emit(storage, stale, b"late")
    await settle1(storage, complete(fresh))
    assert not await emit(storage, fresh, b"late")
    assert await stream(storage) == []


async def test_a_stream_keeps_its_last_thousand_parts(storage: Storage) -> None:
    """Of more parts the oldest go, and the numbers go on."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    for start in range(1, 1 + 1200, 300):
        await emit(storage, claim, *(b"%d" % n for n in range(start, start + 300)), first=start)
    found = await stream(storage)
    assert [entry.n for entry in found] == list(range(201, 1201))
    assert values(found) == [b"%d" % n for n in range(201, 1201)]
    assert len(found) == MAX_PARTS


async def test_a_stream_keeps_its_last_mebibyte(storage: Storage) -> None:
    """Of longer parts fewer stay, as many as fit."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    for n in range(1, 24):
        await emit(storage, claim, bytes([n]) * (MAX_PART - n), first=n)
    found = await stream(storage)
    sizes = [len(entry.data) for entry in found]
    assert sum(sizes) <= MAX_STREAM < sum(sizes) + sizes[0]
    assert [entry.n for entry in found] == list(range(24 - len(found), 24))
    assert [value[0] for value in values(found)] == [entry.n for entry in found]


async def test_random_reports_give_the_stream_of_the_model(storage: Storage, clock: Clock) -> None:
    """Runs with parts of all sizes, repeated and with gaps: after each report every page equals that of the model."""
    chance = random.Random(7)
    await put1(storage, "q", "a")
    model, attempt = Histories(), 0
    for _ in range(4):
        claim, attempt, number = await claim1(storage), attempt + 1, 0
        for _ in range(12):
            first = max(1, number + chance.choice([-3, 0, 1, 1, 1, 40]))
            count = chance.choice([1, 3, 120])
            size = chance.choice([0, 10, 3_000] if count == 120 else [0, 10, 3_000, 60_000])
            parts = tuple(part_data(n, bytes([n % 251]) * size) for n in range(first, first + count))
            report = Report(queue="q", id="a", token=claim.token, parts=parts, first_part=first)
            await storage.report([report])
            model.add_parts(clock.ms, attempt, report)
            number = max(number, first + count - 1)
            after = chance.choice([0, chance.randrange(number + 50), model.stream[-1].n - 1, model.stream[-1].n])
            limit = chance.choice([1, 50, 1000])
            assert await recording(storage).read("q", "a", "stream", after, limit) == model.page("stream", after, limit)
            clock.advance(ms=1)
        await settle1(storage, retried(claim, delay=0))
        clock.advance(ms=SECOND)


@pytest.mark.parametrize("way", ["purge", "discard", "set_ttl", "delete_queue", "not kept", "replaced", "successor"])
async def test_a_stream_goes_with_the_record_of_its_job(storage: Storage, clock: Clock, way: str) -> None:
    """However a record goes, a new job of the same id begins without parts."""
    await put1(storage, "q", "other", delay=24 * HOUR)
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await emit(storage, claim, *[b"x" * 20_000] * 5)
    if way == "successor":
        await put1(storage, "q", "a", update=Update())
    ttl = 0 if way == "not kept" else SECOND
    await settle1(storage, complete(claim, ttl=ttl) if way != "replaced" else fail(claim))
    if way == "purge":
        assert len(await stream(storage)) == 5
        clock.advance(ms=HOUR)
        await storage.purge(["q"])
    elif way == "discard":
        await storage.discard("q", ["a"])
    elif way == "set_ttl":
        await storage.set_ttl("q", "a", 0)
    elif way == "delete_queue":
        await storage.delete_queue("q")
    if way != "successor":
        await storage.put([new("q", "a")])
    assert await stream(storage) == []


async def test_a_revived_job_keeps_its_stream(storage: Storage) -> None:
    """After revive the old parts are there, and those of the new run come after them."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await emit(storage, claim, b"1", b"2")
    await settle1(storage, fail(claim))
    assert await storage.revive("q", ["a"]) == [True]
    await emit(storage, await claim1(storage), b"3")
    assert [(entry.n, read_part(entry)) for entry in await stream(storage)] == [
        (1, (1, b"1")), (2, (1, b"2")), (3, (3, b"3")),
    ]  # fmt: skip


@pytest.mark.beyond_model
async def test_a_reader_is_woken_by_a_part_and_by_the_end(storage: Storage) -> None:
    """wait_history of a stream ends at once if there is more, with the next part, and with the end of the job."""
    histories = recording(storage)
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert not await histories.wait_history("q", "a", "stream", 0, 0.01)
    waiting = asyncio.ensure_future(histories.wait_history("q", "a", "stream", 0, 30))
    await asyncio.sleep(0)
    await emit(storage, claim, b"one")
    assert await waiting
    assert await histories.wait_history("q", "a", "stream", 0, 30)
    waiting = asyncio.ensure_future(histories.wait_history("q", "a", "stream", 1, 30))
    await asyncio.sleep(0)
    await settle1(storage, complete(claim))
    assert await waiting
