"""Redis behind a network that loses answers: the server has done it, and the caller does not know."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.errors import QueueFull, StorageError, StorageUnavailable
from penstock.model.activity import Activity, BulkAction
from penstock.model.job import State, Update
from penstock.model.limit import Limit
from penstock.storage.auditing import need_auditing
from penstock.storage.base import CancelAnswer, CancelMode, Renewal, Request, Settled, Settlement, Storage
from penstock.storage.limiting import Limiting, Scope
from penstock.storage.observing import Histogram, RunTimes, need_observing
from penstock.storage.redis import RedisStorage
from penstock.storage.redis.blocking import BlockingConnection
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.scripts import script
from penstock.storage.scheduling import Fired
from tests import schedules
from tests.proxy import Proxy
from tests.schedules import fire1, firing, scheduling, set1, stored, tick
from tests.servers import Server
from tests.support import (
    HOUR,
    LEASE,
    LOST,
    MINUTE,
    Clock,
    HasToken,
    RedisBackend,
    cancel_run,
    claim1,
    claim_all,
    complete,
    eventually,
    fail,
    find_all,
    get1,
    held,
    ids,
    new,
    put1,
    release,
    retried,
    retry_until_available,
    run_order,
    settle1,
    stall,
    state_of,
    tally,
    update,
)

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey")]

#: The scripts that add to statistics.
STATS = ("record_stats", "sample", "add_sample")


@pytest.fixture
def far(
    backend: RedisBackend, proxy: Proxy, clock: Clock, storage: Storage, runner: asyncio.Runner
) -> Iterator[Storage]:
    """The same jobs as in `storage`, behind the proxy; the server knows every script."""
    assert isinstance(backend.server, Server)
    url = f"redis://{proxy.address}/0"
    far = RedisBackend(backend.name, url, backend.namespace, backend.server).build(clock)
    runner.run(far.open())
    with backend.server.client() as client:
        verbs = (
            "put",
            "claim",
            "settle",
            "renew",
            "reap",
            "wait_done",
            "cancel",
            "fire",
            "set_schedule",
            *STATS,
            *ONCE,
        )
        for verb in verbs:
            client.script_load(script(script_of(verb)).text)
    yield far
    proxy.heal()
    runner.run(far.close())


@pytest.fixture
def brisk(backend: RedisBackend, proxy: Proxy, clock: Clock, far: Storage, runner: asyncio.Runner) -> Iterator[Storage]:
    """As `far`, but it gives up a silent server after two seconds."""
    url = f"redis://{proxy.address}/0?socket_timeout=2"
    brisk = RedisBackend(backend.name, url, backend.namespace, backend.server).build(clock)
    runner.run(brisk.open())
    runner.run(put1(brisk, "q", "first put, which writes the schema"))
    runner.run(brisk.delete_queue("q"))
    yield brisk
    proxy.heal()
    runner.run(brisk.close())


def script_of(call: str) -> str:
    """Return the script of a call in `ONCE`: its first word."""
    return call.partition(" ")[0]


def limiting(storage: Storage) -> Limiting:
    assert isinstance(storage, Limiting)
    return storage


def sha(verb: str) -> str:
    return script(verb).sha


# claim -------------------------------------------------------------------------------------------


async def test_a_lost_claim_runs_elsewhere_after_one_lease(
    proxy: Proxy, far: Storage, storage: Storage, clock: Clock
) -> None:
    """A claim whose reply is lost holds its job for one lease; then another worker has it, and settles it once."""
    await put1(storage, "q", "a")
    proxy.lose_reply(sha("claim"))
    with pytest.raises(StorageUnavailable):
        await claim1(far, worker="deaf")
    assert await claim_all(storage) == await claim_all(far) == []
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []
    clock.advance(ms=1)
    assert ids(await storage.reap(["q"])) == ["a"]
    claim = await claim1(storage)
    assert (claim.attempts, claim.stalls) == (2, 1)
    assert await settle1(storage, complete(claim)) == Settled(State.COMPLETED)
    assert await storage.counts("q") == tally(completed=1)


async def test_a_lost_claim_is_not_kept_alive(proxy: Proxy, far: Storage, storage: Storage, clock: Clock) -> None:
    """A renewal names the claims of the worker, so a claim whose answer was lost expires all the same."""
    await storage.put([new("q", "a"), new("q", "b")])
    mine = await claim1(far)
    proxy.lose_reply(sha("claim"))
    with pytest.raises(StorageUnavailable):
        await claim1(far)
    clock.advance(ms=LEASE // 2)
    assert await far.renew("w", [held(mine)], LEASE) == [Renewal(True)]
    clock.advance(ms=LEASE // 2)
    assert ids(await far.reap(["q"])) == ["b"]
    assert await state_of(storage, "a") is State.RUNNING


async def test_a_group_waits_for_its_lost_claim(proxy: Proxy, far: Storage, storage: Storage, clock: Clock) -> None:
    """A group whose claim was lost goes on with the same job, in order."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    proxy.lose_reply(sha("claim"))
    with pytest.raises(StorageUnavailable):
        await claim1(far)
    assert await claim_all(storage) == []
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await run_order(storage) == ["a", "b", "c"]


async def test_one_lost_reply_of_several_loses_what_came_with_it(
    proxy: Proxy, far: Storage, storage: Storage, clock: Clock
) -> None:
    """A claim over several queues is lost as a whole, and every part of it comes back."""
    queues = ["q", "r", "s"]
    await storage.put([new(queue, "a") for queue in queues])
    proxy.lose_reply(sha("claim"), nth=2)
    with pytest.raises(StorageUnavailable):
        await far.claim([Request(queue, 1) for queue in queues], "w", LEASE, "t")
    clock.advance(ms=LEASE)
    await storage.reap(queues)
    answer = await far.claim([Request(queue, 1) for queue in queues], "w", LEASE, "u")
    assert [claim.queue for claim in answer.claims] == queues


# settle ------------------------------------------------------------------------------------------

ENDS: dict[str, tuple[Callable[[HasToken], Settlement], State]] = {
    "complete": (complete, State.COMPLETED),
    "complete_unkept": (lambda claim: complete(claim, ttl=0), State.COMPLETED),
    "complete_then": (lambda claim: complete(claim, then=[new("q/x", "next")]), State.COMPLETED),
    "retry_now": (retried, State.QUEUED),
    "retry_later": (lambda claim: retried(claim, delay=5000), State.RETRYING),
    "fail": (fail, State.FAILED),
    "fail_then": (lambda claim: fail(claim, then=(new("q/x", "told"),)), State.FAILED),
    "cancel": (cancel_run, State.CANCELLED),
    "release": (release, State.QUEUED),
    "stall": (stall, State.QUEUED),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("loss", ["reply", "request"])
async def test_a_lost_settlement_is_made_once(
    proxy: Proxy, far: Storage, storage: Storage, how: str, loss: str
) -> None:
    """A settlement is sent again until it is answered: as the first time, with one effect."""
    end, state = ENDS[how]
    await put1(storage, "q", "a", group="g")
    await put1(storage, "q", "b", group="g")
    claim = await claim1(far)
    lost = proxy.lose_reply(sha("settle")) if loss == "reply" else proxy.lose_request(sha("settle"))
    assert await settle1(far, end(claim)) == Settled(state)
    assert lost.happened
    assert await settle1(far, end(claim)) == Settled(state)
    assert ids(await find_all(storage, "q/x")) == (
        [] if not how.endswith("then") else ["next"] if how == "complete_then" else ["told"]
    )
    if how != "complete_unkept":
        snapshot = await get1(storage, "a")
        assert snapshot.state is state
        assert snapshot.attempts == (0 if how == "release" else 1)
        assert (snapshot.retries, snapshot.stalls) == (int(how.startswith("retry")), int(how == "stall"))
    waits = how in ("retry_now", "retry_later", "release", "stall")
    assert ids(await claim_all(storage)) == ([] if how == "retry_later" else ["a"] if waits else ["b"])


async def test_a_settlement_repeated_after_the_next_claim_changes_nothing(
    proxy: Proxy, far: Storage, storage: Storage
) -> None:
    """When another worker has taken the retried job meanwhile, the repetition leaves that run alone."""
    await put1(storage, "q", "a")
    claim = await claim1(far)
    holding = proxy.hold_reply(sha("settle"))
    settling = asyncio.create_task(settle1(far, retried(claim)))
    await eventually(lambda: holding.happened, 30)
    other = await claim1(storage, worker="other")
    proxy.cut()
    assert await settling == LOST
    assert (await get1(storage, "a")).worker == "other"
    assert await settle1(storage, complete(other)) == Settled(State.COMPLETED)
    assert (await get1(storage, "a")).attempts == 2


async def test_many_settlements_survive_many_losses(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """With every other reply lost, each of fifty outcomes is recorded once."""
    await storage.put([new("q", f"j{n}") for n in range(50)])
    for claim in await claim_all(far):
        proxy.lose_reply(sha("settle"))
        assert await settle1(far, complete(claim, result=claim.id.encode())) == Settled(State.COMPLETED)
    assert await storage.counts("q") == tally(completed=50)
    assert all(job.result == job.id.encode() for job in await find_all(storage, state=State.COMPLETED))


# put ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["reply", "request"])
async def test_a_lost_put_raises_and_can_be_repeated(proxy: Proxy, far: Storage, storage: Storage, loss: str) -> None:
    """A put by id whose answer is lost raises; put again, there is one job."""
    lost = proxy.lose_reply(sha("put")) if loss == "reply" else proxy.lose_request(sha("put"))
    with pytest.raises(StorageUnavailable):
        await put1(far, "q", "a", group="g")
    assert lost.happened
    assert (await put1(far, "q", "a", group="g")).status == ("duplicate" if loss == "reply" else "queued")
    assert await run_order(storage) == ["a"]


async def test_a_lost_update_can_be_repeated(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """An update that is made twice leaves one job with the new payload; behind a run, one successor."""
    for id in "ab":
        await put1(storage, "q", id)
    running = await claim1(storage)
    for id in "ab":
        proxy.lose_reply(sha("put"))
        with pytest.raises(StorageUnavailable):
            await far.put([update("q", id, b"new")])
        assert (await far.put([update("q", id, b"new")]))[0].status == "updated"
    assert await storage.counts("q") == tally(running=1, blocked=1, queued=1)
    assert await settle1(storage, complete(running, ttl=0)) == Settled(State.COMPLETED)
    payloads: list[tuple[str, bytes]] = []
    while claims := await claim_all(storage, limit=1):
        payloads += [(claim.id, claim.payload) for claim in claims]
        await storage.settle([complete(claim, ttl=0) for claim in claims])
    assert sorted(payloads) == [("a", b"new"), ("b", b"new")]


@pytest.mark.parametrize("loss", ["reply", "request"])
async def test_a_lost_put_without_an_id_is_repeated_by_itself(
    proxy: Proxy, far: Storage, storage: Storage, loss: str
) -> None:
    """A put of made-up ids whose answer is lost is sent again without an error, and there is one job each."""
    lost = proxy.lose_reply(sha("put")) if loss == "reply" else proxy.lose_request(sha("put"))
    answers = await far.put([new("q", f"fresh{n}", fresh=True, delay=n // 10 * 1000) for n in range(20)])
    assert lost.happened
    assert [put.status for put in answers] == ["queued"] * 10 + ["scheduled"] * 10
    assert await storage.counts("q") == tally(queued=10, scheduled=10)


@pytest.mark.parametrize("loss", ["reply", "request"])
async def test_a_lost_put_that_filled_its_queue_is_answered_as_the_first_time(
    proxy: Proxy, far: Storage, storage: Storage, loss: str
) -> None:
    """Sent again, a bounded put of made-up ids finds its own jobs in the full queue, and is not refused."""
    await far.put([new("q", "first", fresh=True)], 4)
    lost = proxy.lose_reply(sha("put")) if loss == "reply" else proxy.lose_request(sha("put"))
    answers = await far.put([new("q", f"fresh{n}", fresh=True, delay=n * 1000) for n in range(3)], 4)
    assert lost.happened
    assert [put.status for put in answers] == ["queued", "scheduled", "scheduled"]
    assert await storage.counts("q") == tally(queued=2, scheduled=2)


async def test_a_lost_refusal_is_repeated(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """A bounded put that was refused had no effect: sent again it is refused again, and the next one is stored."""
    await far.put([new("q", "first", fresh=True)], 1)
    lost = proxy.lose_reply(sha("put"))
    with pytest.raises(QueueFull):
        await far.put([new("q", "second", fresh=True)], 1)
    assert lost.happened
    assert await storage.counts("q") == tally(queued=1)
    assert [put.status for put in await far.put([new("q", "second", fresh=True)], 2)] == ["queued"]


MEANWHILE: dict[str, Callable[[HasToken], Settlement] | None] = {
    "running": None,
    "completed": complete,
    "failed": fail,
    "cancelled": cancel_run,
    "released": release,
    "unkept": lambda claim: complete(claim, ttl=0),
    "purged": lambda claim: complete(claim, ttl=1),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "with options"])
async def test_a_job_without_an_id_is_stored_once_however_quick_its_worker(
    proxy: Proxy, far: Storage, storage: Storage, clock: Clock, meanwhile: str, plain: bool
) -> None:
    """Whatever has become of the job when its put is sent again, it is one job, and was queued."""
    holding = proxy.hold_reply(sha("put"))
    options = {} if plain else {"headers": b"h", "priority": 3}
    putting = asyncio.create_task(put1(far, "q", "fresh", fresh=True, **options))
    await eventually(lambda: holding.happened, 30)
    claim, end = await claim1(storage), MEANWHILE[meanwhile]
    if end is not None:
        await settle1(storage, end(claim))
    if meanwhile == "purged":
        clock.advance(seconds=1)
        assert await storage.purge(["q"]) == 1
    proxy.cut()
    put = await putting
    assert (put.status, put.state) == ("queued", "queued")
    left = {"unkept": tally(), "purged": tally(), "released": tally(queued=1)}
    assert await storage.counts("q") == left.get(meanwhile, tally(**{meanwhile: 1}))
    assert ids(await claim_all(storage)) == (["fresh"] if meanwhile == "released" else [])


async def test_a_job_without_an_id_that_was_cancelled_stays_so(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """A waiting job that was cancelled and not kept does not come back when its put is sent again."""
    holding = proxy.hold_reply(sha("put"))
    putting = asyncio.create_task(put1(far, "q", "fresh", fresh=True))
    await eventually(lambda: holding.happened, 30)
    assert [answer.status for answer in await storage.cancel("q", ["fresh"])] == ["cancelled"]
    proxy.cut()
    assert (await putting).status == "queued"
    assert await storage.counts("q") == tally()


async def test_a_put_that_arrives_behind_its_own_repetition_does_nothing(
    backend: RedisBackend, proxy: Proxy, far: Storage, storage: Storage
) -> None:
    """A put that the network delivers late, after it was sent again, is not stored a second time."""
    for _ in range(3):
        late = proxy.lose_request(sha("put"))
        await far.put([new("q", f"fresh{n}", fresh=True) for n in range(3)])
        assert sorted(await run_order(storage)) == ["fresh0", "fresh1", "fresh2"]
        assert isinstance(backend.server, Server)
        with socket.create_connection(("127.0.0.1", backend.server.port), 30) as line:
            line.sendall(late.commands[0])
            assert line.recv(100).startswith(b"*2")
        assert await storage.counts("q") == tally()


async def test_every_put_of_a_lost_call_raises(proxy: Proxy, far: Storage, storage: Storage) -> None:
    """Calls that left together are lost together; each caller can repeat its own."""
    proxy.lose_reply(sha("put"))
    names = [f"j{n}" for n in range(10)]
    answers = await asyncio.gather(*(put1(far, "q", name) for name in names), return_exceptions=True)
    assert any(isinstance(answer, StorageUnavailable) for answer in answers)
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, BaseException):
            await put1(far, "q", name)
    assert sorted(await run_order(storage)) == names


# cancel, revive and the other verbs of operators -------------------------------------------------


@contextlib.asynccontextmanager
async def listening_to(storage: Storage, queue: str) -> AsyncGenerator[list[str]]:
    """Yield the names of the events of a queue, from now on."""
    names: list[str] = []

    async def listen() -> None:
        async for record in storage.events(queue):
            names.append(record.name)

    async def probe() -> bool:
        await put1(storage, queue, "probe", update=Update())
        return bool(names)

    task = asyncio.create_task(listen())
    await eventually(probe, 30)
    await storage.delete_queue(queue)
    await eventually(lambda: names[-1] == "queue_deleted", 30)
    names.clear()
    try:
        yield names
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("loss", ["reply", "request"])
@pytest.mark.parametrize("ttl", [HOUR, 0])
@pytest.mark.parametrize("what", ["waiting", "successor", "run"])
async def test_a_lost_cancel_is_made_once(
    proxy: Proxy, far: Storage, storage: Storage, what: str, ttl: int, loss: str
) -> None:
    """A cancel whose answer is lost is sent again, and answered as the first time; its event is emitted once."""
    async with listening_to(storage, "q") as events:
        await put1(storage, "q", "a")
        if what != "waiting":
            await claim1(storage)
        if what == "successor":
            await storage.put([update("q", "a")])
        lost = proxy.lose_reply(sha("cancel")) if loss == "reply" else proxy.lose_request(sha("cancel"))
        expected = {
            "waiting": CancelAnswer("cancelled"),
            "successor": CancelAnswer("cancelled", running=True),
            "run": CancelAnswer("cancel_requested", running=True),
        }[what]
        mode: CancelMode = "signal" if what == "run" else "refuse"
        assert await far.cancel("q", ["a", "none"], mode, ttl) == [expected, CancelAnswer("not_found")]
        assert lost.happened
        await put1(storage, "q", "last")
        await eventually(lambda: events[-1] == "enqueued", 30)
        assert events.count("cancel_requested" if what == "run" else "cancelled") == 1


async def test_a_cancel_repeated_after_the_id_was_put_again_leaves_that_job_alone(
    proxy: Proxy, far: Storage, storage: Storage
) -> None:
    """A cancel that is sent again after another client has put the id anew does not cancel the new job."""
    await put1(storage, "q", "a")
    holding = proxy.hold_reply(sha("cancel"))
    cancelling = asyncio.create_task(far.cancel("q", ["a"], ttl=HOUR))
    await eventually(lambda: holding.happened, 30)
    assert (await put1(storage, "q", "a", b"new")).status == "queued"
    proxy.cut()
    assert await cancelling == [CancelAnswer("cancelled")]
    assert (await claim1(storage)).payload == b"new"


ACTION = BulkAction(id="bulk", who="ann", verb="cancel", filter="", as_of=0, starts_at=0)
RULE = Limit(concurrency=2).rule("queue", 0)

ONCE: dict[str, tuple[Callable[[Storage], Awaitable[Any]], Any]] = {
    "revive": (lambda storage: storage.revive("q", ["failed", "queued"]), [True, False]),
    "set_pause": (lambda storage: storage.set_pause("q", True), True),
    "set_pause of a group": (lambda storage: storage.set_pause("q", True, None, "ann", "g"), True),
    "set_limit": (lambda storage: limiting(storage).set_limit(Scope("queue", "q"), RULE, b"", 0), 1),
    "set_limit of a group": (lambda storage: limiting(storage).set_limit(Scope("group", "q", "g"), RULE, b"", 0), 1),
    "delete_queue": (lambda storage: storage.delete_queue("q"), 2),
    "set_ttl": (lambda storage: storage.set_ttl("q", "failed", 0), True),
    "drop_schedule": (lambda storage: scheduling(storage).drop_schedule("q", "s", 7), False),
    "log_activity": (lambda storage: log_one(storage), 1),
    "add_release": (lambda storage: need_auditing(storage).add_release("1.0"), True),
    "put_bulk": (lambda storage: need_auditing(storage).put_bulk(ACTION), 1),
}


async def log_one(storage: Storage) -> int:
    """Add an entry to the activity; return how many there are."""
    await need_auditing(storage).log_activity(Activity(who="ann", verb="pause", via="cli"))
    return len((await need_auditing(storage).activity()).entries)


@pytest.mark.parametrize("loss", ["reply", "request"])
@pytest.mark.parametrize("verb", ONCE)
async def test_a_lost_call_of_an_operator_is_made_once(
    proxy: Proxy, far: Storage, storage: Storage, verb: str, loss: str
) -> None:
    """A revive, pause, limit, delete, new TTL or record whose answer is lost is made once, and answered as such."""
    call, expected = ONCE[verb]
    verb = script_of(verb)
    await put1(storage, "q", "failed")
    await settle1(storage, fail(await claim1(storage)))
    await put1(storage, "q", "queued")
    lost = proxy.lose_reply(sha(verb)) if loss == "reply" else proxy.lose_request(sha(verb))
    assert await call(far) == expected
    assert lost.happened


@pytest.mark.parametrize("loss", ["reply", "request"])
async def test_a_lost_fire_puts_its_jobs_once(proxy: Proxy, far: Storage, storage: Storage, loss: str) -> None:
    """A fire whose answer is lost is sent again, and answered as the first time; a worker's own repeat is stale."""
    version = await set1(storage)
    lost = proxy.lose_reply(sha("fire")) if loss == "reply" else proxy.lose_request(sha("fire"))
    answer = await fire1(far, version, tick(1), tick(2), overlap="allow")
    assert lost.happened
    assert answer == Fired(answer.version, fired=2, ids=("s@1", "s@2"))
    assert (await fire1(far, version, tick(1))).stale
    assert (await stored(storage)).fired == 2
    assert await run_order(storage) == ["s@1", "s@2"]


@pytest.mark.parametrize("loss", ["reply", "request"])
async def test_a_lost_change_of_a_schedule_is_made_once(
    proxy: Proxy, far: Storage, storage: Storage, loss: str
) -> None:
    """A schedule set or dropped with a lost answer is answered as the first time, and its tick fires once."""
    lost = proxy.lose_reply(sha("set_schedule")) if loss == "reply" else proxy.lose_request(sha("set_schedule"))
    version = await scheduling(far).set_schedule(schedules.record(), 0, firing(0, tick(0), manual=True))
    assert lost.happened
    assert (await stored(storage)).version == version
    assert version is not None
    lost = proxy.lose_reply(sha("drop_schedule")) if loss == "reply" else proxy.lose_request(sha("drop_schedule"))
    assert await scheduling(far).drop_schedule("q", "s", version)
    assert lost.happened
    assert await run_order(storage) == ["s@0"]


@pytest.mark.parametrize("verb", STATS)
async def test_lost_statistics_are_counted_once(
    proxy: Proxy, far: Storage, storage: Storage, clock: Clock, verb: str
) -> None:
    """Times, and the changes of queues in the samples of all together, are added once though they are sent again."""
    observing = need_observing(far)
    await put1(storage, "q", "a")
    await observing.record_stats("w", [])
    await settle1(storage, complete(await claim1(storage)))
    clock.advance(seconds=60)
    times = Histogram((1,), 5)
    proxy.lose_reply(sha(verb))
    assert await observing.record_stats("w", [RunTimes("q", times, times)]) == clock.ms
    [stats] = await need_observing(storage).stats(["q"])
    assert stats.sample.run == times
    assert [sample.totals.finished for sample in await need_observing(storage).history(None)] == [0, 1]


async def test_the_answers_kept_for_repetitions_expire(backend: RedisBackend, storage: Storage) -> None:
    """The answer that is kept for a repeated cancel is a few bytes for each id, and has a TTL."""
    await storage.cancel("q", [f"id{n}" for n in range(1000)])
    stored = backend.keys()
    [key] = [key for key in stored if b":requests:" in key]
    with backend.clients()[0] as client:
        assert 0 < client.pttl(key) <= 2 * MINUTE
        assert client.strlen(key) <= 1010


# renew and reap ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["reply", "request"])
async def test_a_lost_renewal_is_repeated(
    proxy: Proxy, far: Storage, storage: Storage, clock: Clock, loss: str
) -> None:
    """The renewal is sent again: the lease is renewed, and the answer has kept, lost and cancelled claims."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, c = await claim_all(far)
    await settle1(storage, release(b))
    await storage.cancel("q", ["c"], "signal")
    clock.advance(ms=LEASE - 1)
    lost = proxy.lose_reply(sha("renew")) if loss == "reply" else proxy.lose_request(sha("renew"))
    answers = await far.renew("w", [held(a), held(b), held(c)], LEASE)
    assert lost.happened
    assert answers == [Renewal(True), Renewal(False), Renewal(True, "signal")]
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []


async def test_a_lost_reap_counts_one_stall(proxy: Proxy, far: Storage, storage: Storage, clock: Clock) -> None:
    """A sweep that is made again finds nothing more to sweep."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE)
    lost = proxy.lose_reply(sha("reap"))
    await far.reap(["q"])
    assert lost.happened
    assert (await claim1(storage)).stalls == 1


# waiting -----------------------------------------------------------------------------------------


async def blocked(backend: RedisBackend) -> None:
    """Wait until the server has a client that waits for a list."""
    await eventually(lambda: any("b" in each["flags"] for each in clients_of(backend)), 30)


async def subscribed(backend: RedisBackend) -> None:
    """Wait until the server has a client that listens to a channel."""
    await eventually(lambda: any(int(each["sub"]) for each in clients_of(backend)), 30)


def clients_of(backend: RedisBackend) -> list[dict[str, str]]:
    assert isinstance(backend.server, Server)
    with backend.server.client() as client:
        return client.client_list()


async def test_a_cut_wait_for_work_raises(backend: RedisBackend, proxy: Proxy, far: Storage, storage: Storage) -> None:
    """A wait for work on a connection that is cut ends at once, and the next wait works."""
    waiting = asyncio.create_task(far.wait_work(["q"], 60))
    await blocked(backend)
    proxy.cut()
    with pytest.raises(StorageUnavailable):
        await asyncio.wait_for(waiting, 30)
    again = asyncio.create_task(far.wait_work(["q"], 60))
    await blocked(backend)
    await put1(storage, "q", "a")
    assert await asyncio.wait_for(again, 30) is True


async def test_a_lost_hint_costs_no_job(backend: RedisBackend, proxy: Proxy, far: Storage, storage: Storage) -> None:
    """The wake-up that was on its way when the connection broke is gone; the job is there for who looks."""
    lost = proxy.lose_reply("BLPOP")
    waiting = asyncio.create_task(far.wait_work(["q"], 60))
    await blocked(backend)
    await put1(storage, "q", "a")
    with pytest.raises(StorageUnavailable):
        await asyncio.wait_for(waiting, 30)
    assert lost.happened
    assert (await claim1(far)).id == "a"


async def test_a_waiter_notices_an_end_during_a_cut(
    backend: RedisBackend, proxy: Proxy, far: Storage, storage: Storage
) -> None:
    """A waiter reads the job again when its connection breaks, so an end whose notice was lost is seen."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    waiting = asyncio.create_task(retry_until_available(lambda: far.wait_done("q", "a", 60), 60))
    await subscribed(backend)
    proxy.refuse()
    proxy.cut()
    await settle1(storage, complete(claim))
    proxy.heal()
    assert await asyncio.wait_for(waiting, 30) is True


async def test_a_feed_goes_on_behind_a_cut(backend: RedisBackend, proxy: Proxy, far: Storage, storage: Storage) -> None:
    """A stream of events misses what happens while it is cut off, and then goes on by itself."""
    feed = far.events("q")
    hearing = asyncio.ensure_future(anext(feed))
    await subscribed(backend)
    proxy.cut()
    for n in range(10_000):
        await put1(storage, "q", f"j{n}")
        if hearing.done():
            break
        await asyncio.sleep(0.01)
    assert (await hearing).name == "enqueued"
    await feed.aclose()  # type: ignore[attr-defined]


# silent subscriptions ----------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(storage: Storage, kind: str) -> AsyncGenerator[Callable[[], bool]]:
    """Wait for an end, a request to cancel or an event; return whether there was a notice."""
    feed = storage.events("q")

    async def listen() -> None:
        if kind == "done":
            await retry_until_available(lambda: storage.wait_done("q", "a", 300), 300)
        elif kind == "event":
            await anext(feed)
        else:
            while await storage.wait_cancel("w", 0.3):  # the first ones may be cut short by the connecting
                pass
            while not await storage.wait_cancel("w", 300):
                pass

    task = asyncio.create_task(listen())
    try:
        yield task.done
    finally:
        task.cancel()
        await asyncio.wait({task})
        await feed.aclose()  # type: ignore[attr-defined]


def subscribers(backend: RedisBackend) -> dict[str, str]:
    """Return the subscribers of a channel, the newest last, and the last command of each."""
    return {each["id"]: each["cmd"] for each in clients_of(backend) if int(each["sub"])}


@pytest.mark.only("redis")  # the read timeout is waited for once
@pytest.mark.parametrize("kind", ["done", "cancel", "event"])
@pytest.mark.parametrize("silence", ["later", "from the start"])
async def test_a_silent_subscription_is_noticed(
    backend: RedisBackend, proxy: Proxy, brisk: Storage, storage: Storage, kind: str, silence: str
) -> None:
    """A subscription that goes silent, or is never confirmed, is made anew on another connection."""
    await put1(storage, "q", "a")
    await claim1(storage)
    if silence == "from the start":
        proxy.lose_reply("SUBSCRIBE", then="silence")
    async with listening(brisk, kind) as received:
        await subscribed(backend)
        if silence == "later":
            proxy.silence()
        await eventually(lambda: len(subscribers(backend)) > 1, 60)
        number = 0
        while kind == "event" and not received():  # those before the subscription are missed
            number += 1
            await put1(storage, "q", f"j{number}")
            await asyncio.sleep(0.01)
        if kind == "cancel":
            await eventually(received, 60)  # it looks when it is connected again: there may have been a request


@pytest.mark.only("redis")
async def test_nobody_listens_for_a_worker_that_is_gone(
    backend: RedisBackend, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in which workers come and go does not keep their subscriptions."""
    monkeypatch.setattr("penstock.storage.redis.notifier._UNUSED_AFTER", 0)
    waiting = asyncio.create_task(storage.wait_cancel("busy", 0.01))
    for number in range(5):
        await storage.wait_cancel(f"w{number}", 0.01)
    await waiting
    await storage.wait_cancel("last", 0.01)
    await subscribed(backend)
    await eventually(lambda: len(subscribers(backend)) == 1, 30)


async def test_a_quiet_subscription_is_kept(backend: RedisBackend, brisk: Storage, storage: Storage) -> None:
    """A quiet subscription gets a PING now and then, and goes on when the server answers."""
    async with listening(brisk, "event") as received:
        await subscribed(backend)
        [mine] = subscribers(backend)
        await eventually(lambda: subscribers(backend) == {mine: "ping"}, 30)
        assert not received()
        await put1(storage, "q")
        await eventually(received, 30)


# half-open connections ---------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan", "inf"])
def test_a_socket_timeout_is_a_number_of_seconds(given: str, backend: RedisBackend) -> None:
    """A URL with an impossible `socket_timeout` raises a `ValueError` that names it."""
    with pytest.raises(ValueError, match="socket_timeout in a storage URL is a number of seconds above 0"):
        RedisStorage(f"{backend.url}?socket_timeout={given}")


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        ("redis://h", 15),
        ("rediss://h/0?ssl_cert_reqs=none", 15),
        ("unix:///a/b?socket_timeout=2.5", 2.5),
        ("redis+sentinel://h/main", 15),
        ("redis+sentinel://h/main/1?socket_timeout=4", 4),
        ("redis+cluster://h", 5),
        ("redis+cluster://h?socket_timeout=40", 40),
    ],
)
@pytest.mark.parametrize("connection", [Connection, BlockingConnection])
def test_the_read_timeout_of_a_url(connection: type[Connection], url: str, seconds: float) -> None:
    """`socket_timeout` in a URL sets the read timeout, with or without an event loop, for all kinds of URLs."""
    assert connection(url).read_timeout == seconds


async def test_callers_share_an_attempt_to_connect(proxy: Proxy, brisk: Storage) -> None:
    """Callers that wait for the same new connection, which is never answered, get its error together."""
    proxy.silence(new=True)
    with pytest.raises(StorageUnavailable, match="no answer for 2 s"):
        await put1(brisk, "q", "first")  # gives up the connection that there was
    before = proxy.connections
    tasks = [asyncio.create_task(put1(brisk, f"q/{n}", "a")) for n in range(10)]
    answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert [type(answer) for answer in answers] == [StorageUnavailable] * 10
    assert proxy.connections == before + 1
    proxy.heal()
    proxy.cut()
    assert (await put1(brisk, "q", "first")).status == "queued"


async def cut_off(proxy: Proxy) -> None:
    """End every connection; new ones are accepted and never answered."""
    proxy.silence(new=True)
    proxy.cut()
    await eventually(lambda: not proxy.connections, 30)


async def test_a_caller_that_gives_up_leaves_the_attempt_to_others(proxy: Proxy, far: Storage) -> None:
    """A caller that is cancelled while it waits for a new connection does not take it from other callers."""
    await cut_off(proxy)
    first, *others = [asyncio.create_task(far.counts(f"q/{n}")) for n in range(3)]
    await eventually(lambda: proxy.connections, 30)
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    proxy.heal()
    proxy.cut()
    assert await asyncio.gather(*others) == [tally()] * 2


async def test_closing_ends_an_attempt_to_connect(backend: RedisBackend, proxy: Proxy, clock: Clock) -> None:
    """A storage that is closed while it connects raises in the callers that wait for the connection."""
    storage = RedisBackend(backend.name, f"redis://{proxy.address}/0", backend.namespace, backend.server).build(clock)
    await storage.open()
    await cut_off(proxy)
    asking = asyncio.create_task(storage.counts("q"))
    await eventually(lambda: proxy.connections, 30)
    await asyncio.wait_for(storage.close(), 30)
    await asyncio.wait({asking}, timeout=4)
    assert asking.done()
    with pytest.raises(StorageError, match=r"closed|not open"):
        await asking


async def test_a_half_open_connection_is_given_up(
    backend: RedisBackend, proxy: Proxy, brisk: Storage, storage: Storage
) -> None:
    """A server that stops answering is noticed by the read timeout: calls are sent again, or raise."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, c = await claim_all(brisk)
    waiting = asyncio.create_task(brisk.wait_work(["q"], 2))
    ending = asyncio.create_task(retry_until_available(lambda: brisk.wait_done("q", "c", 60), 60))
    await blocked(backend)
    await subscribed(backend)
    assert proxy.silence() >= 2
    await settle1(storage, complete(c))
    answers: list[Any] = await asyncio.wait_for(
        asyncio.gather(
            settle1(brisk, complete(a)),
            brisk.renew("w", [held(b)], LEASE),
            brisk.counts("r"),
            put1(brisk, "r", "by id"),
            put1(brisk, "s", "made up", fresh=True),
            claim_all(brisk, "r"),
            waiting,
            ending,
            return_exceptions=True,
        ),
        90,
    )
    assert answers[:3] == [Settled(State.COMPLETED), [Renewal(True)], tally()]
    assert isinstance(answers[3], StorageUnavailable)
    assert answers[4].status == "queued"
    assert [isinstance(answer, StorageUnavailable) for answer in answers[5:]] == [True, True, False]
    assert await storage.counts("q") == tally(completed=2, running=1)
    assert await run_order(storage, "s") == ["made up"]
    assert (await put1(brisk, "r", "by id")).status == "queued"
    assert await run_order(brisk, "r") == ["by id"]
