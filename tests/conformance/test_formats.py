"""Records of a newer format are no damage: software that does not know them leaves them for software that does.

One storage object plays both parts: `format` says how new its software is.
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

pytestmark = pytest.mark.beyond_model


@contextmanager
def newer(storage: Storage, format: int = 2) -> Generator[None]:
    """What happens inside is done by newer software."""
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


async def test_a_newer_record_is_left_for_those_who_know_it(storage: Storage) -> None:
    """A claim passes it over without a word, the jobs around it run, and newer software gets it as it was."""
    await put1(storage, "q", "a")
    await put_newer(storage, "b", headers=b"h", limits=b"l")
    await put1(storage, "q", "c")
    answer = await claim_answer(storage)
    assert (ids(answer.claims), answer.corrupt, answer.skipped) == (["a", "c"], [], [])
    await storage.settle([complete(claim, ttl=0) for claim in answer.claims])
    assert await storage.counts("q") == tally(queued=1)
    with newer(storage):
        claim = await claim1(storage)
        assert (claim.id, claim.payload, claim.headers, claim.limits, claim.attempts) == ("b", b"b", b"h", b"l", 1)
        await settle1(storage, complete(claim, ttl=0))
    assert await storage.counts("q") == tally()


async def test_it_keeps_its_place_in_the_order(storage: Storage) -> None:
    """For newer software it is as if nobody had passed it over."""
    await put_newer(storage, "a", "b", priority=1)
    await put_newer(storage, "c")
    assert await claim_all(storage) == []
    await put1(storage, "q", "d", priority=1)
    await put1(storage, "q", "e")
    assert await run_newer(storage) == ["a", "b", "d", "c", "e"]


async def test_it_is_shown_as_queued(storage: Storage) -> None:
    """Its id, its state and its counts are there for everybody; its payload for those who can read it."""
    await put_newer(storage, "a", priority=3, headers=b"h")
    for _ in range(2):
        assert await storage.counts("q") == tally(queued=1)
        assert await storage.queues() == ["q"]
        [found] = await find_all(storage, state=State.QUEUED)
        job = await get1(storage)
        assert job == found
        assert (job.id, job.state, job.priority, job.created, job.format) == ("a", State.QUEUED, 3, T0, 2)
        assert (job.payload, job.headers, job.limits) == (b"", b"", b"")
        assert await storage.peek("q") is None
        await claim_all(storage)
    with newer(storage):
        job = await get1(storage)
        assert (job.payload, job.headers, job.format) == (b"a", b"h", None)
        assert await find_all(storage) == [job]
        assert await storage.peek("q") == job


async def test_passed_over_jobs_are_listed_page_by_page(storage: Storage) -> None:
    """Jobs that wait for newer software come after the others, none twice and none missing."""
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


async def test_its_group_waits(storage: Storage) -> None:
    """Order in a group holds: what stands behind it waits too, and other groups do not."""
    await put1(storage, "q", "g1", group="g")
    await put_newer(storage, "g2", group="g")
    await storage.put([new("q", "g3", group="g"), new("q", "h1", group="h")])
    assert await run_order(storage) == ["g1", "h1"]
    assert ids(await find_all(storage, state=State.QUEUED)) == ["g2", "g3"]
    assert await storage.counts("q") == tally(queued=2)
    await put1(storage, "q", "g4", group="g")
    assert await run_order(storage) == []
    assert await run_newer(storage) == ["g2", "g3", "g4"]


async def test_a_batch_of_a_group_ends_before_it(storage: Storage) -> None:
    """What stands before it in its group is handed out without it."""
    await storage.put([new("q", id, group="g") for id in "ab"])
    await put_newer(storage, "c", group="g")
    await put1(storage, "q", "d", group="g")
    claims = await claim_all(storage, batch=10)
    assert ids(claims) == ["a", "b"]
    await storage.settle([complete(claim) for claim in claims])
    assert await claim_all(storage, batch=10) == []
    with newer(storage):
        assert ids(await claim_all(storage, batch=10)) == ["c", "d"]


async def test_a_batch_closes_up_over_it(storage: Storage) -> None:
    """Without a group it leaves no gap in a batch."""
    for name in "abc":
        await put1(storage, "q", name)
        await put_newer(storage, name.upper())
    claims = await claim_all(storage, limit=1, batch=3)
    assert [(claim.id, claim.batch) for claim in claims] == [("a", 0), ("b", 0), ("c", 0)]


async def test_a_group_goes_on_when_it_is_cancelled(storage: Storage) -> None:
    """A head that nobody here could run may be taken back by anybody; then its group runs."""
    await put_newer(storage, "g1", "g2", group="g")
    await put1(storage, "q", "g3", group="g")
    assert await claim_all(storage) == []
    assert await storage.cancel("q", ["g1"]) == [CancelAnswer("cancelled")]
    assert await claim_all(storage) == []
    assert await storage.cancel("q", ["g2"]) == [CancelAnswer("cancelled")]
    assert ids(await claim_all(storage)) == ["g3"]


@pytest.mark.parametrize("seen", [False, True])
async def test_anybody_may_cancel_it(storage: Storage, seen: bool) -> None:
    """Passed over or not, it ends as cancelled, is kept for as long as asked, and its id is free again."""
    await put_newer(storage, "a", "b")
    if seen:
        await claim_all(storage)
    assert await storage.cancel("q", ["a", "b"], ttl=HOUR) == [CancelAnswer("cancelled")] * 2
    assert await storage.counts("q") == tally(cancelled=2)
    assert (await get1(storage)).state is State.CANCELLED
    assert await storage.put([new("q", "a", b"mine")]) == [Put(PutStatus.QUEUED, State.QUEUED)]
    assert [claim.payload for claim in await claim_all(storage)] == [b"mine"]
    assert await run_newer(storage) == []


async def test_anybody_may_retry_it(storage: Storage) -> None:
    """One that failed goes back in line with its content untouched, for those who know it."""
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


async def test_nobody_changes_what_he_cannot_read(storage: Storage) -> None:
    """An enqueue of its id answers duplicate, an update too: nothing is lost of it."""
    await put_newer(storage, "a", limits=b"l")
    duplicate = Put(PutStatus.DUPLICATE, State.QUEUED)
    for _ in range(2):
        assert await storage.put([new("q", "a", b"mine"), update("q", "a", b"mine")]) == [duplicate] * 2
        await claim_all(storage)
    with newer(storage):
        assert await storage.put([update("q", "a", b"ours")]) == [Put(PutStatus.UPDATED, State.QUEUED)]
        claim = await claim1(storage)
        assert (claim.payload, claim.limits) == (b"ours", b"l")


async def test_one_whose_time_has_come_is_passed_over_too(storage: Storage, clock: Clock) -> None:
    """Scheduled or in backoff, it falls due as any other job, in its place."""
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


async def test_a_lost_run_of_it_is_taken_back_by_anybody(storage: Storage, clock: Clock) -> None:
    """Its lease is over, it waits again with a stall more, and it is not failed."""
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


async def test_a_successor_of_it_is_released(storage: Storage) -> None:
    """A newer update behind a run of older software becomes a job of its own when that run ends."""
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
async def test_a_successor_of_it_takes_the_place_of_a_returning_run(storage: Storage, delay: int | None) -> None:
    """It cannot be folded into a job by those who cannot read it, so it stands in for the whole job."""
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


async def test_an_older_successor_takes_the_place_of_a_lost_newer_run(storage: Storage, clock: Clock) -> None:
    """The update was accepted, so it is not dropped with the run that cannot be read."""
    await put_newer(storage, "a", group="g")
    with newer(storage):
        await claim1(storage, lease=LEASE)
    await storage.put([update("q", "a", b"mine", group="h")])
    clock.advance(ms=LEASE)
    assert [each.id for each in await storage.reap(["q"])] == ["a"]
    claim = await claim1(storage)
    assert (claim.payload, claim.group) == (b"mine", "h")


async def test_formats_are_known_one_by_one(storage: Storage) -> None:
    """Each software gets what it knows and leaves the rest, whoever passed it over first."""
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
    """What older software has put is worked by newer software, and what comes back is in its own format."""
    await put1(storage, "q", "a", b"payload", headers=b"h")
    with newer(storage):
        claim = await claim1(storage)
        assert (claim.payload, claim.headers) == (b"payload", b"h")
        await settle1(storage, release(claim))
        assert await run_order(storage) == ["a"]


async def test_many_of_them_do_not_hide_the_jobs_behind(storage: Storage) -> None:
    """However many stand in front, a claim finds what can be run, and the next one does not meet them again."""
    await put_newer(storage, *(f"n{n:04}" for n in range(700)))
    with newer(storage):
        await storage.put([new("q", f"g{n:04}", group=f"g{n}") for n in range(200)])
    await put1(storage, "q", "a")
    assert ids(await claim_all(storage, limit=1)) == ["a"]
    assert await storage.counts("q") == tally(queued=900, running=1)
    with newer(storage):
        first = await claim_all(storage, limit=1000)
    assert ids(first) == [f"n{n:04}" for n in range(700)] + [f"g{n:04}" for n in range(200)]


async def test_a_great_many_are_passed_over_in_bounded_steps(storage: Storage) -> None:
    """A claim that has passed over its share stops; the next ones go on, and newer software gets all of them."""
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


async def test_purge_leaves_them_alone(storage: Storage, clock: Clock) -> None:
    """They wait for as long as it takes; a queue with nothing else in it is not forgotten."""
    await put_newer(storage, "a")
    await put_newer(storage, "b", group="g")
    await claim_all(storage)
    clock.advance(ms=1000 * HOUR)
    assert await storage.purge(["q"]) == 0
    assert await storage.queues() == ["q"]
    assert await run_newer(storage) == ["a", "b"]


async def test_delete_takes_them_too(storage: Storage) -> None:
    """A deleted queue leaves nothing of them, and they are counted."""
    await put_newer(storage, "a", "b")
    await put_newer(storage, "c", group="g")
    await claim_all(storage)
    assert await storage.delete_queue("q") == 3
    assert await run_newer(storage) == []


async def test_a_paused_queue_hands_them_out_to_nobody(storage: Storage) -> None:
    """Paused is paused, for newer software as well."""
    await put_newer(storage, "a")
    await claim_all(storage)
    await storage.set_paused("q", True)
    with newer(storage):
        assert await claim_all(storage) == []
        assert await storage.peek("q") is None
    await storage.set_paused("q", False)
    assert await run_newer(storage) == ["a"]


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_whoever_passes_one_over_wakes_another(storage: Storage, peer: Storage) -> None:
    """An idle worker hears of a job that the one who was woken for it does not know."""
    setattr(peer, "format", 2)  # noqa: B010
    await put_newer(storage, "a")
    woken = False

    async def look() -> bool:
        """As a worker does: wait for a hint, then claim."""
        nonlocal woken
        woken = await peer.wait_work(["q"], 0.2) or woken
        answer = await peer.claim([Request("q", 1)], "new", LEASE, "token-new")
        return ids(answer.claims) == ["a"]

    assert await claim_all(storage) == []
    await eventually(look)
    assert woken


async def test_a_follow_up_of_newer_software_is_passed_over(storage: Storage) -> None:
    """However it came into the queue, it waits for those who know it."""
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
    """An old worker runs what it knows and is done; a new one runs the rest."""
    setattr(peer, "format", 2)  # noqa: B010
    ran: list[tuple[str, str]] = []
    apps: dict[str, Penstock] = {}
    for name, place in (("old", storage), ("new", peer)):
        apps[name] = Penstock(storage=place)
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
async def test_an_empty_queue_costs_nothing_for_it(storage: Storage, backend: Backend) -> None:
    """When the last of them is gone, nothing reminds of them."""
    await put_newer(storage, "a")
    await put1(storage, "q", "b")
    await claim_all(storage)
    assert any(b":parked" in key for key in backend.keys())  # type: ignore[attr-defined]  # noqa: SIM118
    assert await run_newer(storage) == ["a"]
    assert not any(b":parked" in key for key in backend.keys())  # type: ignore[attr-defined]  # noqa: SIM118
