"""Bounds of one call: a claim or a page ends at about 4 MB of records, and a claim at 1,000 jobs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.model.job import Snapshot, State
from penstock.model.storage_info import Restorable
from penstock.storage.base import MAX_BATCH, MAX_BYTES, Request, Storage
from tests.support import (
    HOUR,
    SECOND,
    Clock,
    claim1,
    claim_all,
    claim_answer,
    complete,
    fail,
    find_all,
    ids,
    new,
    put1,
    release,
    retried,
    settle1,
    update,
)

pytestmark = pytest.mark.one_per_engine

MB = 1_000_000
QUARTER = MAX_BYTES // 4


def long(id: str, size: int = QUARTER, **options: Any) -> Any:
    return new("q", id, b"x" * size, **options)


# claim -------------------------------------------------------------------------------------------


async def test_a_claim_ends_with_the_job_that_reaches_the_bytes(storage: Storage) -> None:
    """Of ten jobs of 1 MB a claim gives four and names the queue; the next claims give the rest, in order."""
    await storage.put([long(f"j{n}") for n in range(10)])
    given: list[list[str]] = []
    named: list[list[str]] = []
    for _ in range(4):
        answer = await claim_answer(storage)
        given.append(ids(answer.claims))
        named.append(answer.more)
    assert given == [["j0", "j1", "j2", "j3"], ["j4", "j5", "j6", "j7"], ["j8", "j9"], []]
    assert named == [["q"], ["q"], [], []]


async def test_a_claim_one_byte_below_the_bound_goes_on(storage: Storage) -> None:
    """The bound is reached with its last byte and not before; ids, groups and priorities do not count."""
    await storage.put([long("a", 3 * QUARTER, priority=9), long("b", QUARTER - 1, priority=9), long("c"), long("d")])
    assert ids(await claim_all(storage)) == ["a", "b", "c"]


async def test_a_claim_gives_at_least_one_job(storage: Storage) -> None:
    """A job that is longer than the bound is given alone, and those behind it with the next claim."""
    await storage.put([long("a", MAX_BYTES + 1), new("q", "b"), new("q", "c")])
    assert ids(await claim_all(storage)) == ["a"]
    assert ids(await claim_all(storage)) == ["b", "c"]


async def test_headers_limits_and_errors_count(storage: Storage) -> None:
    """The bytes of a job are those of its payload, its headers, its bounds and its last error."""
    await put1(storage, "q", "a", b"x" * QUARTER)
    await settle1(storage, retried(await claim1(storage), error=b"e" * (QUARTER - 60_000)))
    await storage.put(
        [new("q", "b", headers=b"h" * 30_000, bounds=b"l" * 30_000), long("c", 2 * QUARTER), new("q", "d")]
    )
    assert ids(await claim_all(storage)) == ["a", "b", "c"]
    assert ids(await claim_all(storage)) == ["d"]


async def test_a_batch_is_cut_at_the_bound(storage: Storage) -> None:
    """A batch that reaches the bound is short, and its rest is the beginning of the next batch."""
    await storage.put([long(f"j{n}") for n in range(7)])
    first = await claim_all(storage, limit=5, batch=3)
    assert [(c.id, c.batch) for c in first] == [("j0", 0), ("j1", 0), ("j2", 0), ("j3", 1)]
    assert [(c.id, c.batch) for c in await claim_all(storage, limit=5, batch=3)] == [("j4", 0), ("j5", 0), ("j6", 0)]


async def test_a_group_keeps_its_order_across_the_bound(storage: Storage) -> None:
    """Jobs of a group that a claim leaves behind run after those that it took, and not beside them."""
    await storage.put([long(f"g{n}", group="g") for n in range(6)])
    await storage.put([long("h0", group="h"), new("q", "plain")])
    first = await claim_all(storage, limit=9, batch=9)
    assert ids(first) == ["g0", "g1", "g2", "g3"]
    second = await claim_all(storage, limit=9, batch=9)
    assert ids(second) == ["h0", "plain"]
    await storage.settle([complete(claim) for claim in first])
    assert ids(await claim_all(storage, limit=9, batch=9)) == ["g4", "g5"]


async def test_groups_are_served_in_turn_across_the_bound(storage: Storage) -> None:
    """The groups that a claim has no room for keep their turns."""
    await storage.put([long(f"{group}{n}", group=group) for group in "abcdef" for n in (1, 2)])
    first = await claim_all(storage)
    assert ids(first) == ["a1", "b1", "c1", "d1"]
    await storage.settle([release(claim) for claim in first])
    assert ids(await claim_all(storage)) == ["e1", "f1", "a1", "b1"]


async def test_a_claim_of_batches_takes_at_most_a_thousand_jobs(storage: Storage) -> None:
    """A hundred batches of fifty are claimed in calls of a thousand jobs, and none is lost."""
    jobs = [new("q", f"j{n:04}") for n in range(2 * MAX_BATCH + 20)]
    await storage.put(jobs)
    given: list[str] = []
    for size in (MAX_BATCH, MAX_BATCH, 20, 0):
        answer = await claim_answer(storage, limit=100, batch=50)
        assert (len(answer.claims), answer.more) == (size, ["q"] if size == MAX_BATCH else [])
        given += ids(answer.claims)
    assert given == [job.id for job in jobs]


async def test_each_queue_of_a_claim_has_the_bound_for_itself(storage: Storage) -> None:
    """A claim from two queues gives jobs of both, though the first reaches the bound."""
    await storage.put([long(f"j{n}") for n in range(5)] + [new("r", "other")])
    answer = await storage.claim([Request("q", 9), Request("r", 9)], "w", HOUR, "two queues")
    assert (ids(answer.claims), answer.more) == (["j0", "j1", "j2", "j3", "other"], ["q"])


@pytest.mark.parametrize("way", ["update", "successor", "revived", "follow-up"])
async def test_long_records_are_bounded_however_they_came(storage: Storage, way: str) -> None:
    """A job that became long by any verb counts as one that was put."""
    names = [f"j{n}" for n in range(5)]
    short = [new("q", name) for name in names]
    if way == "update":
        await storage.put(short)
        await storage.put([update("q", name, b"x" * QUARTER) for name in names])
    elif way == "successor":
        await storage.put(short)
        runs = await claim_all(storage)
        await storage.put([update("q", name, b"x" * QUARTER) for name in names])
        await storage.settle([complete(run) for run in runs])
    elif way == "revived":
        await storage.put([long(name) for name in names])
        runs = await claim_all(storage) + await claim_all(storage)
        await storage.settle([fail(run) for run in runs])
        assert all(await storage.revive("q", names))
    else:
        await put1(storage, "q", "first")
        await settle1(storage, complete(await claim1(storage), then=[long(name) for name in names]))
    assert ids(await claim_all(storage)) == names[:4]


@pytest.mark.beyond_model
async def test_long_records_are_bounded_after_a_restore(storage: Storage) -> None:
    """Jobs of 1 MB from another storage are restored in several steps, and claimed in several steps."""
    assert isinstance(storage, Restorable)
    jobs = [Snapshot(queue="q", id=f"j{n}", state=State.QUEUED, payload=b"x" * QUARTER) for n in range(6)]
    assert await storage.restore(jobs) == [True] * 6
    assert await storage.restore(jobs) == [False] * 6
    assert ids(await claim_all(storage)) == ["j0", "j1", "j2", "j3"]
    assert ids(await claim_all(storage)) == ["j4", "j5"]


# pages -------------------------------------------------------------------------------------------


@pytest.mark.beyond_model
@pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED, State.RUNNING, State.BLOCKED, State.COMPLETED])
async def test_a_page_ends_at_the_bytes(storage: Storage, state: State) -> None:
    """A page of jobs of 1 MB has few of them, the cursor leads on, and every job is listed once."""
    names = [f"j{n}" for n in range(12)]
    await storage.put([long(name, MB, delay=SECOND if state is State.SCHEDULED else None) for name in names])
    runs = [] if state is State.SCHEDULED or state is State.QUEUED else await claim_everything(storage)
    if state is State.BLOCKED:
        await storage.put([update("q", name, b"x" * MB) for name in names])
    if state is State.COMPLETED:
        await storage.settle([complete(run, b"r" * MB) for run in runs])
    page = await storage.find("q", state, limit=MAX_BATCH)
    size = sum(len(job.payload) + len(job.result or b"") for job in page.jobs)
    assert 1 <= len(page.jobs) < 12
    assert size < 2 * MAX_BYTES
    assert page.cursor is not None
    assert sorted(ids(await find_all(storage, state=state, limit=MAX_BATCH))) == sorted(names)


@pytest.mark.beyond_model
async def test_a_page_of_several_states_ends_at_the_bytes(storage: Storage) -> None:
    """Three running jobs leave a page the bytes of one queued job, and the cursor leads on to the others."""
    names = [f"j{n}" for n in range(7)]
    await storage.put([long(name) for name in names])
    await claim_all(storage, limit=3)
    page = await storage.find("q", limit=MAX_BATCH)
    assert sum(len(job.payload) for job in page.jobs[:-1]) < MAX_BYTES
    assert {job.state for job in page.jobs} == {State.RUNNING, State.QUEUED}
    assert page.cursor is not None
    assert sorted(ids(await find_all(storage, limit=MAX_BATCH))) == names


async def claim_everything(storage: Storage) -> list[Any]:
    runs: list[Any] = []
    while claims := await claim_all(storage):
        runs += claims
    return runs


async def test_a_call_for_many_long_jobs_is_answered_whole(storage: Storage, clock: Clock) -> None:
    """get, cancel, revive, settle, put and discard of jobs of 1 MB answer each of them, at its index."""
    names = [f"j{n}" for n in range(9)]
    assert {put.status for put in await storage.put([long(name, MB) for name in names])} == {"queued"}
    found = await storage.get("q", [*names, "none"])
    assert [job and (job.id, len(job.payload)) for job in found] == [*((name, MB) for name in names), None]
    assert {a.status for a in await storage.cancel("q", names, ttl=HOUR)} == {"cancelled"}
    assert await storage.revive("q", [*names, "none"]) == [True] * 9 + [False]
    settled = await storage.settle([retried(run, delay=SECOND) for run in await claim_everything(storage)])
    assert {answer.state for answer in settled} == {State.RETRYING}
    clock.advance(seconds=1)
    runs = await claim_everything(storage)
    assert ids(runs) == names
    settled = await storage.settle([complete(run, run.id.encode() * (MB // 2)) for run in runs])
    assert {answer.state for answer in settled} == {State.COMPLETED}
    answers = await storage.put([new("q", name) for name in [*names, "fresh"]])
    assert [put.result and put.result[:2] for put in answers] == [*(name.encode() for name in names), None]
    assert await storage.discard("q", [*names, "none"]) == ["discarded"] * 9 + ["not_found"]


# runs that come and go ---------------------------------------------------------------------------


@pytest.mark.beyond_model
@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("state", [State.RUNNING, State.BLOCKED])
async def test_a_walk_over_runs_finds_each_that_stays_once(
    storage: Storage, clock: Clock, state: State, limit: int
) -> None:
    """While runs begin and end between the pages, every run that stays is listed exactly once, and no run twice."""
    random, made = Random(limit), 0
    held: list[list[Any]] = []

    async def begin(count: int) -> None:
        nonlocal made
        names = [f"j{made + n}" for n in range(count)]
        made += count
        await storage.put([new("q", name) for name in names])
        held.append(await claim_all(storage, limit=count))
        await storage.put([update("q", name, run_at=SECOND) for name in names] if state is State.BLOCKED else [])
        clock.ms += random.choice([0, 1])

    async def end(stays: set[str]) -> None:
        for runs in held:
            gone = [run for run in runs if run.id not in stays and random.random() < 0.3]
            runs[:] = [run for run in runs if run not in gone]
            await storage.settle([complete(run, ttl=0) for run in gone])
            await storage.cancel("q", ids(gone))

    for _ in range(6):
        await begin(random.randint(1, 4))
    stays = {run.id for runs in held[::2] for run in runs[::2]}
    listed: list[str] = []
    cursor: str | None = None
    while True:
        page = await storage.find("q", state, cursor, limit)
        listed += ids(page.jobs)
        cursor = page.cursor
        if cursor is None:
            break
        await end(stays)
        if made < 40:
            await begin(random.randint(1, 3))
    assert stays <= set(listed)
    assert len(listed) == len(set(listed))
