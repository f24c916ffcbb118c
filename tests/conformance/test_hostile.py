"""Hostile names, ids and bytes: they come back as they were and forge no key."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest

from penstock.model.ids import family_of
from penstock.model.job import State
from penstock.storage.base import CancelAnswer, Put, PutStatus, Renewal, Settled, Storage
from tests.support import (
    HOUR,
    LEASE,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    find_all,
    forget_all,
    get1,
    held,
    ids,
    new,
    put1,
    release,
    report_progress,
    retried,
    settle1,
    state_of,
    tally,
    update,
)

pytestmark = pytest.mark.one_per_engine

T = TypeVar("T")

NAMES = [
    "a:b", "a:exp", ":", "a:", ":a", "{a}", "{", "}", "{}", "}{", "a{b}c", "*", "a*", "?", "[a]", "/", "//", "/a", "a/",
    "..", "../x", "line\nbreak", "\r\n", "\x00", "a\x00b", "\x00a", "a\x00", " ", "\t", "%", "%%", "%41", "_", "'", '"',
    "'; drop table jobs; --", "\\", "$", "é", "e\u0301", "😀", "\U0010ffff", "\u202e", "jobs", "error", "ready", "0",
    "-1", "None", "x" * 512, "é" * 256, "😀" * 128, ":" * 512, "\x00" * 512, "{" * 512, "/" * 512,
]  # fmt: skip


def shown(name: str) -> str:
    return ascii(name[:20]) + (f"…{len(name)}" if len(name) > 20 else "")


async def for_each(storage: Storage, cases: Mapping[str, T], check: Callable[[T], Awaitable[None]]) -> None:
    """Check every case on one storage, which each leaves empty; the error names all cases that failed."""
    failures: list[Exception] = []
    for name, case in cases.items():
        try:
            await check(case)
        except Exception as error:
            error.add_note(f"case: {name}")
            failures.append(error)
            await forget_all(storage)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)


#: The names by the text that shows them; each is a case of the tests below.
CASES = {f"{number}: {shown(name)}": name for number, name in enumerate(NAMES)}


async def live(storage: Storage, queue: str, id: str, worker: str, group: str | None, token: str) -> None:
    """Take one job through every transition under the given names, and delete its queue."""
    assert await storage.put([new(queue, id, b"1", group=group)]) == [Put(PutStatus.QUEUED, State.QUEUED)]
    assert await storage.queues() == [queue]
    [claim] = await claim_all(storage, queue, worker=worker, token=token)
    assert (claim.queue, claim.id, claim.group, claim.token) == (queue, id, group, token)
    assert await storage.renew(worker, [held(claim)], LEASE) == [Renewal(True)]
    assert await report_progress(storage, held(claim), b"p")
    assert (await get1(storage, id, queue)).worker == worker
    await storage.put([update(queue, id, b"2", group=group)])
    assert ids(await find_all(storage, queue, limit=1)) == [id, id]
    assert await settle1(storage, complete(claim)) == Settled(State.COMPLETED)
    [again] = await claim_all(storage, queue, worker=worker, token=token + "2")
    assert await settle1(storage, release(again)) == Settled(State.QUEUED)
    assert await storage.cancel(queue, [id], ttl=HOUR) == [CancelAnswer("cancelled")]
    assert await storage.revive(queue, [id]) == [True]
    await claim1(storage, queue, worker=worker, lease=0)
    [reaped] = await storage.reap([queue])
    assert (reaped.queue, reaped.id, reaped.worker) == (queue, id, worker)
    assert await storage.set_pause(queue, True)
    assert await storage.delete_queue(queue) == 1


async def test_any_queue_name(storage: Storage) -> None:
    """A queue may have any name: each transition works in it (QF-D14, WQ-D17)."""
    await for_each(storage, CASES, lambda name: live(storage, name, "id", "w", None, "t"))


async def test_any_id(storage: Storage) -> None:
    """A job may have any id: each transition works on it (PJ-D20)."""
    await for_each(storage, CASES, lambda name: live(storage, "q", name, "w", None, "t"))


async def test_any_group_worker_and_token(storage: Storage) -> None:
    """Groups, workers and tokens may have any name: each transition works with it (PJ-D20, WQ-D9)."""
    await for_each(storage, CASES, lambda name: live(storage, "q", "id", name, name, name))


@pytest.mark.beyond_model
async def test_any_worker_is_listed(storage: Storage) -> None:
    """A worker is listed under its exact id, whatever characters it has."""
    for name in NAMES:
        await storage.beat(name, HOUR, name.encode())
    assert [(w.id, w.info) for w in await storage.workers()] == [(name, name.encode()) for name in sorted(NAMES)]


async def test_many_hostile_ids_are_kept_apart(storage: Storage) -> None:
    """One queue holds a job for each hostile id, in order, each with its own payload."""
    await storage.put([new("q", name, name.encode()) for name in NAMES])
    found = await storage.get("q", NAMES)
    assert [job and job.payload for job in found] == [name.encode() for name in NAMES]
    assert ids(await claim_all(storage)) == NAMES


async def test_many_hostile_queues_are_kept_apart(storage: Storage) -> None:
    """A queue of each hostile name holds its own job and no other's."""
    await storage.put([new(name, "id", name.encode()) for name in NAMES])
    assert await storage.queues() == sorted(NAMES)
    for name in NAMES:
        assert [claim.payload for claim in await claim_all(storage, name)] == [name.encode()]


async def test_many_hostile_groups_are_kept_apart(storage: Storage) -> None:
    """Each hostile name is its own group, listed by its bytes."""
    await storage.put([new("q", f"{n}-{i}", group=name) for i in (1, 2) for n, name in enumerate(NAMES)])
    assert ids(await claim_all(storage)) == [f"{n}-1" for n in range(len(NAMES))]
    waiting = await find_all(storage, state=State.QUEUED, limit=4)
    assert [job.group for job in waiting] == sorted(NAMES, key=str.encode)


async def test_long_names_with_one_prefix_are_kept_apart(storage: Storage) -> None:
    """Names that are equal up to their last byte are different names."""
    names = ["x" * 511 + "a", "x" * 511 + "b", "x" * 511, "x" * 510]
    await storage.put([new(name, name, name.encode(), group=name) for name in names])
    for name in names:
        [claim] = await claim_all(storage, name)
        assert (claim.id, claim.payload) == (name, name.encode())


async def test_follow_ups_in_the_families_of_hostile_names(storage: Storage) -> None:
    """A follow-up in the family of any queue is put with the completion."""
    for name in NAMES:
        if len(name.encode()) > 400:
            continue
        sibling = f"{family_of(name)}/then"
        await storage.put([new(name, "a")])
        await settle1(storage, complete(await claim1(storage, name), ttl=0, then=[new(sibling, "b", name.encode())]))
        assert (await claim1(storage, sibling)).payload == name.encode()
        await storage.delete_queue(sibling)
        await storage.delete_queue(name)


@pytest.mark.beyond_model
@pytest.mark.parametrize("name", ["a:b", "{x}", "*", "\x00", "é", "t\n1", "%"], ids=shown)
async def test_any_namespace(backend, clock: Clock, name: str) -> None:
    """A namespace may have any name, and its jobs are not in another."""
    backend.namespace += name
    other = backend.build(clock)
    backend.namespace += name
    storage = backend.build(clock)
    await storage.open()
    await other.open()
    await put1(storage, "q", "a")
    if backend.shared:
        assert await other.queues() == []
        assert await state_of(other) is None
        assert await claim_all(other) == []
    assert ids(await claim_all(storage)) == ["a"]
    await storage.delete_queue("q")
    await storage.close()
    await other.close()


# bytes -------------------------------------------------------------------------------------------

PAYLOADS = {
    "every byte": bytes(range(256)),
    "every byte backwards": bytes(range(255, -1, -1)),
    "empty": b"",
    "zero": b"\x00",
    "not utf-8": b"\xff\xfe\x80",
    "json": b'{"a": null}',
    "null": b"null",
    "number": b"12",
    "1 MiB": os.urandom(1 << 20),
}


async def test_payloads_are_bytes(storage: Storage) -> None:
    """Payload, headers and bounds come back byte for byte, from a claim and from a read (PJ-D19, QF-D7)."""

    async def check(data: bytes) -> None:
        await put1(storage, "q", "a", data, headers=data[:1000], bounds=data[:1000])
        job = await get1(storage)
        assert (job.payload, job.headers, job.bounds) == (data, data[:1000], data[:1000])
        claim = await claim1(storage)
        assert (claim.payload, claim.headers, claim.bounds) == (data, data[:1000], data[:1000])
        await storage.delete_queue("q")

    await for_each(storage, PAYLOADS, check)


async def test_results_are_bytes(storage: Storage) -> None:
    """A result comes back byte for byte, from a read and from a duplicate's answer (PJ-D14, PJ-D15)."""

    async def check(data: bytes) -> None:
        await put1(storage, "q", "a")
        await settle1(storage, complete(await claim1(storage), data))
        assert (await get1(storage)).result == data
        assert await put1(storage, "q", "a") == Put(PutStatus.COMPLETED, State.COMPLETED, data)
        await storage.delete_queue("q")

    await for_each(storage, PAYLOADS, check)


async def test_errors_are_bytes(storage: Storage) -> None:
    """The error of a failed job comes back byte for byte."""

    async def check(data: bytes) -> None:
        await put1(storage, "q", "a")
        await settle1(storage, fail(await claim1(storage), data))
        assert (await get1(storage)).error == data
        await storage.delete_queue("q")

    await for_each(storage, PAYLOADS, check)


async def test_follow_ups_carry_bytes(storage: Storage) -> None:
    """The payload of a follow-up job comes back byte for byte (QZ-D17)."""

    async def check(data: bytes) -> None:
        await put1(storage, "q", "a")
        then = [new("q/x", "b", data, headers=data[:1000], bounds=data[:1000])]
        await settle1(storage, complete(await claim1(storage), data, then=then))
        claim = await claim1(storage, "q/x")
        assert (claim.payload, claim.headers, claim.bounds) == (data, data[:1000], data[:1000])
        await storage.delete_queue("q")
        await storage.delete_queue("q/x")

    await for_each(storage, PAYLOADS, check)


async def test_a_retried_job_keeps_every_byte(storage: Storage) -> None:
    """A retry keeps payload, headers, bounds and error byte for byte, with a group and without."""
    data = bytes(range(256)) * 8
    await storage.put([new("q", "a", data, headers=data, bounds=data), new("q", "b", data, headers=data, group="g")])
    await storage.settle([retried(claim, error=data) for claim in await claim_all(storage)])
    a, b = await storage.get("q", ["a", "b"])
    assert a is not None
    assert b is not None
    assert (a.payload, a.headers, a.bounds, a.error) == (data, data, data, data)
    assert (b.payload, b.headers, b.bounds, b.error) == (data, data, b"", data)


async def test_extreme_numbers_are_kept(storage: Storage, clock: Clock) -> None:
    """Times up to the year 9999 and TTLs up to thousands of years are exact."""
    last = 253_402_300_799_000
    await put1(storage, "q", "a", run_at=last)
    assert (await get1(storage)).run_at == last
    await put1(storage, "q", "b")
    await settle1(storage, complete(await claim1(storage), ttl=last))
    assert (await get1(storage, "b")).expires == clock.ms + last
    assert await storage.counts("q") == tally(scheduled=1, completed=1)
