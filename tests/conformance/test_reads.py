"""get, find, counts, peek, queues: reads that agree with each other and change nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.job import State
from penstock.storage.base import FIND_ORDER, Page, Storage
from penstock.storage.sqlite import SqliteStorage, reads
from penstock.storage.sqlite.transaction import Transaction
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    T0,
    Backend,
    Clock,
    RedisBackend,
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
    retried,
    settle1,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine


async def fill(storage: Storage) -> None:
    """Put about two jobs into each state."""
    await storage.put([new("q", f"{name}{n}") for name in ("done", "failed", "gone", "again", "runs") for n in (1, 2)])
    d1, d2, f1, f2, g1, g2, a1, a2, *_ = await claim_all(storage, limit=10)
    await storage.settle([complete(d1), complete(d2), fail(f1), fail(f2), cancel_run(g1), cancel_run(g2)])
    await storage.settle([retried(a1, delay=2 * SECOND), retried(a2, delay=SECOND)])
    await storage.put([update("q", "runs1"), update("q", "runs2")])
    await storage.put([new("q", "later1", delay=HOUR), new("q", "later2", delay=SECOND)])
    await storage.put([new("q", "ready1"), new("q", "ready2", priority=1), new("q", "laned", group="g")])


LISTED = [
    "runs1", "runs2", "ready2", "ready1", "laned", "again2", "again1", "later2", "later1", "runs1", "runs2",
    "done1", "done2", "failed1", "failed2", "gone1", "gone2",
]  # fmt: skip


# get ---------------------------------------------------------------------------------------------


async def test_get_answers_in_the_order_of_the_ids(storage: Storage) -> None:
    """Each id is answered at its index, unknown ones with None, repeated ones again."""
    await storage.put([new("q", "a"), new("q", "b")])
    found = await storage.get("q", ["b", "none", "a", "b"])
    assert [job and job.id for job in found] == ["b", None, "a", "b"]


async def test_get_of_no_ids_and_of_an_unknown_queue(storage: Storage) -> None:
    """No ids give no answers; an unknown queue gives None and is not created."""
    assert await storage.get("q", []) == []
    assert await storage.get("q", ["a"]) == [None]
    assert await storage.queues() == []


async def test_a_running_job_hides_its_successor(storage: Storage) -> None:
    """get of the id of a running job shows the run, not its successor."""
    await put1(storage, "q", "a", b"old")
    await claim1(storage)
    await storage.put([update("q", "a", b"new")])
    job = await get1(storage)
    assert (job.state, job.payload) == (State.RUNNING, b"old")


async def test_a_scheduled_job_becomes_queued_at_its_time(storage: Storage, clock: Clock) -> None:
    """A scheduled job becomes queued at its time without any claim."""
    await put1(storage, "q", "a", delay=SECOND)
    assert (await get1(storage)).state == State.SCHEDULED
    clock.advance(seconds=1)
    assert (await get1(storage)).state == State.QUEUED
    assert await storage.counts("q") == tally(queued=1)
    assert ids(await find_all(storage, state=State.QUEUED)) == ["a"]
    assert await find_all(storage, state=State.SCHEDULED) == []


async def test_a_retrying_job_becomes_queued_at_its_time(storage: Storage, clock: Clock) -> None:
    """A retrying job becomes queued at the end of its backoff without any claim."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    assert await storage.counts("q") == tally(retrying=1)
    clock.advance(seconds=1)
    assert await storage.counts("q") == tally(queued=1)
    assert (await get1(storage)).state == State.QUEUED


# find --------------------------------------------------------------------------------------------


async def test_find_lists_the_states_in_their_order(storage: Storage) -> None:
    """Without a state, find lists every job, state by state, each in its own order."""
    await fill(storage)
    found = (await storage.find("q")).jobs
    assert ids(found) == LISTED
    order = [FIND_ORDER.index(job.state) for job in found]
    assert order == sorted(order)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 16, 17, 18])
async def test_find_pages_of_any_size_list_every_job_once(storage: Storage, limit: int) -> None:
    """With any page size, following the cursor lists every job once."""
    await fill(storage)
    assert ids(await find_all(storage, limit=limit)) == LISTED


@pytest.mark.parametrize("state", list(State))
async def test_find_of_one_state(storage: Storage, state: State) -> None:
    """With a state, find lists the jobs in it and no others, in pages too."""
    await fill(storage)
    whole = (await storage.find("q")).jobs
    expected = [job for job in whole if job.state is state]
    assert (await storage.find("q", state)).jobs == expected
    assert await find_all(storage, "q", state, limit=1) == expected


async def test_the_last_page_of_find_has_no_cursor(storage: Storage) -> None:
    """The page that holds the last job has no cursor."""
    await storage.put([new("q", id) for id in "abc"])
    page = await storage.find("q", limit=3)
    assert (ids(page.jobs), page.cursor) == (["a", "b", "c"], None)
    assert (await storage.find("q", limit=2)).cursor is not None


async def test_find_in_an_unknown_queue(storage: Storage) -> None:
    """An unknown queue has one empty page."""
    assert await storage.find("q") == Page([])
    assert await storage.find("q", State.QUEUED) == Page([])
    assert await storage.queues() == []


@pytest.mark.beyond_model
async def test_a_cursor_of_find_survives_changes(storage: Storage) -> None:
    """Jobs that stay where they are are listed once, also when others change between the pages."""
    await storage.put([new("q", f"j{n}") for n in range(10)])
    first = await storage.find("q", limit=4)
    await storage.cancel("q", ["j1", "j3", "j5"])
    await storage.put([new("q", "j10")])
    rest: list[str] = []
    cursor = first.cursor
    while cursor is not None:
        page = await storage.find("q", None, cursor, 4)
        rest += ids(page.jobs)
        cursor = page.cursor
    assert ids(first.jobs) == ["j0", "j1", "j2", "j3"]
    assert rest == ["j4", "j6", "j7", "j8", "j9", "j10"]


async def test_many_jobs_with_the_same_time_are_paged(storage: Storage) -> None:
    """A page boundary between jobs of one millisecond loses and repeats none."""
    names = [f"j{n:03}" for n in range(100)]
    await storage.put([new("q", name, run_at=T0 + HOUR) for name in names])
    assert ids(await find_all(storage, limit=7)) == names


async def test_find_lists_queued_jobs_group_by_group(storage: Storage) -> None:
    """Queued jobs in groups follow those without, by the bytes of their group, each group in order."""
    await storage.put(
        [new("q", "z1", group="z"), new("q", "a1", group="a"), new("q", "z2", group="z"), new("q", "é1", group="é")]
    )
    await storage.put([new("q", "a2", group="a"), new("q", "plain"), new("q", "B1", group="B")])
    expected = ["plain", "B1", "a1", "a2", "z1", "z2", "é1"]
    assert ids(await find_all(storage, state=State.QUEUED, limit=2)) == expected


async def test_find_lists_finished_jobs_by_expiry(storage: Storage) -> None:
    """The job that expires first comes first, then the first to finish, and those kept for ever last."""
    await storage.put([new("q", id) for id in "abcde"])
    a, b, c, d, e = await claim_all(storage)
    await storage.settle([complete(a, ttl=None), complete(b, ttl=HOUR), complete(c, ttl=SECOND)])
    await storage.settle([complete(e, ttl=HOUR), complete(d, ttl=None)])
    assert ids(await find_all(storage, state=State.COMPLETED, limit=1)) == ["c", "b", "e", "a", "d"]


async def test_find_lists_running_jobs_by_the_begin_of_their_runs(storage: Storage, clock: Clock) -> None:
    """The run that began first is listed first, whatever the acceptance of its job and the end of its lease."""
    await storage.put([new("q", "a"), new("q", "b", priority=5), new("q", "c")])
    first = await claim1(storage)
    for _ in range(2):
        clock.advance(seconds=1)
        await claim1(storage)
    await storage.renew("w", [held(first)], LEASE)
    assert ids(await find_all(storage, state=State.RUNNING, limit=1)) == ["b", "a", "c"]


@pytest.mark.beyond_model
@pytest.mark.only("redis")
async def test_a_listing_of_runs_leaves_nothing_behind(storage: Storage, backend: Backend) -> None:
    """When the runs of all claims have ended, and after a listing with a cursor of one that has, no lease is left."""
    assert isinstance(backend, RedisBackend)
    await storage.put([new("q", id) for id in "abc"])
    claims = [await claim1(storage) for _ in "abc"]
    page = await storage.find("q", State.RUNNING, limit=1)
    await storage.settle([complete(claim) for claim in claims])
    with backend.clients()[0] as client:
        assert not client.keys(f"{backend.namespace}:*:leases")
        assert (await storage.find("q", State.RUNNING, page.cursor)).jobs == []
        assert not client.keys(f"{backend.namespace}:*:leases")


# counts, peek, queues ----------------------------------------------------------------------------


async def test_counts_name_all_states(storage: Storage) -> None:
    """counts has every state, for a known queue and for an unknown one."""
    assert await storage.counts("q") == tally()
    await fill(storage)
    assert await storage.counts("q") == tally(
        scheduled=2, queued=3, blocked=2, running=2, retrying=2, completed=2, failed=2, cancelled=2
    )


async def test_a_job_is_counted_once_in_each_state(storage: Storage, clock: Clock) -> None:
    """A job that falls due, is read, runs and comes back is counted once, in its current state."""
    await storage.put([new("q", "a", delay=SECOND), new("q", "b", delay=SECOND, group="g")])
    assert await storage.counts("q") == tally(scheduled=2)
    clock.advance(ms=SECOND)
    for _ in range(2):
        assert await storage.counts("q") == tally(queued=2)
        assert len(await find_all(storage)) == 2
    claims = await claim_all(storage)
    assert await storage.counts("q") == tally(running=2)
    await storage.settle([retried(claim, delay=SECOND) for claim in claims])
    assert await storage.counts("q") == tally(retrying=2)
    clock.advance(ms=SECOND)
    for _ in range(2):
        assert await storage.counts("q") == tally(queued=2)
        assert await storage.peek("q") is not None
    await storage.settle([complete(claim, ttl=SECOND) for claim in await claim_all(storage)])
    assert await storage.counts("q") == tally(completed=2)
    clock.advance(ms=SECOND)
    for _ in range(2):
        assert await storage.counts("q") == tally()
        await storage.purge(["q"])


@pytest.mark.only("memory", "sqlite")
async def test_counts_does_not_read_every_job(storage: Storage) -> None:
    """The work of a count does not grow with the number of waiting, running and finished jobs."""
    steps: list[int] = []
    for n in range(2):
        await storage.put([new("q", f"{n}-{i}", group=f"g{i}" if i % 3 else None) for i in range(300)])
        await storage.put([new("q", f"{n}-later-{i}", delay=HOUR) for i in range(300)])
        await storage.settle([complete(claim) for claim in await claim_all(storage, limit=100)])
        await claim_all(storage, limit=50)
        steps.append(steps_of(storage, lambda tx: reads.counts(tx, "q")))
    assert steps[0] == steps[1]


def steps_of(storage: Storage, verb: Callable[[Transaction], object]) -> int:
    """Return the number of instructions that SQLite runs for a verb."""
    assert isinstance(storage, SqliteStorage)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    def watched(tx: Transaction) -> None:
        tx.db.set_progress_handler(step, 1)
        verb(tx)
        tx.db.set_progress_handler(None, 1)

    storage.engine.run(watched, write=False)
    return steps


async def test_peek_shows_the_next_claim(storage: Storage, clock: Clock) -> None:
    """Peek and the next claim agree, by priority, by time and by the turns of groups."""
    await storage.put([new("q", "a", delay=SECOND, priority=9), new("q", "b", group="g"), new("q", "c", priority=1)])
    for expected in ("c", "b"):
        seen = await storage.peek("q")
        assert seen is not None
        assert (seen.id, seen.state) == (expected, State.QUEUED)
        assert (await claim1(storage)).id == expected
    assert await storage.peek("q") is None
    clock.advance(seconds=1)
    seen = await storage.peek("q")
    assert seen is not None
    assert seen.id == "a"


async def test_peek_changes_nothing(storage: Storage) -> None:
    """A peek changes neither the job nor its position."""
    await storage.put([new("q", "a"), new("q", "b")])
    before = await find_all(storage)
    assert await storage.peek("q") == await storage.peek("q")
    assert await find_all(storage) == before
    assert await storage.peek("none") is None


async def test_queues_are_those_that_hold_something(storage: Storage) -> None:
    """A queue is listed while it holds a job of any state, sorted by name."""
    await storage.put([new("r", "a"), new("q/x", "b", delay=HOUR), new("q", "c"), new("é", "d")])
    assert await storage.queues() == ["q", "q/x", "r", "é"]
    await storage.settle([complete(await claim1(storage, "q"), ttl=0)])
    await storage.settle([complete(await claim1(storage, "r"))])
    assert await storage.queues() == ["q/x", "r", "é"]


async def test_a_queue_whose_jobs_run_is_listed(storage: Storage) -> None:
    """A queue whose only job is running is listed."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await storage.queues() == ["q"]
    await settle1(storage, release(claim))
    assert await storage.queues() == ["q"]


@pytest.mark.beyond_model
async def test_reading_changes_no_order(storage: Storage, clock: Clock) -> None:
    """Reads at the moment when a job falls due make no difference to the order."""
    for queue in ("q", "r"):
        await storage.put([new(queue, "g1", group="g", delay=SECOND), new(queue, "h1", group="h", delay=2 * SECOND)])
    clock.advance(seconds=3)
    await storage.peek("q")
    await storage.counts("q")
    await find_all(storage, "q")
    for queue in ("q", "r"):
        await storage.put([new(queue, "h2", group="h"), new(queue, "g2", group="g")])
    assert [ids(await claim_all(storage, queue)) for queue in ("q", "r")] == [["g1", "h1"], ["g1", "h1"]]


@pytest.mark.beyond_model
async def test_the_time_is_the_storages_clock(storage: Storage, clock: Clock) -> None:
    """time answers the storage's clock."""
    assert await storage.time() == T0
    clock.advance(ms=1)
    assert await storage.time() == T0 + 1
