"""Work of every script at its bounds, with records of 1 MB and with 50,000 runs: bounded in time and in bytes.

The time is that of the server's main thread, in units of a reference script that the same server runs between the
steps: neither other load nor a slow machine counts. A step of the test makes one or more calls of scripts; what the
step took is divided by their number. A script whose work grew with the size of the queue would be one call that takes
long.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.errors import JobError
from penstock.model.activity import MAX_BULK, Activity, BulkAction
from penstock.model.history import MAX_LINES, NewLine, Report
from penstock.model.job import NewJob, State, Update
from penstock.model.limit import Limit
from penstock.model.schedule_decision import MAX_FIRES
from penstock.model.stats import BUCKETS
from penstock.storage import redis as redis_package
from penstock.storage.base import (
    MAX_BATCH,
    ClaimRef,
    Complete,
    EventRecord,
    Fail,
    Release,
    Request,
    Retried,
    Settlement,
)
from penstock.storage.limiting import Scope
from penstock.storage.observing import Histogram, RunTimes
from penstock.storage.redis import RedisStorage
from penstock.storage.redis.scripts import script
from penstock.storage.scheduling import MAX_DUE, Firing, ScheduleRecord, TickJob
from tests.servers import Server, redis_program
from tests.storage.flow_steps import use_flows
from tests.support import HOUR, LEASE, SECOND, Clock, report_progress

#: The most that a call may take, in runs of `REFERENCE`, and return, in bytes. A run takes 10 to 15 ms on the machine
#: on which it was chosen.
MAX_WORK, MAX_REPLY = 5.0, 8_000_000
REFERENCE = """
local parts = {}
redis.call('SET', KEYS[1], string.rep('x', 1000000))
for i = 1, 3000 do parts[i % 100 + 1] = cmsgpack.pack({i, redis.call('STRLEN', KEYS[1]), 'name' .. i}) end
return redis.call('DEL', KEYS[1])
"""
MB = 1_000_000
LARGE, RUNS, WORKERS, LEASES, SCHEDULES, GROUPS = 60, 50_000, 20_000, 50, 2_000, 20_000
SCRIPTS = sorted(p.stem for p in (Path(redis_package.__file__).parent / "lua").glob("*.lua") if p.stem[0] != "_")


class Meter:
    """Measures steps on a server: the work of each call of a script, by the name of the script."""

    def __init__(self, server: Server, storage: RedisStorage) -> None:
        self.client = server.client()
        self.names = {script(name, storage.format).sha: name for name in SCRIPTS}
        #: By script: the most CPU time (runs of the reference script) and the most bytes of a call.
        self.worst: dict[str, tuple[float, float]] = {}
        self._units: list[float] = []
        self.client.config_set("slowlog-log-slower-than", 0)
        self.client.config_set("slowlog-max-len", 10_000)

    def _state(self) -> tuple[float, int]:
        cpu: dict[str, Any] = self.client.info("cpu")  # type: ignore[assignment]
        sent = self.client.info("stats")["total_net_output_bytes"]  # type: ignore[index]
        return cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"], sent

    def _unit(self) -> float:
        """Return the CPU time (s) of a run of the reference script: the longest of the last three."""
        before, _ = self._state()
        self.client.eval(REFERENCE, 1, "reference")
        self._units = [*self._units[-2:], self._state()[0] - before]
        return max(self._units)

    async def step(self, call: Awaitable[Any]) -> Any:
        """Await a verb and note the work per call of the scripts that it called."""
        if not self._units:
            self._unit()
        self.client.slowlog_reset()
        cpu, sent = self._state()
        answer = await call
        cpu_after, sent_after = self._state()
        called = [entry["command"].split()[1].decode() for entry in self.client.slowlog_get(10_000)
                  if entry["command"].startswith(b"EVALSHA")]  # fmt: skip
        names = [self.names[sha] for sha in called if sha in self.names]
        for name in {*names}:
            before = self.worst.get(name, (0.0, 0.0))
            time = (cpu_after - cpu) / len(names)
            unit = max(self._units) if time < max(self._units) else self._unit()
            work = time / unit, (sent_after - sent) / len(names)
            self.worst[name] = max(before[0], work[0]), max(before[1], work[1])
        return answer


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own: the records of this test would slow down others."""
    server = Server(redis_program()).start()
    yield server
    server.remove()


@asynccontextmanager
async def measured(server: Server, clock: Clock) -> AsyncGenerator[tuple[RedisStorage, Meter]]:
    storage = RedisStorage(f"redis://{server.address}", clock=clock)
    await storage.open()
    meter = Meter(server, storage)
    try:
        yield storage, meter
    finally:
        meter.client.close()
        await storage.close()


async def test_every_script_works_in_bounded_steps(server: Server, clock: Clock) -> None:
    """At the bounds of each script a call works less than five runs of the reference, and returns less than 8 MB."""
    async with measured(server, clock) as (storage, meter):
        await use_large_records(storage, meter, clock)
        await use_many_runs(storage, meter, clock)
        await use_schedules(storage, meter, clock)
        await use_many_groups(storage, meter, clock)
        await use_statistics(storage, meter, clock)
        await use_the_rest(storage, meter)
        await use_flows(storage, meter)
    assert sorted(meter.worst) == SCRIPTS, "a script has no step here"
    slow = {name: f"{work:.1f} runs" for name, (work, _) in meter.worst.items() if work >= MAX_WORK}
    assert not slow, "time of a call, in runs of the reference script"
    large = {name: f"{size:.0f} bytes" for name, (_, size) in meter.worst.items() if size >= MAX_REPLY}
    assert not large, "bytes of an answer"


def large_jobs(**options: Any) -> list[NewJob]:
    return [NewJob(queue="large", id=f"{i:03}", payload=b"x" * MB, **options) for i in range(LARGE)]


async def claim_large(storage: RedisStorage, meter: Meter, token: str, batch: int = 1) -> list[ClaimRef]:
    held: list[ClaimRef] = []
    while claims := (
        await meter.step(storage.claim([Request("large", LARGE, batch)], "w", LEASE, f"{token}{len(held):03}"))
    ).claims:
        held += [ClaimRef(claim.queue, claim.id, claim.token) for claim in claims]
    assert len(held) == LARGE
    return held


async def use_large_records(storage: RedisStorage, meter: Meter, clock: Clock) -> None:
    """Lead jobs of 1 MB through all verbs."""
    ids = [job.id for job in large_jobs()]
    await meter.step(storage.put(large_jobs(delay=SECOND, start_within=HOUR)))
    clock.advance(seconds=1)
    await meter.step(storage.find("large", State.QUEUED, limit=MAX_BATCH))  # promotes
    assert all(await meter.step(storage.get("large", ids)))
    held = await claim_large(storage, meter, "retry")
    await meter.step(storage.renew("w", held, LEASE))
    await meter.step(storage.find("large", State.RUNNING, limit=MAX_BATCH))
    await meter.step(storage.put([NewJob(queue="large", id=id, payload=b"x" * MB, update=Update()) for id in ids[:8]]))
    await meter.step(storage.find("large", State.BLOCKED, limit=MAX_BATCH))
    await meter.step(storage.settle([Settlement(h.queue, h.id, h.token, Retried(delay=SECOND)) for h in held]))
    clock.advance(seconds=1)
    await meter.step(storage.peek("large"))  # promotes
    held = await claim_large(storage, meter, "batch", batch=10)
    await meter.step(storage.settle([Settlement(h.queue, h.id, h.token, Release()) for h in held]))
    await claim_large(storage, meter, "stall")
    clock.ms += LEASE
    assert len(await meter.step(storage.reap(["large"]))) == LARGE
    moved = Update(payload=False, run_at=True)
    await meter.step(storage.put([NewJob(queue="large", id=id, payload=b"", update=moved) for id in ids]))
    assert {a.status for a in await meter.step(storage.cancel("large", ids, ttl=HOUR))} == {"cancelled"}
    assert all(await meter.step(storage.revive("large", ids)))
    held = await claim_large(storage, meter, "done")
    result = b"r" * MB
    await meter.step(storage.settle([Settlement(h.queue, h.id, h.token, Complete(result, HOUR)) for h in held]))
    await meter.step(storage.latest("large", State.COMPLETED, MAX_BATCH))
    again = await meter.step(storage.put([NewJob(queue="large", id=id, payload=b"") for id in ids]))
    assert {put.result for put in again} == {result}
    jobs = (await meter.step(storage.find("large", State.COMPLETED, limit=3))).jobs
    assert set(await meter.step(storage.discard("large", ids))) == {"discarded"}
    assert all(await meter.step(storage.restore(jobs)))
    await meter.step(storage.delete_queue("large"))
    await meter.step(storage.put(large_jobs(start_within=SECOND)))
    clock.advance(seconds=1)
    await meter.step(storage.counts("large"))  # expires
    clock.ms += HOUR
    while await meter.step(storage.purge(["large"])):
        pass


async def use_many_runs(storage: RedisStorage, meter: Meter, clock: Clock) -> None:
    """Run 50,000 jobs at a time, and leave one run of most claims."""
    await storage.put([NewJob(queue="many", id=f"{i}", payload=b"", fresh=True) for i in range(RUNS)])
    held: list[list[ClaimRef]] = []
    for n in range(LEASES):
        claimed = await meter.step(storage.claim([Request("many", MAX_BATCH)], "w", LEASE, f"token{n:011}"))
        held.append([ClaimRef(claim.queue, claim.id, claim.token) for claim in claimed.claims])
    assert sum(map(len, held)) == RUNS
    await storage.put([NewJob(queue="many", id=id, payload=b"", group="g") for id in "ab"])
    await storage.claim([Request("many", 1)], "w", LEASE, "tokenz" + "0" * 10)
    position = await meter.step(storage.why("many", "b"))
    assert position is not None
    assert position.head is not None
    assert position.head.id == "a"
    await storage.put([NewJob(queue="many", id="a", payload=b"", update=Update())])
    assert len((await meter.step(storage.find("many", State.RUNNING, limit=MAX_BATCH))).jobs) == MAX_BATCH
    assert [job.id for job in (await meter.step(storage.find("many", State.BLOCKED))).jobs] == ["a"]
    await meter.step(storage.counts("many"))
    await meter.step(storage.meters(["many"]))
    await meter.step(storage.renew("w", held[0], LEASE))
    for claim in held:
        await meter.step(storage.settle([Settlement(h.queue, h.id, h.token, Complete(b"", HOUR)) for h in claim[1:]]))
    assert len((await meter.step(storage.find("many", State.RUNNING, limit=100))).jobs) == LEASES + 1
    clock.ms += LEASE
    assert len(await meter.step(storage.reap(["many"]))) == LEASES + 1
    await meter.step(storage.set_pause("many", True))
    await meter.step(storage.set_pause("many", False))
    await meter.step(storage.delete_queue("many"))


async def use_statistics(storage: RedisStorage, meter: Meter, clock: Clock) -> None:
    """Fail 2,000 jobs with errors of 8 KB in 200 groups, sample them for two hours, list them and purge them."""
    names = [f"{i}" for i in range(2 * MAX_BATCH)]
    await storage.put([NewJob(queue="failing", id=id, payload=b"", fresh=True) for id in names])
    for part in range(2):
        claims = (await storage.claim([Request("failing", MAX_BATCH)], "w", LEASE, f"fail{part:012}")).claims
        errors = [JobError("E", "m", traceback="t" * 8_000, key=f"{i % 200:016x}").encode() for i in range(MAX_BATCH)]
        await meter.step(
            storage.settle([
                Settlement(c.queue, c.id, c.token, Fail(error, 4 * HOUR))
                for c, error in zip(claims, errors, strict=True)
            ])
        )  # fmt: skip
    times = Histogram((1,) * BUCKETS, 1)
    for _ in range(120):
        await storage.put([NewJob(queue="failing", id=f"{clock.ms}", payload=b"", group=f"g{clock.ms}")])
        await meter.step(storage.record_stats("w", [RunTimes("failing", times, times)]))
        clock.ms += 60 * SECOND // 2
    await meter.step(storage.stats(["failing"]))
    for queue in ("failing", None):
        assert len(await meter.step(storage.history(queue))) > 50
    assert await meter.step(storage.history_bytes(["failing"])) > 0
    assert len((await meter.step(storage.error_groups("failing", limit=1000))).groups) == 200
    assert len((await meter.step(storage.group_jobs("failing", f"{1:016x}", limit=1000))).jobs) == 10
    assert len((await meter.step(storage.groups("failing", limit=1000))).groups) == 120
    await meter.step(storage.find("failing", State.FAILED, limit=MAX_BATCH, newest=True))
    clock.ms += 4 * HOUR
    while await meter.step(storage.purge(["failing"])):
        pass
    await meter.step(storage.delete_queue("failing"))


async def use_schedules(storage: RedisStorage, meter: Meter, clock: Clock) -> None:
    """Fire 100 of 2,000 schedules, one with as many ticks as a decision fires, and some with specs and jobs of 1 MB."""
    due = clock.ms + SECOND

    def record(name: str, spec: bytes = b"x" * 300, **fields: Any) -> ScheduleRecord:
        given: dict[str, Any] = {"cursor": 0, "next": due}
        return ScheduleRecord(queue="timed", name=name, spec=spec, **given | fields)

    def firing(record: ScheduleRecord, count: int, size: int, **fields: Any) -> Firing:
        ids = [f"{record.name}@{record.version}-{i}" for i in range(count)]
        jobs = [TickJob(due, NewJob(queue="timed", id=id, payload=b"x" * size, group="g")) for id in ids]
        moved: dict[str, Any] = {"cursor": due, "next": due + HOUR}
        return Firing(queue="timed", name=record.name, version=record.version, ticks=tuple(jobs), **moved | fields)

    for i in range(SCHEDULES):
        await storage.set_schedule(record(f"s{i:04}", expires=due + HOUR), 0)
    clock.ms = due
    found = (await meter.step(storage.due(["timed"], "w"))).schedules
    assert len(found) == MAX_DUE
    fired = await meter.step(storage.fire([firing(each, 1, 100, overlap="queue", room=MAX_BATCH) for each in found]))
    assert sum(each.fired for each in fired) == MAX_DUE
    large = [record(f"t{i}", b"x" * MB, cursor=clock.ms) for i in range(20)]
    for each in large:
        await meter.step(storage.set_schedule(each, 0))
    await meter.step(storage.schedules("timed", "t", 1000))
    [one] = (await storage.schedules("timed", "t", 1)).schedules
    assert await meter.step(storage.get_schedule("timed", one.name)) == one
    for overlap in ("allow", "replace"):
        [answer] = await meter.step(storage.fire([firing(one, MAX_FIRES, 100, overlap=overlap)]))
        assert answer.fired == MAX_FIRES
        one = replace(one, version=answer.version)
    [answer] = await meter.step(storage.fire([firing(one, 4, MB, overlap="replace")]))
    edited = await meter.step(storage.set_schedule(one, answer.version, firing(one, 4, MB, overlap="allow")))
    assert edited is not None
    assert len((await meter.step(storage.schedules("timed", limit=1000))).schedules) == 1000
    assert await meter.step(storage.drop_schedule("timed", one.name, edited))
    clock.ms += HOUR
    assert await meter.step(storage.purge(["timed"])) == MAX_BATCH
    await meter.step(storage.due(["timed"], "w"))
    await meter.step(storage.delete_queue("timed", settings=True))


async def use_many_groups(storage: RedisStorage, meter: Meter, clock: Clock) -> None:
    """Close 20,000 groups by their rates, and open them by a change of their rule, on a clock that is set back."""
    every, names = Scope("groups", "many"), [f"g{i}" for i in range(GROUPS)]
    await meter.step(storage.set_limit(every, Limit(rate="1/s").rule("group", 0), b"", 0))
    for part in ("a", "b"):
        jobs = [NewJob(queue="many", id=part + name, payload=b"", group=name) for name in names]
        for at in range(0, GROUPS, MAX_BATCH):
            await meter.step(storage.put(jobs[at : at + MAX_BATCH]))
    held = await start_groups(storage, meter, "start", GROUPS)
    await end_groups(storage, meter, held)
    assert (await meter.step(storage.get_limit(every))).closed == GROUPS
    assert await meter.step(storage.peek("many")) is None
    position = await meter.step(storage.why("many", f"b{names[0]}"))
    assert position is not None
    assert position.gate is not None
    await meter.step(storage.set_limit(every, Limit(concurrency=2).rule("group", 0), b"", 1))
    clock.ms -= 1
    for _ in range(GROUPS // MAX_BATCH + 1):
        await meter.step(storage._calls.run("peek", "many"))  # looks at the groups again, a part in each call
    await meter.step(storage.set_pause("many", True, group="g0"))
    assert await meter.step(storage.paused("many", "g0")) is not None
    held = await start_groups(storage, meter, "again", GROUPS - 1)
    await meter.step(storage.set_limit(Scope("queue", "many"), Limit(concurrency=1).rule("queue", 0), b"", 0))
    position = await meter.step(storage.why("many", "bg0"))
    assert position is not None
    assert position.gate is not None
    await meter.step(storage.limits("many"))
    await end_groups(storage, meter, held)
    clock.ms += HOUR
    await meter.step(storage.purge(["many"]))
    await meter.step(storage.delete_queue("many", settings=True))


async def end_groups(storage: RedisStorage, meter: Meter, held: list[ClaimRef]) -> None:
    done = [Settlement(h.queue, h.id, h.token, Complete(b"", None)) for h in held]
    for at in range(0, len(done), MAX_BATCH):
        await meter.step(storage.settle(done[at : at + MAX_BATCH]))


async def start_groups(storage: RedisStorage, meter: Meter, token: str, count: int) -> list[ClaimRef]:
    held: list[ClaimRef] = []
    while len(held) < count:
        claimed = await meter.step(storage.claim([Request("many", MAX_BATCH)], "w", LEASE, f"{token}{len(held):011}"))
        assert claimed.claims
        held += [ClaimRef(claim.queue, claim.id, claim.token) for claim in claimed.claims]
    return held


async def use_operators(storage: RedisStorage, meter: Meter) -> None:
    """Call the scripts of records about operators, with as many as there may be."""
    for n in range(MAX_BULK):
        action = BulkAction(id=str(n), who="ann", verb="retry", filter="x" * 100, as_of=0, starts_at=0)
        await storage.put_bulk(action)
    await meter.step(storage.put_bulk(BulkAction(id="more", who="ann", verb="retry", filter="", as_of=0, starts_at=0)))
    assert len(await meter.step(storage.bulk_actions(2 * MAX_BULK))) == MAX_BULK
    await meter.step(storage.get_bulk("more"))
    await meter.step(storage.log_activity(Activity(who="ann", verb="pause")))
    await meter.step(storage.activity())
    await meter.step(storage.add_release("v1"))
    await meter.step(storage.releases())
    await meter.step(storage.ask_worker("w", "quiet"))


async def use_the_rest(storage: RedisStorage, meter: Meter) -> None:
    """Call the scripts that work on one job, one worker or all workers."""
    times = struct.pack(">HIHI", 0, 0, 0xFFFF, 0)
    for at in range(0, WORKERS, MAX_BATCH):
        meter.client.hset(
            "penstock:{workers}:present", mapping={f"w{at + i}": times + b"i" * 300 for i in range(MAX_BATCH)}
        )
    assert len(await meter.step(storage.workers())) == WORKERS
    await meter.step(storage.beat("w", HOUR))
    await use_operators(storage, meter)
    await meter.step(storage.announce([EventRecord("idle", "q", "", 0)]))
    await meter.step(storage._calls.run("wake", "q"))
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    [claim] = (await storage.claim([Request("q", 1)], "w", LEASE, "t" * 16)).claims
    held = ClaimRef("q", "a", claim.token)
    await meter.step(report_progress(storage, held, b"p" * MB))
    for first in (1, MAX_LINES + 1):  # the second time a full log is cut to the last lines
        lines = tuple(NewLine("x" * 250) for _ in range(MAX_LINES))
        await meter.step(storage.report([Report(queue="q", id="a", token=claim.token, lines=lines, first=first)]))
    page = await meter.step(storage.read("q", "a", "log"))
    assert page is not None
    assert len(page.entries) == MAX_LINES
    await meter.step(storage._join_waiters("q", ["a"], "s" * 32 + "channel"))
    await meter.step(storage.settle([Settlement("q", "a", claim.token, Complete(b"", HOUR))]))
    await meter.step(storage.set_ttl("q", "a", HOUR))
