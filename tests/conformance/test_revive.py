"""revive: failed or cancelled (or completed, if asked) → queued at the end of the line, all counts zero."""

from __future__ import annotations

import pytest

from penstock.model.job import Snapshot, State
from penstock.storage.base import Storage
from tests.support import (
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
    ids,
    new,
    put1,
    retried,
    run_order,
    settle1,
    stall,
    state_of,
    tally,
)

pytestmark = pytest.mark.one_per_engine


async def test_revive_of_a_failed_job_resets_all_counts(storage: Storage, clock: Clock) -> None:
    """A revived job is queued with all counts zero and keeps its time of creation."""
    await put1(storage, "q", "a", b"p", priority=3, headers=b"h", bounds=b"l")
    await settle1(storage, retried(await claim1(storage)))
    await settle1(storage, stall(await claim1(storage)))
    await settle1(storage, fail(await claim1(storage), count="timeouts"))
    clock.advance(seconds=1)
    assert await storage.revive("q", ["a"]) == [True]
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.QUEUED, payload=b"p", priority=3, headers=b"h", bounds=b"l", created=T0,
        run_at=T0 + SECOND,
    )  # fmt: skip


async def test_revive_of_a_cancelled_job(storage: Storage) -> None:
    """A cancelled job that was kept is queued again."""
    await storage.put([new("q", "a"), new("q", "b")])
    await storage.cancel("q", ["a"], ttl=None)
    await settle1(storage, cancel_run(await claim1(storage)))
    assert await storage.revive("q", ["a", "b"]) == [True, True]
    assert await run_order(storage) == ["a", "b"]


async def test_a_revived_job_goes_to_the_end(storage: Storage) -> None:
    """Jobs that waited meanwhile run before a revived one."""
    await storage.put([new("q", "a"), new("q", "b")])
    await settle1(storage, fail(await claim1(storage)))
    await storage.revive("q", ["a"])
    assert await run_order(storage) == ["b", "a"]


async def test_only_failed_and_cancelled_jobs_are_revived(storage: Storage) -> None:
    """A waiting, running, completed or unknown job is not revived."""
    await storage.put([new("q", id) for id in "abc"])
    done, _ = await claim_all(storage, limit=2)
    await settle1(storage, complete(done))
    assert await storage.revive("q", ["a", "b", "c", "d"]) == [False] * 4
    assert await storage.counts("q") == tally(completed=1, running=1, queued=1)


async def test_revive_of_a_completed_job_if_asked(storage: Storage, clock: Clock) -> None:
    """With `completed` a completed job is queued again, without its result and with all counts zero."""
    await storage.put([new("q", "a", b"p"), new("q", "b")])
    await settle1(storage, stall(await claim1(storage)))
    await settle1(storage, complete(await claim1(storage), ttl=None))
    clock.advance(seconds=1)
    assert await storage.revive("q", ["a", "b", "none"], completed=True) == [True, False, False]
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.QUEUED, payload=b"p", created=T0, run_at=T0 + SECOND
    )
    assert await run_order(storage) == ["b", "a"]


async def test_revive_of_a_completed_job_that_was_kept_for_its_waiter(storage: Storage) -> None:
    """A revived job with an id that was free keeps that id: a put of it is a duplicate."""
    await put1(storage, "q", "a", waiter="w")
    await settle1(storage, complete(await claim1(storage), ttl=0))
    assert await storage.revive("q", ["a"], completed=True) == [True]
    assert (await put1(storage, "q", "a")).status == "duplicate"
    await settle1(storage, complete(await claim1(storage)))
    assert (await put1(storage, "q", "a")).status == "completed"


async def test_revive_of_an_expired_job_answers_false(storage: Storage, clock: Clock) -> None:
    """A failed job whose TTL is over is not revived, though it was not purged yet."""
    await put1(storage, "q", "a")
    await settle1(storage, fail(await claim1(storage), ttl=SECOND))
    clock.advance(seconds=1)
    assert await storage.revive("q", ["a"]) == [False]
    assert await state_of(storage) is None


async def test_revive_in_an_unknown_queue_answers_false(storage: Storage) -> None:
    """A revive of an unknown job answers False and creates nothing."""
    assert await storage.revive("q", ["a"]) == [False]
    assert await storage.queues() == []


async def test_a_revived_job_outlives_its_old_ttl(storage: Storage, clock: Clock) -> None:
    """The end of the old record's TTL does not touch the revived job."""
    await put1(storage, "q", "a")
    await settle1(storage, fail(await claim1(storage), ttl=SECOND))
    await storage.revive("q", ["a"])
    clock.advance(seconds=2)
    assert await storage.purge(["q"]) == 0
    assert ids(await claim_all(storage)) == ["a"]


async def test_a_revived_job_is_fenced_from_its_old_run(storage: Storage) -> None:
    """A settlement of the run that failed does not change the revived job."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, fail(claim))
    await storage.revive("q", ["a"])
    assert (await settle1(storage, fail(claim))).lost
    assert await storage.counts("q") == tally(queued=1)


async def test_a_revived_job_joins_its_group_at_the_end(storage: Storage) -> None:
    """A revived job waits in its group behind those accepted before."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    await settle1(storage, fail(await claim1(storage)))
    await storage.revive("q", ["a"])
    assert await run_order(storage) == ["b", "c", "a"]


async def test_many_failures_are_revived_in_the_given_order(storage: Storage) -> None:
    """One revive queues its ids in their order."""
    await storage.put([new("q", id) for id in "abcd"])
    await storage.settle([fail(claim) for claim in await claim_all(storage)])
    assert await storage.revive("q", ["c", "a", "d", "b"]) == [True] * 4
    assert ids(await find_all(storage, state=State.QUEUED)) == ["c", "a", "d", "b"]
    assert await run_order(storage) == ["c", "a", "d", "b"]
