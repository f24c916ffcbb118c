"""`inline`: run jobs inside the call that enqueues them, by draining the real engine after each put."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from penstock.client.app import Penstock
from penstock.errors import ErrorKind, JobFailed, Retry
from penstock.model.events import Event
from penstock.model.handler import Handler
from penstock.model.job import NewJob
from penstock.storage.base import Put, Storage
from penstock.sync import Penstock as SyncPenstock
from penstock.testing.apps import AnyApp, AppProxy, as_host, async_app_of, patched_verbs
from penstock.testing.drain import record_outcomes
from penstock.worker import Worker

__all__ = ["inline"]

#: Whether the caller is a handler that runs inline: the drain that runs it also runs its jobs, unless it waits for one.
_inside: ContextVar[bool] = ContextVar("penstock_inline", default=False)


@contextlib.contextmanager
def inline(app: AnyApp) -> Generator[None]:
    """Let each enqueue run its job, and all other due ones, before it returns: `with inline(app):`.

    Results are available at once. An exception of a handler (other than `Retry`) is also raised by the
    enqueue or call; the job is then `retrying` or `failed`, as without `inline`. Plain handlers run in the
    thread of the enqueue. Scheduled jobs are not run.
    """
    proxy = InlineApp(async_app_of(app))
    puts: list[tuple[Storage, SyncPenstock | None]] = [(async_app_of(app).producer_storage, None)]
    if isinstance(app, SyncPenstock):
        puts = [(app.backends.loop_app.producer_storage, None)]
        if app.backends.app is not app.backends.loop_app:
            puts.append((app.backends.app.producer_storage, app))
    with contextlib.ExitStack() as stack:
        for storage, blocked in puts:
            stack.enter_context(patched_verbs(storage, {"put": proxy.put_into(storage, blocked)}))
        yield


class InlineApp(AppProxy):
    """The app of an inline worker: all handlers are async, and their exceptions are recorded."""

    def __init__(self, app: Penstock) -> None:
        super().__init__(app)
        self._raised: list[Exception] = []
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The app's handlers, each wrapped so that its exceptions are recorded."""
        return {queue: self._record_errors_of(handler) for queue, handler in self._app.handlers.items()}

    def put_into(self, storage: Storage, app: SyncPenstock | None) -> Callable[..., Awaitable[list[Put]]]:
        """Return a `put` for a storage that also runs the jobs; for a sync app it blocks the calling thread."""
        real = storage.put

        async def put(jobs: Sequence[NewJob], *max_queued: int) -> list[Put]:
            answers = await real(jobs, *max_queued)
            if _inside.get() and all(job.waiter is None for job in jobs):
                return answers
            if app is None:
                await self._run()
            else:
                self._run_blocking(app)
            return [await with_current_state(job, answer) for job, answer in zip(jobs, answers, strict=True)]

        async def with_current_state(job: NewJob, answer: Put) -> Put:
            [found] = await storage.get(job.queue, [job.id])
            return answer if found is None else replace(answer, state=found.state)

        return put

    def _run_blocking(self, app: SyncPenstock) -> None:
        """Run due jobs on this thread if it has no running loop, so that plain handlers share its transactions."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(self._run())
            finally:
                loop.close()
        else:
            app.backends.run_on_loop(self._run())

    async def _run(self) -> None:
        """Drain the app and raise the first exception of its handlers; only nested drains run at the same time."""
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with contextlib.nullcontext() if _inside.get() else lock:
            worker = Worker(as_host(self))
            token = _inside.set(True)
            try:
                with record_outcomes(self._app, worker) as outcomes:
                    await worker.drain()
            finally:
                _inside.reset(token)
            raised, self._raised = self._raised, []
        if raised:
            raise raised[0]
        for outcome in outcomes:
            _raise_failure(outcome)

    def _record_errors_of(self, handler: Handler) -> Handler:
        function = handler.function

        @functools.wraps(function)
        async def call(*args: Any) -> Any:
            try:
                value = function(*args)
                return await value if inspect.isawaitable(value) else value
            except Retry:
                raise
            except Exception as error:
                self._raised.append(error)
                raise

        return Handler(handler.queue, call, handler.options)


def _raise_failure(outcome: Event) -> None:
    """Raise `JobFailed` for a run that failed without an exception of its handler, such as a timeout."""
    if outcome.error is not None and (outcome.name == "failed" or outcome.error.kind is ErrorKind.TIMEOUT):
        raise JobFailed(f"job {outcome.id!r} in queue {outcome.queue!r} failed: {outcome.error.message}", outcome.error)
