"""restore: nothing → the state of the job in another storage, with its counts and times."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model.job import Snapshot, State
from penstock.model.storage_info import Restorable
from penstock.storage.base import Put, PutStatus, Storage
from tests.support import (
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    T0,
    TTL,
    Clock,
    cancel_run,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    get1,
    ids,
    new,
    put1,
    retried,
    run_order,
    settle1,
    state_of,
    tally,
    update,
)

pytestmark = [pytest.mark.beyond_model, pytest.mark.one_per_engine]

CARRIED = (State.RETRYING, State.QUEUED, State.SCHEDULED, State.COMPLETED, State.FAILED, State.CANCELLED)


def restorable(storage: Storage) -> Restorable:
    assert isinstance(storage, Restorable)
    return storage


async def fill(storage: Storage, clock: Clock) -> None:
    """Put jobs into every state, with every field that a job can have."""
    await storage.put([new("q", f"{name}{n}") for name in ("done", "bad", "gone", "again") for n in (1, 2)])
    d1, d2, b1, b2, g1, g2, a1, a2 = await claim_all(storage, worker="w1")
    clock.advance(seconds=3)
    await storage.settle([complete(d1, b"\xff\x00", HOUR), complete(d2, b"", None), fail(b1, b"why", HOUR)])
    await storage.settle([fail(b2, count="timeouts"), cancel_run(g1), cancel_run(g2, None)])
    await storage.settle([retried(a1, delay=20 * SECOND, error=b"e1", count="retries"), retried(a2, delay=10 * SECOND)])
    await storage.put(
        [new("q", "later1", delay=HOUR, headers=b"h", bounds=b"l"), new("q", "later2", delay=SECOND, cost=5)]
    )
    await storage.put([new("q", "ready1"), new("q", "ready2", priority=7), new("q", "late", run_at=T0 - HOUR)])
    await storage.put([new("q", f"{group}{n}", group=group) for n in (1, 2) for group in ("x", "y")])


async def restorable_jobs(storage: Storage, queue: str = "q") -> list[Snapshot]:
    return [job for state in CARRIED for job in await find_all(storage, queue, state)]


def in_queue(jobs: list[Snapshot], queue: str = "q/x") -> list[Snapshot]:
    return [msgspec.structs.replace(job, queue=queue) for job in jobs]


async def test_restore_keeps_every_field(storage: Storage, clock: Clock) -> None:
    """Payload, counts, times, errors, results and TTLs of each restored job are shown as before."""
    await fill(storage, clock)
    before = await restorable_jobs(storage)
    assert await restorable(storage).restore(in_queue(before)) == [True] * len(before)
    after = await restorable_jobs(storage, "q/x")
    assert {job.id: job for job in after} == {job.id: job for job in in_queue(before)}
    assert await storage.counts("q/x") == await storage.counts("q")


async def test_restore_keeps_the_order(storage: Storage, clock: Clock) -> None:
    """Restored jobs run in the order in which they would have run, by priority, group and backoff."""
    await fill(storage, clock)
    await restorable(storage).restore(in_queue(await restorable_jobs(storage)))
    assert [job.id for job in await find_all(storage, "q/x", State.QUEUED)] == [
        job.id for job in await find_all(storage, "q", State.QUEUED)
    ]
    clock.advance(ms=2 * HOUR)
    order = await run_order(storage, "q/x")
    kept = [id for id in order if id.startswith(("ready", "late", "x", "y")) and not id.startswith("later")]
    assert kept.index("ready2") < kept.index("late") < kept.index("ready1")
    assert kept.index("x1") < kept.index("x2")
    assert sorted(order) == sorted(job.id for job in await restorable_jobs(storage) if job.state not in ENDED)


ENDED = (State.COMPLETED, State.FAILED, State.CANCELLED)


async def test_a_restored_head_in_backoff_holds_its_group(storage: Storage, clock: Clock) -> None:
    """The jobs behind a restored head in backoff wait for it."""
    await storage.put([new("q", f"a{n}", group="g") for n in (1, 2)])
    await settle1(storage, retried(await claim1(storage), delay=10 * SECOND))
    clock.advance(seconds=1)
    await restorable(storage).restore(in_queue(await restorable_jobs(storage)))
    assert await claim_all(storage, "q/x") == []
    clock.advance(seconds=10)
    assert await run_order(storage, "q/x") == ["a1", "a2"]


async def test_a_job_that_fell_due_before_the_restore_is_queued(storage: Storage, clock: Clock) -> None:
    """A scheduled or retrying job whose time came before the restore is queued."""
    await fill(storage, clock)
    jobs = [job for job in await restorable_jobs(storage) if job.state in (State.SCHEDULED, State.RETRYING)]
    clock.advance(seconds=30)
    await restorable(storage).restore(in_queue(jobs))
    assert await storage.counts("q/x") == tally(queued=3, scheduled=1)
    assert sorted(await run_order(storage, "q/x")) == ["again1", "again2", "later2"]


async def test_restore_leaves_existing_ids_alone(storage: Storage, clock: Clock) -> None:
    """A repeated restore changes nothing; only missing jobs are stored."""
    await fill(storage, clock)
    jobs = in_queue(await restorable_jobs(storage))
    await restorable(storage).restore(jobs[::2])
    before = {job.id: job for job in await restorable_jobs(storage, "q/x")}
    answers = await restorable(storage).restore(jobs)
    assert answers == [i % 2 == 1 for i in range(len(jobs))]
    after = {job.id: job for job in await restorable_jobs(storage, "q/x")}
    assert {id: after[id] for id in before} == before
    assert len(after) == len(jobs)


async def test_restore_leaves_a_running_id_alone(storage: Storage) -> None:
    """The id of a running job is taken, and its run goes on."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    waiting = msgspec.structs.replace(await get1(storage), state=State.QUEUED, worker=None)
    assert await restorable(storage).restore([waiting]) == [False]
    assert (await settle1(storage, complete(claim))).state is State.COMPLETED


async def test_restore_over_an_expired_job(storage: Storage, clock: Clock) -> None:
    """A finished job whose TTL is over does not take the id, purged or not."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=2)
    await put1(storage, "r", "a", payload=b"other")
    assert await restorable(storage).restore([msgspec.structs.replace(await get1(storage, "a", "r"), queue="q")]) == [
        True
    ]
    assert (await get1(storage)).payload == b"other"
    assert await storage.counts("q") == tally(queued=1)


async def test_restored_jobs_are_claimed_revived_cancelled_and_purged(storage: Storage, clock: Clock) -> None:
    """Restored jobs are claimed with their counts, revived, cancelled, found as duplicates and purged in time."""
    await fill(storage, clock)
    await restorable(storage).restore(in_queue(await restorable_jobs(storage)))
    assert await storage.revive("q/x", ["bad1", "gone1", "done1"]) == [True, True, False]
    assert await storage.put([new("q/x", "done1")]) == [Put(PutStatus.COMPLETED, State.COMPLETED, b"\xff\x00")]
    assert (await storage.cancel("q/x", ["later1"], ttl=TTL))[0].status == "cancelled"
    clock.advance(seconds=30)
    claims = {claim.id: claim for claim in await claim_all(storage, "q/x")}
    assert (claims["again1"].attempts, claims["again1"].retries) == (2, 1)
    await storage.settle([complete(claim, ttl=MINUTE) for claim in claims.values()])
    clock.advance(ms=2 * HOUR)
    await storage.purge(["q/x"])
    assert [job.id for job in await find_all(storage, "q/x", State.COMPLETED)] == ["done2"]


async def test_restored_jobs_can_be_claimed_at_once(storage: Storage) -> None:
    """Restored jobs that may run can be claimed at once, and a new queue is listed."""
    await put1(storage, "q", "a")
    await restorable(storage).restore(in_queue([await get1(storage)]))
    assert await storage.queues() == ["q", "q/x"]
    assert await storage.wait_work(["q/x"], 0.01)
    assert ids(await claim_all(storage, "q/x")) == ["a"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": State.RUNNING}, {"state": State.BLOCKED}, {"id": ""}, {"group": "g", "priority": 1},
        {"priority": 2**31}, {"stalls": -1}, {"created": -1}, {"run_at": 10**18},
        {"attempts": 65_536}, {"retries": 2**63 - 1}, {"stalls": 2**63}, {"timeouts": 2**64},
        {"headers": bytes(32_769)}, {"bounds": bytes(1_025)}, {"error": bytes(131_073)},
    ],
)  # fmt: skip
async def test_restore_of_an_impossible_job_is_refused(storage: Storage, wrong: dict[str, object]) -> None:
    """A job with impossible fields is a `ValueError`, and nothing of the call is stored."""
    good = Snapshot(queue="q", id="good", state=State.QUEUED, payload=b"", created=T0, run_at=T0)
    bad = msgspec.structs.replace(good, id="bad")
    with pytest.raises(ValueError, match=r"."):
        await restorable(storage).restore([good, msgspec.structs.replace(bad, **wrong)])
    assert await storage.queues() == []


async def test_restore_of_running_and_blocked_jobs_is_refused(storage: Storage, clock: Clock) -> None:
    """Running and blocked jobs are not restored: their runs come back when their lease expires."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.put([update("q", "a")])
    for job in await find_all(storage):
        with pytest.raises(ValueError, match="belongs to its worker"):
            await restorable(storage).restore([job])
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await state_of(storage) is State.QUEUED
