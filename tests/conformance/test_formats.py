"""Records of a newer format: software that cannot read them leaves them for software that can.

One storage object is used for both: its attribute `format` is the newest format that it can read.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from penstock import Penstock, Worker
from penstock.model.job import State
from penstock.storage.base import CancelAnswer, Put, PutStatus, Request, Settled, Storage
from tests.support import (
    HOUR,
    LEASE,
    LOST,
    SECOND,
    T0,
    Backend,
    Clock,
    claim1,
    claim_all,
    claim_answer,
    complete,
    eventually,
    fail,
    find_all,
    get1,
    ids,
    new,
    put1,
    release,
    retried,
    run_order,
    settle1,
    state_of,
    tally,
    update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

pytestmark = [pytest.mark.beyond_model, pytest.mark.one_per_engine]


@contextmanager
def newer(storage: Storage, format: int = 2) -> Generator[None]:
    """Make the calls inside as newer software."""
    known: int = getattr(storage, "format")  # noqa: B009 - not part of the protocol
    setattr(storage, "format", format)  # noqa: B010
    try:
        yield
    finally:
        setattr(storage, "format", known)  # noqa: B010


async def put_newer(storage: Storage, *names: str, format: int = 2, **options: object) -> None:
    with newer(storage, format):
        await storage.put([new("q", name, name.encode(), **options) for name in names])


async def run_newer(storage: Storage) -> list[str]:
    with newer(storage):
        return await run_order(storage)


async def test_a_claim_passes_over_a_newer_record(storage: Storage) -> None:
    """A claim passes over a newer record, the jobs around it run, and newer software gets it unchanged."""
    await put1(storage, "q", "a")
    await put_newer(storage, "b", headers=b"h", bounds=b"l")
    await put1(storage, "q", "c")
    answer = await claim_answer(storage)
    assert (ids(answer.claims), answer.corrupt, answer.skipped) == (["a", "c"], [], [])
    await storage.settle([complete(claim, ttl=0) for claim in answer.claims])
    assert await storage.counts("q") == tally(queued=1)
    with newer(storage):
        claim = await claim1(storage)
        assert (claim.id, claim.payload, claim.headers, claim.bounds, claim.attempts) == ("b", b"b", b"h", b"l", 1)
        await settle1(storage, complete(claim, ttl=0))
    assert await storage.counts("q") == tally()


async def test_a_newer_record_keeps_its_position(storage: Storage) -> None:
    """For newer software a record has the same position whether a claim passed over it or not."""
    await put_newer(storage, "a", "b", priority=1)
    await put_newer(storage, "c")
    assert await claim_all(storage) == []
    await put1(storage, "q", "d", priority=1)
    await put1(storage, "q", "e")
    assert await run_newer(storage) == ["a", "b", "d", "c", "e"]


async def test_a_newer_record_is_shown_as_queued(storage: Storage) -> None:
    """Reads show the id, state and counts of a newer record to all, its payload only to newer software."""
    await put_newer(storage, "a", priority=3, headers=b"h")
    for _ in range(2):
        assert await storage.counts("q") == tally(queued=1)
        assert await storage.queues() == ["q"]
        [found] = await find_all(storage, state=State.QUEUED)
        job = await get1(storage)
        assert job == found
        assert (job.id, job.state, job.priority, job.created, job.format) == ("a", State.QUEUED, 3, T0, 2)
        assert (job.payload, job.headers, job.bounds) == (b"", b"", b"")
        assert await storage.peek("q") is None
        await claim_all(storage)
    with newer(storage):
        job = await get1(storage)
        assert (job.payload, job.headers, job.format) == (b"a", b"h", None)
        assert await find_all(storage) == [job]
        assert await storage.peek("q") == job


async def test_passed_over_jobs_are_listed_page_by_page(storage: Storage) -> None:
    """find lists jobs that wait for newer software after the others, none twice and none missing."""
    for name in "abcde":
        await put_newer(storage, name)
        await put1(storage, "q", name.upper())
    await put_newer(storage, "g1", "g2", group="g")
    await claim_all(storage, limit=1)
    await storage.put([new("q", "x"), new("q", "y", group="h")])
    assert await claim_answer(storage, limit=9)
    found = await find_all(storage, state=State.QUEUED, limit=2)
    assert ids(found) == ["g1", "g2", "a", "b", "c", "d", "e"]
    assert await storage.counts("q") == tally(queued=7, running=7)
    with newer(storage):
        assert ids(await find_all(storage, state=State.QUEUED, limit=2)) == ["a", "b", "c", "d", "e", "g1", "g2"]


async def test_a_group_waits_behind_a_newer_record(storage: Storage) -> None:
    """Jobs behind a newer record in its group wait too, and other groups do not."""
    await put1(storage, "q", "g1", group="g")
    await put_newer(storage, "g2", group="g")
    await storage.put([new("q", "g3", group="g"), new("q", "h1", group="h")])
    assert await run_order(storage) == ["g1", "h1"]
    assert ids(await find_all(storage, state=State.QUEUED)) == ["g2", "g3"]
    assert await storage.counts("q") == tally(queued=2)
    await put1(storage, "q", "g4", group="g")
    assert await run_order(storage) == []
    assert await run_newer(storage) == ["g2", "g3", "g4"]


async def test_a_batch_of_a_group_ends_before_a_newer_record(storage: Storage) -> None:
    """A batch of a group holds the jobs before a newer record and none behind it."""
    await storage.put([new("q", id, group="g") for id in "ab"])
    await put_newer(storage, "c", group="g")
    await put1(storage, "q", "d", group="g")
    claims = await claim_all(storage, batch=10)
    assert ids(claims) == ["a", "b"]
    await storage.settle([complete(claim) for claim in claims])
    assert await claim_all(storage, batch=10) == []
    with newer(storage):
        assert ids(await claim_all(storage, batch=10)) == ["c", "d"]


async def test_a_batch_without_a_group_leaves_newer_records_out(storage: Storage) -> None:
    """A batch without a group is filled up with the jobs behind newer records."""
    for name in "abc":
        await put1(storage, "q", name)
        await put_newer(storage, name.upper())
    claims = await claim_all(storage, limit=1, batch=3)
    assert [(claim.id, claim.batch) for claim in claims] == [("a", 0), ("b", 0), ("c", 0)]


async def test_cancel_of_a_newer_head_frees_its_group(storage: Storage) -> None:
    """Older software may cancel the newer head of a group; then the group runs."""
    await put_newer(storage, "g1", "g2", group="g")
    await put1(storage, "q", "g3", group="g")
    assert await claim_all(storage) == []
    assert await storage.cancel("q", ["g1"]) == [CancelAnswer("cancelled")]
    assert await claim_all(storage) == []
    assert await storage.cancel("q", ["g2"]) == [CancelAnswer("cancelled")]
    assert ids(await claim_all(storage)) == ["g3"]


@pytest.mark.parametrize("seen", [False, True])
async def test_cancel_of_a_newer_record_by_older_software(storage: Storage, seen: bool) -> None:
    """Older software may cancel a newer record, passed over or not; it is kept for the TTL and its id is free."""
    await put_newer(storage, "a", "b")
    if seen:
        await claim_all(storage)
    assert await storage.cancel("q", ["a", "b"], ttl=HOUR) == [CancelAnswer("cancelled")] * 2
    assert await storage.counts("q") == tally(cancelled=2)
    assert (await get1(storage)).state is State.CANCELLED
    assert await storage.put([new("q", "a", b"mine")]) == [Put(PutStatus.QUEUED, State.QUEUED)]
    assert [claim.payload for claim in await claim_all(storage)] == [b"mine"]
    assert await run_newer(storage) == []


async def test_revive_of_a_newer_record_by_older_software(storage: Storage) -> None:
    """A failed newer record that older software revives is queued for newer software, its content unchanged."""
    with newer(storage):
        await put1(storage, "q", "a", b"payload", headers=b"h")
        await settle1(storage, fail(await claim1(storage), b"e"))
    job = await get1(storage)
    assert (job.state, job.error, job.format, job.payload) == (State.FAILED, b"e", 2, b"")
    assert await storage.revive("q", ["a"]) == [True]
    assert await claim_all(storage) == []
    assert await storage.counts("q") == tally(queued=1)
    with newer(storage):
        claim = await claim1(storage)
        assert (claim.payload, claim.headers, claim.attempts) == (b"payload", b"h", 1)


async def test_put_over_a_newer_record_is_a_duplicate(storage: Storage) -> None:
    """A put or update by older software of the id of a newer record answers duplicate and changes nothing."""
    await put_newer(storage, "a", bounds=b"l")
    duplicate = Put(PutStatus.DUPLICATE, State.QUEUED)
    for _ in range(2):
        assert await storage.put([new("q", "a", b"mine"), update("q", "a", b"mine")]) == [duplicate] * 2
        await claim_all(storage)
    with newer(storage):
        assert await storage.put([update("q", "a", b"ours")]) == [Put(PutStatus.UPDATED, State.QUEUED)]
        claim = await claim1(storage)
        assert (claim.payload, claim.bounds) == (b"ours", b"l")


async def test_a_newer_record_that_falls_due_is_passed_over(storage: Storage, clock: Clock) -> None:
    """A scheduled or retrying newer record falls due as any other job, and older software passes over it."""
    await put_newer(storage, "a", delay=SECOND)
    with newer(storage):
        await put1(storage, "q", "b", group="g")
        await settle1(storage, retried(await claim1(storage), delay=SECOND))
    await put1(storage, "q", "c", group="g")
    assert await storage.counts("q") == tally(scheduled=1, retrying=1, queued=1)
    assert [(job.id, job.format) for job in await find_all(storage)] == [("c", None), ("b", 2), ("a", 2)]
    assert await claim_all(storage) == []
    clock.advance(ms=SECOND)
    assert await storage.counts("q") == tally(queued=3)
    assert await claim_all(storage) == []
    assert await run_newer(storage) == ["a", "b", "c"]


async def test_reap_of_a_newer_record_by_older_software(storage: Storage, clock: Clock) -> None:
    """Older software reaps an expired run of a newer record: it is queued with one more stall, and not failed."""
    await put_newer(storage, "a", group="g")
    with newer(storage):
        claim = await claim1(storage, lease=LEASE)
    assert (await get1(storage)).state is State.RUNNING
    clock.advance(ms=LEASE)
    [reaped] = await storage.reap(["q"])
    assert (reaped.id, reaped.state) == ("a", State.QUEUED)
    assert await claim_all(storage) == []
    with newer(storage):
        assert await settle1(storage, complete(claim)) == LOST
        again = await claim1(storage)
        assert (again.payload, again.attempts, again.stalls) == (b"a", 2, 1)


async def test_a_newer_successor_is_released(storage: Storage) -> None:
    """A newer successor behind a run of older software is queued when that run ends."""
    await put1(storage, "q", "a", b"old")
    claim = await claim1(storage)
    with newer(storage):
        assert await storage.put([update("q", "a", b"new")]) == [Put(PutStatus.BLOCKED, State.BLOCKED)]
    assert await storage.put([update("q", "a", b"mine")]) == [Put(PutStatus.DUPLICATE, State.RUNNING)]
    [blocked] = await find_all(storage, state=State.BLOCKED)
    assert (blocked.payload, blocked.format) == (b"", 2)
    assert await settle1(storage, complete(claim)) == Settled(State.COMPLETED)
    assert await claim_all(storage) == []
    with newer(storage):
        assert (await claim1(storage)).payload == b"new"


@pytest.mark.parametrize("delay", [None, HOUR])
async def test_a_newer_successor_replaces_a_returning_run(storage: Storage, delay: int | None) -> None:
    """Older software cannot fold a newer successor into a returning run, so the successor replaces the job."""
    await put1(storage, "q", "a", b"old", group="g")
    claim = await claim1(storage)
    with newer(storage):
        await storage.put([update("q", "a", b"new", delay=delay)])
    state = State.QUEUED if delay is None else State.SCHEDULED
    assert await settle1(storage, retried(claim, delay=HOUR)) == Settled(state)
    assert [(job.id, job.state) for job in await find_all(storage)] == [("a", state)]
    await put1(storage, "q", "b", group="g")
    assert ids(await claim_all(storage)) == ["b"]
    if delay is None:
        with newer(storage):
            assert (await claim1(storage)).payload == b"new"


async def test_an_older_successor_replaces_a_reaped_newer_run(storage: Storage, clock: Clock) -> None:
    """An accepted successor is not dropped with the newer run that cannot be read."""
    await put_newer(storage, "a", group="g")
    with newer(storage):
        await claim1(storage, lease=LEASE)
    await storage.put([update("q", "a", b"mine", group="h")])
    clock.advance(ms=LEASE)
    assert [each.id for each in await storage.reap(["q"])] == ["a"]
    claim = await claim1(storage)
    assert (claim.payload, claim.group) == (b"mine", "h")


async def test_each_software_claims_the_formats_it_knows(storage: Storage) -> None:
    """Software of each format claims the records it knows, whichever software passed over them first."""
    await put_newer(storage, "c", format=3)
    await put_newer(storage, "b", format=2)
    await put1(storage, "q", "a")
    assert await run_order(storage) == ["a"]
    with newer(storage, 2):
        assert await run_order(storage) == ["b"]
        assert (await get1(storage, "c")).format == 3
    with newer(storage, 3):
        assert await run_order(storage) == ["c"]


async def test_older_formats_are_read_by_newer_software(storage: Storage) -> None:
    """Newer software claims, releases and completes records of older software."""
    await put1(storage, "q", "a", b"payload", headers=b"h")
    with newer(storage):
        claim = await claim1(storage)
        assert (claim.payload, claim.headers) == (b"payload", b"h")
        await settle1(storage, release(claim))
        assert await run_order(storage) == ["a"]


async def test_many_newer_records_do_not_hide_the_jobs_behind(storage: Storage) -> None:
    """A claim finds the job behind 900 newer records, and the next claim does not meet them again."""
    await put_newer(storage, *(f"n{n:04}" for n in range(700)))
    with newer(storage):
        await storage.put([new("q", f"g{n:04}", group=f"g{n}") for n in range(200)])
    await put1(storage, "q", "a")
    assert ids(await claim_all(storage, limit=1)) == ["a"]
    assert await storage.counts("q") == tally(queued=900, running=1)
    with newer(storage):
        first = await claim_all(storage, limit=1000)
    assert ids(first) == [f"n{n:04}" for n in range(700)] + [f"g{n:04}" for n in range(200)]


async def test_2500_newer_records_are_passed_over_in_bounded_steps(storage: Storage) -> None:
    """A claim passes over a bounded number of newer records; the next ones go on, and newer software gets all."""
    for at in range(0, 2500, 500):
        await put_newer(storage, *(f"n{n:04}" for n in range(at, at + 500)))
    await put1(storage, "q", "a")
    got: list[str] = []
    for _ in range(4):
        got += ids(await claim_all(storage, limit=1))
    assert got == ["a"]
    got.clear()
    with newer(storage):
        while claims := await claim_all(storage, limit=1000):
            got += ids(claims)
    assert got == [f"n{n:04}" for n in range(2500)]


async def test_purge_leaves_newer_records_alone(storage: Storage, clock: Clock) -> None:
    """Newer records are never purged, and a queue with nothing else in it stays listed."""
    await put_newer(storage, "a")
    await put_newer(storage, "b", group="g")
    await claim_all(storage)
    clock.advance(ms=1000 * HOUR)
    assert await storage.purge(["q"]) == 0
    assert await storage.queues() == ["q"]
    assert await run_newer(storage) == ["a", "b"]


async def test_delete_queue_removes_newer_records(storage: Storage) -> None:
    """A deleted queue leaves no newer records, and the answer counts them."""
    await put_newer(storage, "a", "b")
    await put_newer(storage, "c", group="g")
    await claim_all(storage)
    assert await storage.delete_queue("q") == 3
    assert await run_newer(storage) == []


async def test_a_paused_queue_hands_out_no_newer_records(storage: Storage) -> None:
    """A paused queue gives newer records to no software."""
    await put_newer(storage, "a")
    await claim_all(storage)
    await storage.set_pause("q", True)
    with newer(storage):
        assert await claim_all(storage) == []
        assert await storage.peek("q") is None
    await storage.set_pause("q", False)
    assert await run_newer(storage) == ["a"]


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_a_claim_that_passes_over_a_newer_record_wakes_another_worker(storage: Storage, peer: Storage) -> None:
    """An idle worker is notified of a job that the worker notified first cannot read."""
    setattr(peer, "format", 2)  # noqa: B010
    await put_newer(storage, "a")
    woken = False

    async def look() -> bool:
        """Wait for a notification, then claim, as a worker does."""
        nonlocal woken
        woken = await peer.wait_work(["q"], 0.2) or woken
        answer = await peer.claim([Request("q", 1)], "new", LEASE, "token-new")
        return ids(answer.claims) == ["a"]

    assert await claim_all(storage) == []
    await eventually(look)
    assert woken


async def test_a_follow_up_of_newer_software_is_passed_over(storage: Storage) -> None:
    """A claim passes over follow-up jobs of newer software, with a group and without."""
    with newer(storage):
        await put1(storage, "q", "a")
        claim = await claim1(storage)
        await settle1(storage, complete(claim, ttl=0, then=[new("q", "b"), new("q", "c", group="g")]))
    assert await claim_all(storage) == []
    assert await storage.counts("q") == tally(queued=2)
    assert await run_newer(storage) == ["b", "c"]
    assert await state_of(storage, "b") is None


def recorder(name: str, ran: list[tuple[str, str]]) -> Callable[[str], None]:
    def handle(payload: str) -> None:
        ran.append((name, payload))

    return handle


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_old_and_new_workers_share_a_queue(storage: Storage, peer: Storage) -> None:
    """An old worker runs the jobs it knows and returns; a new one runs the rest."""
    setattr(peer, "format", 2)  # noqa: B010
    ran: list[tuple[str, str]] = []
    apps: dict[str, Penstock] = {}
    for name, each in (("old", storage), ("new", peer)):
        apps[name] = Penstock(storage=each)
        apps[name].handler("q")(recorder(name, ran))
    for name in ("new", "old", "new", "old"):
        await apps[name].queue("q").enqueue(f"of {name}")
    await Worker(apps["old"]).drain()
    assert ran == [("old", "of old")] * 2
    assert (await apps["old"].queue("q").counts())[State.QUEUED] == 2
    await Worker(apps["new"]).drain()
    assert ran[2:] == [("new", "of new")] * 2
    for app in apps.values():
        await app.close()
    await storage.open()
    await peer.open()


@pytest.mark.only("redis", "valkey", "cluster")
async def test_the_last_newer_record_leaves_no_key(storage: Storage, backend: Backend) -> None:
    """When the last newer record is gone, the key of passed-over jobs is gone, too."""
    await put_newer(storage, "a")
    await put1(storage, "q", "b")
    await claim_all(storage)
    assert any(b":parked" in key for key in backend.keys())  # type: ignore[attr-defined]  # noqa: SIM118
    assert await run_newer(storage) == ["a"]
    assert not any(b":parked" in key for key in backend.keys())  # type: ignore[attr-defined]  # noqa: SIM118
