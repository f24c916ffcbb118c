"""Claims that are left open until there is work: the jobs arrive with the hint, and none is lost."""

from __future__ import annotations

import asyncio
import signal
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from penstock.errors import StorageUnavailable
from penstock.model.ids import new_token
from penstock.storage.base import Claimed, OpenClaim, Request, Storage
from penstock.testing.conformance.strategies import QUEUES, WORKERS
from tests.conformance.test_model import ModelWalk, walk
from tests.servers import Server
from tests.support import LEASE, Clock, RedisBackend, eventually, held, ids, new

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey")]


@pytest.fixture
def clock() -> None:
    """No clock but the server's own: with a test clock no claim is left open."""


def opened(storage: Any, *requests: Request, seconds: float = 60.0) -> OpenClaim:
    asked = requests or (Request("q", 10),)
    assert storage.opens_claims
    return storage.open_claim([r.queue for r in asked], asked, "w", LEASE, new_token(), seconds)


async def answer_of(claim: OpenClaim) -> tuple[bool, Claimed]:
    answers: list[tuple[bool, Claimed]] = []
    await claim.answer(lambda hinted, claimed: answers.append((hinted, claimed)))
    [answer] = answers
    return answer


async def blocked(backend: RedisBackend, count: int = 1) -> None:
    """Wait until this many connections wait for work."""

    def waiting() -> bool:
        [client] = backend.clients()
        with client:
            return int(client.info("clients")["blocked_clients"]) >= count

    await eventually(waiting, within=30)


async def ended(task: asyncio.Task[tuple[bool, Claimed]]) -> tuple[bool, list[str]]:
    hinted, answer = await asyncio.wait_for(task, 30)
    return hinted, ids(answer.claims)


async def test_jobs_come_with_the_hint(backend: RedisBackend, storage: Storage, peer: Storage) -> None:
    """A job that another process puts is claimed by the open claim, under its token."""
    task = asyncio.create_task(answer_of(opened(storage)))
    await blocked(backend)
    await peer.put([new("q", "a"), new("q", "b")])
    hinted, answer = await asyncio.wait_for(task, 30)
    assert (hinted, ids(answer.claims)) == (True, ["a", "b"])
    assert all(renewal.kept for renewal in await storage.renew("w", [held(c) for c in answer.claims], LEASE))


async def test_a_hint_from_before_counts(storage: Storage) -> None:
    """An open claim returns at once with a job that was put before it."""
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
    """An open claim on a connection that is cut raises `StorageUnavailable`; the next claim works on a new one."""
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


async def test_an_error_in_the_callback_of_an_open_claim_is_raised(storage: Storage) -> None:
    """An error of the callback is raised by `answer`, and the connection can still be used."""
    await storage.put([new("q", "a")])

    def fail(hinted: bool, claimed: Claimed) -> None:
        raise LookupError(ids(claimed.claims))

    with pytest.raises(LookupError, match="a"):
        await asyncio.wait_for(opened(storage).answer(fail), 30)
    await storage.put([new("q", "b")])
    assert await ended(asyncio.create_task(answer_of(opened(storage)))) == (True, ["b"])


class WalkWithOpenClaims(ModelWalk):
    """The walk beside the model, with claims that are left open though the clock is that of the test.

    The clock stands still while a claim is open, so the time that its call carries is right.
    """

    @rule(queue=st.sampled_from(QUEUES), limit=st.integers(1, 4), worker=st.sampled_from(WORKERS))
    def claim_later(self, queue: str, limit: int, worker: str) -> None:
        self.made += 1
        requests, token = [Request(queue, limit)], f"token{self.made:011}"
        expected = self.runner.run(self.reference.claim(requests, worker, LEASE, token))
        opened: OpenClaim = cast(Any, self.storage).open_claim([queue], requests, worker, LEASE, token, 0.001)
        _, claimed = self.runner.run(answer_of(opened))
        assert claimed.claims == expected.claims
        self.tokens += [held(claim) for claim in claimed.claims]


@pytest.mark.timeout(600)
def test_a_random_walk_with_open_claims_agrees_with_the_model(backend: RedisBackend) -> None:
    """An open claim gets the jobs that the model gives to a claim, whatever was called before."""
    walk(WalkWithOpenClaims, backend, 25, derandomize=True)
