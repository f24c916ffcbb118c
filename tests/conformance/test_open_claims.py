"""Claims that are left open until there is work: the jobs come with the hint, and none is lost on the way."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from penstock.errors import StorageUnavailable
from penstock.model.ids import new_token
from penstock.storage.base import Claimed, OpenClaim, Request, Storage
from tests.servers import Server
from tests.support import LEASE, Clock, RedisBackend, eventually, held, ids, new

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey")]


@pytest.fixture
def clock() -> None:
    """The server's own: with another no claim is left open."""


def opened(storage: Any, *requests: Request, seconds: float = 60.0) -> OpenClaim:
    asked = requests or (Request("q", 10),)
    assert storage.opens_claims
    return storage.open_claim([r.queue for r in asked], asked, "w", LEASE, new_token(), seconds)


async def answer_of(claim: OpenClaim) -> tuple[bool, Claimed]:
    heard: list[tuple[bool, Claimed]] = []
    await claim.answer(lambda hinted, claimed: heard.append((hinted, claimed)))
    [answer] = heard
    return answer


async def blocked(backend: RedisBackend, count: int = 1) -> None:
    """Wait until so many connections wait for work."""

    def waiting() -> bool:
        [client] = backend.clients()
        with client:
            return int(client.info("clients")["blocked_clients"]) >= count

    await eventually(waiting, within=30)


async def ended(task: asyncio.Task[tuple[bool, Claimed]]) -> tuple[bool, list[str]]:
    hinted, answer = await asyncio.wait_for(task, 30)
    return hinted, ids(answer.claims)


async def test_jobs_come_with_the_hint(backend: RedisBackend, storage: Storage, peer: Storage) -> None:
    """What another process puts is claimed by the claim that is open, and held under its token."""
    task = asyncio.create_task(answer_of(opened(storage)))
    await blocked(backend)
    await peer.put([new("q", "a"), new("q", "b")])
    hinted, answer = await asyncio.wait_for(task, 30)
    assert (hinted, ids(answer.claims)) == (True, ["a", "b"])
    assert all(renewal.kept for renewal in await storage.renew("w", [held(c) for c in answer.claims], LEASE))


async def test_a_hint_from_before_counts(storage: Storage) -> None:
    """What was put when nobody waited is found at once."""
    await storage.put([new("q", "a")])
    assert await ended(asyncio.create_task(answer_of(opened(storage)))) == (True, ["a"])


async def test_all_queues_are_asked(backend: RedisBackend, storage: Storage, peer: Storage) -> None:
    """A hint in one queue brings the jobs of all that are asked for, as many as there is room for."""
    task = asyncio.create_task(answer_of(opened(storage, Request("a", 1), Request("b", 5, 2))))
    await blocked(backend)
    await peer.put([new("b", id) for id in "xyz"])
    hinted, answer = await asyncio.wait_for(task, 30)
    assert (hinted, [(c.id, c.batch) for c in answer.claims]) == (True, [("x", 0), ("y", 0), ("z", 1)])
    task = asyncio.create_task(answer_of(opened(storage, Request("a", 1), Request("b", 5))))
    await blocked(backend)
    await peer.put([new("a", id) for id in "vw"])
    assert await ended(task) == (True, ["v"])


async def test_without_work_it_ends_by_itself(storage: Storage) -> None:
    """When the time is over there was no hint; what came without one is claimed all the same."""
    assert await ended(asyncio.create_task(answer_of(opened(storage, seconds=0.01)))) == (False, [])


async def test_what_fell_due_meanwhile_is_claimed(storage: Storage) -> None:
    """A job that is due when the time is over is claimed, though nothing was put."""
    await storage.put([new("q", "a", delay=100)])
    await storage.claim([Request("q", 1)], "w", LEASE, new_token())
    assert await ended(asyncio.create_task(answer_of(opened(storage, seconds=0.2)))) == (False, ["a"])


async def test_another_clock_is_not_read_ahead(backend: RedisBackend) -> None:
    """A storage that was given a clock leaves no claim open: its time would be that of the question."""
    storage: Any = backend.build(Clock())
    assert not storage.opens_claims


async def test_it_can_be_hurried(backend: RedisBackend, storage: Storage) -> None:
    """Asked to, it ends at once and as if the time were over; a second time changes nothing."""
    claim = opened(storage)
    task = asyncio.create_task(answer_of(claim))
    await blocked(backend)
    claim.hurry()
    claim.hurry()
    assert await ended(task) == (False, [])
    claim.hurry()
    assert (await storage.put([new("q", "a")]))[0].state == "queued"
    assert await ended(asyncio.create_task(answer_of(opened(storage)))) == (True, ["a"])


async def test_it_can_be_hurried_before_it_has_begun(storage: Storage) -> None:
    """However early it is asked to end, it ends."""
    for turns in range(12):
        claim = opened(storage)
        task = asyncio.create_task(answer_of(claim))
        for _ in range(turns):
            await asyncio.sleep(0)
        claim.hurry()
        assert await ended(task) == (False, [])


async def test_hurrying_loses_nothing(backend: RedisBackend, storage: Storage, peer: Storage) -> None:
    """A job that comes in the same moment is either claimed by it or still there for the next."""
    for turn in range(20):
        claim = opened(storage)
        task = asyncio.create_task(answer_of(claim))
        await blocked(backend)
        putting = asyncio.create_task(peer.put([new("q", str(turn))]))
        if turn % 2:
            await asyncio.sleep(0)
        claim.hurry()
        await putting
        _, found = await ended(task)
        if not found:
            _, found = await ended(asyncio.create_task(answer_of(opened(storage))))
        assert found == [str(turn)]


async def test_a_server_that_forgot_the_script_is_given_it(
    backend: RedisBackend, storage: Storage, peer: Storage
) -> None:
    """After SCRIPT FLUSH the jobs are claimed all the same."""
    task = asyncio.create_task(answer_of(opened(storage)))
    await blocked(backend)
    [client] = backend.clients()
    with client:
        client.script_flush()
    await peer.put([new("q", "a")])
    assert await ended(task) == (True, ["a"])


async def test_a_cut_connection_is_an_outage(backend: RedisBackend, storage: Storage) -> None:
    """Whoever waits hears that the storage is away, and the next claim finds a new connection."""
    task = asyncio.create_task(answer_of(opened(storage)))
    await blocked(backend)
    [client] = backend.clients()
    with client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(StorageUnavailable):
        await asyncio.wait_for(task, 30)
    assert (await storage.put([new("q", "a", fresh=True)]))[0].state == "queued"
    assert await ended(asyncio.create_task(answer_of(opened(storage)))) == (True, ["a"])


async def test_a_server_that_lets_nobody_be_woken(backend: RedisBackend, storage: Any) -> None:
    """Without the right to end waits a claim is made at once, and no other is left open after it."""
    [client] = backend.clients()
    with client:
        client.execute_command("ACL", "SETUSER", "default", "-client|unblock")
        try:
            await storage.put([new("q", "a")])
            assert await ended(asyncio.create_task(answer_of(opened(storage)))) == (False, ["a"])
            assert not storage.opens_claims
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+client|unblock")


async def test_a_server_that_hangs_is_hung_up_on(storage: Storage, backend: RedisBackend) -> None:
    """A claim that is hurried while the server does not answer ends with an error instead of waiting it out."""
    server = backend.server
    assert isinstance(server, Server)
    assert server.process is not None
    claim = opened(storage)
    task = asyncio.create_task(answer_of(claim))
    await blocked(backend)
    server.process.send_signal(signal.SIGSTOP)
    try:
        claim.hurry()
        with pytest.raises(StorageUnavailable):
            await asyncio.wait_for(task, 30)
    finally:
        server.process.send_signal(signal.SIGCONT)


async def test_what_goes_wrong_where_it_is_heard_is_raised(storage: Storage) -> None:
    """An error of whoever hears the answer reaches who waits for it, and the connection goes on."""
    await storage.put([new("q", "a")])

    def hear(hinted: bool, claimed: Claimed) -> None:
        raise LookupError(ids(claimed.claims))

    with pytest.raises(LookupError, match="a"):
        await asyncio.wait_for(opened(storage).answer(hear), 30)
    await storage.put([new("q", "b")])
    assert await ended(asyncio.create_task(answer_of(opened(storage)))) == (True, ["b"])
