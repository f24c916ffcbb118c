"""Costs of the storage's verbs in commands and statements, against a recorded budget.

They are counted, so a slower verb is noticed without a clock. The budgets are in budget.toml: a change that
needs more raises them there, and one that needs less lowers them.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tomllib
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import JobError
from penstock.model.job import State
from penstock.storage.base import EventRecord, Request, Storage
from penstock.storage.observing import Histogram, RunTimes, need_observing
from penstock.storage.redis.listener_marks import ListenerMarks
from penstock.storage.sqlite import waiters
from tests.schedules import fire1, firing, record, scheduling, set1, tick
from tests.support import (
    HOUR,
    LEASE,
    T0,
    Backend,
    RedisBackend,
    claim_all,
    complete,
    fail,
    held,
    new,
    put1,
)

pytestmark = pytest.mark.beyond_model

BUDGETS: dict[str, dict[str, dict[str, int]]] = tomllib.loads(Path(__file__).with_name("budget.toml").read_text())
WORK = list(BUDGETS["redis"])
LISTENED = list(BUDGETS["redis_listened"])


async def do_work_of_schedules(work: str, storage: Storage, begin: Callable[[], object]) -> None:
    """Do the same with the verbs of schedules: "fire 100" is one call with the ticks of a hundred schedules."""
    verbs = scheduling(storage)
    names = [f"s{i}" for i in range(1 if work.endswith("one") else 100)]
    await fire1(storage, await set1(storage, "first"), tick(0, "first"), name="first", next=None)
    await verbs.due(["q"], "w")
    moment = T0 + HOUR if work == "due nothing" else T0
    versions = [await set1(storage, name, next=moment) for name in names]
    await verbs.due(["q"], "w")
    firings = [firing(version, tick(1, name), name=name) for name, version in zip(names, versions, strict=True)]
    begin()
    if work.startswith("set schedule"):
        await verbs.set_schedule(record(names[0]), versions[0])
    elif work.startswith("due"):
        await verbs.due(["q"], "w")
    else:
        await verbs.fire(firings)


async def do_work_of_statistics(work: str, storage: Storage, begin: Callable[[], object]) -> None:
    """Do the same with statistics: "fail 100" is one call with the failures of a hundred jobs of one error group."""
    observing, times = need_observing(storage), [RunTimes("q", Histogram((1,), 1), Histogram((1,), 1))]
    error = JobError("E", "m", key="0123456789abcdef").encode()
    await storage.put([new("q", f"j{i}") for i in range(101)])
    first, *claims = await claim_all(storage, limit=101)
    await storage.settle([fail(first, error)])
    await observing.record_stats("w", times)
    await observing.stats(["q"])
    begin()
    if work.startswith("fail"):
        await storage.settle([fail(claim, error) for claim in claims])
    elif work.startswith("record"):
        await observing.record_stats("w", times)
    else:
        await observing.stats(["q"])


async def do_work_of_reads(work: str, storage: Storage, begin: Callable[[], object]) -> None:
    """Do the same with reads: "find one behind 1000 groups" looks for the only job without a group."""
    groups = int(work.split()[-2])
    await storage.put([new("q", f"j{i}", group=f"g{i}") for i in range(groups)])
    await put1(storage, "q", "plain")
    await storage.find("q", State.QUEUED, None, 1)
    begin()
    page = await storage.find("q", State.QUEUED, None, 1)
    assert [job.id for job in page.jobs] == ["plain"]


async def do_work(work: str, storage: Storage, begin: Callable[[], object]) -> None:
    """Prepare, call `begin` to start the counting, and do the work."""
    if work.startswith("find"):
        await do_work_of_reads(work, storage, begin)
        return
    if work.startswith(("set schedule", "due", "fire")):
        await do_work_of_schedules(work, storage, begin)
        return
    if work.startswith(("fail", "record", "stats")):
        await do_work_of_statistics(work, storage, begin)
        return
    await put1(storage, "q", "first")  # every script is known to the server, and every statement prepared
    first = await claim_all(storage)
    await storage.renew("w", [held(claim) for claim in first], LEASE)
    await storage.settle([complete(claim) for claim in first])
    names = [f"j{i}" for i in range(1 if work.endswith("one") else 100)]
    fresh = [new("q", id, fresh=True) for id in names]
    if work.startswith("put"):
        jobs = fresh
        if work.endswith("ids"):
            jobs = [new("q", id) for id in names]
        elif work.endswith("groups"):
            jobs = [new("q", id, group=f"g{i % 10}") for i, id in enumerate(names)]
        begin()
        await (storage.put(jobs, 1000) if "bounded" in work else storage.put(jobs))
        return
    if work.endswith("lanes"):
        fresh = [new("q", id, group=id, fresh=True) for id in names]
    if work != "claim nothing":
        await storage.put(fresh)
    if work.startswith("claim"):
        begin()
    claims = (await storage.claim([Request("q", 100)], "w", LEASE, "t")).claims
    if work == "renew 100":
        begin()
        await storage.renew("w", [held(claim) for claim in claims], LEASE)
    elif "settle" in work:
        if work.startswith("settle"):
            begin()
        await storage.settle([complete(claim) for claim in claims])


async def count_commands(work: str, storage: Storage, backend: Backend) -> dict[str, int]:
    """Do the work on Redis, and count the calls and the commands of their scripts."""
    assert isinstance(backend, RedisBackend)
    with backend.clients()[0] as client:
        await do_work(work, storage, client.config_resetstat)
        return read_commands(client)


def read_commands(client: Any) -> dict[str, int]:
    """Return the calls and the commands that a server has run since its statistics were reset."""
    stats: dict[str, dict[str, int]] = client.info("commandstats")
    counts = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    calls = counts.pop("evalsha", 0) + counts.pop("eval", 0)
    commands = sum(n for name, n in counts.items() if not name.startswith(("config", "info", "client", "script")))
    return {"calls": calls, "commands": commands}


async def count_statements(work: str, storage: Storage) -> dict[str, int]:
    """Do the work on SQLite, and count the statements and the commits."""
    ran: list[str] = []
    engine: Any = storage.engine  # type: ignore[attr-defined]
    connection: sqlite3.Connection = engine.connection()

    def begin() -> None:
        connection.set_trace_callback(ran.append)

    await do_work(work, storage, begin)
    connection.set_trace_callback(None)
    return {"statements": len(ran), "commits": sum(1 for statement in ran if statement == "COMMIT")}


async def count(work: str, storage: Storage, backend: Backend) -> dict[str, int]:
    """Do the work, and count what the budget bounds."""
    if not isinstance(backend, RedisBackend):
        return await count_statements(work, storage)
    return await count_commands(work, storage, backend)


def exceeds(counts: dict[str, int], budget: dict[str, int]) -> bool:
    return any(counts[name] > most for name, most in budget.items())


@pytest.mark.only("redis", "valkey", "sqlite")
@pytest.mark.parametrize("work", WORK)
async def test_a_verb_costs_no_more_than_its_budget(work: str, storage: Storage, backend: Backend) -> None:
    """The calls of a verb and their commands, or its statements and commits, stay within the recorded budget."""
    counts = await count(work, storage, backend)
    assert not exceeds(counts, BUDGETS["sqlite" if "commits" in counts else "redis"][work]), f"{work}: {counts}"


@asynccontextmanager
async def listening(storage: Any, queue: str | None, names: Collection[str] | None) -> AsyncGenerator[None]:
    """Register a listener as a feed does, and unregister it; it renews nothing meanwhile."""
    if hasattr(storage, "engine"):
        await storage.submit(lambda tx: waiters.add_listener(tx, "waiter", "address", queue, names), True)
        yield
        await storage.submit(lambda tx: waiters.remove_listener(tx, "waiter"), True)
        return
    marks = ListenerMarks(storage._connection, storage._keys, queue, names)
    await marks.set()
    yield
    await marks.remove()


@pytest.mark.only("redis", "sqlite", "memory")
@pytest.mark.parametrize(
    "listener",
    [("another queue", None), ("q", ["failed", "idle"]), (None, ["failed"])],
    ids=["another queue", "other events", "other events of all queues"],
)
@pytest.mark.parametrize("work", LISTENED)
async def test_a_listener_to_other_events_costs_nothing(
    work: str, listener: Any, storage: Storage, backend: Backend
) -> None:
    """A listener to another queue or to other events adds no command and no statement."""
    async with listening(storage, *listener):
        counts = await count(work, storage, backend)
    assert not exceeds(counts, BUDGETS["sqlite" if "commits" in counts else "redis"][work]), f"{work}: {counts}"


@pytest.mark.only("redis", "sqlite", "memory")
@pytest.mark.parametrize("work", LISTENED)
async def test_a_listener_to_all_events_costs_a_few_commands(work: str, storage: Storage, backend: Backend) -> None:
    """The events of a hundred jobs are published together, and the fast paths are used."""
    async with listening(storage, None, None):
        counts = await count(work, storage, backend)
    budget = BUDGETS["sqlite_listened" if "commits" in counts else "redis_listened"][work]
    assert not exceeds(counts, budget), f"{work}: {counts}"


@pytest.mark.only("redis", "sqlite", "memory")
@pytest.mark.parametrize("work", LISTENED)
async def test_a_listener_that_has_left_costs_nothing(work: str, storage: Storage, backend: Backend) -> None:
    """As soon as a feed is closed, a verb costs as much as without it."""
    feed: Any = storage.events()
    first = asyncio.ensure_future(anext(feed))
    while not first.done():
        await storage.announce([EventRecord("idle", "q", "", 0)])
        await asyncio.wait({first}, timeout=0.01)
    await feed.aclose()
    if not isinstance(backend, RedisBackend):  # the next event would find that it has gone, and delete its row
        engine: Any = storage.engine  # type: ignore[attr-defined]
        assert engine.connection().execute("SELECT count(*) FROM listeners").fetchone() == (0,)
    counts = await count(work, storage, backend)
    assert not exceeds(counts, BUDGETS["sqlite" if "commits" in counts else "redis"][work]), f"{work}: {counts}"
