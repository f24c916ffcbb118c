"""The app without `await`: `penstock.Penstock` for scripts, threads and web servers that fork."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from penstock.client.answers import Page
from penstock.client.app import Penstock as AsyncPenstock
from penstock.client.history import HistoryPoint, HistorySpan
from penstock.client.schedule_info import ScheduleInfo
from penstock.client.schedule_options import DeclaredOptions
from penstock.client.sending import EnqueueHook
from penstock.model.activity import Activity, BulkAction, BulkVerb, Release, WorkerRequest
from penstock.model.clock import Clock, Span
from penstock.model.durability import Durability, DurabilityLevel, durability_from
from penstock.model.events import EventLog, EventName, L, Level
from penstock.model.handler import HandlerFunction
from penstock.model.hints import need_with
from penstock.model.hooks import RunHook
from penstock.model.ids import check_name
from penstock.model.limit import Limit
from penstock.model.options import HandlerArguments
from penstock.model.schedule import When
from penstock.model.schedule_settings import GivenSchedules
from penstock.model.serde import Serde
from penstock.model.worker_info import WorkerInfo
from penstock.storage import choose_url, connect_refcounted
from penstock.storage.base import Storage
from penstock.sync.backends import BackendApp, SyncBackends
from penstock.sync.bulk import Bulk
from penstock.sync.events import EventStream
from penstock.sync.flow import Flow
from penstock.sync.queue import Queue
from penstock.sync.task import Task, TaskDecorator

__all__ = ["Penstock"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=HandlerFunction)
S = TypeVar("S", bound=Callable[..., Any])
RH = TypeVar("RH", bound=RunHook)
EH = TypeVar("EH", bound=EnqueueHook)


class Penstock:
    """A job queue for code without an event loop: the methods of `penstock.Penstock` without `await`.

    Any number of threads may use one app at once, and it may be made, and used, before a fork. Calls
    go to the storage on the calling thread; those that wait for a worker (`call`, `wait`, `reserve`,
    `events`) run on one background thread, which is started when it is first needed. In a thread with
    a running event loop the short calls work, but block the loop; those that wait for a worker raise
    `RuntimeError`: use the async `penstock.Penstock` there.

    Handlers, tasks and listeners declared here run in workers: `penstock worker module:app`, or
    `penstock.sync.Worker(app)`. They are those of `async_app` too.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        storage: Storage | None = None,
        namespace: str = "penstock",
        preset: str | None = None,
        serde: str | Serde = "json",
        result_serde: str | Serde | None = None,
        max_payload: int = 1_048_576,
        max_result: int = 1_048_576,
        timeout: Span | None = 5,
        clock: Clock | None = None,
        durability: DurabilityLevel | Durability | None = None,
    ) -> None:
        asked = durability_from(durability)
        if storage is not None and asked is not None:
            raise ValueError("give durability with a url: a storage object has its own")
        if url is not None and storage is not None:
            raise ValueError("give url or storage, not both")
        if storage is None:
            url = choose_url(url)
            check_name(namespace, "namespace")
            storage = connect_refcounted(url, namespace=namespace, clock=clock, durability=asked)
        app = BackendApp(
            storage, url, namespace=namespace, preset=preset, serde=serde, result_serde=result_serde,
            max_payload=max_payload, max_result=max_result, timeout=timeout, clock=clock,
        )  # fmt: skip
        self._app = app
        #: The async apps behind this one; `penstock.testing` replaces their storage.
        self.backends = SyncBackends(app, url, clock, asked)
        self._queues: dict[str, Queue] = {}

    @property
    def async_app(self) -> AsyncPenstock:
        """The async app with the same handlers, listeners and tasks: for workers, and for event loops."""
        return self._app

    # open and close -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    if not TYPE_CHECKING:  # a type checker finds this mistake by itself

        def __aenter__(self) -> None:
            raise need_with("Penstock")

        def __aexit__(self, *details: object) -> None: ...

    @property
    def namespace(self) -> str:
        """The namespace that separates this app's jobs from those of other apps in the same storage."""
        return self._app.namespace

    @property
    def preset(self) -> str | None:
        """The name of the preset, if there is one."""
        return self._app.preset

    @property
    def lease(self) -> float:
        """The lease (seconds) of a reservation for which none is given."""
        return self._app.lease

    @property
    def is_open(self) -> bool:
        """Whether the storage is open."""
        return self.backends.app.is_open

    def open(self) -> None:
        """Open the storage. Idempotent; the first call that needs the storage opens it too."""
        self.backends.run(self.backends.app.open())

    def close(self) -> None:
        """End the background thread and close the storage. Idempotent; `open` may follow."""
        self.backends.close()

    # queues and handlers --------------------------------------------------------------------------

    def queue(
        self,
        name: str,
        *,
        serde: str | Serde | None = None,
        result_serde: str | Serde | None = None,
        max_queued: int | None = None,
    ) -> Queue:
        """Return the queue of this name, for producers; serdes given here hold wherever this app uses the queue.

        So does `max_queued`: while this many jobs wait, `enqueue`, `enqueue_many` and `call` raise `QueueFull`.
        """
        self._app.queue(name, serde=serde, result_serde=result_serde, max_queued=max_queued)
        return self._queues.setdefault(name, Queue(self.backends, name))

    def flow(
        self, queue: str, *, id: str | None = None, fail_fast: bool = False, result_ttl: Span = 3600,
        headers: Mapping[str, str] | None = None,
    ) -> Flow:  # fmt: skip
        """Return a plan to which jobs are added; `start` stores it, as a job of this queue that ends with them."""
        return Flow(self.backends, queue, id, fail_fast, result_ttl, headers)

    def queues(self) -> list[str]:
        """Return the names of the queues that hold jobs or are paused."""
        return self.backends.run(self.backends.app.queues())

    def schedules(self) -> list[ScheduleInfo]:
        """Return the schedules of all queues, by queue and name."""
        return self.backends.run(self.backends.app.schedules())

    def history(self, span: HistorySpan = "2h", *, queue: str | None = None) -> list[HistoryPoint]:
        """Return the events in all queues together, or in one, as `Queue.history` does for one."""
        return self.backends.run(self.backends.app.history(span, queue=queue))

    def workers(self) -> list[WorkerInfo]:
        """Return the live workers, sorted by id."""
        return self.backends.run(self.backends.app.workers())

    def activity(
        self, queue: str | None = None, id: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page[Activity]:
        """Return a page of the audit log, newest first: of all, of one queue, or of one job of it.

        The command line and the dashboard write it. It keeps 10,000 entries for 90 days; payloads are in none.
        """
        return self.backends.run(self.backends.app.activity(queue, id, after, limit))

    def bulk(self, verb: BulkVerb, filter: str, *, who: str | None = None) -> Bulk:
        """Return an action on all jobs that fit a filter: "retry", "cancel", "run_now" or "delete".

        Nothing changes before it is run.
        `bulk.preview()` counts the jobs, `bulk.run()` changes them. A filter has words `key:value` such as
        `queue:mail state:failed type:ConnectionError payload.to:"ann"`, all of which must fit; `ValueError` if it is
        wrong. `who` is the name in the activity, by default that of the user of this process.
        """
        return Bulk(self.backends, verb, filter, who)

    def bulk_actions(self, limit: int = 100) -> list[BulkAction]:
        """Return the bulk actions of all processes that were changed in the last day, those that start last first.

        One whose process has not changed the record for a minute has the state "stopped".
        """
        return self.backends.run(self.backends.app.bulk_actions(limit))

    def stop_bulk(self, id: str) -> BulkAction | None:
        """Stop a bulk action of any process before its next step; returns its record, None if there is none.

        One that has not begun is "undone", and changes nothing. One that has ended stays as it is.
        """
        return self.backends.run(self.backends.app.stop_bulk(id))

    def add_release(self, name: str) -> bool:
        """Note that a release begins now, for charts and failures; False if one of this name is noted already.

        Workers note the value of `PENSTOCK_RELEASE` when they start.
        """
        return self.backends.run(self.backends.app.add_release(name))

    def releases(self) -> list[Release]:
        """Return the last 50 releases, newest first."""
        return self.backends.run(self.backends.app.releases())

    def ask_worker(self, id: str, request: WorkerRequest) -> bool:
        """Ask a worker to claim no more jobs ("quiet"), or to stop as after SIGTERM; False if there is no such worker.

        A worker with runs gets the request at once, an idle one with its next heartbeat, within 10 seconds.
        """
        return self.backends.run(self.backends.app.ask_worker(id, request))

    def capture_logs(self, logger: logging.Logger | str | None = None, level: int | str = "INFO") -> None:
        """Keep what the code of a handler logs with its job: see `Queue.log`.

        `logger` is the logger whose records are kept, with those of its children; None for all. A logger that would
        drop records of this level gets this level. Call it where handlers are declared, so that every process of a
        worker does.
        """
        self._app.capture_logs(logger, level)

    def handler(
        self,
        queue: str,
        *,
        serde: str | Serde | None = None,
        result_serde: str | Serde | None = None,
        schedule: GivenSchedules | None = None,
        **options: Unpack[HandlerArguments],
    ) -> Callable[[F], F]:
        """Decorate the function that runs this queue's jobs; `HandlerOptions` explains the options.

        The function takes the payload, or the payload and the `Job`; with `batch_size` above 1 lists of both.
        `schedule` puts jobs at certain times: a `Cron`, an `Every`, a `Schedule`, or a list of them.
        """
        return self._app.handler(queue, serde=serde, result_serde=result_serde, schedule=schedule, **options)

    def listen(
        self,
        queue: str,
        handler: HandlerFunction | str,
        *,
        serde: str | Serde | None = None,
        result_serde: str | Serde | None = None,
        schedule: GivenSchedules | None = None,
        **options: Unpack[HandlerArguments],
    ) -> None:
        """Register a handler without decorating it; "module:function" is imported when a worker needs it."""
        self._app.listen(queue, handler, serde=serde, result_serde=result_serde, schedule=schedule, **options)

    def schedule(self, when: When, *, queue: str | None = None, **options: Unpack[DeclaredOptions]) -> Callable[[S], S]:
        """Decorate a task or the function of a handler, to put jobs into its queue at certain times.

        The options are those of `Schedule`. It may stand above or below `@app.task` and `@app.handler`; `queue` is
        for a function that is the handler of several. Workers that serve the queue put the jobs.
        """
        return self._app.schedule(when, queue=queue, **options)

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        queue: str | None = None,
        name: str | None = None,
        serde: str | Serde | None = None,
        result_serde: str | Serde | None = None,
        schedule: GivenSchedules | None = None,
        check: bool = True,
        **options: Unpack[HandlerArguments],
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        queue: str | None = None,
        name: str | None = None,
        serde: str | Serde | None = None,
        result_serde: str | Serde | None = None,
        schedule: GivenSchedules | None = None,
        check: bool = True,
        **options: Unpack[HandlerArguments],
    ) -> Any:
        """Decorate a function whose calls may be jobs: bare, or with a queue and the options of `HandlerOptions`.

        Its queue has the name of the function unless `queue` (or `name`) is given. `check=False` enqueues
        arguments without a check against their annotations. `schedule` is that of `handler`.
        """
        decorate = self._app.task(
            queue=queue, name=name, serde=serde, result_serde=result_serde, schedule=schedule, check=check, **options
        )

        def declare(function: Callable[..., Any]) -> Task[..., Any, Any]:
            return Task(self.backends, decorate(function))

        return declare if function is None else declare(function)

    def limit(self, family: str, limit: Limit) -> None:
        """Declare the limit of a family: that of all queues whose names begin with `family/`, and `family`, together.

        Workers of this app declare it while they serve a queue of the family; `set_limit` wins over it.
        """
        self._app.limit(family, limit)

    def set_limit(self, family: str, limit: Limit) -> bool:
        """Limit a family at run time, until `reset_limit`; False if that changed nothing. See `Queue.set_limit`."""
        return self.backends.run(self.backends.app.set_limit(family, limit))

    def reset_limit(self, family: str) -> bool:
        """Forget what `set_limit` changed for a family; False if that changed nothing."""
        return self.backends.run(self.backends.app.reset_limit(family))

    def on(self, name: EventName | Literal["*"]) -> Callable[[L], L]:
        """Decorate a listener for the events that this app causes or its workers settle.

        A plain one is called on the thread that caused the event; an async one on the background thread.
        """
        return self._app.on(name)

    @overload
    def around(self, point: Literal["run"]) -> Callable[[RH], RH]: ...

    @overload
    def around(self, point: Literal["enqueue"]) -> Callable[[EH], EH]: ...

    def around(self, point: str) -> Callable[[Any], Any]:
        """Decorate a hook: a function that returns a context manager, entered around each run or each enqueue.

        That of "run" gets a `Running` and is entered where the handler runs: on the event loop, or in its thread;
        what it raises counts as raised by the handler. That of "enqueue" gets a `Sending`, once for each call, and
        may add headers. The hook that is registered first is the outermost. A hook that swallows an exception does
        not change the end of the run or of the enqueue.
        """
        return self._app.around(cast("Any", point))

    def events(self, names: EventName | Iterable[EventName] | None = None, queue: str | None = None) -> EventStream:
        """Return a stream of the events of all processes: `for event in app.events("failed", queue="mail")`.

        Of one name, several or all; of one queue or all. It gives the events from its first step on, or,
        as `with app.events() as stream`, from the beginning of the block. Other events cost the storage nothing.
        """
        return EventStream(self.backends, self.backends.loop_app.events(names, queue))

    def log_events(
        self,
        logger: logging.Logger | str | None = None,
        *,
        level: Level | Mapping[str, Level] | None = None,
        exclude: str | Iterable[str] = ("idle", "no_queues"),
    ) -> EventLog:
        """Log the events that this app causes and its workers settle, a line each, without payloads or results.

        `level` is one for all events or a mapping of some; `exclude` names those that are not logged.
        Returns the log, which has `off()` and `on()`, and is a context manager.
        """
        return self._app.log_events(logger, level=level, exclude=exclude)
