"""Tasks: functions with ordinary arguments that a worker can call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from msgspec import UNSET

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import Enqueued
from penstock.client.entry import Entry, TaskOptions, options_of
from penstock.client.keys import task_keys
from penstock.client.queue import Queue
from penstock.client.streams import Stream
from penstock.client.task_parameters import Parameters, check_function
from penstock.host import AppHost
from penstock.model.clock import Span
from penstock.model.context import Job
from penstock.model.formats import RawSerde, check_type, resolve_serde
from penstock.model.hints import no_task_attribute
from penstock.model.options import HandlerArguments
from penstock.model.serde import Codec, Serde, decode, encode, innermost

__all__ = ["Task", "TaskCall", "TaskDecorator", "TaskEntry"]

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
D = TypeVar("D")


class TaskDefinition:
    """The declaration of a task: its queue, its parameters, and whether calls are checked against the annotations."""

    def __init__(self, host: AppHost, queue: Queue, parameters: Parameters, checked: bool) -> None:
        self.queue = queue
        self.parameters = parameters
        self.checked = checked
        self.host = host

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of a call; wrong arguments are a `TypeError`, which names the first of them."""
        payload = self.parameters.bind(args, kwargs)
        self.parameters.check_inputs(payload)
        self.check(payload)
        return payload

    def check(self, payload: Mapping[str, Any]) -> None:
        """Check the arguments of a call, or some of them; wrong ones are a `TypeError`, which names the first."""
        if self.checked:
            self.parameters.check(payload, self.host.codec(self.queue.name).payload)

    def convert_result(self, value: Any) -> Any:
        """Convert a result to the type of the return annotation, which the queue does not know."""
        wanted = self.parameters.result
        if wanted is Any or type(value) is wanted:
            return value
        serde = self.host.codec(self.queue.name).result
        return decode(serde, encode(serde, value, "result"), wanted)


class TaskEntry(Entry, Generic[R]):
    """The entry of a call of a task, as `task.entry(...)` returns it."""

    __slots__ = ("task",)

    def __init__(self, task: TaskCall[..., R], payload: Any, **options: Any) -> None:
        super().__init__(payload, **options)
        #: The task that is called.
        self.task = task

    def job_options(self) -> dict[str, Any]:
        """Return the options of the entry."""
        return dict(options_of(self))


@refused_in_plain_handlers(lambda task: task.definition.host.driven)
class TaskCall(Generic[P, R]):
    """A task with options for its next calls, as `task.options(...)` returns it."""

    def __init__(self, definition: TaskDefinition, options: TaskOptions) -> None:
        for name in options:
            if name not in TaskOptions.__annotations__:
                known = ", ".join(TaskOptions.__annotations__)
                raise TypeError(f"unknown option {name!r}; known options: {known}")
        self.definition = definition
        self._options = options

    def __repr__(self) -> str:
        return f"<TaskCall of {self.queue.name!r} with {', '.join(self._options) or 'no options'}>"

    if not TYPE_CHECKING:  # a type checker finds such mistakes by itself

        def __getattr__(self, name: str) -> Any:
            raise no_task_attribute(self, name)

    @property
    def queue(self) -> Queue:
        """The queue that the calls go to."""
        return self.definition.queue

    def options(self, **options: Unpack[TaskOptions]) -> TaskCall[P, R]:
        """Return the same task with options for its next calls; of options given twice, the later ones win."""
        return TaskCall(self.definition, cast("TaskOptions", {**self._options, **options}))

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return the payload of a call, for `job.then(task.queue.name, task.payload(...))` and other producers."""
        return self.definition.payload(args, kwargs)

    def job_options(self) -> dict[str, Any]:
        """Return the options of the next call that are options of a job."""
        return self._job_options()

    def returned(self, value: Any) -> R:
        """Convert a result to the type of the return annotation, which the queue does not know."""
        return cast("R", self.definition.convert_result(value))

    def entry(self, *args: P.args, **kwargs: P.kwargs) -> TaskEntry[R]:
        """Return the entry of a call, for `enqueue_many` and `job.gather`; wrong arguments are a `TypeError`."""
        return TaskEntry(self, self.payload(*args, **kwargs), **self._job_options())

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Add a job that calls the function with these arguments; wrong ones are a `TypeError` at once."""
        return await self.queue.enqueue(self.payload(*args, **kwargs), **self._job_options())

    async def enqueue_many(
        self, calls: Iterable[Entry | tuple[Any, ...]] | AsyncIterable[Entry | tuple[Any, ...]]
    ) -> list[Enqueued]:
        """Add many jobs, each given as a tuple of arguments or as an `entry(...)` of this task."""
        if isinstance(calls, AsyncIterable):
            return await self.queue.enqueue_many(self._entries(calls))
        if not isinstance(calls, Iterable):
            raise TypeError(f"calls must be a list or an iterator of tuples or entries, not {type(calls).__name__}")
        entries = map(self._as_entry, calls)
        return await self.queue.enqueue_many(list(entries) if isinstance(calls, Sequence) else entries)

    async def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Have a worker call the function, and return its result: waits 30 s, or `options(timeout=...)`.

        Raises `JobFailed`, `JobCancelled`, or `CallTimeout`, after which the job goes on.
        """
        options = dict[str, Any](self._options)
        timeout = options.pop("timeout", 30)
        value = await self.queue.call(self.payload(*args, **kwargs), timeout=timeout, **options)
        return self.definition.convert_result(value)

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Stream:
        """Return the stream of a new job that calls the function; the first step of the iteration enqueues it."""
        payload, options = self.payload(*args, **kwargs), cast("Any", self._job_options())
        put = lambda: self.queue.enqueue_awaited(payload, options)  # noqa: E731
        return Stream(self.definition.host, self.queue, None, 0, put, self.definition.convert_result)

    async def _entries(self, calls: AsyncIterable[Any]) -> AsyncIterator[Entry]:
        async for call in calls:
            yield self._as_entry(call)

    def _as_entry(self, call: Any) -> Entry:
        if isinstance(call, Entry):
            return call
        if not isinstance(call, tuple):
            raise TypeError(f"each call must be a tuple of arguments or an entry, not {type(call).__name__}")
        return Entry(self.definition.payload(cast("tuple[Any, ...]", call), {}), **self._job_options())

    def _job_options(self) -> dict[str, Any]:
        options = dict[str, Any](self._options)
        options.pop("timeout", None)
        if "run_timeout" in options:
            options["timeout"] = options.pop("run_timeout")
        return options


@refused_in_plain_handlers(lambda task: task.definition.host.driven)
class Task(TaskCall[P, R], Generic[P, R, V]):
    """A function whose calls can be jobs: `task(1)` runs it here, `enqueue(1)` and `call(1)` let a worker run it.

    Made by `@app.task`. The payload is an object of the arguments by name. They are checked against the
    annotations when the job is enqueued, and again when it is run. A parameter annotated `Job`
    gets the running job and is no argument of `enqueue` and `call`; type checkers do not know that, so
    write `job: Job | None = None`.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        host: AppHost,
        function: Callable[P, V],
        *,
        queue: str | None = None,
        name: str | None = None,
        serde: str | Serde | None = None,
        result_serde: str | Serde | None = None,
        check: bool = True,
        options: HandlerArguments,
    ) -> None:
        parameters = Parameters(function)
        self.name: str = name if name is not None else check_function(function)
        self.function = function
        queue = self.name if queue is None else queue
        if (other := host.handlers.get(queue)) is not None:
            raise ValueError(
                f"task {self.name}: queue {queue!r} has a handler already ({other.name}); "
                f"give one of them another name: @app.task(name=...)"
            )
        if options.get("batch_size", 1) != 1:
            raise ValueError(f"task {self.name}: a task runs one call at a time; batch_size is for handlers")
        options = task_keys(options, parameters)
        check_serdes(host.codec(queue), serde, result_serde, parameters, f"task {self.name}")
        self.__handler__ = handler_for(function, parameters)
        host.listen(queue, self.__handler__, serde=serde, result_serde=result_serde, **options)
        super().__init__(TaskDefinition(host, host.queue(queue), parameters, check), {})
        functools.update_wrapper(cast("Callable[..., Any]", self), function)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V:
        """Run the function here, as an ordinary call."""
        return self.function(*args, **kwargs)

    @overload
    async def result(self, id: str) -> R: ...

    @overload
    async def result(self, id: str, default: D) -> R | D: ...

    async def result(self, id: str, default: Any = UNSET) -> Any:
        """Return the result of a job; `default` is returned instead if there is none for any reason."""
        nothing = object()
        value = await self.queue.result(id, default=UNSET if default is UNSET else nothing)
        return default if value is nothing else self.definition.convert_result(value)

    async def wait(self, id: str, timeout: Span | None = None) -> R:
        """Wait for a job that was enqueued earlier and return its result."""
        return self.definition.convert_result(await self.queue.wait(id, timeout=timeout))


class TaskDecorator(Protocol):
    """The decorator that `app.task(...)` returns, typed by whether the function is async."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Task[..., Any, Any]:
        """Declare a function as a task."""
        ...


def handler_for(function: Callable[..., Any], parameters: Parameters) -> Callable[..., Any]:
    """Return the handler of a task, which calls the function with the arguments in the payload."""

    async def run_async(payload: Any, job: Job) -> Any:
        args, kwargs = parameters.arguments(payload, job)
        return await function(*args, **kwargs)

    def run(payload: Any, job: Job) -> Any:
        args, kwargs = parameters.arguments(payload, job)
        return function(*args, **kwargs)

    runner = run_async if inspect.iscoroutinefunction(function) else run
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(runner, name, getattr(function, name))
    runner.__annotations__ = {"payload": parameters.type, "job": Job}
    return runner


def check_serdes(
    codec: Codec, serde: str | Serde | None, result_serde: str | Serde | None, parameters: Parameters, title: str
) -> None:
    """Raise `ValueError` or `TypeError` for serdes that cannot encode a task's arguments or its result."""
    payload = codec.payload if serde is None else resolve_serde(serde)
    if isinstance(innermost(payload), RawSerde):
        raise ValueError(f"{title}: arguments need a serde that has objects, such as json or msgpack, not raw")
    check_type(payload, parameters.type, f"{title}: an annotation")
    if result_serde is not None:
        result = resolve_serde(result_serde, "result_serde")
    else:
        result = codec.result if serde is None else payload
    check_type(result, parameters.result, f"{title}: the result's annotation")
