"""The app: one storage, a namespace, its queues, handlers and listeners."""

from __future__ import annotations

import contextlib
import logging
import weakref
from asyncio import get_running_loop
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from penstock.aio import refused_in_plain_handlers
from penstock.client.app_setups import made
from penstock.client.entry import entry_from, options_of
from penstock.client.event_publisher import EventPublisher
from penstock.client.event_stream import EventStream
from penstock.client.flow import Flow
from penstock.client.history import HistoryPoint, HistorySpan, read_points
from penstock.client.limits import check_limit, family_scope
from penstock.client.opening import LoopGuard, opening_within
from penstock.client.operations import Operations
from penstock.client.queue import Queue
from penstock.client.reservations import ReservationManager
from penstock.client.results import ResultWaiter
from penstock.client.schedule_declarations import ScheduleDeclarations, schedules_from
from penstock.client.schedule_info import ScheduleInfo
from penstock.client.schedule_options import DeclaredOptions
from penstock.client.sending import EnqueueHook, Sending
from penstock.client.tasks import P, R, Task, TaskDecorator
from penstock.errors import JobError
from penstock.limit_changes import change_limit
from penstock.model.clock import Clock, Span, SystemClock, span_ms
from penstock.model.durability import Durability, DurabilityLevel, durability_from
from penstock.model.events import LOCAL_EVENTS, Event, EventLog, EventName, L, Level, Listeners
from penstock.model.failure import Failure, FailureSerde
from penstock.model.formats import check_type, codec_for, resolve_serde
from penstock.model.handler import Handler, HandlerFunction
from penstock.model.hints import need_async_with
from penstock.model.hooks import Hooks, RunHook, Within
from penstock.model.ids import check_name, fail_queue_of
from penstock.model.job import NewJob
from penstock.model.limit import Limit
from penstock.model.options import FAILURE_DEFAULTS, HandlerArguments, HandlerOptions, handler_options
from penstock.model.presets import preset_named
from penstock.model.schedule import Schedule, When
from penstock.model.schedule_settings import DeclaredSchedule, GivenSchedules
from penstock.model.serde import Codec, Serde, bind_codec
from penstock.model.worker_info import WorkerInfo, worker_info
from penstock.storage import bound_requests, choose_url, connect, connect_blocking
from penstock.storage.base import BlockingStorage, EventRecord, Storage
from penstock.storage.observing import need_observing

__all__ = ["Penstock"]

F = TypeVar("F", bound=HandlerFunction)
S = TypeVar("S", bound=Callable[..., Any])
RH = TypeVar("RH", bound=RunHook)
EH = TypeVar("EH", bound=EnqueueHook)


@refused_in_plain_handlers(lambda app: app.driven)
class Penstock(Operations):
    """A job queue: the storage that keeps the jobs, and the handlers, tasks and listeners of the app.

    The storage is given as a URL (by default `PENSTOCK_URL`, or else the file `penstock.db` in the current
    directory) or as an object. It is opened by `async with app`, or with the first call that needs it. A
    `preset` ("queasy", "queue_farm", "job_queue" or "worqr") sets the defaults of that system; options
    of a call or a handler win over it. `max_payload` and `max_result` bound payloads and results, in bytes.
    `timeout` bounds each request to the storage that an enqueue or any other call makes (None: no bound; calls
    that wait for a job have their own), after which `StorageUnavailable` is raised. With `durability` ("replicas",
    "fsync" or a `Durability`) an enqueue is acknowledged when replicas or the disk have the job, and raises
    `NotDurable` otherwise.
    """

    #: Whether a sync app runs the coroutines of this app.
    driven: bool = False

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
        self.namespace = check_name(namespace, "namespace")
        self.max_payload = _bound(max_payload, "max_payload")
        self.max_result = _bound(max_result, "max_result")
        #: The bound (seconds) of each request of a producer, None for none.
        self.timeout = None if timeout is None else span_ms(timeout, "timeout", zero=False) / 1000
        #: The defaults, of the preset or of Penstock.
        self.defaults = preset_named(preset)
        self.handlers: dict[str, Handler] = {}
        self._schedules: ScheduleDeclarations = ScheduleDeclarations()
        self.listeners = Listeners()
        self.hooks: Hooks = Hooks()
        self._serde = resolve_serde(serde)
        self._result_serde = None if result_serde is None else resolve_serde(result_serde, "result_serde")
        self._serdes: dict[str, dict[str, Serde]] = {}
        self._codecs: dict[str, Codec] = {}
        #: How many jobs may wait in each queue that has a bound.
        self.max_queued: dict[str, int] = {}
        #: The declared limits of families.
        self.family_limits: dict[str, Limit] = {}
        self._fail_queues: dict[str, str] = {}
        self._queues: dict[str, Queue] = {}
        if storage is None:
            url = choose_url(url)
            storage = connect(url, namespace=namespace, clock=clock, durability=asked)
        self._set_storage(storage, url, clock)
        made(self)

    def _set_storage(self, storage: Storage, url: str | None, clock: Clock | None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.storage: Storage = storage
        #: The storage as producers use it: each request ends within `timeout`.
        self.producer_storage = bound_requests(storage, self.timeout)
        self.results = ResultWaiter(storage)
        self.reservations = ReservationManager(self)
        self._url = url
        self._open = False
        self._guard = LoopGuard()
        self._publisher = EventPublisher(storage)
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()

    # open and close -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    if not TYPE_CHECKING:  # a type checker finds this mistake by itself

        def __enter__(self) -> None:
            raise need_async_with("Penstock")

        def __exit__(self, *details: object) -> None: ...

    @property
    def preset(self) -> str | None:
        """The name of the preset, if there is one."""
        return self.defaults.name

    @property
    def lease(self) -> float:
        """The lease (seconds) of a worker or a reservation for which none is given."""
        return self.defaults.lease

    @property
    def is_open(self) -> bool:
        """Whether the storage is open."""
        return self._open

    async def open(self) -> None:
        """Open the storage. Idempotent. Raises `RuntimeError` while another event loop uses the app."""
        async with self._guard.enter():
            if not self._open:
                await self.storage.open()
                self._open = True

    async def close(self) -> None:
        """Release reservations, let listeners finish, end streams, and close. Idempotent; `open` may follow."""
        await self.reservations.close()
        await self.results.close()
        await self.listeners.wait_finished()
        for stream in list(self._streams):
            await stream.aclose()
        await self._publisher.close()
        async with self._guard.enter():
            if self._open:
                self._open = False
                await self.storage.close()
        self._guard.leave()

    @property
    def ready_storage(self) -> Storage | None:
        """The storage for producers if it is open and this event loop uses it, else None: then `opened` returns it."""
        return self.producer_storage if self._open and self._guard.loop is get_running_loop() else None

    async def opened(self) -> Storage:
        """Return the storage for producers, and open it first if need be, within `timeout`."""
        if self.ready_storage is None:
            async with opening_within(self.timeout):
                await self.open()
        return self.producer_storage

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
        self._set_serdes(check_name(name, "name"), serde, result_serde)
        self._set_max_queued(name, None if max_queued is None else _bound(max_queued, "max_queued"))
        if name not in self._queues:
            self._queues[name] = Queue(self, name)
        return self._queues[name]

    def flow(
        self, queue: str, *, id: str | None = None, fail_fast: bool = False, result_ttl: Span = 3600,
        headers: Mapping[str, str] | None = None,
    ) -> Flow:  # fmt: skip
        """Return a plan to which jobs are added; `start` stores it, as a job of this queue that ends with them."""
        return Flow(self, self.queue(queue), id, fail_fast, result_ttl, headers)

    async def queues(self) -> list[str]:
        """Return the names of the queues that hold jobs or are paused."""
        return await (await self.opened()).queues()

    async def schedules(self) -> list[ScheduleInfo]:
        """Return the schedules of all queues, by queue and name."""
        found: list[ScheduleInfo] = []
        for name in await self.queues():
            schedules, cursor = self.queue(name).schedules, None
            while True:
                page = await schedules.list(cursor)
                found += page
                cursor = page.cursor
                if cursor is None:
                    break
        return found

    async def history(self, span: HistorySpan = "2h", *, queue: str | None = None) -> list[HistoryPoint]:
        """Return the events in all queues together, or in one, as `Queue.history` does for one."""
        if queue is not None:
            check_name(queue, "queue")
        storage = await self.opened()
        return await read_points(need_observing(storage), queue, span, await storage.time())

    async def workers(self) -> list[WorkerInfo]:
        """Return the live workers, sorted by id."""
        records = await (await self.opened()).workers()
        return [worker_info(each.id, each.seen, each.until, each.info) for each in records]

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

        def register(function: F) -> F:
            self._register(queue, function, options, serde, result_serde, schedules_from(schedule))
            return function

        return register

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
        self._register(queue, handler, options, serde, result_serde, schedules_from(schedule))

    def schedule(self, when: When, *, queue: str | None = None, **options: Unpack[DeclaredOptions]) -> Callable[[S], S]:
        """Decorate a task or the function of a handler, to put jobs into its queue at certain times.

        The options are those of `Schedule`. It may stand above or below `@app.task` and `@app.handler`; `queue` is
        for a function that is the handler of several. Workers that serve the queue put the jobs.
        """
        schedule = Schedule(when, **options)

        def declare(function: S) -> S:
            self._schedules.decorate(self, function, queue, schedule)
            return function

        return declare

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...

    @overload
    def task(
        self,
        function: None = None,
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
        schedules = schedules_from(schedule)

        def declare(function: Callable[..., Any]) -> Task[..., Any, Any]:
            task = Task[..., Any, Any](
                self, function, queue=queue, name=name, serde=serde, result_serde=result_serde, check=check,
                options=options,
            )  # fmt: skip
            self._schedules.add(self, task.queue.name, schedules, task.payload)
            self._schedules.registered(self, task.queue.name, function, task.payload)
            return task

        return declare if function is None else declare(function)

    def limit(self, family: str, limit: Limit) -> None:
        """Declare the limit of a family: that of all queues whose names begin with `family/`, and `family`, together.

        Workers of this app declare it while they serve a queue of the family; `set_limit` wins over it.
        """
        check_limit(limit, family_scope(family))
        if self.family_limits.setdefault(family, limit) != limit:
            raise ValueError(f"family {family!r} has a limit already, {self.family_limits[family]}")

    async def set_limit(self, family: str, limit: Limit) -> bool:
        """Limit a family at run time, until `reset_limit`; False if that changed nothing. See `Queue.set_limit`."""
        scope = family_scope(family)
        check_limit(limit, scope)
        return await change_limit(self, await self.opened(), scope, lambda old: old.change(limit))

    async def reset_limit(self, family: str) -> bool:
        """Forget what `set_limit` changed for a family; False if that changed nothing."""
        scope = family_scope(family)
        return await change_limit(self, await self.opened(), scope, lambda old: old.change(None))

    def on(self, name: EventName | Literal["*"]) -> Callable[[L], L]:
        """Decorate a plain or async listener for the events that this app causes or its workers settle."""

        def register(listener: L) -> L:
            self.listeners.add(name, listener)
            return listener

        return register

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

        def register(hook: Any) -> Any:
            self.hooks.add(point, hook)
            return hook

        return register

    def events(self, names: EventName | Iterable[EventName] | None = None, queue: str | None = None) -> EventStream:
        """Return a stream of the events of all processes: `async for event in app.events("failed", queue="mail")`.

        Of one name, several or all; of one queue or all. It gives the events from its first step on, or,
        as `async with app.events() as stream`, from the beginning of the block. Other events cost the storage nothing.
        """
        stream = EventStream(self, names, queue)
        self._streams.add(stream)
        return stream

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
        return EventLog(self.listeners, logger, level, exclude)

    # what queues and workers need -----------------------------------------------------------------

    @property
    def declared_schedules(self) -> Mapping[tuple[str, str], DeclaredSchedule]:
        """The schedules that code declares, by queue and name."""
        return self._schedules.all

    def codec(self, queue: str) -> Codec:
        """Return the serdes of a queue, as declared so far and bound to it; fail queues have a serde of their own."""
        if known := self._codecs.get(queue):
            return known
        given = self._serdes.get(queue, {})
        result = given.get("result_serde", self._result_serde)
        if queue in self._fail_queues:
            failing = self.handlers[self._fail_queues[queue]]
            codec = self.codec(failing.queue)
            payload = FailureSerde(failing.queue, codec, failing.signature.payload if failing.loaded else Any)
            known = bind_codec(codec_for(payload, result or codec.result), self.namespace, queue)
            if not failing.loaded:  # the type of the payloads is not known yet
                return known
        else:
            known = bind_codec(codec_for(given.get("serde", self._serde), result), self.namespace, queue)
        self._codecs[queue] = known
        return known

    def options(self, queue: str) -> HandlerOptions:
        """Return the options of a queue's handler, or the defaults when none is registered here."""
        handler = self.handlers.get(queue)
        return self.defaults.options if handler is None else handler.options

    def payload_type(self, queue: str) -> Any:
        """Return the type of a queue's payloads: the annotation of its handler, `Any` if that is not known here."""
        handler = self.handlers.get(queue)
        return Any if handler is None or not handler.loaded else handler.signature.payload

    def blocking_storage(self) -> BlockingStorage | None:
        """Return the storage for a thread without an event loop; None when it was given as an object."""
        if self._url is None:
            return None
        clock = None if isinstance(self.clock, SystemClock) else self.clock
        return connect_blocking(self._url, self.storage, namespace=self.namespace, clock=clock)

    @contextlib.contextmanager
    def using_storage(self, storage: Storage, url: str, clock: Clock) -> Generator[None]:
        """Use another storage inside a `with` block, as if never opened; handlers registered inside end with it."""
        if self._open:
            raise RuntimeError("the app is open: close it first, or replace its storage before it is opened")
        kept = dict(vars(self))
        self.handlers, self._fail_queues, self._codecs = dict(self.handlers), dict(self._fail_queues), {}
        self._serdes = {queue: dict(given) for queue, given in self._serdes.items()}
        self._schedules, self.hooks = self._schedules.copy(), self.hooks.copy()
        self._set_storage(storage, url, clock)
        try:
            yield
        finally:
            vars(self).update(kept)

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob:
        """Check and encode a follow-up job, to be put later."""
        if options.get("on_conflict") == "raise":
            raise ValueError('a follow-up job cannot have on_conflict="raise": it has no caller to raise an error in')
        if not self.hooks.enqueue:
            return self.queue(queue).build_job(payload, **options)
        sending = Sending(queue, [entry_from(payload, options)], follow_up=True)
        with Within(self.hooks.enqueue, sending):
            [entry] = sending.with_headers()
            return self.queue(queue).build_job(entry.payload, **options_of(entry))

    def emit(
        self,
        name: str,
        *,
        queue: str = "",
        id: str = "",
        attempt: int = 0,
        result: Any = None,
        error: JobError | None = None,
        worker: str | None = None,
    ) -> None:
        """Emit an event to this app's listeners, and publish it if the storage does not record it itself.

        The storage does not know `LOCAL_EVENTS`, nor that a payload could not be decoded; a record that
        it could not read (before any attempt) it knows.
        """
        if (name in LOCAL_EVENTS or (name == "invalid_data" and attempt)) and self._open:
            self._publisher.add(EventRecord(name, queue, id, 0, attempt, worker, None, error and error.encode()))
        if self.listeners.wants(name):
            at = datetime.fromtimestamp(self.clock.time(), UTC)
            self.listeners.emit(
                Event(name=name, at=at, queue=queue, id=id, attempt=attempt, result=result, error=error, worker=worker)
            )

    # helpers --------------------------------------------------------------------------------------

    def _register(
        self,
        queue: str,
        function: Callable[..., Any] | str,
        given: Mapping[str, Any],
        serde: str | Serde | None,
        result_serde: str | Serde | None,
        schedules: Sequence[Schedule] = (),
    ) -> None:
        check_name(queue, "queue")
        handler = Handler(queue, function, self.defaults.handler_options(given))
        added = [handler]
        if handler.options.on_failure is not None:
            added.append(fail_handler(handler))
        for each in added:
            if (other := self.handlers.get(each.queue)) is not None:
                raise ValueError(f"queue {each.queue!r} has a handler already ({other.name}); a queue has one handler")
        if handler.loaded:
            wanted = self._serde if serde is None else resolve_serde(serde)
            check_type(self._serdes.get(queue, {}).get("serde", wanted), handler.signature.payload)
        self._set_serdes(queue, serde, result_serde)
        for each in added:
            self._set_max_queued(each.queue, each.options.max_queued)
        self.handlers.update({each.queue: each for each in added})
        for each in added[1:]:
            self._fail_queues[each.queue] = queue
        self._codecs.clear()
        self._schedules.add(self, queue, schedules)
        self._schedules.registered(self, queue, function)

    def _set_max_queued(self, queue: str, bound: int | None) -> None:
        if bound is not None and self.max_queued.setdefault(queue, bound) != bound:
            known = self.max_queued[queue]
            raise ValueError(f"queue {queue!r} has max_queued={known} already; it cannot also have {bound}")

    def _set_serdes(self, queue: str, serde: str | Serde | None, result_serde: str | Serde | None) -> None:
        for name, value in (("serde", serde), ("result_serde", result_serde)):
            if value is None:
                continue
            wanted = resolve_serde(value, name)
            given = self._serdes.setdefault(queue, {})
            if name not in given:
                given[name] = wanted
                self._codecs.clear()  # all of them: a fail queue has the serdes of its queue
            elif (known := given[name]) != wanted:
                raise ValueError(f"queue {queue!r} has the {name} {known!r} already; it cannot also have {wanted!r}")


def _bound(value: object, name: str) -> int:
    """Return a bound; raises `TypeError` or `ValueError`, which name the argument."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return value


def fail_handler(handler: Handler) -> Handler:
    """Return the handler of a handler's fail jobs, from its `on_failure` and `failure_options`."""
    options = handler.options
    assert options.on_failure is not None
    wanted = handler_options(options.failure_options, FAILURE_DEFAULTS)
    fails = Handler(fail_queue_of(handler.queue), options.on_failure, wanted)
    if fails.loaded and fails.signature.payload not in (Any, Failure):
        raise TypeError(f"on_failure: {fails.name} gets a Failure; annotate its payload as Failure, or not at all")
    return fails
