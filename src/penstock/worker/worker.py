"""The worker: it claims jobs, runs their handlers and settles the outcomes.

`Worker` is the user's object. Each start builds a `WorkerRuntime` with the parts of the worker, or a
`Supervisor` with child processes; `runtime` describes the way of a job through them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.aio import first_of
from penstock.app_loader import is_app
from penstock.host import AppHost, SyncApp, async_app
from penstock.model.clock import Span, span_ms
from penstock.model.hints import need_async_with
from penstock.model.ids import check_name
from penstock.worker.handlers import select_handlers
from penstock.worker.runtime import Runtime, WorkerRuntime
from penstock.worker.startup_checks import warn_of_eviction
from penstock.worker.supervisor import ChildConfig, Supervisor, modules_of, source_of

__all__ = ["Worker"]


class Worker:
    """Runs the jobs of an app's handlers: `async with Worker(app):`, `await worker.run()` or `await worker.drain()`.

    It has `capacity` units, and each run holds its handler's `size` of them. A stopped worker can be
    started again; the handlers are those that the app has at that moment. With `processes` they run in
    child processes with `capacity` units each, which import the app; a child is replaced after about
    `max_jobs` jobs, or when it has more than `max_rss` bytes of memory.

    With `adaptive` a process whose event loop lags, or that uses more than nine tenths of a core, claims
    less until it keeps up again: fewer units, and a smaller part of each `concurrency=n`, but always
    enough for one run of every queue.
    """

    #: Where child processes find the app ("module:app"); None searches the loaded modules for it.
    source: str | None = None
    #: The level at which child processes log to stderr; None leaves their logging to the app.
    log_level: int | None = None
    #: Whether it warns of a server that may lose jobs, when it starts.
    warns: bool = True

    def __init__(
        self,
        app: AppHost | SyncApp,
        *,
        queues: Iterable[str] | None = None,
        processes: int = 0,
        capacity: int = 100,
        lease: Span | None = None,
        id: str | None = None,
        max_jobs: int | None = None,
        max_rss: int | None = None,
        adaptive: bool = False,
    ) -> None:
        app = async_app(app)
        if not is_app(app):
            raise TypeError(
                f"app must be a Penstock, not {type(app).__name__}; a name is for the command: penstock worker jobs:app"
            )
        check_whole(processes, "processes", least=0)
        check_whole(capacity, "capacity", least=1)
        if max_jobs is not None:
            check_whole(max_jobs, "max_jobs", least=1)
        if max_rss is not None:
            check_whole(max_rss, "max_rss", least=1)
        if processes == 0 and (max_jobs or max_rss):
            raise ValueError("max_jobs and max_rss are about child processes: give processes too")
        if isinstance(queues, str):
            raise TypeError("queues must be a list of names, not one str")
        self.id = default_id() if id is None else check_name(id, "id")
        self.capacity = capacity
        self.lease = app.lease if lease is None else span_ms(lease, "lease", zero=False) / 1000
        self.processes = processes
        self._max_jobs, self._max_rss = max_jobs, max_rss
        self.adaptive = adaptive
        self._app = app
        self._queues = None if queues is None else [check_name(queue, "queues") for queue in queues]
        self._runtime: Runtime | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._close_app = False

    def __repr__(self) -> str:
        return f"<Worker {self.id!r} {'working' if self._runtime else 'not started: run() or drain() it'}>"

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(grace=30 if kind is None else 0)

    if not TYPE_CHECKING:  # a type checker finds this mistake by itself

        def __enter__(self) -> None:
            raise need_async_with("Worker")

        def __exit__(self, *details: object) -> None: ...

    async def run(self) -> None:
        """Work until stopped; a cancellation releases the running jobs at once."""
        await self._start()
        try:
            await self._stopped.wait()
        except asyncio.CancelledError:
            await self.stop(grace=0)
            raise

    async def drain(self, scheduled: bool = False) -> None:
        """Work until no job is due or running; with `scheduled` also wait for jobs that are due later.

        The worker must not be started. Jobs that other workers run are not waited for.
        """
        await self._start(lambda runtime: runtime.drain(scheduled))
        runtime = self._runtime
        try:
            if runtime is not None:
                await first_of(runtime.drained.wait(), self._stopped.wait())
        except asyncio.CancelledError:
            await self.stop(grace=0)
            raise
        await self.stop()

    async def stop(self, grace: Span = 30) -> None:
        """Claim no more, let runs end for `grace` seconds, release the rest. Idempotent.

        If it is called again while it is under way, the shorter grace counts.
        """
        seconds = span_ms(grace, "grace") / 1000
        if self._runtime is None:
            return
        runtime = self._runtime
        timer = asyncio.get_running_loop().call_later(seconds, runtime.release_now.set)
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(runtime))
        try:
            await asyncio.shield(self._stopping)
        finally:
            if self._runtime is not runtime:
                timer.cancel()

    async def release_all(self) -> int:
        """Release every job that is running here: it keeps its position and its attempts. Returns their number."""
        return 0 if self._runtime is None else await self._runtime.release()

    async def _start(self, start: Callable[[Runtime], Awaitable[None]] | None = None) -> None:
        if self._runtime is not None:
            raise RuntimeError("the worker is started already; stop() it first")
        handlers = select_handlers(self._app, self._queues, self.capacity)
        source = (self.source or source_of(self._app)) if self.processes else ""
        self._close_app = not self._app.is_open
        await self._app.open()
        self._stopped = asyncio.Event()  # of the loop that runs now: a worker may be started again in another one
        if self.warns:
            await warn_of_eviction(self._app.storage)
        if self.processes:
            self._runtime = Supervisor(self._app, handlers, self._child_config(source, handlers))
        else:
            self._runtime = WorkerRuntime(self._app, self.id, handlers, self.capacity, self.lease, self.adaptive)
        try:
            await (self._runtime.start() if start is None else start(self._runtime))
        except BaseException:
            await self.stop(grace=0)
            raise

    def _child_config(self, source: str, serves: Iterable[str]) -> ChildConfig:
        return ChildConfig(
            source=source, modules=modules_of(self._app), serves=tuple(serves), worker=self.id,
            queues=None if self._queues is None else tuple(self._queues),
            capacity=self.capacity, lease=self.lease, slots=self.processes, max_jobs=self._max_jobs,
            max_rss=self._max_rss, adaptive=self.adaptive, log_level=self.log_level,
        )  # fmt: skip

    async def _stop(self, runtime: Runtime) -> None:
        try:
            await runtime.finish()
            if self._close_app:
                await self._app.close()
        finally:
            self._runtime = self._stopping = None
            self._stopped.set()


def default_id() -> str:
    """Return a unique id for a worker, with its host and process."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def check_whole(value: object, name: str, least: int) -> None:
    """Raise TypeError or ValueError unless an argument is an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
