"""Messages of a user without any key: results, failures, cancels and events that it publishes are not believed."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, cast

import msgspec
import pytest
import redis

from penstock import Event, Job, Penstock, Worker
from penstock.storage.redis import RedisStorage
from tests.servers import Server, redis_program, start_or_skip
from tests.support import eventually

STATES = {"completed": 1, "failed": 2, "cancelled": 3}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with a user that may publish, subscribe and list channels, and read no key."""
    server = start_or_skip(lambda: Server(redis_program()).start())
    rules = ("on", ">word", "resetkeys", "resetchannels", "&penstock:*", "+subscribe", "+publish", "+pubsub|channels")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "stranger", "reset", *rules)
    yield server
    server.remove()


class Stranger:
    """A user without keys who subscribes to every channel of the namespace, and publishes."""

    def __init__(self, server: Server) -> None:
        self._client = redis.Redis(host="127.0.0.1", port=server.port, username="stranger", password="word")
        self._messages = self._client.pubsub(ignore_subscribe_messages=True)

    def channels(self, part: str) -> list[bytes]:
        return cast("list[bytes]", self._client.execute_command("PUBSUB", "CHANNELS", f"penstock:*{part}*"))

    def publish(self, channel: bytes, message: bytes) -> None:
        self._client.publish(channel, message)

    def subscribe(self, *channels: bytes) -> None:
        self._messages.subscribe(*channels)
        self._messages.get_message(timeout=1)

    def next_message(self) -> bytes | None:
        message = self._messages.get_message(timeout=0.01)
        return cast("bytes", message["data"]) if message else None

    def close(self) -> None:
        self._messages.close()
        self._client.close()


@pytest.fixture
def stranger(server: Server) -> Iterator[Stranger]:
    """That user, logged in."""
    stranger = Stranger(server)
    yield stranger
    stranger.close()


def notice(id: str, state: str, value: bytes = b"") -> bytes:
    """Return the notice of an end as the scripts build it, without a seal."""
    return struct.pack(">HHB", 1, len(id), STATES[state]) + b"q" + id.encode() + value


@contextlib.asynccontextmanager
async def watched(app: Penstock) -> AsyncGenerator[Callable[[], Any]]:
    """Open an app with its event stream; yield a coroutine function that returns the id of the next enqueued job."""
    async with app, app.events("enqueued") as events:

        async def next_id() -> str:
            return (await anext(events)).id

        yield next_id


FORGED = [
    ("completed", b'{"paid":true}'),
    ("failed", msgspec.json.encode({"type": "E", "message": "m"})),
    ("cancelled", b""),
]


@pytest.mark.parametrize(("state", "value"), FORGED, ids=[state for state, _ in FORGED])
@pytest.mark.parametrize("seal", [b"", b"0" * 40], ids=["bare", "wrong seal"])
async def test_a_call_does_not_believe_a_published_end(
    server: Server, stranger: Stranger, state: str, value: bytes, seal: bytes
) -> None:
    """An end that a stranger publishes to the channel of a caller, with the id from the events, ends no call."""
    app = Penstock(f"redis://{server.address}")
    app.listen("q", lambda payload: "true")
    async with watched(Penstock(f"redis://{server.address}")) as next_id, app:
        calling = asyncio.create_task(app.queue("q").call({"order": 1}, timeout=60))
        id = await next_id()
        [channel] = await eventually(lambda: stranger.channels("done:"))
        for _ in range(50):
            stranger.publish(channel, seal + notice(id, state, value))
        async with Worker(app):  # its end comes after the others, on the same channel
            assert await calling == "true"
        await app.queue("q").delete()


async def test_the_seal_of_one_end_does_not_fit_another(server: Server, stranger: Stranger) -> None:
    """A notice that a stranger has read ends no other call: repeated, with another id, with another result."""
    app = Penstock(f"redis://{server.address}")
    gate = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> int:
        if payload == 2:
            await gate.wait()
        return payload

    async with watched(Penstock(f"redis://{server.address}")) as next_id, app, Worker(app):
        await app.queue("q").call(0, timeout=60)  # makes the subscription
        await next_id()
        [channel] = stranger.channels("done:")
        stranger.subscribe(channel)
        assert await app.queue("q").call(1, timeout=60) == 1
        first = await next_id()
        genuine = await eventually(stranger.next_message)
        calling = asyncio.create_task(app.queue("q").call(2, timeout=60))
        id = await next_id()
        for message in (
            genuine,
            genuine.replace(first.encode(), id.encode()),
            genuine[:40] + notice(id, "completed", b"9"),
        ):
            assert id.encode() in message or message == genuine
            stranger.publish(channel, message)
        await app.queue("q").counts()
        gate.set()
        assert await calling == 2
        await app.queue("q").delete()


async def test_a_published_cancel_only_makes_the_worker_look(server: Server, stranger: Stranger) -> None:
    """A message on the cancel channel of a worker cancels no run; a flood of them makes it renew a few times."""
    app = Penstock(f"redis://{server.address}")
    gate = asyncio.Event()

    @app.handler("q")
    async def handle(payload: int, job: Job) -> bool:
        await gate.wait()
        return bool(job.cancelled)

    async with app, Worker(app):
        calling = asyncio.create_task(app.queue("q").call(1, timeout=60))
        await eventually(lambda: app.queue("q").find("running"))
        [channel] = await eventually(lambda: stranger.channels("cancel:"))
        before, began = renewals(server), time.monotonic()
        await asyncio.to_thread(lambda: [stranger.publish(channel, b"") for _ in range(1000)])
        assert renewals(server) - before < 20 + 20 * (time.monotonic() - began)
        gate.set()
        assert await calling is False
        await app.queue("q").delete()


def renewals(server: Server) -> int:
    """Return the number of script calls so far."""
    with server.client() as client:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


async def test_a_published_event_is_not_delivered(server: Server, stranger: Stranger) -> None:
    """Events that a stranger publishes, bare or with the seal of another event, are dropped; true ones arrive."""
    app = Penstock(f"redis://{server.address}")
    async with app, app.events("enqueued") as first, app.events("enqueued") as second, asyncio.timeout(5):
        [channel] = stranger.channels("events")
        stranger.subscribe(channel)
        await app.queue("q").enqueue(1, id="true-1")
        genuine = await eventually(stranger.next_message)
        assert b"true-1" in genuine
        for message in (genuine[40:], b"0" * 40 + genuine[40:], genuine.replace(b"true-1", b"false1")):
            stranger.publish(channel, message)
        await app.queue("q").enqueue(1, id="true-2")
        for events in (first, second):
            seen: list[Event] = [await anext(events), await anext(events)]
            assert [event.id for event in seen] == ["true-1", "true-2"]
        await app.queue("q").delete()


async def test_apps_in_two_databases_get_their_own_messages(server: Server) -> None:
    """Events, ends and cancels of one database do not reach an app with the same namespace in another."""
    apps = [Penstock(f"redis://{server.address}/{number}") for number in (0, 1)]
    began = asyncio.Event()

    async def handle(payload: int) -> int:
        began.set()
        await asyncio.sleep(payload)
        return payload

    for app in apps:
        app.listen("q", handle)
    async with apps[0], apps[1], apps[0].events() as first, apps[1].events("enqueued") as second:
        storages: list[Any] = [app.storage for app in apps]
        channels = [{s._keys.events, s._keys.cancel("w"), s._keys.done("c")} for s in storages]
        assert not channels[0] & channels[1]
        async with Worker(apps[1], id="w"):
            assert await apps[1].queue("q").call(0, timeout=60) == 0
            await apps[1].queue("q").enqueue(3600, id="long")
            await began.wait()
            await eventually(lambda: apps[1].queue("q").find("running"))
            await apps[1].queue("q").cancel("long", running="kill")
            await eventually(lambda: apps[1].queue("q").find("cancelled"))
        await apps[0].queue("q").enqueue(1, id="own")
        assert (await anext(first)).id == "own"
        assert (await anext(second)).queue == "q"
        for app in apps:
            await app.queue("q").delete()


@pytest.mark.parametrize(
    ("url", "channel"),
    [
        ("redis://h", "penstock:0:events"),
        ("redis://h/3", "penstock:3:events"),
        ("redis://h?db=3", "penstock:3:events"),
        ("unix:///s?db=2", "penstock:2:events"),
        ("redis+sentinel://h/main/4", "penstock:4:events"),
        ("redis+sentinel://h/main?db=4", "penstock:4:events"),
        ("redis+cluster://h", "penstock:0:events"),
    ],
)
def test_channels_have_the_number_of_the_database(url: str, channel: str) -> None:
    """The database of every form of URL is a part of the channel names."""
    assert RedisStorage(url)._keys.events == channel
