"""The async apps behind a sync app, which make its calls on the calling thread or on the portal's event loop.

Three async apps share the declarations. The user's own (`async_app`) is for event loops of the user; each
`sync.Worker` has a copy of it. The direct app has a storage whose verbs never suspend, so its calls run on the
calling thread. The loop app runs on the portal, with a storage of its own. A database in memory cannot be opened
twice, so there the user's app, the loop app and the copies share a reference-counted one; a storage given as an
object is used on the portal only.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Self, TypedDict, TypeVar

from penstock.aio import drive
from penstock.client.app import Penstock as AsyncPenstock
from penstock.client.queue import Queue
from penstock.model.clock import Clock
from penstock.model.durability import Durability
from penstock.model.events import Event, Listeners
from penstock.storage import connect, connect_blocking, connect_refcounted, location_of
from penstock.storage.base import Storage
from penstock.sync.portal import Portal, refuse_in_loop

__all__ = ["BackendApp", "SyncBackends"]

T = TypeVar("T")


class ConnectOptions(TypedDict):
    """Arguments for connecting the storages of an app."""

    namespace: str
    clock: Clock | None
    durability: Durability | None


class BackendApp(AsyncPenstock):
    """An async app that can be cloned onto another storage object, sharing its declarations."""

    driven = True

    def __init__(self, storage: Storage, url: str | None, **arguments: Any) -> None:
        super().__init__(storage=storage, **arguments)
        self._url = url
        self._arguments = arguments

    @classmethod
    def clone(cls, app: BackendApp, storage: Storage, listeners: Listeners) -> Self:
        """Return a copy of an app on another storage."""
        clone = cls(storage, app._url, **app._arguments)
        clone._share(app, listeners)
        return clone

    def rebind(self, storage: Storage) -> None:
        """Start over on another storage, as if never opened."""
        before = copy.copy(self)
        BackendApp.__init__(self, storage, self._url, **self._arguments)
        self._share(before, before.listeners)
        self._queues = before._queues

    @contextlib.contextmanager
    def using_storage(self, storage: Storage, url: str, clock: Clock) -> Generator[None]:
        """Use another storage inside a `with` block, also for the clones made inside."""
        with super().using_storage(storage, url, clock):
            given, self._arguments = self._arguments, {**self._arguments, "clock": clock}
            try:
                yield
            finally:
                self._arguments = given

    def _share(self, app: BackendApp, listeners: Listeners) -> None:
        self.handlers, self._serdes, self._fail_queues = app.handlers, app._serdes, app._fail_queues
        self._codecs, self.max_queued, self.family_limits = app._codecs, app.max_queued, app.family_limits
        self._schedules, self.hooks = app._schedules, app.hooks
        self.listeners = listeners


class DirectApp(BackendApp):
    """An app for many threads without an event loop: its coroutines never suspend."""

    def __init__(self, storage: Storage, url: str | None, **arguments: Any) -> None:
        super().__init__(storage, url, **arguments)
        self._mutex = threading.Lock()
        #: Called before opening: a database in memory exists only while the loop app has it open.
        self.before_open: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Open the storage. Idempotent."""
        self.before_open()
        with self._mutex:
            if not self._open:
                await self.storage.open()
                self._open = True

    @property
    def ready_storage(self) -> Storage | None:
        """The storage for producers if it is open, in any thread."""
        return self.producer_storage if self._open else None

    async def opened(self) -> Storage:
        """Return the storage for producers, and open it first if need be."""
        if not self._open:
            await self.open()
        return self.producer_storage

    async def close(self) -> None:
        """Close the storage. Idempotent."""
        with self._mutex:
            if self._open:
                self._open = False
                await self.storage.close()


class SharedListeners(Listeners):
    """The listeners of another app, shared; the tasks that they start belong to this app."""

    def __init__(self, others: Listeners, portal: Portal | None = None) -> None:
        super().__init__()
        self.by_name = others.by_name
        self._portal = portal

    def emit(self, event: Event) -> None:
        """Call the listeners of an event on this thread; async ones run on the portal if there is one."""
        if self._portal is None:
            super().emit(event)
            return
        for listener in (*self.by_name.get(event.name, ()), *self.by_name.get("*", ())):
            try:
                answer = listener(event)
                if inspect.isawaitable(answer):
                    self._portal.spawn(self._finish(event, answer))
            except BaseException as error:
                self.log_raised(event, error)


class SyncBackends:
    """The async apps of a sync app, and the portal that runs the coroutines of the loop app."""

    loop_app: BackendApp
    _direct: DirectApp | None
    _queues: dict[str, Queue]

    def __init__(self, app: BackendApp, url: str | None, clock: Clock | None, durability: Durability | None) -> None:
        self._app = app
        self._url = url
        self._connect_options: ConnectOptions = {"namespace": app.namespace, "clock": clock, "durability": durability}
        location = None if url is None else location_of(url)
        self._in_memory = location is not None and location.path == ":memory:"
        self.portal = Portal(self._close_loop_app)
        self._build()
        _instances.add(self)

    @property
    def app(self) -> BackendApp:
        """The app whose coroutines `run` takes: the direct app, or the loop app if there is none."""
        return self.loop_app if self._direct is None else self._direct

    def queue(self, name: str) -> Queue:
        """Return a queue of `app`."""
        queues = self._queues  # read before the app: after a rebuild no old queue gets into the new dict
        found = queues.get(name)
        if found is None:
            found = queues[name] = self.app.queue(name)
        return found

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `app`, which waits for nothing but the storage."""
        return self.portal.run(coroutine) if self._direct is None else drive(coroutine)

    def run_on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `loop_app`."""
        return self.portal.run(coroutine)

    def run_blocking(self, what: str, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of `loop_app` that may wait long; raises `RuntimeError` in a thread with an event loop."""
        try:
            refuse_in_loop(what)
        except RuntimeError:
            coroutine.close()
            raise
        return self.portal.run(coroutine)

    def new_worker_app(self) -> BackendApp | None:
        """Return a new app for a worker with a loop of its own; None if the storage was given as an object."""
        app, url = self._app, self._url
        if url is None:
            return None
        storage = app.storage if self._in_memory else connect(url, **self._connect_options)
        return BackendApp.clone(app, storage, SharedListeners(app.listeners))

    def close(self) -> None:
        """Stop the portal and close the storages; they may be opened again."""
        try:
            self.portal.stop()
        finally:
            if self._direct is not None:
                drive(self._direct.close())
            self._rebuild()

    @contextlib.contextmanager
    def using_storage(self, storage: Storage, url: str, clock: Clock) -> Generator[None]:
        """Use another storage, a reference-counted one in memory, inside a `with` block."""
        if self.app.is_open:
            raise RuntimeError("the app is open: close it first, or replace its storage before it is opened")
        with self._app.using_storage(storage, url, clock):
            kept = dict(vars(self))
            self._url, self._in_memory = url, True
            self._connect_options = {"namespace": self._app.namespace, "clock": clock, "durability": None}
            self._build()
            try:
                yield
            finally:
                try:
                    self.close()
                finally:
                    vars(self).update(kept)

    def after_fork(self) -> None:
        """Drop the threads and connections of the parent process; a child makes its own when it needs them."""
        # Kept for ever: closing or collecting these here could reach the parent's sockets, locks and epoll.
        _inherited.append((self.portal.forget(), self._direct, self.loop_app, copy.copy(self._app)))
        if self._url is not None and self._in_memory:
            self._app.rebind(connect_refcounted(self._url, **self._connect_options))
        self._rebuild()

    def _rebuild(self) -> None:
        """Make new storage objects: the old ones are bound to an event loop or a process that has ended."""
        if self._url is None:
            self._app.rebind(self._app.storage)
        self._build()

    def _build(self) -> None:
        app, url = self._app, self._url
        if url is None:
            self.loop_app, self._direct = app, None
        else:
            storage = app.storage if self._in_memory else connect(url, **self._connect_options)
            waiting = BackendApp.clone(app, storage, SharedListeners(app.listeners))
            blocking = connect_blocking(url, storage, **self._connect_options)
            direct = DirectApp.clone(app, blocking, SharedListeners(app.listeners, self.portal))
            if self._in_memory:
                direct.before_open = self._open_loop_app
            self.loop_app, self._direct = waiting, direct
        self._queues = {}

    def _open_loop_app(self) -> None:
        if not self.loop_app.is_open:
            self.portal.run(self.loop_app.open())

    async def _close_loop_app(self) -> None:
        await self.loop_app.close()


#: The backends of every sync app of this process, and the parents' objects that a child must not collect.
_instances: weakref.WeakSet[SyncBackends] = weakref.WeakSet()
_inherited: list[object] = []


def _after_fork() -> None:
    for backends in list(_instances):
        backends.after_fork()


os.register_at_fork(after_in_child=_after_fork)
