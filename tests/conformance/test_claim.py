"""claim: due → running, for several queues, up to a limit each."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.job import Claim, State
from penstock.storage.base import Claimed, Request, Storage
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    claim_answer,
    complete,
    get1,
    held,
    ids,
    new,
    put1,
    report_progress,
    retried,
    settle1,
    stall,
    tally,
)


def batches(claims: list[Claim]) -> list[list[str]]:
    """Return the ids of each batch, by the number of the batch."""
    numbers = sorted({claim.batch for claim in claims})
    return [[claim.id for claim in claims if claim.batch == number] for number in numbers]


async def test_a_claim_of_an_empty_storage_gives_nothing(storage: Storage) -> None:
    """A claim of an unused queue returns no jobs and no time to look again, and creates nothing (WQ-D14)."""
    assert await storage.claim([Request("q", 5)], "w", LEASE, "t") == Claimed([])
    assert await storage.queues() == []


async def test_a_claim_hands_out_everything_a_run_needs(storage: Storage) -> None:
    """A claim carries the job's fields, its counts with this run, and the given token."""
    await put1(storage, "q", "a", b"payload", priority=4, headers=b"h", bounds=b"l", run_at=T0 - 5)
    [claim] = await claim_all(storage, token="fence")
    assert claim == Claim(
        queue="q", id="a", token="fence", payload=b"payload", batch=0, priority=4, headers=b"h", bounds=b"l",
        created=T0, run_at=T0 - 5, attempts=1,
    )  # fmt: skip


async def test_a_claimed_job_is_running_under_its_worker(storage: Storage) -> None:
    """A claimed job reads as running and names its worker."""
    await put1(storage, "q", "a")
    await claim1(storage, worker="alice")
    job = await get1(storage)
    assert (job.state, job.worker, job.attempts) == (State.RUNNING, "alice", 1)


async def test_a_running_job_is_not_claimed_again(storage: Storage) -> None:
    """A running job is not given to a second worker."""
    await put1(storage, "q", "a")
    await claim1(storage, worker="alice")
    assert await claim_all(storage, worker="bob") == []


async def test_a_claim_stops_at_its_limit(storage: Storage) -> None:
    """A claim gives at most `limit` runs and leaves the rest in line."""
    await storage.put([new("q", id) for id in "abcde"])
    assert ids(await claim_all(storage, limit=2)) == ["a", "b"]
    assert await storage.counts("q") == tally(running=2, queued=3)


async def test_a_limit_of_zero_gives_nothing(storage: Storage) -> None:
    """A request for no runs gets none."""
    await put1(storage, "q", "a")
    assert await claim_all(storage, limit=0) == []
    assert await storage.counts("q") == tally(queued=1)


async def test_several_queues_are_claimed_at_once(storage: Storage) -> None:
    """One claim serves many queues, each up to its own limit, in the order of the requests."""
    await storage.put([new("q", "a"), new("q", "b"), new("r", "c"), new("r", "d"), new("q/x", "e")])
    answer = await storage.claim(
        [Request("r", 1), Request("q/x", 3), Request("none", 3), Request("q", 2)], "w", LEASE, "t"
    )
    assert [(claim.queue, claim.id) for claim in answer.claims] == [("r", "c"), ("q/x", "e"), ("q", "a"), ("q", "b")]


async def test_a_scheduled_job_is_not_given_early(storage: Storage, clock: Clock) -> None:
    """A job runs at its time and not a millisecond before."""
    await put1(storage, "q", "a", delay=SECOND)
    clock.advance(ms=SECOND - 1)
    assert await claim_all(storage) == []
    clock.advance(ms=1)
    assert ids(await claim_all(storage)) == ["a"]


async def test_a_due_job_takes_no_later_one_with_it(storage: Storage, clock: Clock) -> None:
    """When some jobs fall due, those that are due a moment later stay where they are."""
    await storage.put([new("q", f"j{n}", delay=n, group="g" if n % 2 else None) for n in range(1, 9)])
    for n in range(1, 9):
        clock.advance(ms=1)
        claims = await claim_all(storage)
        assert ids(claims) == [f"j{n}"]
        await storage.settle([complete(claims[0], ttl=0)])


async def test_a_retrying_job_is_not_given_early(storage: Storage, clock: Clock) -> None:
    """A job in its backoff runs when that is over and not before."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    clock.advance(ms=SECOND - 1)
    assert await claim_all(storage) == []
    clock.advance(ms=1)
    assert ids(await claim_all(storage)) == ["a"]


@pytest.mark.beyond_model
async def test_a_claim_answers_when_the_next_scheduled_job_is_due(storage: Storage) -> None:
    """A claim that leaves only scheduled jobs answers with the due time of the first of them."""
    await storage.put([new("q", "a", delay=5 * SECOND), new("q", "b", delay=3 * SECOND)])
    answer = await claim_answer(storage)
    assert (answer.claims, answer.look_at) == ([], T0 + 3 * SECOND)


@pytest.mark.beyond_model
async def test_a_claim_answers_when_the_next_backoff_ends(storage: Storage) -> None:
    """A claim that leaves only retrying jobs answers with the end of the first backoff."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=2 * SECOND))
    assert (await claim_answer(storage)).look_at == T0 + 2 * SECOND


@pytest.mark.beyond_model
async def test_a_claim_of_several_queues_answers_the_earliest_due_time(storage: Storage) -> None:
    """A claim of several queues, of one family or more, answers with the earliest of their due times."""
    await storage.put([new("q", "a", delay=9 * SECOND), new("r", "b", delay=4 * SECOND), new("q/x", "c", delay=HOUR)])
    answer = await storage.claim([Request("q", 1), Request("r", 1), Request("q/x", 1)], "w", LEASE, "t")
    assert answer.look_at == T0 + 4 * SECOND


async def test_every_due_job_is_promoted(storage: Storage, clock: Clock) -> None:
    """Many jobs that fell due together are all claimed, in order, however many claims it takes."""
    names = [f"j{n:04}" for n in range(2500)]
    for start in range(0, 2500, 500):
        await storage.put([new("q", name, delay=SECOND) for name in names[start : start + 500]])
    clock.advance(seconds=1)
    got: list[str] = []
    while claims := await claim_all(storage, limit=400):
        got += ids(claims)
    assert got == names


async def test_attempts_count_claims(storage: Storage) -> None:
    """Every claim of a job is one more attempt."""
    await put1(storage, "q", "a")
    for attempt in (1, 2, 3):
        claim = await claim1(storage)
        assert claim.attempts == attempt
        await settle1(storage, retried(claim))


async def test_a_claim_shows_the_counts_before_it(storage: Storage) -> None:
    """Retries, timeouts and stalls seen by a run are those of the runs before it."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage)))
    await settle1(storage, retried(await claim1(storage), count="timeouts"))
    claim = await claim1(storage)
    assert (claim.attempts, claim.retries, claim.timeouts, claim.stalls) == (3, 1, 1, 0)


async def test_two_claimers_at_once_share_the_jobs(storage: Storage) -> None:
    """Claims made at the same moment never give one job twice and lose none."""
    await storage.put([new("q", f"j{n}") for n in range(100)])
    answers = await asyncio.gather(*(claim_all(storage, limit=10, worker=f"w{n}") for n in range(12)))
    got = [claim.id for claims in answers for claim in claims]
    assert sorted(got) == sorted(f"j{n}" for n in range(100))


# batches -----------------------------------------------------------------------------------------


async def test_a_batch_holds_neighbours_in_order(storage: Storage) -> None:
    """A claim with a batch size gives runs of that many jobs each, in order."""
    await storage.put([new("q", id) for id in "abcdefg"])
    claims = await claim_all(storage, limit=2, batch=3)
    assert ids(claims) == list("abcdef")
    assert batches(claims) == [["a", "b", "c"], ["d", "e", "f"]]


async def test_a_batch_may_be_short(storage: Storage) -> None:
    """A batch takes the jobs there are and waits for no others."""
    await storage.put([new("q", id) for id in "ab"])
    assert batches(await claim_all(storage, limit=5, batch=10)) == [["a", "b"]]


async def test_the_jobs_of_a_batch_share_a_token(storage: Storage) -> None:
    """Every job of one claim is fenced by the token of that claim."""
    await storage.put([new("q", id) for id in "abc"])
    claims = await claim_all(storage, batch=3, token="fence")
    assert [claim.token for claim in claims] == ["fence"] * 3


async def test_a_solo_job_is_kept_out_of_batches(storage: Storage) -> None:
    """A job retried by itself runs alone, and its neighbours run without it (QF-D5)."""
    await storage.put([new("q", id) for id in "abcd"])
    claims = await claim_all(storage, batch=4)
    await storage.settle([retried(claims[1], solo=True), *(retried(claims[n]) for n in (0, 2, 3))])
    assert batches(await claim_all(storage, batch=4)) == [["a"], ["b"], ["c", "d"]]


async def test_solo_lasts_for_one_run(storage: Storage) -> None:
    """A solo run that is retried without being asked to stay solo joins batches again."""
    await storage.put([new("q", id) for id in "ab"])
    claims = await claim_all(storage, batch=2)
    await storage.settle([retried(claim, solo=True) for claim in claims])
    claims = await claim_all(storage, batch=2)
    assert batches(claims) == [["a"], ["b"]]
    await storage.settle([retried(claim) for claim in claims])
    assert batches(await claim_all(storage, batch=2)) == [["a", "b"]]


async def test_a_batch_keeps_its_order_when_it_comes_back(storage: Storage, clock: Clock) -> None:
    """A batch whose worker died is delivered again in the same order (QF-D1)."""
    await storage.put([new("q", id) for id in "zma"])
    await claim_all(storage, batch=3)
    clock.advance(ms=LEASE)
    assert len(await storage.reap(["q"])) == 3
    assert batches(await claim_all(storage, batch=3)) == [["z", "m", "a"]]


async def test_a_batch_that_was_lost_twice_comes_back_one_by_one(storage: Storage, clock: Clock) -> None:
    """Jobs whose worker died twice run alone and in order, so that the one to blame is found; others are as before."""
    await storage.put([new("q", id) for id in "zma"])
    for _ in range(2):
        assert batches(await claim_all(storage, batch=3)) == [["z", "m", "a"]]
        clock.advance(ms=LEASE)
        assert len(await storage.reap(["q"])) == 3
    await storage.put([new("q", id) for id in "bc"])
    assert batches(await claim_all(storage, batch=3)) == [["z"], ["m"], ["a"], ["b", "c"]]


async def test_a_batch_whose_process_died_comes_back_one_by_one(storage: Storage) -> None:
    """Jobs settled as stalled, because their process is known to be dead, run alone at once, for one run."""
    await storage.put([new("q", id) for id in "zma"])
    claims = await claim_all(storage, batch=3)
    await storage.settle([stall(claim) for claim in claims])
    claims = await claim_all(storage, batch=3)
    assert batches(claims) == [["z"], ["m"], ["a"]]
    await storage.settle([retried(claim) for claim in claims])
    assert batches(await claim_all(storage, batch=3)) == [["z", "m", "a"]]


async def test_batches_of_one_answer_are_numbered(storage: Storage) -> None:
    """Each single run is a batch of its own."""
    await storage.put([new("q", id) for id in "abc"])
    assert [claim.batch for claim in await claim_all(storage)] == [0, 1, 2]


async def test_progress_is_cleared_by_a_claim(storage: Storage) -> None:
    """A new run starts without the progress of the last one."""

    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await report_progress(storage, held(claim), b"half")
    await settle1(storage, retried(claim))
    await claim1(storage)
    assert (await get1(storage)).progress is None


async def test_a_claim_after_everything_is_done_gives_nothing(storage: Storage) -> None:
    """Finished jobs are never handed out."""
    await put1(storage, "q", "a")
    await settle1(storage, complete(await claim1(storage)))
    assert await claim_all(storage) == []
