"""The worker: claims jobs, runs their handlers and settles what came of it.

    claim → execute → handler → Outcome → settle

Each part has a file. `Worker` is the user's handle; a `Shift` builds the parts anew for each start.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from penstock.clock import Span, span_ms
from penstock.job import check_name, fail_queue_of
from penstock.serde import check_type
from penstock.task import Handler
from penstock.worker.host import Host
from penstock.worker.pool import units_of
from penstock.worker.shift import Shift, first_of

__all__ = ["Worker"]

DEFAULT_LEASE = 10.0


class Worker:
    """Runs the jobs of an app's handlers: `async with Worker(app):`, `await worker.run()` or `await worker.drain()`.

    It has `capacity` units, and each run holds its handler's `size` of them. A stopped worker can be
    started again; the handlers are those that the app has at that moment.
    """

    def __init__(
        self,
        app: Host,
        *,
        queues: Iterable[str] | None = None,
        processes: int = 0,
        capacity: int = 100,
        lease: Span | None = None,
        id: str | None = None,
    ) -> None:
        if processes != 0:
            raise ValueError("processes must be 0: handlers run in this process, child processes are not there yet")
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(f"capacity must be an int, not {type(capacity).__name__}")
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        if isinstance(queues, str):
            raise TypeError("queues must be a list of names, not one str")
        self.id = default_id() if id is None else check_name(id, "id")
        self.capacity = capacity
        self.lease = DEFAULT_LEASE if lease is None else span_ms(lease, "lease", zero=False) / 1000
        self._app = app
        self._queues = None if queues is None else [check_name(queue, "queues") for queue in queues]
        self._shift: Shift | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._close_app = False

    def __repr__(self) -> str:
        return f"<Worker {self.id!r}{' working' if self._shift else ''}>"

    async def __aenter__(self) -> Self:
        (await self._new_shift()).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(grace=30 if kind is None else 0)

    async def run(self) -> None:
        """Work until stopped; a cancellation gives the jobs back at once."""
        (await self._new_shift()).start()
        try:
            await self._stopped.wait()
        except asyncio.CancelledError:
            await self.stop(grace=0)
            raise

    async def drain(self, scheduled: bool = False) -> None:
        """Work until nothing due or running is left; with `scheduled` also wait for what is due later.

        It is for a worker that is not started. Jobs that other workers run are theirs to finish.
        """
        shift = await self._new_shift()
        shift.drain(scheduled)
        try:
            await first_of(shift.drained.wait(), self._stopped.wait())
        except asyncio.CancelledError:
            await self.stop(grace=0)
            raise
        await self.stop()

    async def stop(self, grace: Span = 30) -> None:
        """Claim no more, let runs end for `grace` seconds, give the rest back. Idempotent.

        Called again while it is under way, the shorter grace holds.
        """
        seconds = span_ms(grace, "grace") / 1000
        if self._shift is None:
            return
        shift = self._shift
        hurrying = asyncio.get_running_loop().call_later(seconds, shift.hurry.set)
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(shift))
        try:
            await asyncio.shield(self._stopping)
        finally:
            if self._shift is not shift:
                hurrying.cancel()

    async def release_all(self) -> int:
        """Give back every job that is running here, to its place and without a lost attempt; gives how many."""
        return 0 if self._shift is None else await self._shift.release()

    async def _new_shift(self) -> Shift:
        if self._shift is not None:
            raise RuntimeError("the worker is started already; stop() it first")
        handlers = self._handlers()
        self._close_app = not self._app.is_open
        await self._app.open()
        self._stopped.clear()
        self._shift = Shift(self._app, self.id, handlers, self.capacity, self.lease)
        return self._shift

    async def _stop(self, shift: Shift) -> None:
        try:
            await shift.finish()
            if self._close_app:
                await self._app.close()
        finally:
            self._shift = self._stopping = None
            self._stopped.set()

    def _handlers(self) -> dict[str, Handler]:
        """The handlers to serve: all of the app's, or those of the named queues with their fail queues."""
        known = dict(self._app.handlers)
        if self._queues is not None:
            for queue in self._queues:
                if queue not in known:
                    raise ValueError(f"queues: {queue!r} has no handler; known: {', '.join(map(repr, sorted(known)))}")
            wanted = {*self._queues, *(fail_queue_of(q) for q in self._queues if known[q].options.on_failure)}
            known = {queue: handler for queue, handler in known.items() if queue in wanted}
        for queue, handler in known.items():
            check_type(self._app.codec(queue).payload, handler.signature.payload)
            if units_of(handler) > self.capacity:
                size = handler.options.size
                raise ValueError(f"capacity ({self.capacity}) must be at least the size of {queue!r} ({size})")
        return known


def default_id() -> str:
    """A worker's id that says where it is, and that no other worker has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
