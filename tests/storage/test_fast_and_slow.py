"""Fast paths against general paths: a storage with `fast=False` answers as one with `fast=True`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.storage.redis import RedisStorage, scripts
from penstock.storage.redis.blocking import BlockingRedisStorage
from penstock.storage.sqlite import SqliteStorage
from penstock.storage.sqlite.blocking import BlockingSqliteStorage
from tests.fast_walk import FastWalk, Pair
from tests.support import Backend, RedisBackend, SqliteBackend

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey", "sqlite")]

STEPS = 200


@pytest.fixture
def pairs(backend: Backend, no_leaks: None, runner: asyncio.Runner) -> Iterator[tuple[Pair, Pair]]:
    """Open storages with and without fast paths, and the blocking storages on the same data."""
    opened: list[Any] = []

    def make(fast: bool) -> tuple[Any, Any]:
        if isinstance(backend, SqliteBackend):
            storage: Any = SqliteStorage(f"{backend.path}.{fast}", namespace=backend.namespace, fast=fast)  # type: ignore[call-arg]
            opened.append(storage)
            runner.run(storage.open())
            return storage, BlockingSqliteStorage(storage.engine)
        assert isinstance(backend, RedisBackend)
        namespace = f"{backend.namespace}-{fast}"
        both = [kind(backend.url, namespace=namespace, fast=fast) for kind in (RedisStorage, BlockingRedisStorage)]
        for storage in both:
            opened.append(storage)
            runner.run(storage.open())
        return both[0], both[1]

    (fast, blocking_fast), (slow, blocking_slow) = make(True), make(False)
    yield Pair(fast, slow), Pair(blocking_fast, blocking_slow)
    for storage in opened:
        runner.run(storage.close())


@pytest.mark.parametrize(("seed", "listens"), [(1, False), (2, True)])
async def test_a_random_walk_gives_the_same_answers_and_events_with_and_without_fast_paths(
    pairs: tuple[Pair, Pair], seed: int, listens: bool
) -> None:
    """Random calls on the real clock have the same answers, and events, with `fast=True` and `fast=False`."""
    await FastWalk(seed, *pairs, listens=listens).walk(STEPS)


#: In each fast path one defect: the file, the text in it, and its replacement.
DEFECTS = {
    "put: jobs of one call have one rank": (
        "_fast_put", "ready[i], ready[i + 1] = '0', PLAIN_RANK .. position",
        "ready[i], ready[i + 1] = '0', PLAIN_RANK .. pack('>I6I6', now, 999999 - seq)",
    ),
    "claim: a group is not held": ("_fast_claim", "call('HSET', q.holds, unpack(held))", ""),
    "claim: the runs do not count": ("_fast_claim", "concurrency - call('HLEN', q.runs)", "concurrency"),
    "settle: a successor is ignored": (
        "_run_ends", "string.find(run, GROUP_RUN, 17, true) == 17", "string.find(run, '\\0', 17, true) == 17",
    ),
    "settle: the ttl is ignored": ("_fast_settle", "ttl > 0 and now + ttl or 0", "0"),
    "put: an event is lost": ("_fast_put", "add_events(to, 'enqueued', ARGV[3], ids, 0)", ""),
    "claim: the attempt of an event is wrong": ("_fast_claim", "attempts_of(rec) + 1 end", "1 end"),
    "settle: an event has no worker": ("_fast_settle", "attempts, worker, results)", "attempts, nil, results)"),
}  # fmt: skip


@pytest.mark.only("redis")
@pytest.mark.parametrize("defect", DEFECTS)
async def test_a_defect_in_a_fast_path_is_noticed(
    pairs: tuple[Pair, Pair], defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk raises an `AssertionError` if a fast path of a script does something else than the general path."""
    file, old, new = DEFECTS[defect]
    source = scripts._source

    def defective(name: str) -> str:
        text = source(name)
        if name == file:
            if text.count(old) != 1:
                raise ValueError(f"{name}.lua has changed: {old}")
            text = text.replace(old, new)
        return text

    monkeypatch.setattr(scripts, "_source", defective)
    scripts.script.cache_clear()
    try:
        walk = FastWalk(1, *pairs, listens="event" in defect)
        with pytest.raises(AssertionError, match="fast"):
            await walk.walk(5 * STEPS)  # it ends at the first difference
    finally:
        scripts.script.cache_clear()
