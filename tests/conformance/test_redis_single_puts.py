"""Single plain puts to Redis, on the fast path of the client: faults on the way never make two jobs of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock import Enqueued, Penstock, State, StorageUnavailable, sync
from penstock.storage.redis.scripts import script
from tests.proxy import Proxy
from tests.servers import Server
from tests.support import RedisBackend, eventually

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("redis", "valkey")]


class Producer:
    """An app behind the proxy, with or without an event loop; its read timeout is a second."""

    def __init__(self, kind: str, proxy: Proxy, backend: RedisBackend, runner: asyncio.Runner) -> None:
        url = f"redis://{proxy.address}/0?socket_timeout=1"
        self._runner = runner
        self._sync = sync.Penstock(url, namespace=backend.namespace) if kind == "sync" else None
        self._async = None if self._sync else Penstock(url, namespace=backend.namespace)

    def enqueue(self, payload: object) -> Enqueued:
        if self._sync is not None:
            return self._sync.queue("q").enqueue(payload)
        assert self._async is not None
        return self._runner.run(self._async.queue("q").enqueue(payload))

    def payloads(self) -> list[object]:
        if self._sync is not None:
            return [job.payload for job in self._sync.queue("q").find(State.QUEUED)]
        assert self._async is not None
        return [job.payload for job in self._runner.run(self._async.queue("q").find(State.QUEUED))]

    def close(self) -> None:
        if self._sync is not None:
            self._sync.close()
        elif self._async is not None:
            self._runner.run(self._async.close())


@pytest.fixture(params=["async", "sync"])
def producer(
    request: pytest.FixtureRequest, proxy: Proxy, backend: RedisBackend, runner: asyncio.Runner
) -> Iterator[Producer]:
    """A producer that has put a job already."""
    producer = Producer(str(request.param), proxy, backend, runner)
    assert producer.enqueue("first").state is State.QUEUED
    yield producer
    proxy.heal()
    producer.close()


@pytest.mark.parametrize("then", ["cut", "silence"])
def test_a_lost_answer(producer: Producer, proxy: Proxy, then: str) -> None:
    """A put whose answer is lost is sent again, and the job is stored once."""
    lost = proxy.lose_reply(script("put").sha, then="silence" if then == "silence" else "cut")
    assert producer.enqueue("second").state is State.QUEUED
    assert lost.happened
    assert producer.payloads() == ["first", "second"]


@pytest.mark.parametrize("then", ["cut", "silence"])
def test_a_lost_request(producer: Producer, proxy: Proxy, then: str) -> None:
    """A put that never reaches the server is sent again."""
    lost = proxy.lose_request(script("put").sha, then="silence" if then == "silence" else "cut")
    assert producer.enqueue("second").state is State.QUEUED
    assert lost.happened
    assert producer.payloads() == ["first", "second"]


def test_a_connection_that_was_cut_between_two_puts(producer: Producer, proxy: Proxy) -> None:
    """A put on a connection that the server has closed is sent on a new one."""
    proxy.cut()
    producer.enqueue("second")
    assert producer.payloads() == ["first", "second"]


def test_a_server_that_forgot_the_script(producer: Producer, backend: RedisBackend) -> None:
    """A put to a server without the script (restarted, or SCRIPT FLUSH) loads it and is stored."""
    assert isinstance(backend.server, Server)
    with backend.server.client() as client:
        client.script_flush()
    producer.enqueue("second")
    assert producer.payloads() == ["first", "second"]


def test_a_server_that_is_away(producer: Producer, proxy: Proxy) -> None:
    """A put to a server that cannot be reached raises `StorageUnavailable`; later puts work again."""
    proxy.refuse()
    proxy.cut()
    with pytest.raises(StorageUnavailable, match="cannot reach"):
        producer.enqueue("second")
    proxy.heal()
    producer.enqueue("third")
    assert producer.payloads() == ["first", "third"]


def test_a_server_that_refuses(producer: Producer, backend: RedisBackend) -> None:
    """A put that a server without memory refuses raises `StorageUnavailable` with its reason."""
    assert isinstance(backend.server, Server)
    with backend.server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StorageUnavailable, match=r"is full .*; nothing was stored"):
                producer.enqueue("second")
        finally:
            client.config_set("maxmemory", 0)
    assert producer.payloads() == ["first"]


@pytest.mark.parametrize("then", ["cut", "silence"])
async def test_many_callers_and_a_lost_answer(proxy: Proxy, backend: RedisBackend, then: str) -> None:
    """Callers at once have two calls under way: when the connection breaks, both are sent again and stored once."""
    async with Penstock(f"redis://{proxy.address}/0?socket_timeout=1", namespace=backend.namespace) as app:
        queue = app.queue("q")
        await queue.enqueue(-1)
        lost = proxy.lose_reply(script("put").sha, nth=4, then="silence" if then == "silence" else "cut")
        todo = iter(range(900))

        async def caller() -> None:
            for number in todo:
                await queue.enqueue(number)

        await asyncio.gather(*(caller() for _ in range(100)))
        assert lost.happened
        assert (await queue.counts())[State.QUEUED] == 901
        assert {job.payload for job in await queue.find(State.QUEUED, limit=1000)} == set(range(-1, 900))


async def test_callers_at_once_keep_their_order(proxy: Proxy, backend: RedisBackend) -> None:
    """Jobs that are put concurrently are queued in the order of the calls, also those with ids or groups."""
    async with Penstock(f"redis://{proxy.address}/0", namespace=backend.namespace) as app:
        queue = app.queue("q")
        options: list[dict[str, str]] = [{}, {"group": "g"}, {}, {"id": "x"}]
        await asyncio.gather(
            *(
                queue.enqueue(number, **{name: f"{value}{number}" for name, value in options[number % 4].items()})  # type: ignore[arg-type]
                for number in range(400)
            )
        )
        payloads = [job.payload for job in await queue.find(State.QUEUED, limit=1000)]
        assert sorted(payloads) == list(range(400))
        assert [n for n in payloads if n % 4 != 1] == [n for n in range(400) if n % 4 != 1]


async def test_a_caller_that_goes_away(proxy: Proxy, backend: RedisBackend) -> None:
    """A caller that is cancelled while its job waits for a call does not delay other callers."""
    async with Penstock(f"redis://{proxy.address}/0", namespace=backend.namespace) as app:
        queue = app.queue("q")
        await queue.enqueue(-1)
        holding = proxy.hold_reply(script("put").sha)
        callers = [asyncio.create_task(queue.enqueue(number)) for number in range(100)]
        await eventually(lambda: holding.happened, 30)
        for caller in callers[::2]:
            caller.cancel()
        proxy.release(holding)
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert all(isinstance(answer, Enqueued) for answer in answers[1::2])
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
        assert (await queue.enqueue("last")).state is State.QUEUED
