"""A real Redis server in a simulated run: called synchronously, on the virtual clock.

Each verb is carried out by the blocking storage, so the real scripts run. The lists and channels that wake waiters are
the server's own; their messages are read after each call and go over the network as hints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace
from redis import Redis

from penstock.aio import drive
from penstock.errors import StorageUnavailable
from penstock.model.job import NewJob
from penstock.storage import connect, connect_blocking
from penstock.storage.base import BlockingStorage, EndNotice, EventRecord
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.network import Network
from penstock.testing.simulation.server_clock import ServerClock

__all__ = ["RedisServer"]

#: Verbs after which no waiter can have been woken.
SILENT = frozenset({"time", "beat", "workers", "paused"})

#: How long (seconds of real time) the server may take to answer a PING.
ANSWER = 30.0

#: A waiter asks again after this many seconds without a notice, as the notifier does.
RECHECK = 5.0

#: The secret of the seals of all messages.
SECRET = "5" * 32

Job = tuple[str, str]


class RedisServer:
    """A server for all nodes. It is used by one run at a time, each in a namespace of its own."""

    def __init__(self, url: str, clock: ServerClock, network: Network, namespace: str) -> None:
        from penstock.storage.redis import event_codec
        from penstock.storage.redis.keys import Keys

        self.clock = clock
        self._network = network
        self._codec = event_codec
        self.keys = Keys(namespace)
        self._storage: BlockingStorage = connect_blocking(
            url, connect(url, clock=clock, namespace=namespace), clock=clock, namespace=namespace
        )
        drive(self._storage.open())
        connect_to: Any = Redis
        self._client: Any = connect_to.from_url(url)
        self._messages: Any = self._client.pubsub()
        self._messages.psubscribe(f"{self.keys.namespace}:*")
        #: The waits for work, in their order, and the waits of each node.
        self._idle: dict[int, tuple[Node, Sequence[str], Callable[[], object]]] = {}
        self._count = 0
        self._waits: dict[str, RedisWaits] = {}
        self._events: list[EventRecord] = []

    def execute(self, node: Node, verb: str, args: tuple[Any, ...]) -> Any:
        """Carry a verb out, and send the hints that it causes."""
        if verb == "put":
            args = (self._with_channel(node, args[0]),)
        answer = drive(getattr(self._storage, verb)(*args))
        if verb not in SILENT:
            self._read_messages()
            self._wake_idle()
        return answer

    def _with_channel(self, node: Node, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Have the ends of jobs with a waiter published on the channel of their node."""
        waits, waiter = self._waits.get(node.name), SECRET + self.keys.done(node.name)
        if waits is not None:
            waits.fresh.update((job.queue, job.id) for job in jobs if job.waiter is not None and job.fresh)
        return [job if job.waiter is None else replace(job, waiter=waiter) for job in jobs]

    # hints ----------------------------------------------------------------------------------------

    def waits_of(self, node: Node) -> RedisWaits:
        """Return new waits for a node."""
        waits = self._waits[node.name] = RedisWaits(node, self._network, self)
        return waits

    def _read_messages(self) -> None:
        """Read all messages that were published so far: the answer to a PING comes after them."""
        self._messages.ping()
        while True:
            message: Any = self._messages.parse_response(block=False, timeout=ANSWER)
            if message is None:
                raise StorageUnavailable("the Redis server of the simulation does not answer")
            if message[0] in (b"pong", ord("P")):  # a list, or the bytes PONG
                return
            if message[0] == b"pmessage":
                self._received(message[2].decode(), message[3])

    def _received(self, channel: str, data: bytes) -> None:
        message = self._codec.unseal(data, SECRET)
        if message is None:  # the channel of a worker's cancel requests, whose messages are hints
            message = data
        if channel == self.keys.events:
            self._events.append(self._codec.read_event(message))
            return
        for waits in self._waits.values():
            if not waits.node.dead:
                waits.received(channel, message)

    def read_end(self, data: bytes) -> tuple[Job, EndNotice | None]:
        """Decode the notice of the end of a job."""
        return self._codec.read_end_notice(data)

    def _wake_idle(self) -> None:
        """Give the elements of the wake lists to the waits for work, as BLPOP does."""
        for number, (node, keys, deliver) in list(self._idle.items()):
            if node.dead:
                del self._idle[number]
            elif self._client.execute_command("BLPOP", *keys, 0.001) if self._ready(keys) else None:
                del self._idle[number]
                self._network.hint(node, deliver)

    def _ready(self, keys: Sequence[str]) -> bool:
        return bool(self._client.exists(*keys))

    def wait_idle(self, node: Node, queues: Sequence[str], deliver: Callable[[], object]) -> int:
        """Add a wait for work; returns its number, or 0 if there is an element already."""
        keys = [self.keys.prefix(queue) + "wake" for queue in queues]
        if self._ready(keys):
            self._client.execute_command("BLPOP", *keys, 0.001)
            return 0
        self._count += 1
        self._idle[self._count] = node, keys, deliver
        return self._count

    def leave_idle(self, number: int) -> None:
        """End a wait for work."""
        self._idle.pop(number, None)

    def ask_end(self, queue: str, id: str, channel: str) -> bool:
        """Ask for a notice of the end of a job; True if it has ended already."""
        join: Callable[..., Any] = getattr(self._storage, "_join_waiters")  # noqa: B009 - not part of the protocol
        return bool(drive(join(queue, [id], SECRET + channel))[0])

    # events and the rest --------------------------------------------------------------------------

    def read_events(self) -> None:
        """Set the mark that makes the scripts publish events."""
        self._client.set(self.keys.listeners(""), f"{'simulation':16}{SECRET}{self.keys.events}")

    def new_events(self) -> list[EventRecord]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def waited(self, queue: str) -> list[str]:
        """Return the ids of a queue that have waiters."""
        return [id.decode() for id in self._client.hkeys(self.keys.prefix(queue) + "waits")]

    def left(self) -> list[str]:
        """Return the keys that no queue needs and that have no TTL."""
        self._client.delete(self.keys.listeners(""))
        found = [key.decode() for key in self._client.keys(f"{self.keys.namespace}:*")]
        return sorted(key for key in found if key != self.keys.schema and self._client.pttl(key) == -1)

    def close(self) -> None:
        """Delete the keys of the namespace and close the connections."""
        for key in self._client.keys(f"{self.keys.namespace}:*"):
            self._client.delete(key)
        self._messages.close()
        self._client.close()
        drive(self._storage.close())


class RedisWaits:
    """The waits of one node: its blocking pops and its subscriptions."""

    def __init__(self, node: Node, network: Network, server: RedisServer) -> None:
        self.node = node
        self._network = network
        self._server = server
        self._channel = server.keys.done(node.name)
        #: Jobs that this node has put under new ids: their notices have the result.
        self.fresh: set[Job] = set()
        self._futures: dict[asyncio.Future[Any], Job | None] = {}
        self._cancels: dict[str, asyncio.Event] = {}

    def _future(self, job: Job | None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.node.create_future()
        self._futures[future] = job
        return future

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Block on the wake lists of the queues."""
        future, number = self._future(None), 0

        def begin() -> bool:
            nonlocal number
            number = self._server.wait_idle(self.node, queues, lambda: _set(future, True))
            return number == 0

        try:
            if await self._network.call(self.node, "look", ("work", *queues), begin):
                return True
            await asyncio.wait((future,), timeout=timeout)
            return future.done()
        finally:
            del self._futures[future]
            self._server.leave_idle(number)

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool | EndNotice:
        """Ask for a notice of the end, and wait for it."""
        future = self._future((queue, id))
        try:
            ask = lambda: self._server.ask_end(queue, id, self._channel)  # noqa: E731
            deadline = self.node.time() + timeout
            while (left := deadline - self.node.time()) > 0:
                if await self._network.call(self.node, "look", ("done", queue, id), ask):
                    return True
                await asyncio.wait((future,), timeout=min(left, RECHECK))
                if future.done():
                    return future.result()
            return False
        finally:
            del self._futures[future]

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Wait for a cancel request; the first wait counts as one, because a message may have been missed before."""
        requested = self._cancels.get(worker)
        if requested is None:
            requested = self._cancels[worker] = asyncio.Event()
            requested.set()
        try:
            async with asyncio.timeout(timeout):
                await requested.wait()
        except TimeoutError:
            return False
        requested.clear()
        return True

    def received(self, channel: str, data: bytes) -> None:
        """Send a message of the server to this node, if it has subscribed to its channel."""
        if channel == self._channel:
            job, notice = self._server.read_end(data)
            self._network.hint(self.node, lambda: self._end(job, notice))
        for worker in self._cancels:
            if channel == self._server.keys.cancel(worker):
                self._network.hint(self.node, self._cancels[worker].set)

    def _end(self, job: Job, notice: EndNotice | None) -> None:
        answer = notice if notice is not None and job in self.fresh else True
        for future, waits_for in list(self._futures.items()):
            if waits_for == job:
                _set(future, answer)

    def wake_all(self) -> None:
        """Wake all waits of this node."""
        for future in list(self._futures):
            _set(future, True)
        for requested in self._cancels.values():
            requested.set()

    async def close(self) -> None:
        """Wake all waits for the last time."""
        self.wake_all()
        self._cancels.clear()


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
