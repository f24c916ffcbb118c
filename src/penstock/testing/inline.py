"""Handlers that run within the enqueue of their job: the real engine, drained after each put."""

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

#: Whether this is a handler that runs inline: what it enqueues is run by those who run it, unless it waits for that.
_inside: ContextVar[bool] = ContextVar("penstock_inline", default=False)


@contextlib.contextmanager
def inline(app: AnyApp) -> Generator[None]:
    """Within this block an enqueue runs its job, and all that is due, before it returns: `with inline(app):`.

    Results are there at once, and what a handler raises (other than `Retry`) is raised by the enqueue or
    the call; the job is then `retrying` or `failed`, as always. Plain handlers run in the thread of the
    enqueue. Jobs for later are left alone.
    """
    running = InlineApp(async_app_of(app))
    puts: list[tuple[Storage, SyncPenstock | None]] = [(async_app_of(app).storage, None)]
    if isinstance(app, SyncPenstock):
        puts = [(app.backends.loop_app.storage, None)]
        if app.backends.app is not app.backends.loop_app:
            puts.append((app.backends.app.storage, app))
    with contextlib.ExitStack() as stack:
        for storage, blocked in puts:
            stack.enter_context(patched_verbs(storage, {"put": running.put_into(storage, blocked)}))
        yield


class InlineApp(AppProxy):
    """An app as the worker of an inline run sees it: its handlers are watched, and all of them async."""

    def __init__(self, app: Penstock) -> None:
        super().__init__(app)
        self._raised: list[Exception] = []
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Every handler as it is now, with somebody who looks what it raises."""
        return {queue: self._record_errors_of(handler) for queue, handler in self._app.handlers.items()}

    def put_into(
        self, storage: Storage, app: SyncPenstock | None
    ) -> Callable[[Sequence[NewJob]], Awaitable[list[Put]]]:
        """A storage's `put` that also runs what was put; for a sync app, by blocking the calling thread."""
        real = storage.put

        async def put(jobs: Sequence[NewJob]) -> list[Put]:
            answers = await real(jobs)
            if _inside.get() and all(job.waiter is None for job in jobs):
                return answers
            if app is None:
                await self._run()
            else:
                self._run_blocking(app)
            return [await now(job, answer) for job, answer in zip(jobs, answers, strict=True)]

        async def now(job: NewJob, answer: Put) -> Put:
            [found] = await storage.get(job.queue, [job.id])
            return answer if found is None else replace(answer, state=found.state)

        return put

    def _run_blocking(self, app: SyncPenstock) -> None:
        """Run on this thread, so that plain handlers have its connections and transactions, if it has no loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(self._run())
            finally:
                loop.close()
        else:
            app.backends.wait(self._run())

    async def _run(self) -> None:
        """Drain, one at a time but for calls inside of runs; raise what the runs raised."""
        turn = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with contextlib.nullcontext() if _inside.get() else turn:
            worker = Worker(as_host(self))
            token = _inside.set(True)
            try:
                with record_outcomes(self._app, worker) as ends:
                    await worker.drain()
            finally:
                _inside.reset(token)
            raised, self._raised = self._raised, []
        if raised:
            raise raised[0]
        for end in ends:
            _raise_failure(end)

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
    """A run that failed without raising: its payload was wrong, it took too long, or it said so."""
    if outcome.error is not None and (outcome.name == "failed" or outcome.error.kind is ErrorKind.TIMEOUT):
        raise JobFailed(f"job {outcome.id!r} in queue {outcome.queue!r} failed: {outcome.error.message}", outcome.error)
