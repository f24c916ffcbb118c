"""Successors: a put over a running job is blocked, released when the run is finished and folded in when it returns."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from penstock.model.job import Snapshot, State, Update
from penstock.storage.base import Put, PutStatus, Storage
from tests.model import moved
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Clock,
    cancel_run,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    get1,
    held,
    ids,
    new,
    put1,
    release,
    report_progress,
    retried,
    run_order,
    settle1,
    stall,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine

RUN_AT = (True, False, "if_later", "if_earlier")
ALL_FLAGS = [
    Update(payload=payload, run_at=run_at, reset_counts=reset, bounds=bounds)  # type: ignore[arg-type]
    for payload, run_at, reset, bounds in product((True, False), RUN_AT, (None, True, False), (True, False))
]


async def run_with_successor(storage: Storage, flags: Update, **options: Any) -> Any:
    """Put and claim a job `a` (payload old, bounds l1, one retry) and put a successor behind it."""
    await put1(storage, "q", "a", b"old", headers=b"h1", bounds=b"l1")
    await settle1(storage, retried(await claim1(storage), error=b"boom"))
    claim = await claim1(storage)
    [answer] = await storage.put([update("q", "a", b"new", flags, headers=b"h2", bounds=b"l2", **options)])
    assert answer == Put(PutStatus.BLOCKED, State.BLOCKED)
    return claim


@pytest.mark.parametrize("ending", [complete, fail, cancel_run])
async def test_the_successor_is_released_with_any_flags(storage: Storage, ending: Any) -> None:
    """When the run is finished, its successor is queued, whatever its update flags are (QZ-D2)."""
    for flags in ALL_FLAGS:
        claim = await run_with_successor(storage, flags)
        await settle1(storage, ending(claim))
        expected = Snapshot(
            queue="q", id="a", state=State.QUEUED, payload=b"new", headers=b"h2", bounds=b"l2", created=T0, run_at=T0
        )
        assert await get1(storage) == expected, flags
        assert await run_order(storage) == ["a"], flags


@pytest.mark.parametrize("run_at", RUN_AT)
@pytest.mark.parametrize("asked", [0, -HOUR, HOUR])
async def test_the_successor_is_released_with_any_run_at(storage: Storage, run_at: Any, asked: int) -> None:
    """A released successor waits for its own run-at and for nothing else (QZ-D1)."""
    claim = await run_with_successor(storage, Update(run_at=run_at), run_at=T0 + asked)
    assert await claim_all(storage) == []
    await settle1(storage, complete(claim))
    job = await get1(storage)
    assert (job.state, job.run_at) == (State.SCHEDULED if asked > 0 else State.QUEUED, T0 + asked)


@pytest.mark.parametrize("ttl", [0, HOUR, None])
async def test_the_successor_replaces_the_finished_job(storage: Storage, ttl: int | None) -> None:
    """A job with a successor leaves no finished record under its id, whatever its TTL."""
    claim = await run_with_successor(storage, Update())
    await settle1(storage, complete(claim, ttl=ttl))
    assert await storage.counts("q") == tally(queued=1)


@pytest.mark.parametrize("how", ["retried", "released", "stalled", "reaped"])
async def test_the_successor_is_folded_into_a_returning_run(storage: Storage, clock: Clock, how: str) -> None:
    """When the run is retried, released or stalled, the successor changes it by its flags, and there is one job."""
    for flags in ALL_FLAGS:
        start = clock.ms
        claim = await run_with_successor(storage, flags)
        if how == "reaped":
            clock.advance(ms=LEASE)
            await storage.reap(["q"])
        else:
            again = retried(claim, delay=HOUR, error=b"bang")
            settlements = {"retried": again, "released": release(claim), "stalled": stall(claim)}
            await settle1(storage, settlements[how])
        resets = flags.payload if flags.reset_counts is None else flags.reset_counts
        due = start + HOUR if how == "retried" and flags.run_at in (False, "if_later") else clock.ms
        expected = Snapshot(
            queue="q", id="a", created=start, run_at=due,
            state=State.RETRYING if due > clock.ms else State.QUEUED,
            payload=b"new" if flags.payload else b"old",
            headers=b"h2" if flags.payload else b"h1",
            bounds=b"l2" if flags.bounds else b"l1",
            attempts=0 if resets else 1 if how == "released" else 2,
            retries=0 if resets else 2 if how == "retried" else 1,
            stalls=1 if how in ("stalled", "reaped") and not resets else 0,
            error=None if resets else b"bang" if how == "retried" else b"boom",
        )  # fmt: skip
        assert await get1(storage) == expected, flags
        assert await storage.delete_queue("q") == 1, flags


@pytest.mark.parametrize("run_at", RUN_AT)
@pytest.mark.parametrize("asked", [SECOND, HOUR, 2 * HOUR])
async def test_a_folded_time_obeys_its_flag(storage: Storage, run_at: Any, asked: int) -> None:
    """A successor's later time moves the retried job always, never, only later or only earlier."""
    claim = await run_with_successor(storage, Update(run_at=run_at), delay=asked)
    await settle1(storage, retried(claim, delay=HOUR))
    expected = {
        True: asked,
        False: HOUR,
        "if_later": max(asked, HOUR),
        "if_earlier": min(asked, HOUR),
    }[run_at]
    assert moved(run_at, T0 + asked, T0, T0 + HOUR) in (None, T0 + expected)
    assert (await get1(storage)).run_at == T0 + expected


async def test_merged_successors_apply_the_flags_of_both(storage: Storage) -> None:
    """Two updates behind one run change together what each of them would have changed."""
    await put1(storage, "q", "a", b"old", bounds=b"l1")
    claim = await claim1(storage)
    await storage.put([update("q", "a", b"p2", Update(payload=True, run_at=False, reset_counts=False))])
    await storage.put([update("q", "a", b"p3", Update(payload=False, run_at=False, bounds=True), bounds=b"l3")])
    await settle1(storage, retried(claim))
    job = await get1(storage)
    assert (job.payload, job.bounds, job.retries) == (b"p2", b"l3", 1)


async def test_a_merge_that_moves_stays_a_move(storage: Storage) -> None:
    """If one of the merged updates was to move the job, the fold moves it."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.put([update("q", "a", flags=Update(run_at=True), delay=5 * SECOND)])
    await storage.put([update("q", "a", b"p3", Update(run_at=False))])
    await settle1(storage, retried(claim, delay=HOUR))
    job = await get1(storage)
    assert (job.payload, job.run_at, job.state) == (b"p3", T0 + 5 * SECOND, State.SCHEDULED)


async def test_a_merged_successor_is_released_with_the_last_payload(storage: Storage) -> None:
    """A successor updated several times runs once, with the last payload."""
    await put1(storage, "q", "a", b"0")
    claim = await claim1(storage)
    for n in range(1, 5):
        await storage.put([update("q", "a", b"%d" % n)])
    await settle1(storage, complete(claim))
    claims = await claim_all(storage)
    assert [c.payload for c in claims] == [b"4"]


async def test_a_released_successor_keeps_its_position(storage: Storage) -> None:
    """A released successor stands at the position at which it was accepted."""
    await put1(storage, "q", "a", b"1")
    claim = await claim1(storage)
    await put1(storage, "q", "b")
    await storage.put([update("q", "a", b"2")])
    await put1(storage, "q", "c")
    await settle1(storage, complete(claim))
    assert await run_order(storage) == ["b", "a", "c"]


async def test_a_successor_has_its_own_priority_and_group(storage: Storage) -> None:
    """A released successor has its own priority and group."""
    await put1(storage, "q", "a", b"1")
    first = await claim1(storage)
    await storage.put([update("q", "a", b"2", priority=5), new("q", "b", priority=1)])
    await settle1(storage, complete(first))
    second = await claim1(storage)
    assert (second.id, second.priority) == ("a", 5)
    await storage.put([update("q", "a", b"3", group="g")])
    await settle1(storage, complete(second))
    assert (await get1(storage)).group == "g"


async def test_a_folded_job_keeps_its_own_priority_and_group(storage: Storage) -> None:
    """A fold changes the fields that the flags name and no others."""
    await put1(storage, "q", "a", b"1", group="g")
    claim = await claim1(storage)
    await storage.put([update("q", "a", b"2", Update(priority=False), priority=5)])
    await settle1(storage, retried(claim))
    job = await get1(storage)
    assert (job.payload, job.priority, job.group) == (b"2", 0, "g")


async def test_a_second_worker_gets_the_successor_only_after_the_first_run(storage: Storage) -> None:
    """A put with run-at 0 over a running job starts its run only after the first ends (QZ-D1)."""
    await put1(storage, "q", "a", b"1", run_at=0)
    first = await claim1(storage, worker="first")
    await storage.put([update("q", "a", b"2", run_at=0)])
    assert await claim_all(storage, worker="second") == []
    await settle1(storage, complete(first))
    assert (await claim1(storage, worker="second")).payload == b"2"


async def test_blocked_jobs_are_listed_by_the_begin_of_their_runs(storage: Storage, clock: Clock) -> None:
    """Successors are found as blocked, in the order in which the runs before them began."""
    await storage.put([new("q", id) for id in "abcd"])
    for _ in range(4):
        await claim1(storage)
        clock.advance(seconds=1)
    await storage.put([update("q", id) for id in "cad"])
    assert ids(await find_all(storage, state=State.BLOCKED, limit=1)) == ["a", "c", "d"]


async def test_no_job_is_blocked_without_a_run(storage: Storage, clock: Clock) -> None:
    """After any resolution of a run nothing stays blocked behind it (QZ-D2, invariant 6)."""
    await storage.put([new("q", id) for id in "abcdef"])
    claims = await claim_all(storage)
    await storage.put([update("q", id, flags=Update(run_at=False)) for id in "abcdef"])
    resolutions = [complete, fail, cancel_run, release, stall]
    await storage.settle([settlement(claim) for settlement, claim in zip(resolutions, claims, strict=False)])
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await storage.counts("q") == tally(queued=6)


async def test_a_progress_report_goes_to_the_run(storage: Storage) -> None:
    """A run with a successor reports its own progress."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.put([update("q", "a")])
    assert await report_progress(storage, held(claim), b"half")
    assert (await get1(storage)).progress == b"half"
    [blocked] = await find_all(storage, state=State.BLOCKED)
    assert blocked.progress is None


async def test_each_successor_runs_after_the_one_before(storage: Storage) -> None:
    """A chain of updates, each put while the last one runs, runs one after the other."""
    await put1(storage, "q", "a", b"0")
    seen: list[bytes] = []
    for n in range(1, 5):
        claim = await claim1(storage)
        seen.append(claim.payload)
        await storage.put([update("q", "a", b"%d" % n)])
        await settle1(storage, complete(claim))
    assert seen == [b"0", b"1", b"2", b"3"]
    assert await storage.counts("q") == tally(queued=1)
