"""The storages of a simulated run: one server for all nodes, and the storage as each node uses it.

The server carries out verbs on a blocking storage, on the calling thread. A node's storage sends them over the
network; its waits are those of the real notifier, or on Redis of the real lists and channels.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from penstock.aio import drive
from penstock.errors import StorageUnavailable
from penstock.storage import connect, connect_blocking, location_of
from penstock.storage.base import BlockingStorage, EndNotice, EventRecord, Storage
from penstock.storage.limiting import Limiting
from penstock.storage.observing import STATS_MS, Observing
from penstock.storage.recording import Recording
from penstock.storage.scheduling import Scheduling
from penstock.testing.faults import VERBS
from penstock.testing.simulation.loop import Node, Scheduler
from penstock.testing.simulation.network import Network
from penstock.testing.simulation.server_clock import ServerClock

__all__ = ["NodeStorage", "Server", "Waits", "start_server"]

#: How often (seconds) a waiter of SQLite reads the database although no wake-up came.
POLL = 3.0

#: The name and address of the reader of events on the server's side.
READER = "events"

WAITS = frozenset({"wait_work", "wait_done", "wait_cancel"})


class Waits(Protocol):
    """The waits of one node, see `Storage`."""

    async def wait_work(self, queues: Sequence[str], timeout: float, /) -> bool: ...

    async def wait_done(self, queue: str, id: str, timeout: float, /) -> bool | EndNotice: ...

    async def wait_cancel(self, worker: str, timeout: float, /) -> bool: ...

    def wake_all(self) -> None: ...

    async def close(self) -> None: ...


class Server(Protocol):
    """The storage behind the network."""

    clock: ServerClock
    #: How often (seconds) waiters read the storage although no wake-up came; on Redis they need not.
    poll: float

    def execute(self, node: Node, verb: str, args: tuple[Any, ...]) -> Any:
        """Carry a verb out for a node; called in the server's turn."""
        ...

    def waits_of(self, node: Node) -> Waits:
        """Return new waits for a node."""
        ...

    def new_events(self) -> list[EventRecord]:
        """Return the events since the last call, if `read_events` was called before."""
        ...

    def read_events(self) -> None:
        """Have events recorded from now on."""
        ...

    def waited(self, queue: str) -> list[str]:
        """Return the ids of a queue that have waiters."""
        ...

    def left(self) -> list[str]:
        """Return the names of the records that no queue and no worker needs."""
        ...

    def close(self) -> None:
        """Delete everything and close."""
        ...


class NodeStorage:
    """A `Storage` for one node: each verb is a message to the server. With a `timeout` it waits no longer."""

    #: Claims are made at once: an open one would carry the time at which it was opened.
    opens_claims = False
    #: For the lease thread, which has a storage of its own.
    shares_connection = True

    def __init__(self, node: Node, network: Network, server: Server, timeout: float | None = None) -> None:
        self._node = node
        self._network = network
        self._server = server
        self._timeout = timeout
        self._waits: Waits | None = None
        #: The storage of which this one is the version for producers.
        self._unbounded: NodeStorage | None = None

    def bounded(self, timeout: float) -> NodeStorage:
        """Return this storage for producers: each request ends within these seconds."""
        bounded = NodeStorage(self._node, self._network, self._server, timeout)
        bounded._unbounded = self
        return bounded

    @property
    def waits(self) -> Waits:
        """The waits of this node."""
        if self._unbounded is not None:
            return self._unbounded.waits
        if self._waits is None:
            self._waits = self._server.waits_of(self._node)
        return self._waits

    def __getattr__(self, verb: str) -> Any:
        if verb in WAITS:
            return getattr(self.waits, verb)
        if verb not in VERBS and verb != "read":
            raise AttributeError(f"a simulated storage has no {verb!r}")

        async def call(*args: Any, **options: Any) -> Any:
            given = _positional(verb, args, options) if options else args
            return await self._send(verb, given, lambda: self._server.execute(self._node, verb, given))

        setattr(self, verb, call)  # found without this method from now on
        return call

    async def _send(self, verb: str, args: tuple[Any, ...], execute: Callable[[], Any]) -> Any:
        if self._timeout is None:
            return await self._network.call(self._node, verb, args, execute)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._network.call(self._node, verb, args, execute)
        except TimeoutError:
            error = StorageUnavailable(f"{verb}: no answer within {self._timeout} s")
            error.uncertain = True
            raise error from None

    async def open(self) -> None:
        """Reach the server once."""
        await self._send("open", (), lambda: None)

    async def close(self) -> None:
        """End the waits of this node; `open` may follow."""
        waits, self._waits = self._waits, None
        if waits is not None:
            await waits.close()

    async def wait_history(self, *args: Any) -> bool:
        """Refuse: waits for the histories of jobs are not simulated."""
        raise NotImplementedError("a simulated node cannot follow the log of a job")

    def events(self, queue: str | None = None, names: Collection[str] | None = None) -> AsyncIterator[EventRecord]:
        """Refuse: streams of events are not simulated."""
        raise NotImplementedError("a simulated node has no stream of events; use app.on(...) instead")


def _positional(verb: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a call of a verb without names, those that are left out included."""
    protocols = (Observing, Storage, Scheduling, Limiting, Recording)
    method = next(vars(protocol)[verb] for protocol in protocols if verb in vars(protocol))
    given = inspect.signature(method).bind(None, *args, **options)
    given.apply_defaults()
    return given.args[1:]


def start_server(url: str, scheduler: Scheduler, network: Network, namespace: str, *, blocking_put: bool) -> Server:
    """Return the server of a URL: `memory:`, a file, or a Redis server that this run may empty.

    `blocking_put` chooses the put of sync apps, which has a fast path of its own on SQLite.
    """
    clock = ServerClock(scheduler)
    if location_of(url) is None:
        # By its name, because it imports the redis package, which an app on SQLite need not have.
        module = importlib.import_module("penstock.testing.simulation.redis_server")
        return module.RedisServer(url, clock, network, namespace)
    return SqliteServer(url, clock, network, namespace, blocking_put=blocking_put)


class SqliteServer:
    """One SQLite engine for all nodes. Each node has the real notifier; its wake-ups go over the network."""

    def __init__(self, url: str, clock: ServerClock, network: Network, namespace: str, *, blocking_put: bool) -> None:
        self.clock = clock
        self._network = network
        # A backend is imported on demand, so its classes are known as types of objects only.
        self._async: Any = connect(url, clock=clock, namespace=namespace)
        self._engine: Any = self._async.engine
        self._engine.send_wakeups = self._send_wakeups
        self._storage: BlockingStorage = connect_blocking(url, self._async, clock=clock)
        put_of: Any = self._storage if blocking_put else self._async
        self._put: Callable[..., Any] = put_of.__class__.put
        self._nodes: dict[str, tuple[Node, Any]] = {}
        self._renew_at = self._last_event = 0
        #: How often (seconds) waiters read the database although no wake-up came.
        self.poll = POLL
        #: The rows that had been changed when events were last read.
        self._changes = -1
        drive(self._storage.open())

    def execute(self, node: Node, verb: str, args: tuple[Any, ...]) -> Any:
        """Carry a verb out as one transaction."""
        if self._renew_at and abs(self.clock.ms - self._renew_at) > 5000:
            self.read_events()
        if verb == "put":
            return drive(self._put(self._storage, *args))
        return drive(getattr(self._storage, verb)(*args))

    # waits and wake-ups ---------------------------------------------------------------------------

    def waits_of(self, node: Node) -> Waits:
        """Return a notifier for a node, whose transactions are calls over the network."""
        from penstock.storage.sqlite.notifier import Notifier

        engine = self._engine
        here: Any = _Address(f"node:{node.name}")

        def submit(verb: Callable[[Any], Any], write: bool) -> Awaitable[Any]:
            return self._network.call(node, "look", (write,), lambda: engine.run(verb, write))

        class SimulatedNotifier(Notifier):
            def wake_all(self) -> None:
                for waiter in list(self._callbacks):
                    self.wake(waiter)

        notifier = SimulatedNotifier(here, submit, self.poll)
        self._nodes[here.address] = node, notifier
        return notifier

    def _send_wakeups(self, wakes: Sequence[Any], *_own: object) -> list[Any]:
        """Send wake-ups as hints; returns those to processes that are gone."""
        dead: list[Any] = []
        for wake in wakes:
            if wake.address == READER:
                continue
            found = self._nodes.get(wake.address)
            if found is None or found[0].dead:
                dead.append(wake)
            else:
                self._network.hint(found[0], partial(found[1].wake, wake.waiter))
        return dead

    # events and the rest --------------------------------------------------------------------------

    def _run(self, verb: Callable[[Any], Any]) -> Any:
        return self._engine.run(verb, True)

    def read_events(self) -> None:
        """Register a listener, and again before its row expires."""
        from penstock.storage.sqlite import waiters

        first = self._renew_at == 0
        self._renew_at = self.clock.ms
        last = self._run(lambda tx: waiters.add_listener(tx, READER, READER))
        if first:
            self._last_event = last

    def new_events(self) -> list[EventRecord]:
        """Return the events since the last call; most calls write nothing."""
        connection: Any = self._engine.connection()
        if connection.total_changes == self._changes:
            return []
        self._changes = connection.total_changes
        sql = "SELECT n, note FROM events WHERE n > ? ORDER BY n"
        rows: list[Any] = connection.execute(sql, (self._last_event,)).fetchall()
        if rows:
            self._last_event = rows[-1][0]
        return [event for _, note in rows for event in msgspec.msgpack.decode(note, type=list[EventRecord])]

    def waited(self, queue: str) -> list[str]:
        """Return the ids that have rows of waiters."""
        wall = round(self._network.server.wall() * 1000)
        sql = "SELECT DISTINCT id FROM waits WHERE queue = ? AND until > ?"
        rows = self._engine.connection().execute(sql, (queue, wall))
        return [id for (id,) in rows]

    def left(self) -> list[str]:
        """Return the tables that hold rows."""
        from penstock.storage.sqlite import waiters

        self._run(lambda tx: waiters.remove_listener(tx, READER))
        self._run(purge_later)
        connection: Any = self._engine.connection()
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in found}
        kept = ("meta", "events", "sqlite_sequence", "sqlite_stat1")
        return sorted(f"{count} rows of {name}" for name, count in counts.items() if count and name not in kept)

    def close(self) -> None:
        """Close the engine; a database in memory is gone with it."""
        self._engine.close()


def purge_later(tx: Any) -> None:
    """Purge what is deleted when the time of all statistics is over."""
    from penstock.storage.sqlite.purge import purge

    tx.now += STATS_MS
    purge(tx, [], 0)
    tx.now -= STATS_MS


class _Address:
    """The part of an engine that a notifier uses: where wake-ups reach its node."""

    memory = True

    def __init__(self, address: str) -> None:
        self.address = address
        self.wake_local: Callable[[str], bool] = lambda waiter: False
