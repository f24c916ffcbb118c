"""why: it names the reason why a job is not running, and the job runs when that is removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Penstock, Reason, Why
from penstock.model.job import Claim, State
from penstock.model.why import MAX_AHEAD
from penstock.model.worker_info import Heartbeat, RunSummary
from penstock.storage.base import Storage
from tests.support import (
    DAY,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    T0,
    Backend,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    forget_all,
    ids,
    new,
    new_namespace,
    put1,
    release,
    retried,
    share_of,
    update,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.queue import Queue

pytestmark = [pytest.mark.beyond_model, pytest.mark.one_per_engine]


@pytest.fixture
def queue(storage: Storage, runner: asyncio.Runner) -> Iterator[Queue]:
    """The queue `q` of an app on the storage, whose handler has a size of ten units."""
    app = app_on(storage)
    yield app.queue("q")
    runner.run(app.reservations.close())


def app_on(storage: Storage) -> Penstock:
    app = Penstock(storage=storage)
    app.listen("q", "tests.e2e.jobs:quick", size=10)
    return app


async def beat(storage: Storage, worker: str = "w", queue: str = "q", **fields: Any) -> None:
    presence = Heartbeat(queues=[queue], capacity=100, **fields)
    await storage.beat(worker, DAY, presence.encode())


async def asked(queue: Queue, id: str = "a") -> Why:
    why = await queue.why(id)
    assert why is not None
    assert (why.id, why.queue) == (id, "q")
    assert str(why).endswith(".")
    return why


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


# each reason --------------------------------------------------------------------------------------


async def test_why_of_an_unknown_job(storage: Storage, queue: Queue) -> None:
    """An unknown job has no reason, in a known or an unknown queue."""
    assert await queue.why("a") is None
    await put1(storage, "q", "a")
    assert await queue.why("b") is None
    await storage.settle([complete(await claim1(storage), ttl=0)])
    assert await queue.why("a") is None


async def test_why_of_an_expired_job(storage: Storage, queue: Queue, clock: Clock) -> None:
    """A finished job whose TTL is over has no reason, though it was not purged."""
    await put1(storage, "q", "a")
    await storage.settle([complete(await claim1(storage), ttl=SECOND)])
    clock.advance(ms=SECOND)
    assert await queue.why("a") is None


async def test_why_finished(storage: Storage, queue: Queue, clock: Clock) -> None:
    """A finished job shows its state, when it finished and which worker ran it."""
    await put1(storage, "q", "a")
    clock.advance(ms=SECOND)
    await storage.settle([fail(await claim1(storage))])
    clock.advance(ms=SECOND)
    why = await asked(queue)
    assert (why.reason, why.state, why.worker) == (Reason.FINISHED, State.FAILED, "w")
    assert (why.since, why.at) == (moment(T0 + SECOND), moment(T0 + 2 * SECOND))
    assert str(why) == "It has ended: it is failed since 2027-01-15 08:00:01 UTC."


async def test_why_running(storage: Storage, queue: Queue, clock: Clock) -> None:
    """A running job shows its worker, its deadline, and its start if the worker has reported it."""
    await put1(storage, "q", "a")
    await claim1(storage)
    why = await asked(queue)
    assert (why.reason, why.worker, why.since, why.until) == (Reason.RUNNING, "w", None, moment(T0 + LEASE))
    assert str(why) == "It is running: worker 'w' holds it."
    clock.advance(ms=5 * SECOND)
    await beat(storage, runs=[RunSummary("q", "b", 1, 9), RunSummary("q", "a", 1, 3 * SECOND)], running=2)
    why = await asked(queue)
    assert (why.since, why.worker) == (moment(T0 + 2 * SECOND), "w")
    assert str(why) == "It is running: worker 'w' holds it since 2027-01-15 08:00:02 UTC (3.0 s)."


async def test_why_running_with_an_expired_lease(storage: Storage, queue: Queue, clock: Clock) -> None:
    """A run whose lease expired and that was not reaped yet is shown as such."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE + 4 * SECOND)
    assert str(await asked(queue)) == (
        "It is running: worker 'w' holds it, but its lease was over 4.0 s ago, and it will be taken back."
    )


async def test_why_blocked(storage: Storage, queue: Queue) -> None:
    """A blocked job names the worker that runs its id."""
    await put1(storage, "q", "a")
    await claim1(storage)
    await storage.put([update("q", "a")])
    why = await asked(queue)
    assert (why.reason, why.state, why.behind, why.worker) == (Reason.BLOCKED, State.BLOCKED, "a", "w")
    assert str(why) == "It waits for the run of the same id to end: worker 'w' holds it."


async def test_why_scheduled(storage: Storage, queue: Queue) -> None:
    """A scheduled job shows its due time."""
    await put1(storage, "q", "a", delay=3 * HOUR)
    await storage.set_pause("q", True)
    why = await asked(queue)
    assert (why.reason, why.until) == (Reason.SCHEDULED, moment(T0 + 3 * HOUR))
    assert str(why) == "It is scheduled: it may run from 2027-01-15 11:00:00 UTC on, in 3 h."


async def test_why_retrying(storage: Storage, queue: Queue) -> None:
    """A retrying job shows the end of its backoff."""
    await put1(storage, "q", "a")
    await storage.settle([retried(await claim1(storage), delay=30 * SECOND)])
    why = await asked(queue)
    assert (why.reason, why.until) == (Reason.RETRYING, moment(T0 + 30 * SECOND))
    assert str(why) == "It failed and waits for its next try: it may run from 2027-01-15 08:00:30 UTC on, in 30 s."


async def test_why_paused(storage: Storage, queue: Queue, clock: Clock) -> None:
    """A paused queue is the reason of all its waiting jobs, before any other, with the time of the pause."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="g")])
    await storage.set_pause("q", True)
    clock.advance(ms=5 * MINUTE)
    for why in [await asked(queue, id) for id in "ab"]:
        assert (why.reason, why.since) == (Reason.PAUSED, moment(T0))
    assert str(await asked(queue)) == (
        "Queue 'q' is paused since 2027-01-15 08:00:00 UTC (5 min): nothing runs until it is resumed."
    )


async def test_why_behind_a_run_of_its_group(storage: Storage, queue: Queue) -> None:
    """A job names the running job of its group and its worker."""
    await storage.put([new("q", "x"), *(new("q", id, group="g") for id in "abc")])
    await claim_all(storage, limit=2)
    await beat(storage)
    for why in [await asked(queue, id) for id in "bc"]:
        assert (why.reason, why.behind, why.worker) == (Reason.BEHIND_GROUP, "a", "w")
        assert why.head is not None
        assert (why.head.reason, why.head.id) == (Reason.RUNNING, "a")
    assert str(await asked(queue, "c")) == (
        "It waits for 'a', which is before it in its group. That is running: worker 'w' holds it."
    )


async def test_why_behind_a_run_with_a_successor(storage: Storage, queue: Queue) -> None:
    """Jobs behind a running head with a successor are held by the run, not by the successor."""
    await storage.put([new("q", id, group="g") for id in "ab"])
    await claim1(storage)
    await storage.put([update("q", "a", group="g")])
    why = await asked(queue, "b")
    assert why.head is not None
    assert (why.head.reason, why.head.state, why.worker) == (Reason.RUNNING, State.RUNNING, "w")


async def test_why_behind_a_backoff_of_its_group(storage: Storage, queue: Queue, clock: Clock) -> None:
    """A retrying head holds its group, and is found among many jobs."""
    for n in range(30):
        await storage.put([new("q", f"g{n}-{i}", group=f"g{n}") for i in "ab"])
    await storage.settle([retried(claim, delay=MINUTE) for claim in await claim_all(storage)])
    why = await asked(queue, "g17-b")
    assert (why.reason, why.behind) == (Reason.BEHIND_GROUP, "g17-a")
    assert why.head is not None
    assert (why.head.reason, why.head.until) == (Reason.RETRYING, moment(T0 + MINUTE))
    clock.advance(ms=MINUTE)
    why = await asked(queue, "g17-b")
    assert (why.behind, why.head and why.head.reason) == ("g17-a", Reason.NO_WORKER)
    await put1(storage, "q", "g17-c", group="g17")
    await storage.settle([complete(claim) for claim in await claim_all(storage)])
    await storage.settle([retried(claim, delay=MINUTE) for claim in await claim_all(storage)])
    why = await asked(queue, "g17-c")
    assert (why.behind, why.head and why.head.reason) == ("g17-b", Reason.RETRYING)


async def test_why_behind_the_head_of_its_group(storage: Storage, queue: Queue) -> None:
    """A head that is ready is named with its own reason."""
    await storage.put([new("q", id, group="g") for id in "abc"])
    assert (await asked(queue, "a")).reason is Reason.NO_WORKER
    why = await asked(queue, "c")
    assert (why.reason, why.behind) == (Reason.BEHIND_GROUP, "a")
    assert str(why) == (
        "It waits for 'a', which is before it in its group. "
        "That waits for a worker: none that is alive serves queue 'q'."
    )


@pytest.mark.parametrize("met", [False, True])
async def test_why_unknown_format(storage: Storage, queue: Queue, met: bool) -> None:
    """A job of newer software shows its format and the known one, and so does one behind it."""
    setattr(storage, "format", 2)  # noqa: B010 - not part of the protocol
    await storage.put([new("q", "a"), new("q", "b", group="g")])
    setattr(storage, "format", 1)  # noqa: B010
    await put1(storage, "q", "c", group="g")
    if met:
        assert await claim_all(storage) == []
    for why in [await asked(queue, id) for id in "ab"]:
        assert (why.reason, why.state, why.format, why.known) == (Reason.UNKNOWN_FORMAT, State.QUEUED, 2, 1)
    assert str(await asked(queue)) == (
        "It was written by newer software, in format 2: only a worker that knows it can run it, and this one knows 1."
    )
    why = await asked(queue, "c")
    assert (why.reason, why.behind, why.head and why.head.reason) == (Reason.BEHIND_GROUP, "b", Reason.UNKNOWN_FORMAT)
    status = await queue.status("a")
    assert status is not None
    assert (status.state, status.format, status.payload) == (State.QUEUED, 2, None)


async def test_why_no_worker(storage: Storage, queue: Queue, clock: Clock) -> None:
    """Workers of other queues, and those whose heartbeat has expired, do not count."""
    await put1(storage, "q", "a")
    await beat(storage, "other", "elsewhere")
    assert (await asked(queue)).reason is Reason.NO_WORKER
    await beat(storage)
    assert (await asked(queue)).reason is Reason.READY
    clock.advance(ms=DAY)
    why = await asked(queue)
    assert (why.reason, str(why)) == (
        Reason.NO_WORKER,
        "It waits for a worker: none that is alive serves queue 'q'.",
    )
    for worker in ("other", "w"):
        await storage.beat(worker, 0)


async def test_why_workers_full(storage: Storage, queue: Queue) -> None:
    """The units needed are shown, and those free on the worker with the most room."""
    await put1(storage, "q", "a")
    await beat(storage, "v", busy=100)
    await beat(storage, "w", busy=95)
    await beat(storage, "x", "elsewhere")
    why = await asked(queue)
    assert (why.reason, why.needed, why.free) == (Reason.WORKERS_FULL, 10, 5)
    assert str(why) == "It waits for room: it needs 10 units, and no worker that serves its queue has more than 5 free."
    await beat(storage, "v", busy=40, allowed=50)
    assert (await asked(queue)).reason is Reason.READY


async def test_why_workers_full_with_concurrency(storage: Storage) -> None:
    """With `concurrency` the runs of the queue count, not the units."""
    app = Penstock(storage=storage)
    app.listen("q", "tests.e2e.jobs:quick", concurrency=2)
    await put1(storage, "q", "a")
    runs = [RunSummary("q", "x", 1, 5), RunSummary("q", "y", 1, 5)]
    await beat(storage, busy=100, runs=runs[:1])
    assert (await asked(app.queue("q"))).reason is Reason.READY
    await beat(storage, busy=0, runs=runs)
    why = await asked(app.queue("q"))
    assert (why.reason, why.needed, why.free) == (Reason.WORKERS_FULL, 1, 0)


async def test_why_workers_full_without_the_handler(storage: Storage) -> None:
    """An app without the handler cannot know its size; a worker without a free unit is full all the same."""
    queue = Penstock(storage=storage).queue("q")
    await put1(storage, "q", "a")
    await beat(storage, busy=99)
    why = await asked(queue)
    assert (why.reason, why.needed, why.free) == (Reason.READY, None, 1)
    await beat(storage, busy=100)
    why = await asked(queue)
    assert (why.reason, why.needed, why.free) == (Reason.WORKERS_FULL, None, 0)


async def test_why_ready(storage: Storage, queue: Queue) -> None:
    """A ready job shows the number of jobs before it."""
    await beat(storage)
    await storage.put([new("q", "a"), new("q", "b", group="g"), new("q", "c"), new("q", "d", priority=1)])
    await storage.put([new("q", "e", group="g"), new("q", "f", priority=-1)])
    assert {id: (await asked(queue, id)).ahead for id in "abcdf"} == {"d": 0, "a": 1, "b": 2, "c": 3, "f": 4}
    assert str(await asked(queue, "d")) == "It is next in line: nothing holds it."
    assert str(await asked(queue, "a")) == "It is in line: nothing holds it, and 1 is before it."
    assert str(await asked(queue, "c")) == "It is in line: nothing holds it, and 3 are before it."


async def test_why_ready_counts_a_bounded_number(storage: Storage, queue: Queue) -> None:
    """The jobs before a ready one are counted up to a limit."""
    await beat(storage)
    for at in range(0, MAX_AHEAD, 500):
        await storage.put([new("q", f"j{n}", priority=1) for n in range(at, at + 500)])
    await storage.put([new("q", "a"), new("q", "b")])
    assert [(await asked(queue, id)).ahead for id in ("j999", "a", "b")] == [999, MAX_AHEAD, MAX_AHEAD]
    assert str(await asked(queue, "b")) == f"It is in line: nothing holds it, and {MAX_AHEAD} or more are before it."


async def test_why_changes_nothing(storage: Storage, queue: Queue, clock: Clock) -> None:
    """Repeated calls of why leave the order as it is."""
    await storage.put([new("q", "a", delay=SECOND), new("q", "b", group="g"), new("q", "c", group="h")])
    clock.advance(ms=SECOND)
    for id in "abcabc":
        await asked(queue, id)
    assert ids(await claim_all(storage)) == ["b", "c", "a"]


@pytest.mark.only("memory")  # no call reaches a storage
async def test_why_of_a_bad_id_is_refused(queue: Queue) -> None:
    """A bad id raises an error that names the argument."""
    with pytest.raises(ValueError, match="id"):
        await queue.why("")


# any state ----------------------------------------------------------------------------------------

IDS = ("a", "b", "c", "d", "e")

#: Examples of each storage; all of them take well under a minute.
EXAMPLES = {"memory": 250, "sqlite": 60, "redis": 100, "valkey": 30, "cluster": 30}

#: A job that does not run after this number of reasons never will.
MAX_STEPS = 60

puts = st.tuples(
    st.just("put"), st.sampled_from(IDS), st.sampled_from([None, "g", "g", "h"]),
    st.sampled_from([None, None, None, 0, SECOND, HOUR]), st.sampled_from([1, 1, 1, 1, 2]), st.sampled_from([0, 0, 1]),
)  # fmt: skip
claims = st.tuples(st.just("claim"), st.integers(1, 4))
settles = st.tuples(st.just("settle"), st.sampled_from(["complete", "keep", "retry", "retry", "release", "fail"]))
others = st.one_of(
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("move"), st.sampled_from([1, SECOND, LEASE])),
    st.tuples(st.just("reap")),
    st.tuples(st.just("beat"), st.sampled_from(["v", "w"]), st.sampled_from(["q", "q", "r"]), st.sampled_from([0, 95])),
)
steps = st.one_of(puts, puts, puts, claims, settles, others)


class WhyScenario:
    """A storage in some state, with the calls of an operator who wants a job to run."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.storage = storage
        self.clock = clock
        self.queue = app_on(storage).queue("q")
        self.held: dict[str, Claim] = {}

    async def do(self, step: tuple[Any, ...]) -> None:
        """Apply one step of the script that leads to the state."""
        match step:
            case ("put", id, group, delay, format, priority):
                setattr(self.storage, "format", format)  # noqa: B010 - not part of the protocol
                rank = 0 if group else priority
                await self.storage.put([update("q", id, b"x", group=group, priority=rank, delay=delay)])
                setattr(self.storage, "format", 1)  # noqa: B010
            case ("claim", limit):
                self.held |= {claim.id: claim for claim in await claim_all(self.storage, limit=limit)}
            case ("settle", how) if self.held:
                await self.settle(next(iter(self.held)), how)
            case ("pause", paused):
                await self.storage.set_pause("q", paused)
            case ("move", ms):
                self.clock.advance(ms=ms)
            case ("reap",):
                for each in await self.storage.reap(["q"]):
                    del self.held[each.id]
            case ("beat", worker, queue, busy):
                await beat(self.storage, worker, queue, busy=busy)
            case _:
                pass

    async def settle(self, id: str, how: str = "complete") -> None:
        claim = self.held.pop(id)
        settlements = {
            "complete": complete(claim, ttl=0), "keep": complete(claim), "release": release(claim),
            "retry": retried(claim, delay=MINUTE), "fail": fail(claim),
        }  # fmt: skip
        await self.storage.settle([settlements[how]])

    async def claimable(self) -> set[str]:
        """Return the ids that a claim of all jobs gives, and release them at once."""
        claims = await claim_all(self.storage, limit=1000)
        await self.storage.settle([release(claim) for claim in claims])
        return {claim.id for claim in claims}

    async def run(self, id: str) -> None:
        """Remove reason after reason until the job runs or is finished."""
        for _ in range(MAX_STEPS):
            why = await self.queue.why(id)
            if why is None:
                assert (await self.storage.get("q", [id])) == [None]
                return
            assert str(why)
            free = why.reason in (Reason.NO_WORKER, Reason.WORKERS_FULL, Reason.READY)
            assert (id in await self.claimable()) == free, f"{why.reason} is not why"
            again = await self.queue.why(id)
            assert again is not None
            assert again.reason is why.reason
            if await self.remove(again):
                return
        raise AssertionError(f"{id} does not come to run: {await self.queue.why(id)}")

    async def remove(self, why: Why) -> bool:
        """Remove the reason; True when the job runs or is finished."""
        match why.reason:
            case Reason.FINISHED:
                assert (await self.storage.get("q", [why.id]))[0] is not None
                return True
            case Reason.RUNNING:
                assert why.worker == "w"
                assert why.id in self.held
                return True
            case Reason.BLOCKED:
                await self.settle(why.id)
            case Reason.SCHEDULED | Reason.RETRYING:
                assert why.until is not None
                assert why.until > why.at
                self.clock.ms = round(why.until.timestamp() * 1000)
            case Reason.PAUSED:
                await self.storage.set_pause("q", False)
            case Reason.UNKNOWN_FORMAT:
                setattr(self.storage, "format", why.format)  # noqa: B010
            case Reason.NO_WORKER:
                await beat(self.storage, "v")
            case Reason.WORKERS_FULL:
                assert (why.needed, why.free) == (10, 5)
                await beat(self.storage, "v", busy=0)
            case Reason.BEHIND_GROUP:
                assert why.head is not None
                if await self.remove(why.head):
                    await self.settle(why.head.id)
            case Reason.READY:
                assert why.ahead is not None
                self.held |= {claim.id: claim for claim in await claim_all(self.storage, limit=why.ahead + 1)}
                assert why.id in self.held
                return True
        return False


async def play(backend: Backend, script: list[tuple[Any, ...]], order: list[str]) -> None:
    clock = Clock()
    backend.namespace = new_namespace()
    storage = backend.build(clock)
    await storage.open()
    try:
        scene = WhyScenario(storage, clock)
        for step in script:
            await scene.do(step)
        for id in order:
            await scene.run(id)
        await forget_all(storage)
    finally:
        await storage.close()
        backend.clear()


@pytest.mark.timeout(300)
def test_removing_the_reasons_brings_any_job_to_run(backend: Backend) -> None:
    """In any state the named reason keeps the job from running, and without its reasons the job runs."""

    @settings(
        max_examples=share_of(EXAMPLES[backend.name]), deadline=None, derandomize=True, database=None, print_blob=True,
        suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
    )  # fmt: skip
    @given(script=st.lists(steps, min_size=15, max_size=40), order=st.permutations(IDS))
    def check(script: list[tuple[Any, ...]], order: list[str]) -> None:
        with asyncio.Runner() as runner:
            runner.run(play(backend, script, order))

    check()
