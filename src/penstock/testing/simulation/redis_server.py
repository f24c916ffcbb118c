"""A real Redis server in a simulated run: called synchronously, on the virtual clock.

Each verb is carried out by the blocking storage, so the real scripts run. The lists and channels that wake waiters are
the server's own; their messages are read after each call and go over the network as hints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.aio import drive
from penstock.model.job import NewJob
from penstock.storage import connect, connect_blocking
from penstock.storage.base import BlockingStorage, EndNotice, EventRecord
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.message_connection import MessageConnection
from penstock.testing.simulation.network import Network
from penstock.testing.simulation.server_clock import ServerClock

__all__ = ["RedisServer"]

#: Verbs after which no waiter can have been woken.
SILENT = frozenset({"time", "beat", "workers", "paused"})

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
        from penstock.storage.redis.listener_marks import encode_filter

        self.clock = clock
        self._network = network
        self._codec = event_codec
        self._encode_filter = encode_filter
        self.keys = Keys(namespace)
        self._storage: BlockingStorage = connect_blocking(
            url, connect(url, clock=clock, namespace=namespace), clock=clock, namespace=namespace
        )
        drive(self._storage.open())
        self._connection = MessageConnection(url, f"{self.keys.namespace}:*", self._received)
        #: The waits for work, in their order, and the waits of each node.
        self._idle: dict[int, tuple[Node, Sequence[str], Callable[[], object]]] = {}
        #: The ids that have waiters, of each queue for which they were asked, as of the last call that may change them.
        self._waited: dict[str, list[str]] = {}
        #: What is read after each call, encoded, and the number of its commands; empty if it must be built again.
        self._reads: tuple[bytes, int] = (b"", 0)
        self._count = 0
        self._waits: dict[str, RedisWaits] = {}
        self._events: list[EventRecord] = []

    def execute(self, node: Node, verb: str, args: tuple[Any, ...]) -> Any:
        """Carry a verb out, and send the hints that it causes."""
        if verb == "put":
            args = (self._with_channel(node, args[0]), *args[1:])
        answer = drive(getattr(self._storage, verb)(*args))
        if verb not in SILENT and self._read():
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

    def _read(self) -> bool:
        """Read the messages that were published so far, and who waits; returns whether a wake list has elements."""
        commands, count = self._reads
        if not count:
            lists = {key: None for _, keys, _ in self._idle.values() for key in keys}
            reads = [("EXISTS", *lists) if lists else ("PING",)]
            reads += [("HKEYS", self.keys.prefix(queue) + "waits") for queue in self._waited]
            commands, count = self._reads = b"".join(self._connection.pack(*read) for read in reads), len(reads)
        ready, *waited = self._connection.ask(commands, count)
        for queue, ids in zip(self._waited, waited, strict=True):
            self._waited[queue] = [id.decode() for id in ids]
        return bool(self._idle) and ready != 0

    def _received(self, channel: str, data: bytes) -> None:
        message = self._codec.unseal(data, SECRET)
        if message is None:  # the channel of a worker's cancel requests, whose messages are hints
            message = data
        if channel == self.keys.events:
            self._events += self._codec.read_events(message)
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
                self.leave_idle(number)
            elif self._take(keys):
                self.leave_idle(number)
                self._network.hint(node, deliver)

    def _take(self, keys: Sequence[str]) -> bool:
        """Take an element of the first list that has one; returns whether there is one."""
        if not keys or not self._connection.send("EXISTS", *keys):
            return False
        return self._connection.send("BLPOP", *keys, 0.001) is not None

    def wait_idle(self, node: Node, queues: Sequence[str], deliver: Callable[[], object]) -> int:
        """Add a wait for work; returns its number, or 0 if there is an element already."""
        keys = [self.keys.prefix(queue) + "wake" for queue in queues]
        if self._take(keys):
            return 0
        self._count += 1
        self._idle[self._count] = node, keys, deliver
        self._reads = b"", 0
        return self._count

    def leave_idle(self, number: int) -> None:
        """End a wait for work."""
        if self._idle.pop(number, None) is not None:
            self._reads = b"", 0

    def ask_end(self, queue: str, id: str, channel: str) -> bool:
        """Ask for a notice of the end of a job; True if it has ended already."""
        join: Callable[..., Any] = getattr(self._storage, "_join_waiters")  # noqa: B009 - not part of the protocol
        ended = bool(drive(join(queue, [id], SECRET + channel))[0])
        if queue in self._waited:
            self._read()
        return ended

    # events and the rest --------------------------------------------------------------------------

    def read_events(self) -> None:
        """Set the mark that makes the scripts publish events."""
        entry = b"simulation".ljust(22) + self._encode_filter(None, self.keys.events)
        self._connection.send("HSET", self.keys.listeners(""), "", SECRET.encode() + entry)

    def new_events(self) -> list[EventRecord]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def waited(self, queue: str) -> list[str]:
        """Return the ids of a queue that have waiters."""
        if queue not in self._waited:
            self._waited[queue] = []
            self._reads = b"", 0
            self._read()
        return self._waited[queue]

    def left(self) -> list[str]:
        """Return the keys that no queue needs and that have no TTL."""
        self._connection.send("DEL", self.keys.listeners(""))
        found = [key.decode() for key in self._connection.send("KEYS", f"{self.keys.namespace}:*")]
        return sorted(key for key in found if key != self.keys.schema and self._connection.send("PTTL", key) == -1)

    def close(self) -> None:
        """Delete the keys of the namespace and close the connections."""
        if keys := self._connection.send("KEYS", f"{self.keys.namespace}:*"):
            self._connection.send("DEL", *keys)
        self._connection.close()
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
