"""Records that other software has overwritten: every verb answers or raises an error of Penstock's."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable
from typing import Any

import pytest

from penstock.errors import StorageError
from penstock.model.job import State
from penstock.storage.base import EventRecord, Request, Storage
from tests.support import (
    HOUR,
    LEASE,
    Backend,
    RedisBackend,
    SqliteBackend,
    complete,
    find_all,
    get1,
    held,
    new,
    put1,
    update,
)

pytestmark = [
    pytest.mark.beyond_model,
    pytest.mark.leaves_records,
    pytest.mark.only("sqlite", "redis", "valkey"),
]

IDS = [f"a{n}" for n in range(9)]
JUNK: list[Any] = [b"", b"\xff\xfe", b"x", b"\x01" * 60, b"\x00" * 70]
COLUMN_JUNK: list[Any] = [None, "x", b"\xff", -1, 0, 2**62, 99, 3.5, "", b"", "é"]


def tamper(backend: Backend, draw: random.Random) -> None:
    """Overwrite a random column or key with random data."""
    if isinstance(backend, SqliteBackend):
        _tamper_with_row(backend.connect(), draw)
    elif isinstance(backend, RedisBackend):
        client = backend.client()
        _tamper_with_key(client, draw.choice(sorted(backend.keys())), draw)
        client.close()


def _tamper_with_row(db: sqlite3.Connection, draw: random.Random) -> None:
    columns = [row[1] for row in db.execute("pragma table_info(jobs)") if row[1] != "n"]
    row = draw.choice([n for (n,) in db.execute("select n from jobs order by n")])
    try:
        db.execute(f"update jobs set {draw.choice(columns)} = ? where n = ?", (draw.choice(COLUMN_JUNK), row))
        db.commit()
    except sqlite3.IntegrityError:
        pass  # the schema refuses some of it
    finally:
        db.close()


def _tamper_with_key(client: Any, key: bytes, draw: random.Random) -> None:
    junk = draw.choice([*JUNK, draw.randbytes(30)])
    match client.type(key):
        case b"hash":
            field = draw.choice([*sorted(client.hkeys(key)), b"\xff\xfe"])
            old = client.hget(key, field) or b"abc"
            client.hset(key, field, draw.choice([junk, old[:-1], bytes([old[0] ^ 1]) + old[1:], old + junk]))
        case b"zset":
            client.zadd(key, {junk: draw.choice([0, 1e15, -1])})
        case b"set":
            client.sadd(key, junk)
        case b"list":
            client.rpush(key, junk)
        case _ if not key.endswith(b":schema"):
            client.set(key, junk)
    if draw.random() < 0.1 and not key.endswith(b":schema"):
        client.delete(key)
        client.set(key, b"of another type")


async def answer_or_storage_error(call: Awaitable[Any]) -> Any:
    """Return the answer, or None for a `StorageError`; fail after 30 s."""
    try:
        async with asyncio.timeout(30):
            return await call
    except StorageError:
        return None


async def call_every_verb(storage: Storage, earlier: list[Any]) -> None:
    """Call every verb once."""
    await answer_or_storage_error(storage.get("q", IDS))
    await answer_or_storage_error(storage.find("q"))
    await answer_or_storage_error(storage.peek("q"))
    await answer_or_storage_error(storage.counts("q"))
    await answer_or_storage_error(storage.why("q", "a1"))
    await answer_or_storage_error(storage.queues())
    await answer_or_storage_error(storage.workers())
    claimed = await answer_or_storage_error(storage.claim([Request("q", 9)], "w", LEASE, "t2"))
    if claimed:
        await answer_or_storage_error(storage.renew("w", [held(claim) for claim in claimed.claims], LEASE))
        await answer_or_storage_error(storage.settle([complete(claim) for claim in claimed.claims]))
    await answer_or_storage_error(storage.settle([complete(claim) for claim in earlier]))
    await answer_or_storage_error(storage.reap(["q"]))
    await answer_or_storage_error(storage.cancel("q", IDS))
    await answer_or_storage_error(storage.revive("q", IDS))
    await answer_or_storage_error(storage.purge(["q"]))
    await answer_or_storage_error(storage.put([update("q", id, b"1") for id in IDS]))
    await answer_or_storage_error(storage.delete_queue("q"))


@pytest.mark.parametrize("seed", range(25))
async def test_every_verb_answers_or_raises_a_storage_error(backend: Backend, storage: Storage, seed: int) -> None:
    """After random records were overwritten, each verb answers or raises a `StorageError`."""
    draw = random.Random(seed)
    await storage.put([new("q", id, b"{}", group="g" if n % 3 == 0 else None) for n, id in enumerate(IDS)])
    await storage.beat("w", HOUR, b"x")
    claims = (await storage.claim([Request("q", 3)], "w", LEASE, "t")).claims
    await storage.put([update("q", claims[0].id, b"2", group=claims[0].group)])
    await storage.settle([complete(claims[1])])
    for _ in range(draw.randint(1, 3)):
        tamper(backend, draw)
    await call_every_verb(storage, claims)


@pytest.mark.only("redis", "valkey")
async def test_a_finished_job_with_an_unreadable_end_record_is_failed(backend: RedisBackend, storage: Storage) -> None:
    """A finished job whose end record cannot be read is shown as failed, with an error."""
    await put1(storage, "q", "a")
    [claim] = (await storage.claim([Request("q", 1)], "w", LEASE, "t")).claims
    await storage.settle([complete(claim)])
    client = backend.client()
    [key] = [key for key in backend.keys() if key.endswith(b":ends")]  # noqa: SIM118
    for junk in (b"x", b"\x09" * 60):
        client.hset(key, "a", junk)
        job = await get1(storage)
        assert job.state is State.FAILED
        assert b"CorruptRecord" in (job.error or b"")
    client.close()


@pytest.mark.only("redis", "valkey")
async def test_a_worker_with_an_unreadable_record_is_not_listed(backend: RedisBackend, storage: Storage) -> None:
    """A worker whose record cannot be read is left out; the others are listed."""
    await storage.beat("w", HOUR, b"info")
    client = backend.client()
    [key] = [key for key in backend.keys() if key.endswith(b":present")]  # noqa: SIM118
    client.hset(key, "bad", b"\xff")
    client.close()
    assert [worker.id for worker in await answer_or_storage_error(storage.workers()) or []] in (["w"], [])


@pytest.mark.only("redis", "valkey")
async def test_an_unreadable_message_in_the_feed_is_skipped(backend: RedisBackend, storage: Storage) -> None:
    """A listener gets the events that follow an unreadable message."""
    delivered: list[EventRecord] = []

    async def listen() -> None:
        async for record in storage.events():
            delivered.append(record)
            if record.id == "last":
                return

    listening = asyncio.create_task(listen())
    client = backend.client()
    channel = f"{backend.namespace}:0:events"
    while not listening.done():
        for junk in JUNK:
            await asyncio.to_thread(client.publish, channel, junk)
        await storage.announce([EventRecord("idle", "q", "last", 0)])
        await asyncio.sleep(0.01)
    client.close()
    await listening
    assert delivered[-1].id == "last"


async def test_a_job_with_an_id_that_is_no_text_is_never_claimed(backend: Backend, storage: Storage) -> None:
    """A job whose id is not UTF-8 is never claimed; its neighbours are, and reads show it."""
    await storage.put([new("q", id) for id in "ac"])
    if isinstance(backend, RedisBackend):
        client: Any = backend.client()
        jobs, ready = ([key for key in backend.keys() if key.endswith(end)][0] for end in (b":jobs", b":ready"))  # noqa: RUF015, SIM118
        client.hset(jobs, b"\xff\xfe", client.hget(jobs, "a"))
        client.zadd(ready, {client.zrange(ready, 0, 0)[0][:-1] + b"\xff\xfe": 0})
        client.close()
    elif isinstance(backend, SqliteBackend):
        db = backend.connect()
        db.execute("update jobs set id = cast(x'fffe' as text) where id = 'a'")
        db.commit()
        db.close()
    claimed = await storage.claim([Request("q", 9)], "w", LEASE, "t")
    assert "c" in [claim.id for claim in claimed.claims]
    assert all(claim.id in "ac" for claim in claimed.claims)
    await find_all(storage)
