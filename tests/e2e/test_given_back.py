"""Connections, tasks, threads and files that calls, workers and streams take and must give back."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock import CallTimeout, Penstock, State, Worker
from penstock.sync import Penstock as SyncPenstock
from tests.servers import Server, Servers
from tests.support import eventually, new_namespace

#: Rounds before the first count, in which pools get their members, and rounds between the two counts. The pools of a
#: Cluster client may grow by some more members; a leak adds one in each round.
FIRST, MORE, SPARE = 3, 12, 4


@pytest.fixture(params=["sqlite", "redis", "cluster"])
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'jobs.db'}"
    server = servers.get(request.param)
    if isinstance(server, Server):
        return f"redis://{server.address}/0"
    return f"redis+cluster://{server.nodes[0].address}"


@pytest.fixture
def connections(url: str, servers: Servers) -> Iterator[Callable[[], int]]:
    """A count of the connections to all servers of the storage."""
    server = servers.get(url.partition("+")[2].partition(":")[0] or "redis") if "redis" in url else None
    nodes = [] if server is None else [server] if isinstance(server, Server) else server.nodes
    clients = [node.client() for node in nodes]
    yield lambda: sum(len(client.client_list()) for client in clients)
    for client in clients:
        client.close()


class Held:
    """The numbers of what this process holds."""

    def __init__(self, connections: Callable[[], int]) -> None:
        self._connections = connections

    def count(self) -> dict[str, int]:
        gc.collect()
        try:
            tasks = len(asyncio.all_tasks())
        except RuntimeError:  # no event loop runs here
            tasks = 0
        return {
            "connections": self._connections(),
            "tasks": tasks,
            "threads": threading.active_count(),
            "files": len(os.listdir("/proc/self/fd")),
        }


@pytest.fixture
def held(connections: Callable[[], int]) -> Held:
    return Held(connections)


Round = Callable[[Penstock], Awaitable[object]]


async def drain(app: Penstock) -> None:
    await app.queue("q").enqueue(1)
    await Worker(app).drain()


async def running(app: Penstock) -> int:
    return (await app.queue("held").counts())[State.RUNNING]


async def stop_with_a_run(app: Penstock) -> None:
    await app.queue("held").enqueue(1)
    async with Worker(app) as worker:
        await eventually(lambda: running(app))
        await worker.stop(grace=0)
    await app.queue("held").delete()


async def reserve(app: Penstock) -> None:
    await app.queue("r").enqueue(1)
    [one] = await app.queue("r").reserve(wait=5)
    await one.complete(1)
    assert not await app.queue("r").reserve(wait=0.01)


async def forget_a_reservation(app: Penstock) -> None:
    await app.queue("r").enqueue(1)
    await app.queue("r").reserve()
    await app.queue("r").delete()


async def cancel_a_reserve(app: Penstock) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.02):
            await app.queue("r").reserve(wait=60)


async def call(app: Penstock) -> None:
    async with Worker(app):
        assert await app.queue("q").call(1) == 1


async def call_that_times_out(app: Penstock) -> None:
    with pytest.raises(CallTimeout):
        await app.queue("x").call(1, timeout=0.01)


async def call_that_is_cancelled(app: Penstock) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.02):
            await app.queue("x").call(1)


async def wait_that_times_out(app: Penstock) -> None:
    with pytest.raises(CallTimeout):
        await app.queue("x").wait((await app.queue("x").enqueue(1)).id, timeout=0.01)


async def stream(app: Penstock) -> None:
    async with app.events("enqueued") as events:
        await app.queue("x").enqueue(1)
        assert (await anext(events)).queue == "x"


async def stream_that_is_cancelled(app: Penstock) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            async for _ in app.events("failed"):
                pass
    gc.collect()
    await eventually(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "penstock events"], 30)


async def close_and_open(app: Penstock) -> None:
    await app.close()
    await app.open()
    await drain(app)


ROUNDS: dict[str, Round] = {
    each.__name__: each
    for each in (
        drain, stop_with_a_run, reserve, forget_a_reservation, cancel_a_reserve, call, call_that_times_out,
        call_that_is_cancelled, wait_that_times_out, stream, stream_that_is_cancelled, close_and_open,
    )
}  # fmt: skip


def declare(app: Penstock) -> None:
    @app.handler("q")
    async def same(payload: int) -> int:
        return payload

    @app.handler("held")
    async def hold(payload: int) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("name", ROUNDS)
async def test_an_async_round_gives_back_all_that_it_takes(name: str, url: str, held: Held) -> None:
    """Twelve more rounds add no connections, tasks, threads and open files."""
    app = Penstock(url, namespace=new_namespace())
    declare(app)
    async with app:
        for _ in range(FIRST):
            await ROUNDS[name](app)
        before = held.count()
        for _ in range(MORE):
            await ROUNDS[name](app)
        with suppress(AssertionError):
            await eventually(lambda: not exceeds(held.count(), before))
        assert exceeds(held.count(), before) == {}
        for queue in await app.queues():
            await app.queue(queue).delete()


def exceeds(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return by how much each number has grown, if that is more than a pool may grow."""
    return {name: now[name] - before[name] for name in now if now[name] > before[name] + SPARE}


def sync_call_that_times_out(app: SyncPenstock) -> None:
    with pytest.raises(CallTimeout):
        app.queue("x").call(1, timeout=0.01)


def sync_reserve(app: SyncPenstock) -> None:
    app.queue("r").enqueue(1)
    [one] = app.queue("r").reserve(wait=5)
    one.complete(1)


def sync_stream(app: SyncPenstock) -> None:
    with app.events("enqueued") as events:
        app.queue("x").enqueue(1)
        assert next(events).queue == "x"


def sync_close(app: SyncPenstock) -> None:
    sync_call_that_times_out(app)
    app.close()


def sync_threads(app: SyncPenstock) -> None:
    thread = threading.Thread(target=lambda: app.queue("x").enqueue(1))
    thread.start()
    thread.join()


SYNC_ROUNDS = {
    each.__name__: each
    for each in (sync_call_that_times_out, sync_reserve, sync_stream, sync_close, sync_threads)
}  # fmt: skip


@pytest.mark.parametrize("name", SYNC_ROUNDS)
def test_a_sync_round_gives_back_all_that_it_takes(name: str, url: str, held: Held) -> None:
    """The same of the sync app."""
    with SyncPenstock(url, namespace=new_namespace()) as app:
        for _ in range(FIRST):
            SYNC_ROUNDS[name](app)
        before = held.count()
        for _ in range(MORE):
            SYNC_ROUNDS[name](app)
        until = time.monotonic() + 5
        while (more := exceeds(held.count(), before)) and time.monotonic() < until:
            time.sleep(0.02)
        assert not more
        for queue in app.queues():
            app.queue(queue).delete()
