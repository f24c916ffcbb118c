"""The worker: it claims jobs, runs their handlers and settles the outcomes.

`Worker` is the user's object. Each start builds a `WorkerRuntime` with the parts of the worker, or a
`Supervisor` with child processes; `runtime` describes the way of a job through them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, cast

from msgspec.structs import replace

from penstock._version import __version__
from penstock.aio import first_of
from penstock.app_loader import is_app
from penstock.errors import JobError, StorageUnusable
from penstock.host import AppHost, SyncApp, async_app
from penstock.log_config import LogFormat
from penstock.model.clock import Span, span_ms
from penstock.model.handler import Handler
from penstock.model.hints import need_async_with
from penstock.model.ids import check_name
from penstock.model.printing import count, escape_controls, quote_name
from penstock.model.worker_status import Stage, WorkerStatus
from penstock.worker.declared_limits import check_limits
from penstock.worker.handlers import select_handlers
from penstock.worker.identity import default_id
from penstock.worker.pulse import Pulse
from penstock.worker.runtime import WorkerRuntime
from penstock.worker.startup_checks import warn_of_eviction
from penstock.worker.supervisor import ChildConfig, Supervisor, modules_of, source_of
from penstock.worker.supervisor.storage_match import location_of

__all__ = ["Worker"]

log = logging.getLogger("penstock.worker")

#: How long (seconds) runs may go on after a worker was asked to stop.
STOP_GRACE = 30.0

#: How many queues the line of a start names.
MAX_QUEUES = 20


class Runtime(Protocol):
    """One start-to-stop of a worker: a `WorkerRuntime` in this process, or the `Supervisor` of children."""

    drained: asyncio.Event
    release_now: asyncio.Event
    stop_asked: Callable[[], None]

    async def start(self) -> None: ...

    async def drain(self, scheduled: bool) -> None: ...

    async def finish(self) -> None: ...

    async def release(self) -> int: ...

    def runs(self) -> list[tuple[str, str]]: ...

    def count_runs(self) -> None: ...

    def look(self) -> WorkerStatus: ...


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
    #: Whether child processes log every failed run with its traceback, if they log to stderr.
    log_tracebacks: bool = False
    #: The format of that log.
    log_format: LogFormat = "text"
    #: Whether it notes its state every second, for `status`.
    watched: bool = False
    #: Whether it warns of a server that may lose jobs, when it starts.
    warns: bool = True
    #: The runtime of a worker without child processes; a simulation has one without threads.
    _runtime_class: type[WorkerRuntime] = WorkerRuntime

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
        app = check_app(app)
        check_whole(processes, "processes", least=0)
        check_whole(capacity, "capacity", least=1)
        if max_jobs is not None:
            check_whole(max_jobs, "max_jobs", least=1)
        if max_rss is not None:
            check_whole(max_rss, "max_rss", least=1)
        if processes == 0 and (max_jobs or max_rss):
            raise ValueError("max_jobs and max_rss need child processes: give processes, too")
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
        #: The storage is being opened.
        self._opening: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._close_app = False
        self._stage: Stage = "starting"
        self._pulse: Pulse | None = None
        #: Why it ended by itself, if it did.
        self._failure: StorageUnusable | None = None

    def __repr__(self) -> str:
        return f"<Worker {self.id!r}, {'started' if self._runtime else 'not started: await its run() or drain()'}>"

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(grace=30 if kind is None else 0)
        if kind is None:
            self._raise_failure()

    if not TYPE_CHECKING:  # a type checker finds this mistake by itself

        def __enter__(self) -> None:
            raise need_async_with("Worker")

        def __exit__(self, *details: object) -> None: ...

    async def run(self) -> None:
        """Work until stopped; a cancellation releases the running jobs at once.

        Raises `StorageUnusable` if the storage cannot be used until an operator changes something.
        """
        await self._start()
        try:
            await self.wait_stopped()
        except asyncio.CancelledError:
            await self.stop(grace=0)
            raise
        self._raise_failure()

    async def wait_stopped(self) -> None:
        """Wait until the worker has stopped: by `stop`, or by itself because its storage cannot be used."""
        await self._stopped.wait()

    async def drain(self, scheduled: bool = False) -> None:
        """Work until no job may start and none is running; with `scheduled` also wait for jobs that may start later.

        Those are jobs that are due later, or wait for a rate or a pause that ends. The worker must not be started. Jobs
        that other workers run are not waited for.
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
        self._raise_failure()

    async def stop(self, grace: Span = 30) -> None:
        """Claim no more, let runs end for `grace` seconds, release the rest. Idempotent.

        If it is called again while it is under way, the shorter grace counts. Outcomes that the storage does not
        record within one lease after the last run are given up: their jobs run again when their leases expire.
        """
        seconds = span_ms(grace, "grace") / 1000
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        if self._runtime is None:
            return
        runtime = self._runtime
        timer = asyncio.get_running_loop().call_later(seconds, runtime.release_now.set)
        if self._stopping is None:
            self._stage = "stopping"
            self._stopping = asyncio.create_task(self._stop(runtime))
        try:
            await asyncio.shield(self._stopping)
        finally:
            if self._runtime is not runtime:
                timer.cancel()

    @property
    def runs(self) -> list[tuple[str, str]]:
        """The jobs that are running here, as queue and id, the oldest run first."""
        return [] if self._runtime is None else self._runtime.runs()

    def status(self) -> WorkerStatus:
        """Return the state of the worker; if it is `watched`, any thread may ask, and counts and ages are in it."""
        pulse = self._pulse
        known = WorkerStatus(id=self.id, stage=self._stage, lease=self.lease) if pulse is None else pulse.status()
        return replace(known, stage=self._stage)

    async def release_all(self) -> int:
        """Release every job that is running here: it keeps its position and its attempts. Returns their number."""
        return 0 if self._runtime is None else await self._runtime.release()

    async def _start(self, start: Callable[[Runtime], Awaitable[None]] | None = None) -> None:
        if self._runtime is not None or self._opening is not None:
            raise RuntimeError("the worker is started already; stop() it first")
        handlers = select_handlers(self._app, self._queues, self.capacity)
        check_limits(self._app, handlers)
        source = (self.source or source_of(self._app)) if self.processes else ""
        self._close_app = not self._app.is_open
        self._stopped = asyncio.Event()  # of the loop that runs now: a worker may be started again in another one
        self._failure = None
        if not await self._open(handlers):
            self._stage = "stopped"
            self._stopped.set()
            return
        if self.processes:
            runtime: Runtime = self._new_supervisor(handlers, self._child_config(source, handlers))
        else:
            runtime = self._runtime_class(
                self._app, self.id, handlers, self.capacity, self.lease, self.adaptive, self._give_up
            )  # fmt: skip
        self._runtime, runtime.stop_asked = runtime, self._stop_asked
        self._stage = "starting"
        if self.watched:
            runtime.count_runs()
            self._pulse = Pulse(runtime.look)
            self._pulse.start()
        try:
            await (runtime.start() if start is None else start(runtime))
        except BaseException:
            await self.stop(grace=0)
            raise
        if self._stopping is None:
            self._stage = "working"

    async def _open(self, handlers: Iterable[str]) -> bool:
        """Open the storage, in a task that `stop` cancels; returns False then."""
        self._opening = asyncio.create_task(self._open_app(handlers))
        try:
            await self._opening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return False
        finally:
            self._opening = None
        return True

    async def _open_app(self, handlers: Iterable[str]) -> None:
        try:
            await self._app.open()
            self._log_start(handlers)
            if self.warns:
                await warn_of_eviction(self._app.storage)
        except asyncio.CancelledError:
            if self._close_app:
                await self._app.close()
            raise

    def _stop_asked(self) -> None:
        """Stop as after SIGTERM: an operator asked for it through the storage."""
        if self._runtime is not None and self._stopping is None:
            runtime = self._runtime
            log.warning("worker %s was asked to stop", quote_name(self.id))
            asyncio.get_running_loop().call_later(STOP_GRACE, runtime.release_now.set)
            self._stage = "stopping"
            self._stopping = asyncio.create_task(self._stop(runtime))

    def _new_supervisor(self, handlers: dict[str, Handler], config: ChildConfig) -> Supervisor:
        return Supervisor(self._app, handlers, config, self._give_up)

    def _log_start(self, handlers: Iterable[str]) -> None:
        """Log the facts by which a wrong storage, namespace or queue is seen at once."""
        queues = [quote_name(queue) for queue in sorted(handlers)]
        names = ", ".join(queues[:MAX_QUEUES]) + (", …" if len(queues) > MAX_QUEUES else "")
        log.info(
            "worker %s starts: Penstock %s on %s, namespace %s, %s%s, %s, pid %d",
            quote_name(self.id),
            __version__,
            location_of(self._app.storage) or type(self._app.storage).__name__,
            quote_name(self._app.namespace),
            count(len(queues), "queue"),
            f" ({names})" if names else "",
            count(self.processes, "child process", "child processes") if self.processes else "no child processes",
            os.getpid(),
        )
        if not queues:
            log.warning("no handler is registered, so no job will run: import the modules that register handlers")

    def _give_up(self, error: StorageUnusable) -> None:
        """Stop without a grace period: no outcome can be recorded, so the leases of the runs expire."""
        log.error("the worker ends: %s", escape_controls(str(error)))
        self._app.emit("error", error=JobError.from_exception(error), worker=self.id)
        self._failure = error
        if self._runtime is not None:
            self._runtime.release_now.set()
            if self._stopping is None:
                self._stage = "stopping"
                self._stopping = asyncio.create_task(self._stop(self._runtime))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _child_config(self, source: str, serves: Iterable[str]) -> ChildConfig:
        return ChildConfig(
            source=source, modules=modules_of(self._app), serves=tuple(serves), worker=self.id,
            queues=None if self._queues is None else tuple(self._queues),
            capacity=self.capacity, lease=self.lease, slots=self.processes, max_jobs=self._max_jobs,
            max_rss=self._max_rss, adaptive=self.adaptive, log_level=self.log_level,
            log_tracebacks=self.log_tracebacks,
            log_format=self.log_format, watched=self.watched,
        )  # fmt: skip

    async def _stop(self, runtime: Runtime) -> None:
        try:
            await runtime.finish()
            if self._close_app:
                await self._app.close()
        finally:
            self._stage = "stopped"
            if self._pulse is not None:
                await self._pulse.stop()
            self._runtime = self._stopping = None
            self._stopped.set()


def check_app(app: object) -> AppHost:
    """Return the async app behind the argument of a worker; raises TypeError if it is none."""
    if isinstance(app, str):
        raise TypeError(f"app must be a Penstock app, not the str {app!r}; import it, or run: penstock worker {app}")
    found = async_app(cast("AppHost", app))
    if not is_app(found):
        raise TypeError(f"app must be a Penstock app, not {type(app).__name__}")
    return found


def check_whole(value: object, name: str, least: int) -> None:
    """Raise TypeError or ValueError unless an argument is an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
