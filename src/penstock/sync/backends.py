"""The ways of a sync app to its storage: now, on the calling thread; or waiting, on the portal's event loop.

Three async apps share what is declared. The user's own (`async_app`) is for workers. `direct` is on a
storage whose verbs never suspend. `waiting` lives on the portal, with a storage of its own; a database
in memory cannot be had twice, so that is counted, and a storage given as an object is the user's.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Self, TypedDict, TypeVar

from penstock.aio import drive
from penstock.client.answers import Enqueued
from penstock.client.app import Penstock as AsyncPenstock
from penstock.client.entry import plain_job
from penstock.client.queue import Queue
from penstock.model.clock import Clock
from penstock.model.durability import Durability
from penstock.model.events import Event, Listeners
from penstock.model.ids import new_id
from penstock.storage import connect, connect_blocking, connect_refcounted, location_of
from penstock.storage.base import Storage
from penstock.sync.portal import Portal, refuse_in_loop

__all__ = ["App", "SyncBackends"]

T = TypeVar("T")

log = logging.getLogger("penstock")


class Options(TypedDict):
    """How the storages of an app are connected."""

    namespace: str
    clock: Clock | None
    durability: Durability | None


class App(AsyncPenstock):
    """An async app that can be had again on another storage object, with all that was declared."""

    def __init__(self, storage: Storage, place: str | None, **given: Any) -> None:
        super().__init__(storage=storage, **given)
        self._url = place
        self._given = given

    @classmethod
    def twin(cls, app: App, storage: Storage, listeners: Listeners) -> Self:
        """The same app on another storage."""
        twin = cls(storage, app._url, **app._given)
        twin._share(app, listeners)
        return twin

    def again(self, storage: Storage) -> None:
        """Begin anew on another storage, as if never opened."""
        before = copy.copy(self)
        App.__init__(self, storage, self._url, **self._given)
        self._share(before, before.listeners)
        self._queues = before._queues

    @contextlib.contextmanager
    def lent_to(self, storage: Storage, url: str, clock: Clock) -> Generator[None]:
        """Be on another storage for a while, and so will be the twins that are made meanwhile."""
        with super().lent_to(storage, url, clock):
            given, self._given = self._given, {**self._given, "clock": clock}
            try:
                yield
            finally:
                self._given = given

    def _share(self, app: App, listeners: Listeners) -> None:
        self.handlers, self._serdes, self._fail_queues = app.handlers, app._serdes, app._fail_queues
        self._codecs = app._codecs
        self.listeners = listeners


class Direct(App):
    """An app for many threads without a loop: its coroutines never suspend."""

    def __init__(self, storage: Storage, place: str | None, **given: Any) -> None:
        super().__init__(storage, place, **given)
        self._mutex = threading.Lock()
        #: What must be done before: a database in memory is there only while somebody else has it open.
        self.first: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Open the storage. Idempotent."""
        self.first()
        with self._mutex:
            if not self._open:
                await self.storage.open()
                self._open = True

    async def close(self) -> None:
        """Close the storage. Idempotent."""
        with self._mutex:
            if self._open:
                self._open = False
                await self.storage.close()


class SharedListeners(Listeners):
    """Another app's listeners, told of what this one does; what they leave running is this one's."""

    def __init__(self, others: Listeners, portal: Portal | None = None) -> None:
        super().__init__()
        self.by_name = others.by_name
        self._portal = portal

    def emit(self, event: Event) -> None:
        """Call the listeners, here; async ones go on on the portal if there is one."""
        if self._portal is None:
            super().emit(event)
            return
        for listener in (*self.by_name.get(event.name, ()), *self.by_name.get("*", ())):
            try:
                answer = listener(event)
                if inspect.isawaitable(answer):
                    self._portal.spawn(self._finish(event, answer))
            except Exception:
                log.exception("a listener for %r raised", event.name)


class SyncBackends:
    """How the calls of a sync app are made."""

    loop_app: App
    _direct: Direct | None
    _queues: dict[str, Queue]

    def __init__(self, app: App, url: str | None, clock: Clock | None, durability: Durability | None) -> None:
        self._app = app
        self._url = url
        self._options: Options = {"namespace": app.namespace, "clock": clock, "durability": durability}
        place = None if url is None else location_of(url)
        self._private = place is not None and place.path == ":memory:"
        self.portal = Portal(self._end)
        self._build()
        _all.add(self)

    @property
    def app(self) -> App:
        """The app for calls that are made `now`."""
        return self.loop_app if self._direct is None else self._direct

    def queue(self, name: str) -> Queue:
        """A queue of `app`."""
        queues = self._queues  # taken before the app: after a renewal nothing old gets into the new ones
        found = queues.get(name)
        if found is None:
            found = queues[name] = self.app.queue(name)
        return found

    def now(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Make a call of `app` that waits for nothing but the storage."""
        return self.portal.run(coroutine) if self._direct is None else drive(coroutine)

    def enqueue_plain(self, name: str, payload: Any) -> Enqueued | None:
        """What `enqueue` does with a payload alone, of which nobody else is to hear, in fewer steps.

        None where there is more to do: then nothing was done.
        """
        direct = self._direct
        if direct is None or not direct.is_open or not direct.defaults.plain or direct.listeners:
            return None
        if self._options["durability"] is not None:
            return None
        job = plain_job(payload, name, direct.codec(name).payload, direct.max_payload, new_id())
        [answer] = drive(direct.storage.put([job]))
        return Enqueued(id=job.id, status=answer.status, state=answer.state)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Make a call of `waiting`."""
        return self.portal.run(coroutine)

    def run_blocking(self, what: str, coroutine: Coroutine[Any, Any, T]) -> T:
        """Make a call of `waiting` that may take long, so that no event loop may be held up by it."""
        try:
            refuse_in_loop(what)
        except RuntimeError:
            coroutine.close()
            raise
        return self.portal.run(coroutine)

    def close(self) -> None:
        """End the portal, close the storages, and be ready to be opened again."""
        try:
            self.portal.stop()
        finally:
            if self._direct is not None:
                drive(self._direct.close())
            self._renew()

    @contextlib.contextmanager
    def lent_to(self, storage: Storage, url: str, clock: Clock) -> Generator[None]:
        """Have the calls of a sync app go to another storage, a counted one in memory, for a while."""
        if self.app.is_open:
            raise RuntimeError("the app is open: close it first, or lend it before it is opened")
        with self._app.lent_to(storage, url, clock):
            kept = dict(vars(self))
            self._url, self._private = url, True
            self._options = {"namespace": self._app.namespace, "clock": clock, "durability": None}
            self._build()
            try:
                yield
            finally:
                try:
                    self.close()
                finally:
                    vars(self).update(kept)

    def after_fork(self) -> None:
        """In a child process: threads and connections are the parent's; ours are made when they are needed."""
        # Closing or collecting these here could reach the parent's sockets, locks and epoll.
        _inherited.append((self.portal.forget(), self._direct, self.loop_app, copy.copy(self._app)))
        if self._url is not None and self._private:
            self._app.again(connect_refcounted(self._url, **self._options))
        self._renew()

    def _renew(self) -> None:
        """New storage objects: the old ones are bound to an event loop or a process that is over."""
        if self._url is None:
            self._app.again(self._app.storage)
        self._build()

    def _build(self) -> None:
        app, url = self._app, self._url
        if url is None:
            self.loop_app, self._direct = app, None
        else:
            storage = app.storage if self._private else connect(url, **self._options)
            waiting = App.twin(app, storage, SharedListeners(app.listeners))
            blocking = connect_blocking(url, storage, **self._options)
            direct = Direct.twin(app, blocking, SharedListeners(app.listeners, self.portal))
            if self._private:
                direct.first = self._open_waiting
            self.loop_app, self._direct = waiting, direct
        self._queues = {}

    def _open_waiting(self) -> None:
        if not self.loop_app.is_open:
            self.portal.run(self.loop_app.open())

    async def _end(self) -> None:
        await self.loop_app.close()


#: Every sync app of this process, and what child processes must keep of their parents'.
_all: weakref.WeakSet[SyncBackends] = weakref.WeakSet()
_inherited: list[object] = []


def _after_fork() -> None:
    for ways in list(_all):
        ways.after_fork()


os.register_at_fork(after_in_child=_after_fork)
