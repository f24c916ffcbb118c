"""The worker without `await`: it works on the calling thread, or on one of its own inside a `with` block."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import threading
from collections.abc import Coroutine, Generator, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.app_loader import source_of
from penstock.host import AppHost, SyncApp
from penstock.model.clock import Span, span_ms
from penstock.model.hints import need_with
from penstock.model.printing import quote_name
from penstock.sync.app import Penstock
from penstock.sync.portal import Portal, refuse_in_loop, wait_for
from penstock.worker import Worker as AsyncWorker

__all__ = ["Worker"]

log = logging.getLogger("penstock.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: How long (seconds) runs may go on after the first signal, and at the end of a `with` block.
GRACE = 30.0


class Worker:
    """Runs the jobs of an app's handlers: `Worker(app).run()`, `Worker(app).drain()` or `with Worker(app):`.

    It takes the options of `penstock.Worker`, `processes` included. `run` and `drain` work on the calling
    thread; inside a `with` block it works on a thread of its own. A stopped worker can be started again.
    """

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
        names = list(queues) if queues is not None and not isinstance(queues, str) else queues
        self._new_worker = functools.partial(
            AsyncWorker, queues=names, processes=processes, capacity=capacity, lease=lease, max_jobs=max_jobs,
            max_rss=max_rss, adaptive=adaptive,
        )  # fmt: skip
        #: The id of the worker, as `app.workers()` lists it.
        self.id = self._new_worker(app, id=id).id  # refuses wrong options
        self._app = app
        self._lock = threading.Lock()
        self._session: _Session | None = None

    def __repr__(self) -> str:
        return f"<Worker {self.id!r}, {'started' if self._session else 'not started: call its run() or drain()'}>"

    def __enter__(self) -> Self:
        session = self._begin("with Worker(...)")
        session.start_thread()
        try:
            wait_for(session.started)
        except BaseException:
            self._end(session)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session = self._session
        if session is None:
            return
        try:
            self.stop(grace=GRACE if kind is None else 0)
        finally:
            self._end(session)

    if not TYPE_CHECKING:  # a type checker finds this mistake by itself

        def __aenter__(self) -> None:
            raise need_with("Worker")

        def __aexit__(self, *details: object) -> None: ...

    def run(self) -> None:
        """Work until `stop` is called in another thread.

        In the main thread SIGTERM and Ctrl-C stop it too: runs may go on for 30 seconds, and a second signal
        releases them at once. Then it returns.
        """
        session = self._begin("run()")
        try:
            with _stopped_by_signals(session):
                session.run(session.work())
        finally:
            self._forget(session)

    def drain(self, scheduled: bool = False) -> None:
        """Work until no job is due or running; with `scheduled` also wait for jobs that are due later.

        The worker must not be started. Jobs that other workers run are not waited for.
        """
        session = self._begin("drain()")
        try:
            session.run(session.drain(scheduled))
        finally:
            self._forget(session)

    def stop(self, grace: Span = 30) -> None:
        """Claim no more, let runs end for `grace` seconds, release the rest. Idempotent.

        If it is called again while it is under way, the shorter grace counts. It returns when the worker has
        stopped; on the worker's own thread, in a signal handler or an async handler, it returns at once.
        """
        seconds = span_ms(grace, "grace") / 1000
        session = self._session
        if session is not None:
            session.request_stop(seconds)
            if threading.current_thread() not in session.threads:
                try:
                    wait_for(session.ended)
                finally:
                    self._forget(session)

    @property
    def runs(self) -> list[tuple[str, str]]:
        """The jobs that are running here, as queue and id, the oldest run first."""
        refuse_in_loop("runs")
        session = self._session
        return [] if session is None else session.runs()

    def release_all(self) -> int:
        """Release every job that is running here: it keeps its position and its attempts. Returns their number."""
        refuse_in_loop("release_all()")
        session = self._session
        return 0 if session is None else session.release_all()

    def _begin(self, what: str) -> _Session:
        refuse_in_loop(what)
        with self._lock:
            if self._session is not None:
                raise RuntimeError("the worker is started already; stop() it first")
            self._session = session = self._new_session()
            return session

    def _new_session(self) -> _Session:
        """Return a session on a loop of its own with an app of its own, so that several workers may share an app.

        A storage that was given as an object is bound to the portal's loop, so its workers use that loop.
        """
        app = self._app
        if not isinstance(app, Penstock):
            return _Session(self._new_worker(app, id=self.id), None)
        copy = app.backends.new_worker_app()
        worker = self._new_worker(copy or app, id=self.id)
        if worker.processes:
            worker.source = source_of(app.async_app)  # the copy is in no module
        return _Session(worker, None if copy else app.backends.portal)

    def _end(self, session: _Session) -> None:
        """End a background thread without a grace, if it still runs."""
        session.request_stop(0)
        session.join()
        self._forget(session)

    def _forget(self, session: _Session) -> None:
        with self._lock:
            if self._session is session:
                self._session = None


class _Session:
    """One start-to-stop of a worker, on an event loop of its own or on that of a portal."""

    def __init__(self, worker: AsyncWorker, portal: Portal | None) -> None:
        self._worker = worker
        self._portal = portal
        self._loop = asyncio.new_event_loop() if portal is None else portal.run(_running_loop())
        self._working = asyncio.Event()
        self._stopping: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        #: The threads that cannot wait for the end: that of the event loop, and the one that waits for it already.
        self.threads: set[threading.Thread] = set()
        #: Done when the worker works, and when it has ended; a background thread leaves its error here.
        self.started: Future[None] = Future()
        self.ended: Future[None] = Future()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end; this thread waits for it."""
        self.threads.add(threading.current_thread())
        try:
            self._run(work)
        finally:
            self.ended.set_result(None)

    def start_thread(self) -> None:
        """Work on a new thread, which has no caller: an error goes to the thread that waits for the start or end."""

        def run() -> None:
            try:
                self._run(self.work())
            except BaseException as error:
                if self.started.done():
                    self.ended.set_exception(error)
                    return
                self.started.set_exception(error)
            self.ended.set_result(None)

        self._thread = threading.Thread(target=run, name="penstock-worker", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the new thread."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        if self._portal is not None:
            self._portal.run(work)
            return
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(work)

    async def work(self) -> None:
        """Work until a stop is requested."""
        self.threads.add(threading.current_thread())
        async with self._worker:
            self._working.set()
            self.started.set_result(None)
            await self._worker.wait_stopped()

    async def drain(self, scheduled: bool) -> None:
        """Work until no job is due, or a stop is requested."""
        self.threads.add(threading.current_thread())
        self._working.set()
        await self._worker.drain(scheduled)

    def request_stop(self, grace: float) -> None:
        """Request a stop, from any thread or from a signal handler; a request after the end has no effect."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._begin_stop, grace)

    def release_all(self) -> int:
        """Release the running jobs, from another thread."""
        return wait_for(asyncio.run_coroutine_threadsafe(self._worker.release_all(), self._loop))

    def runs(self) -> list[tuple[str, str]]:
        """Return the running jobs, from another thread."""

        async def runs() -> list[tuple[str, str]]:
            return self._worker.runs

        return wait_for(asyncio.run_coroutine_threadsafe(runs(), self._loop))

    def _begin_stop(self, grace: float) -> None:
        self._stopping.add(self._loop.create_task(self._stop(grace)))

    async def _stop(self, grace: float) -> None:
        await self._working.wait()
        log.info("worker %s stops: runs may go on for %g s", quote_name(self._worker.id), grace)
        await self._worker.stop(grace)


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@contextlib.contextmanager
def _stopped_by_signals(session: _Session) -> Generator[None]:
    """Stop a session at SIGTERM and Ctrl-C, at the second one without a grace; only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    graces = iter((GRACE,))

    def on_signal(number: int, frame: object) -> None:
        session.request_stop(next(graces, 0.0))

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
