"""Helpers of the tests: a clock that tests move, the storages under test, and builders of calls."""

from __future__ import annotations

import asyncio
import importlib
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import redis
from redis.cluster import ClusterNode, RedisCluster

from penstock.errors import StorageUnavailable
from penstock.model.ids import family_of
from penstock.model.job import FIND_ORDER, Claim, NewJob, Snapshot, State, Update
from penstock.model.limit import EveryGroup, Limit
from penstock.storage.base import (
    Cancel,
    Claimed,
    ClaimRef,
    Complete,
    Fail,
    Page,
    Release,
    Report,
    Reported,
    Request,
    Resolution,
    Retried,
    Settled,
    Settlement,
    Stall,
    Storage,
)
from penstock.storage.flowing import Flowing
from penstock.storage.limiting import Limiting, LimitPage, LimitRecord, Scope
from penstock.storage.observing import STATS_MS, check_find
from penstock.storage.recording import HistoryPage
from penstock.storage.sqlite import SqliteStorage
from tests.model import Model
from tests.servers import Cluster, Server, Servers, skip_or_fail

#: The moment at which every test begins, in milliseconds.
T0 = 1_800_000_000_000

SECOND = 1_000
MINUTE = 60_000
HOUR = 3_600_000
DAY = 24 * HOUR
LEASE = 10_000
TTL = HOUR

STORAGES = ("memory", "sqlite", "redis", "valkey", "cluster")


class Clock:
    """A clock that only the test moves."""

    def __init__(self, ms: int = T0) -> None:
        self.ms = ms

    def time(self) -> float:
        return self.ms / 1000

    def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        self.ms += round(seconds * 1000) + ms


# storages ----------------------------------------------------------------------------------------


class Backend:
    """One kind of storage at one location: it builds storage objects and inspects their records directly."""

    name: str
    namespace: str
    #: Whether a second storage object can see the same jobs.
    shared = True

    def build(self, clock: Clock | None = None) -> Storage:
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        """Return the records of the namespace except those of the schema."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove everything of the namespace."""


def _storage_class(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        skip_or_fail(f"{name} is not there: {error}")


class SqliteBackend(Backend):
    #: Tables that outlive the jobs: the schema's version, the newest lines of the event feed, records about operators.
    PERMANENT_TABLES = frozenset(
        {"meta", "events", "sqlite_sequence", "sqlite_stat1", "sqlite_stat4", "activity", "bulk_actions", "releases"}
    )
    #: Statistics stay for two weeks: test_record_stats has their end.
    EXPIRING_TABLES = frozenset({"stats", "history"})

    def __init__(self, name: str, path: str, namespace: str) -> None:
        self.name = name
        self.path = path
        self.namespace = namespace
        self.options: dict[str, Any] = {}
        self.shared = path != ":memory:"

    def build(self, clock: Clock | None = None) -> Storage:
        return _storage_class("penstock.storage.sqlite", "SqliteStorage")(
            self.path, clock=clock, namespace=self.namespace, **self.options
        )

    def connect(self) -> sqlite3.Connection:
        assert self.shared, "a private database has no second connection"
        return sqlite3.connect(self.path, timeout=10, isolation_level=None)

    def leftovers(self) -> list[str]:
        if not self.shared:
            return []
        rows: list[str] = []
        with self.connect() as db:
            tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
            for table in tables:
                if table not in self.PERMANENT_TABLES | self.EXPIRING_TABLES:
                    rows += [f"{table}: {row!r}"[:300] for row in db.execute(f'select * from "{table}"')]
        db.close()
        return rows


def limit_pages(storage: SqliteStorage, spare: int | None) -> None:
    """Let the file of an open storage grow by `spare` pages at most, None for no limit: SQLite answers FULL beyond."""
    with storage.engine.lock:
        db = storage.engine.connection()
        [pages] = db.execute("pragma page_count").fetchone()
        db.execute(f"pragma max_page_count = {1 << 30 if spare is None else pages + spare}")


#: The ends of the keys of statistics, which expire.
STATS_KEYS = (b":stats", b":history", b":minute", b":errors", b":error_order")


class RedisBackend(Backend):
    def __init__(self, name: str, url: str, namespace: str, server: Server | Cluster) -> None:
        self.name = name
        self.url = url
        self.namespace = namespace
        self.server = server

    def build(self, clock: Clock | None = None) -> Storage:
        return _storage_class("penstock.storage.redis", "RedisStorage")(self.url, clock=clock, namespace=self.namespace)

    def clients(self) -> list[redis.Redis]:
        """Return a plain client of each node."""
        nodes = self.server.nodes if isinstance(self.server, Cluster) else [self.server]
        return [node.client() for node in nodes]

    def client(self) -> redis.Redis | RedisCluster:
        """Return one client that finds every key."""
        if isinstance(self.server, Cluster):
            return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", n.port) for n in self.server.nodes])
        return self.server.client()

    def keys(self) -> list[bytes]:
        found: list[bytes] = []
        for client in self.clients():
            with client:
                found += client.scan_iter(match=f"*{self.namespace}*", count=1000)
        return sorted(found)

    def leftovers(self) -> list[str]:
        """Return the keys without a TTL of at most two minutes, except those of the schema and of statistics."""
        left: list[str] = []
        for client in self.clients():
            with client:
                for key in client.scan_iter(match=f"*{self.namespace}*", count=1000):
                    ttl = client.pttl(key)
                    longest = STATS_MS if key.endswith(STATS_KEYS) else 2 * MINUTE
                    if not self.is_schema(key) and not 0 <= ttl <= longest:
                        left.append(f"{key!r} (ttl {ttl})")
        return left

    @staticmethod
    def is_schema(key: bytes) -> bool:
        # The set of families of a Cluster has a test of its own, in test_cluster_slots.
        return key.endswith((b":schema", b":families")) or b":{ops}:" in key  # those about operators have caps

    def clear(self) -> None:
        for client in self.clients():
            with client:
                for key in list(client.scan_iter(match=f"*{self.namespace}*", count=1000)):
                    client.delete(key)


class ModelStorage:
    """The model with the verbs of a storage: it checks the tests, not a storage.

    It is used by `--storages model` and lacks waits, event feeds and heartbeats of workers.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.model = Model(clock.ms)

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            self.model.now = self.clock.ms
            if verb in ("open", "close", "workers"):
                return []
            try:
                return getattr(self.model, verb)(*args, **options)
            finally:
                self.model.check()

        return call

    @property
    def format(self) -> int:
        return self.model.format

    @format.setter
    def format(self, format: int) -> None:
        self.model.format = format

    async def set_limit(self, *args: Any) -> int | None:
        return await self.__getattr__("set_limit")(*args)

    async def get_limit(self, *args: Any) -> LimitRecord:
        return await self.__getattr__("get_limit")(*args)

    async def limits(self, *args: Any) -> LimitPage:
        return await self.__getattr__("limits")(*args)

    async def report(self, *args: Any) -> list[Reported]:
        return await self.__getattr__("report")(*args)

    async def read(self, *args: Any) -> HistoryPage | None:
        return await self.__getattr__("read")(*args)

    async def wait_history(self, *args: Any) -> bool:
        raise NotImplementedError

    async def find(
        self, queue: str, state: State | None = None, after: str | None = None, limit: int = 100, newest: bool = False,
        group: str | None = None,
    ) -> Page:  # fmt: skip
        check_find(state, limit, group)
        self.model.now = self.clock.ms
        jobs, start = self.model.find(queue, state), int(after or 0)
        if group is not None:
            jobs = [job for job in jobs if job.group == group]
        if newest:
            jobs = [job for each in FIND_ORDER for job in reversed(jobs) if job.state is each]
        return Page(jobs[start : start + limit], str(start + limit) if len(jobs) > start + limit else None)


class ModelBackend(Backend):
    name = "model"
    shared = False

    def build(self, clock: Clock | None = None) -> Storage:
        return ModelStorage(clock or Clock())  # type: ignore[return-value]

    def leftovers(self) -> list[str]:
        return []


def make_backend(name: str, servers: Servers, directory: Path, namespace: str) -> Backend:
    """Return the backend called `name`, its server started if it needs one."""
    if name == "model":
        return ModelBackend()
    if name == "memory":
        return SqliteBackend(name, ":memory:", namespace)
    if name == "sqlite":
        return SqliteBackend(name, str(directory / "penstock.db"), namespace)
    server = servers.get(name)
    if isinstance(server, Cluster):
        return RedisBackend(name, f"redis+cluster://{server.nodes[0].address}", namespace, server)
    scheme = "valkey" if name == "valkey" else "redis"
    return RedisBackend(name, f"{scheme}://{server.address}/0", namespace, server)


def share_of(examples: int) -> int:
    """Return the number of random examples to run: `PENSTOCK_EXAMPLES` percent of those of an ordinary run."""
    return max(examples * int(os.environ.get("PENSTOCK_EXAMPLES", "100")) // 100, 1)


def new_namespace() -> str:
    return f"t{os.urandom(6).hex()}"


# builders ----------------------------------------------------------------------------------------

_counter = iter(range(1, 1 << 62))


def new(queue: str = "q", id: str | None = None, payload: bytes = b"x", **options: Any) -> NewJob:
    """Return a job to put; without an id it gets the next of `j1`, `j2`, …"""
    return NewJob(queue=queue, id=f"j{next(_counter)}" if id is None else id, payload=payload, **options)


def update(
    queue: str = "q", id: str = "a", payload: bytes = b"new", flags: Update | None = None, **options: Any
) -> NewJob:
    """Return a job to put over one that may exist already."""
    return new(queue, id, payload, update=flags or Update(), **options)


class HasToken(Protocol):
    @property
    def queue(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def token(self) -> str: ...


def settlement(claim: HasToken, resolution: Resolution) -> Settlement:
    return Settlement(claim.queue, claim.id, claim.token, resolution)


def complete(claim: HasToken, result: bytes = b"r", ttl: int | None = TTL, then: Sequence[NewJob] = ()) -> Settlement:
    return settlement(claim, Complete(result, ttl, tuple(then)))


def retried(claim: HasToken, **options: Any) -> Settlement:
    return settlement(claim, Retried(**options))


def fail(claim: HasToken, error: bytes = b"e", ttl: int | None = TTL, **options: Any) -> Settlement:
    return settlement(claim, Fail(error, ttl, **options))


def cancel_run(claim: HasToken, ttl: int | None = TTL) -> Settlement:
    return settlement(claim, Cancel(ttl))


def release(claim: HasToken) -> Settlement:
    return settlement(claim, Release())


def stall(claim: HasToken) -> Settlement:
    return settlement(claim, Stall())


def held(claim: HasToken, token: str | None = None) -> ClaimRef:
    return ClaimRef(claim.queue, claim.id, claim.token if token is None else token)


LOST = Settled(None, lost=True)


# calls -------------------------------------------------------------------------------------------


async def put1(storage: Storage, *args: Any, **options: Any) -> Any:
    """Put one job (built as by `new`) and return its answer."""
    [answer] = await storage.put([new(*args, **options)])
    return answer


async def claim_all(
    storage: Storage, queue: str = "q", limit: int = 100, batch: int = 1,
    worker: str = "w", lease: int = LEASE, token: str | None = None,
) -> list[Claim]:  # fmt: skip
    """Claim up to `limit` jobs of one queue and return the claims."""
    answer = await claim_answer(storage, queue, limit, batch, worker, lease, token)
    return answer.claims


async def claim_answer(
    storage: Storage, queue: str = "q", limit: int = 100, batch: int = 1,
    worker: str = "w", lease: int = LEASE, token: str | None = None,
) -> Claimed:  # fmt: skip
    token = token or f"token-{next(_counter)}"
    return await storage.claim([Request(queue, limit, batch)], worker, lease, token)


async def claim1(storage: Storage, queue: str = "q", **options: Any) -> Claim:
    """Claim one job and return its claim; an error if there is none."""
    claims = await claim_all(storage, queue, limit=1, **options)
    assert len(claims) == 1, f"expected one claim from {queue!r}, got {claims!r}"
    return claims[0]


async def settle1(storage: Storage, settlement: Settlement) -> Settled:
    [answer] = await storage.settle([settlement])
    return answer


async def report_progress(storage: Storage, held: ClaimRef, progress: bytes) -> bool:
    """Report the progress of a run; return whether its claim is live."""
    given = Report(queue=held.queue, id=held.id, token=held.token, progress=progress)
    [answer] = await storage.report([given])
    return answer.kept


async def get1(storage: Storage, id: str = "a", queue: str = "q") -> Snapshot:
    """Return the job of this id; an error if there is none."""
    [found] = await storage.get(queue, [id])
    assert found is not None, f"no job {id!r} in {queue!r}"
    return found


async def find_all(storage: Storage, queue: str = "q", state: State | None = None, limit: int = 3) -> list[Snapshot]:
    """Return every job of a queue, read page by page.

    The same as `penstock.testing.conformance.case.find_all`, whose import would load Hypothesis in every test process.
    """
    jobs: list[Snapshot] = []
    cursor: str | None = None
    while True:
        page = await storage.find(queue, state, cursor, limit)
        assert len(page.jobs) <= limit
        jobs += page.jobs
        if page.cursor is None:
            return jobs
        assert page.jobs, "an empty page must be the last one"
        cursor = page.cursor


async def state_of(storage: Storage, id: str = "a", queue: str = "q") -> State | None:
    [found] = await storage.get(queue, [id])
    return None if found is None else found.state


async def run_order(storage: Storage, queue: str = "q") -> list[str]:
    """Claim and complete one job after the other, and return their ids in that order."""
    order: list[str] = []
    while claims := await claim_all(storage, queue, limit=1):
        order.append(claims[0].id)
        await storage.settle([complete(claims[0], ttl=0)])
    return order


def scope_of(queue: str = "q", group: str | EveryGroup | None = None) -> Scope:
    """Return the scope of a queue, of one of its groups, or of every group."""
    if isinstance(group, str):
        return Scope("group", queue, group)
    return Scope("queue" if group is None else "groups", queue)


async def set_limit(
    storage: Storage, limit: Limit | None, queue: str = "q", group: str | EveryGroup | None = None
) -> int | None:
    """Set or remove the limit of a queue, one of its groups or every group, whatever it was."""
    return await set_scope_limit(storage, limit, scope_of(queue, group))


async def set_scope_limit(storage: Storage, limit: Limit | None, scope: Scope) -> int | None:
    limiting = cast(Limiting, storage)
    before = await limiting.get_limit(scope)
    kind = "group" if scope.kind == "groups" else scope.kind
    return await limiting.set_limit(scope, limit.rule(kind, 0) if limit else None, b"", before.version)


def ids(jobs: Sequence[Any]) -> list[str]:
    return [job.id for job in jobs]


def tally(**states: int) -> dict[State, int]:
    """Return a full answer of `counts`, with 0 for the states that are not named."""
    return {state: states.get(state.value, 0) for state in State}


async def eventually(condition: Callable[[], Any], within: float = 5.0) -> Any:
    """Wait until a condition (plain or async) is true, and return its value."""
    until = time.monotonic() + within
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < until, f"not true within {within} s: {condition}"
        await asyncio.sleep(0.005)


#: The names that tests use for queues: an empty one is not listed, but may have records.
QUEUE_NAMES = ("q", "q/x", "q/y", "q/side", "q/failures", "q/marker", "r", "s", "other")


async def forget_all(storage: Storage) -> None:
    """Delete every queue and every worker's heartbeat, also after a test has cut the connections."""
    names = sorted({*await retry_until_available(storage.queues), *QUEUE_NAMES})
    for queue in names:
        await retry_until_available(lambda queue=queue: storage.delete_queue(queue, True))
    if isinstance(storage, Limiting):
        for scope in [
            Scope("family", family) for family in sorted({family_of(queue) for queue in names} | {"llm", "f"})
        ]:
            version = (await retry_until_available(lambda scope=scope: storage.get_limit(scope))).version
            await retry_until_available(lambda s=scope, v=version: storage.set_limit(s, None, b"", v))
    while await retry_until_available(lambda: storage.purge(names)):
        pass
    if isinstance(storage, Flowing):
        families = sorted({family_of(queue) for queue in names})
        while (await retry_until_available(lambda: storage.relay(families))).more:
            pass
    for worker in await retry_until_available(storage.workers):
        await retry_until_available(lambda worker=worker: storage.beat(worker.id, 0))


async def retry_until_available(call: Callable[[], Awaitable[Any]], within: float = 10) -> Any:
    """Repeat a call until the server is available, and return its answer."""

    async def once() -> list[Any] | None:
        try:
            return [await call()]
        except StorageUnavailable:
            return None

    [answer] = await eventually(once, within)
    return answer
