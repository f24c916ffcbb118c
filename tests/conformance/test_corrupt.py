"""Records that cannot be read: a claim sets them aside as failed, and their queue goes on."""

from __future__ import annotations

import pytest

from penstock.model.job import State
from penstock.storage.base import Storage
from tests.support import (
    SECOND,
    Backend,
    Clock,
    RedisBackend,
    SqliteBackend,
    claim_answer,
    complete,
    find_all,
    get1,
    ids,
    new,
    put1,
    run_order,
    state_of,
    tally,
)

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("sqlite", "redis", "valkey", "cluster")]

#: Damage that a disk, a bug or a person may do to a stored record.
DAMAGE = ["garbage", "empty", "truncated"]


def damage(backend: Backend, id: str, how: str, queue: str = "q") -> None:
    """Overwrite the stored record of a job."""
    if isinstance(backend, SqliteBackend):
        column = {"garbage": "attempts = 'x'", "empty": "payload = null", "truncated": "headers = 'text'"}[how]
        db = backend.connect()
        assert db.execute(f"update jobs set {column} where id = ?", (id,)).rowcount == 1
        db.close()
    elif isinstance(backend, RedisBackend):
        client = backend.client()
        [key] = [key for key in backend.keys() if key.endswith(f":{queue}:jobs".encode())]  # noqa: SIM118
        whole = client.hget(key, id)
        assert whole
        nonsense = {"garbage": b"\xff\xfe\xfd nonsense", "empty": b"", "truncated": whole[:9]}[how]
        client.hset(key, id, nonsense)
        client.close()


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_corrupt_record_is_set_aside(backend: Backend, storage: Storage, how: str) -> None:
    """A claim names a corrupt record and marks its job failed, and the neighbours run (QZ-D5, QZ-D6, PJ-D25)."""
    await storage.put([new("q", id, b"payload", headers=b"headers") for id in "abc"])
    damage(backend, "b", how)
    answer = await claim_answer(storage)
    assert ids(answer.claims) == ["a", "c"]
    assert answer.corrupt == [("q", "b")]
    assert await storage.counts("q") == tally(running=2, failed=1)
    job = await get1(storage, "b")
    assert (job.state, job.finished is not None, bool(job.error)) == (State.FAILED, True, True)
    await storage.settle([complete(claim) for claim in answer.claims])
    assert await storage.counts("q") == tally(completed=2, failed=1)


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_corrupt_record_is_named_once(backend: Backend, storage: Storage, how: str) -> None:
    """The claim after the one that named a corrupt record does not name it again."""
    await put1(storage, "q", "a", headers=b"headers")
    damage(backend, "a", how)
    assert (await claim_answer(storage)).corrupt == [("q", "a")]
    again = await claim_answer(storage)
    assert (again.claims, again.corrupt) == ([], [])


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_corrupt_head_frees_its_group(backend: Backend, storage: Storage, how: str) -> None:
    """A group goes on behind a record that cannot be read."""
    await storage.put([new("q", id, headers=b"headers", group="g") for id in "abc"])
    damage(backend, "a", how)
    seen: list[str] = []
    for _ in range(4):
        answer = await claim_answer(storage)
        seen += ids(answer.claims)
        await storage.settle([complete(claim) for claim in answer.claims])
    assert seen == ["b", "c"]
    assert await state_of(storage, "a") == State.FAILED


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_corrupt_record_does_not_stop_the_reads(backend: Backend, storage: Storage, how: str) -> None:
    """A queue with a corrupt record is listed, counted and peeked at, before and after a claim set it aside."""
    await storage.put([new("q", id, headers=b"headers") for id in "abc"])
    damage(backend, "b", how)
    for _ in range(2):
        assert sorted(ids(await find_all(storage))) == ["a", "b", "c"]
        assert sum((await storage.counts("q")).values()) == 3
        assert len(await storage.get("q", ["a", "b", "c"])) == 3
        await storage.peek("q")
        await claim_answer(storage)


async def test_a_corrupt_id_can_be_used_again(backend: Backend, storage: Storage) -> None:
    """A put of the id of a corrupt job that was set aside starts a new job."""
    await put1(storage, "q", "a", b"old", headers=b"headers")
    damage(backend, "a", "garbage")
    await claim_answer(storage)
    await put1(storage, "q", "a", b"new")
    assert await run_order(storage) == ["a"]


async def test_many_corrupt_records_are_all_set_aside(backend: Backend, storage: Storage) -> None:
    """Among many corrupt records every readable job runs, and none is lost."""
    await storage.put([new("q", f"j{n:02}") for n in range(30)])
    for n in range(0, 30, 2):
        damage(backend, f"j{n:02}", "garbage")
    claimed: list[str] = []
    corrupt: list[str] = []
    for _ in range(10):
        answer = await claim_answer(storage, limit=4)
        claimed += ids(answer.claims)
        corrupt += [id for _, id in answer.corrupt]
    assert claimed == [f"j{n:02}" for n in range(1, 30, 2)]
    assert sorted(corrupt) == [f"j{n:02}" for n in range(0, 30, 2)]
    assert await storage.counts("q") == tally(running=15, failed=15)


async def test_a_corrupt_record_keeps_its_id_until_it_is_set_aside(backend: Backend, storage: Storage) -> None:
    """Before a claim set a corrupt record aside, a put of its id is a duplicate, so no job is handed out twice."""
    await put1(storage, "q", "a", b"old", headers=b"headers")
    damage(backend, "a", "truncated")
    assert (await put1(storage, "q", "a", b"new")).status == "duplicate"
    assert ids((await claim_answer(storage)).claims) == []
    await put1(storage, "q", "a", b"new")
    assert [claim.payload for claim in (await claim_answer(storage)).claims] == [b"new"]
    assert (await claim_answer(storage)).claims == []


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_corrupt_record_that_falls_due_is_set_aside(
    backend: Backend, storage: Storage, clock: Clock, how: str
) -> None:
    """A scheduled job whose record was damaged is set aside by the claim at its due time."""
    await put1(storage, "q", "a", headers=b"headers", delay=SECOND)
    damage(backend, "a", how)
    clock.advance(ms=SECOND)
    assert (await claim_answer(storage)).corrupt == [("q", "a")]
    assert await storage.counts("q") == tally(failed=1)
