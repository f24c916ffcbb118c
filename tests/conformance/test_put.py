"""put: nothing → queued / scheduled / blocked, or updated in place, or the existing state."""

from __future__ import annotations

import pytest

from penstock.model.job import Snapshot, State, Update
from penstock.storage.base import Put, PutStatus, Storage
from tests.support import (
    HOUR,
    SECOND,
    T0,
    TTL,
    Clock,
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

QUEUED = Put(PutStatus.QUEUED, State.QUEUED)
SCHEDULED = Put(PutStatus.SCHEDULED, State.SCHEDULED)
BLOCKED = Put(PutStatus.BLOCKED, State.BLOCKED)


async def test_a_new_job_is_queued(storage: Storage) -> None:
    """A job without a time is queued at once."""
    assert await put1(storage, "q", "a") == QUEUED


async def test_a_new_job_is_stored_whole(storage: Storage) -> None:
    """Every field of a new job reads back as it was given."""
    await storage.put([new("q", "a", b"payload", priority=7, headers=b"h", bounds=b"l")])
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.QUEUED, payload=b"payload", priority=7, headers=b"h", bounds=b"l",
        created=T0, run_at=T0,
    )  # fmt: skip


async def test_a_grouped_job_is_stored_whole(storage: Storage) -> None:
    """A job's group reads back as it was given."""
    await storage.put([new("q", "a", group="g")])
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.QUEUED, payload=b"x", group="g", created=T0, run_at=T0
    )


async def test_a_job_for_later_is_scheduled(storage: Storage) -> None:
    """A job with a run-at in the future is scheduled for that time."""
    assert await put1(storage, "q", "a", run_at=T0 + 1) == SCHEDULED
    assert (await get1(storage)).run_at == T0 + 1


async def test_a_delay_counts_from_the_storages_clock(storage: Storage, clock: Clock) -> None:
    """A delay is added to the storage's own time."""
    clock.advance(seconds=5)
    assert await put1(storage, "q", "a", delay=2 * SECOND) == SCHEDULED
    job = await get1(storage)
    assert (job.created, job.run_at) == (T0 + 5 * SECOND, T0 + 7 * SECOND)


@pytest.mark.parametrize("option", [{"run_at": T0}, {"run_at": T0 - HOUR}, {"run_at": 0}, {"delay": 0}])
async def test_a_run_at_that_is_not_in_the_future_means_queued(storage: Storage, option: dict[str, int]) -> None:
    """A job with a run-at of now, of the past or of zero is queued (QZ-D1)."""
    assert await put1(storage, "q", "a", **option) == QUEUED


async def test_many_jobs_are_answered_in_their_order(storage: Storage) -> None:
    """The answers of a put come in the order of its jobs, over queues and families."""
    await put1(storage, "r", "b")
    answers = await storage.put(
        [new("q", "a"), new("r", "b"), new("s/t", "c", delay=1), new("q/x", "d"), new("q", "a"), new("r", "e")]
    )
    duplicate = Put(PutStatus.DUPLICATE, State.QUEUED)
    assert answers == [QUEUED, duplicate, SCHEDULED, QUEUED, duplicate, QUEUED]


async def test_an_empty_put_changes_nothing(storage: Storage) -> None:
    """A put of no jobs answers an empty list and changes nothing."""
    assert await storage.put([]) == []
    assert await storage.queues() == []


async def test_a_thousand_jobs_in_one_put_are_all_there(storage: Storage) -> None:
    """One put takes a thousand jobs and keeps their order."""
    names = [f"j{n}" for n in range(1000)]
    answers = await storage.put([new("q", name) for name in names])
    assert answers == [QUEUED] * 1000
    assert ids(await claim_all(storage, limit=1000)) == names


async def test_a_fresh_id_is_stored_like_any_other(storage: Storage) -> None:
    """A job with `fresh` (an id that was just generated) is stored like any other."""
    assert await storage.put([new("q", "a", fresh=True), new("q", "b", fresh=True)]) == [QUEUED, QUEUED]
    assert await run_order(storage) == ["a", "b"]


@pytest.mark.parametrize("delay", [None, 0, HOUR])
async def test_a_waiting_duplicate_is_refused(storage: Storage, delay: int | None) -> None:
    """A put of the id of a queued or scheduled job answers duplicate with its state and changes nothing."""
    await put1(storage, "q", "a", b"first", delay=delay)
    before = await get1(storage)
    assert await put1(storage, "q", "a", b"second", priority=5) == Put(PutStatus.DUPLICATE, before.state)
    assert await get1(storage) == before


async def test_a_running_duplicate_is_refused(storage: Storage) -> None:
    """A put of the id of a running job answers duplicate, running, and starts no second run (QZ-D1)."""
    await put1(storage, "q", "a", b"first")
    await claim1(storage)
    assert await put1(storage, "q", "a", b"second", run_at=0) == Put(PutStatus.DUPLICATE, State.RUNNING)
    assert await claim_all(storage) == []


async def test_a_retrying_duplicate_is_refused(storage: Storage) -> None:
    """A put of the id of a retrying job answers duplicate, retrying."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    assert await put1(storage, "q", "a") == Put(PutStatus.DUPLICATE, State.RETRYING)


async def test_a_completed_duplicate_gives_the_cached_result(storage: Storage) -> None:
    """A put of a completed id answers completed with the stored result and runs nothing."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), b"answer"))
    assert await put1(storage, "q", "a") == Put(PutStatus.COMPLETED, State.COMPLETED, b"answer")
    assert await claim_all(storage) == []


async def test_an_empty_result_is_a_result(storage: Storage) -> None:
    """A cached result of no bytes is returned as such, not as None (PJ-D15)."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage), b""))
    assert await put1(storage, "q", "a") == Put(PutStatus.COMPLETED, State.COMPLETED, b"")


async def test_a_completed_id_is_free_when_its_ttl_is_over(storage: Storage, clock: Clock) -> None:
    """At the end of the TTL the result is gone and the id is free (PJ-D12)."""
    await put1(storage, "q", "a", b"first")
    await settle1(storage, complete(await claim1(storage), ttl=SECOND))
    clock.advance(ms=SECOND - 1)
    assert (await put1(storage, "q", "a", b"second")).status == PutStatus.COMPLETED
    clock.advance(ms=1)
    assert await put1(storage, "q", "a", b"third") == QUEUED
    assert (await claim1(storage)).payload == b"third"


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_a_failed_or_cancelled_id_is_started_anew(storage: Storage, clock: Clock, how: str) -> None:
    """A put over a failed or cancelled job takes its place with all counts zero (WQ-D5)."""
    await put1(storage, "q", "a", b"first", priority=3)
    if how == "failed":
        await settle1(storage, fail(await claim1(storage)))
    else:
        await storage.cancel("q", ["a"], ttl=TTL)
    clock.advance(seconds=1)
    assert await put1(storage, "q", "a", b"second") == QUEUED
    assert await get1(storage) == Snapshot(
        queue="q", id="a", state=State.QUEUED, payload=b"second", created=T0 + SECOND, run_at=T0 + SECOND
    )
    assert await storage.counts("q") == tally(queued=1)


async def test_a_cancelled_job_put_again_runs_once_with_the_new_payload(storage: Storage) -> None:
    """After cancel and put, one run happens, of the new payload (PJ-D10)."""
    await put1(storage, "q", "a", b"old")
    await storage.cancel("q", ["a"])
    await put1(storage, "q", "a", b"new")
    claims = await claim_all(storage)
    assert [claim.payload for claim in claims] == [b"new"]


async def test_the_same_id_in_two_queues_is_two_jobs(storage: Storage) -> None:
    """An id belongs to its queue only (QZ-D10, WQ-D6)."""
    assert await storage.put([new("q", "a", b"1"), new("q/x", "a", b"2"), new("r", "a", b"3")]) == [QUEUED] * 3
    assert [(await claim1(storage, queue)).payload for queue in ("q", "q/x", "r")] == [b"1", b"2", b"3"]


# update in place ---------------------------------------------------------------------------------


async def test_an_update_changes_a_waiting_job_in_place(storage: Storage) -> None:
    """An update without the flag `priority` replaces payload and headers, and keeps position, priority and bounds."""
    await storage.put([new("q", "a", b"old", headers=b"h1", bounds=b"l1", priority=2), new("q", "b", priority=2)])
    flags = Update(priority=False)
    [answer] = await storage.put([update("q", "a", b"new", flags, headers=b"h2", bounds=b"l2", priority=9)])
    assert answer == Put(PutStatus.UPDATED, State.QUEUED)
    job = await get1(storage)
    assert (job.payload, job.headers, job.bounds, job.priority) == (b"new", b"h2", b"l1", 2)
    assert await run_order(storage) == ["a", "b"]


async def test_an_update_without_payload_keeps_it(storage: Storage) -> None:
    """With payload=False the payload and the headers stay."""
    await put1(storage, "q", "a", b"old", headers=b"h1")
    await storage.put([update("q", "a", b"new", Update(payload=False), headers=b"h2")])
    job = await get1(storage)
    assert (job.payload, job.headers) == (b"old", b"h1")


async def test_an_update_with_limits_replaces_them(storage: Storage) -> None:
    """With bounds=True the job's own bounds are replaced."""
    await put1(storage, "q", "a", bounds=b"l1")
    await storage.put([update("q", "a", b"new", Update(bounds=True), bounds=b"l2")])
    assert (await get1(storage)).bounds == b"l2"


async def test_an_update_of_a_new_id_is_a_put(storage: Storage) -> None:
    """An update of an unknown id stores a new job."""
    assert await storage.put([update("q", "a", b"p")]) == [QUEUED]
    assert (await get1(storage)).payload == b"p"


@pytest.mark.parametrize(
    ("flag", "asked", "expected"),
    [
        (True, 5 * SECOND, 5 * SECOND),
        (True, 20 * SECOND, 20 * SECOND),
        (True, None, 0),
        (False, 5 * SECOND, 10 * SECOND),
        (False, None, 10 * SECOND),
        ("if_later", 20 * SECOND, 20 * SECOND),
        ("if_later", 5 * SECOND, 10 * SECOND),
        ("if_later", None, 10 * SECOND),
        ("if_earlier", 5 * SECOND, 5 * SECOND),
        ("if_earlier", 20 * SECOND, 10 * SECOND),
        ("if_earlier", None, 0),
    ],
)
async def test_an_update_moves_a_scheduled_job_by_its_run_at_flag(
    storage: Storage, flag: bool | str, asked: int | None, expected: int
) -> None:
    """A job due in ten seconds is moved always, never, only later or only earlier; no time means now."""
    await put1(storage, "q", "a", delay=10 * SECOND)
    await storage.put([update("q", "a", flags=Update(run_at=flag), delay=asked)])  # type: ignore[arg-type]
    job = await get1(storage)
    assert job.run_at == T0 + expected
    assert job.state == (State.QUEUED if expected == 0 else State.SCHEDULED)


async def test_an_update_with_a_later_run_at_schedules_a_queued_job(storage: Storage, clock: Clock) -> None:
    """An update with a later run-at makes a queued job scheduled until then."""
    await put1(storage, "q", "a")
    assert await storage.put([update("q", "a", delay=SECOND)]) == [Put(PutStatus.UPDATED, State.SCHEDULED)]
    assert await claim_all(storage) == []
    clock.advance(seconds=1)
    assert ids(await claim_all(storage)) == ["a"]


async def test_an_update_resets_the_counts_with_the_payload(storage: Storage, clock: Clock) -> None:
    """An update with a new payload clears the attempts and the error."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), error=b"boom"))
    assert (await get1(storage)).retries == 1
    await storage.put([update("q", "a")])
    job = await get1(storage)
    assert (job.attempts, job.retries, job.error) == (0, 0, None)


async def test_an_update_without_reset_counts_keeps_the_counts(storage: Storage) -> None:
    """With reset_counts=False an update with a new payload keeps the attempts and the error."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), error=b"boom"))
    await storage.put([update("q", "a", flags=Update(reset_counts=False))])
    job = await get1(storage)
    assert (job.payload, job.attempts, job.retries, job.error) == (b"new", 1, 1, b"boom")


async def test_an_update_without_a_time_ends_a_backoff(storage: Storage) -> None:
    """An update without a time makes a retrying job queued."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    assert await storage.put([update("q", "a", b"now")]) == [Put(PutStatus.UPDATED, State.QUEUED)]
    assert (await claim1(storage)).payload == b"now"


async def test_an_update_that_keeps_the_time_keeps_the_backoff(storage: Storage) -> None:
    """An update with run_at=False leaves a retrying job retrying."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    flags = Update(run_at=False)
    assert await storage.put([update("q", "a", flags=flags)]) == [Put(PutStatus.UPDATED, State.RETRYING)]


async def test_an_update_that_moves_a_retrying_job_makes_it_scheduled(storage: Storage) -> None:
    """A retrying job that an update moves to a time is scheduled for it, not for its backoff."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=HOUR))
    assert await storage.put([update("q", "a", delay=SECOND)]) == [Put(PutStatus.UPDATED, State.SCHEDULED)]


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
async def test_an_update_replaces_a_finished_job(storage: Storage, how: str) -> None:
    """An update over any finished job is a new job in its place."""
    await put1(storage, "q", "a", b"old")
    if how == "completed":
        await settle1(storage, complete(await claim1(storage)))
    elif how == "failed":
        await settle1(storage, fail(await claim1(storage)))
    else:
        await storage.cancel("q", ["a"], ttl=TTL)
    assert await storage.put([update("q", "a", b"new")]) == [QUEUED]
    assert await storage.counts("q") == tally(queued=1)
    assert (await claim1(storage)).payload == b"new"


async def test_an_update_of_a_running_job_waits_behind_it(storage: Storage) -> None:
    """The first update of a running job answers blocked and is not claimed."""
    await put1(storage, "q", "a", b"old")
    await claim1(storage)
    assert await storage.put([update("q", "a", b"new", run_at=0)]) == [BLOCKED]
    assert await claim_all(storage) == []
    assert await storage.counts("q") == tally(running=1, blocked=1)


async def test_a_second_update_of_a_running_job_merges_into_the_first(storage: Storage) -> None:
    """Later updates of a running job answer updated, blocked, and there is one successor."""
    await put1(storage, "q", "a", b"old")
    await claim1(storage)
    await storage.put([update("q", "a", b"second")])
    assert await storage.put([update("q", "a", b"third")]) == [Put(PutStatus.UPDATED, State.BLOCKED)]
    [blocked] = await find_all(storage, state=State.BLOCKED)
    assert blocked.payload == b"third"


async def test_a_plain_put_behind_a_blocked_successor_is_a_duplicate(storage: Storage) -> None:
    """A put without update changes neither the run nor its successor."""
    await put1(storage, "q", "a", b"old")
    await claim1(storage)
    await storage.put([update("q", "a", b"second")])
    assert await put1(storage, "q", "a", b"third") == Put(PutStatus.DUPLICATE, State.RUNNING)
    [blocked] = await find_all(storage, state=State.BLOCKED)
    assert blocked.payload == b"second"


async def test_put_and_update_in_one_call_act_one_after_the_other(storage: Storage) -> None:
    """The jobs of one put are stored as if they came one by one."""
    answers = await storage.put([new("q", "a", b"1"), update("q", "a", b"2"), new("q", "a", b"3")])
    assert [answer.status for answer in answers] == [PutStatus.QUEUED, PutStatus.UPDATED, PutStatus.DUPLICATE]
    assert (await get1(storage)).payload == b"2"


async def test_an_id_is_free_after_its_queue_was_deleted(storage: Storage) -> None:
    """Deleting a queue frees every id in it (WQ-D5)."""
    await put1(storage, "q", "a")
    await storage.delete_queue("q")
    assert await state_of(storage) is None
    assert await put1(storage, "q", "a") == QUEUED
