"""Tasks: functions with ordinary arguments that a worker can call."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec
from msgspec import UNSET, UnsetType

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import Enqueued
from penstock.client.entry import CommonOptions, Entry
from penstock.client.queue import Queue
from penstock.errors import PermanentError
from penstock.host import AppHost
from penstock.model.clock import Span
from penstock.model.context import Job
from penstock.model.formats import RawSerde, check_type, resolve_serde
from penstock.model.handler import read_annotation
from penstock.model.options import HandlerArguments
from penstock.model.serde import Codec, Serde, decode, encode, innermost

__all__ = ["Task", "TaskCall", "TaskDecorator", "TaskOptions"]

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
D = TypeVar("D")

Kind = inspect.Parameter
#: Marks an argument that is not in a payload.
MISSING: Any = inspect.Parameter.empty


class TaskOptions(CommonOptions, total=False):
    """The options of one call: those of `Queue.call`, for `enqueue` too.

    `timeout` is how long `call` waits; `run_timeout` is how long the run itself may take.
    """

    run_timeout: Span | UnsetType | None
    timeout: Span | None


class Parameters:
    """The parameters of a function: the conversion of its arguments to a payload and back."""

    def __init__(self, function: Callable[..., Any]) -> None:
        title = f"task {check_function(function)}"
        self._signature = inspect.signature(function)
        hints = {
            each.name: read_annotation(title, function, each.name, each.annotation)
            for each in self._signature.parameters.values()
        }
        self._job_names = {name for name, hint in hints.items() if _is_job(hint)}
        for name in self._job_names:
            if self._signature.parameters[name].kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD):
                raise TypeError(f"{title}: {name!r} cannot be annotated Job: there is one job for each run")
        given = [each for each in self._signature.parameters.values() if each.name not in self._job_names]
        self._payload_signature = self._signature.replace(parameters=given)
        self._name = function.__qualname__
        fields = [_field(each, hints[each.name]) for each in given]
        #: The type of the payload: an object with the parameters' names.
        self.type = msgspec.defstruct(
            function.__name__, fields, kw_only=True, forbid_unknown_fields=True, module=function.__module__
        )
        #: The type of the result, `Any` if it is not annotated.
        self.result = _result_type(read_annotation(title, function, "return", self._signature.return_annotation))

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name; the defaults of the others are filled in when it runs."""
        for name in self._job_names & kwargs.keys():
            raise TypeError(f"{self._name}(): {name!r} is the running job: leave it out, the worker passes it")
        try:
            return dict(self._payload_signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}") from None

    def arguments(self, payload: Any, job: Job) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments of the function for a payload; raises `PermanentError`."""
        found = self._by_name(payload)
        bound = inspect.BoundArguments(self._signature, {})  # type: ignore[arg-type]
        for name, parameter in self._signature.parameters.items():
            if name in self._job_names:
                bound.arguments[name] = job
            elif (value := found.get(name, MISSING)) is not MISSING:
                bound.arguments[name] = value
            elif parameter.kind is Kind.VAR_POSITIONAL:
                bound.arguments[name] = ()
            elif parameter.kind is Kind.VAR_KEYWORD:
                bound.arguments[name] = {}
            elif parameter.default is not MISSING:
                bound.arguments[name] = parameter.default
            else:
                raise PermanentError(f"{self._name}(): the payload has no {name!r}")
        return bound.args, bound.kwargs

    def _by_name(self, payload: Any) -> Mapping[str, Any]:
        """Return a payload by names; a serde of the user may give a mapping instead of the declared type."""
        if isinstance(payload, self.type):
            return {name: getattr(payload, name) for name in self.type.__struct_fields__}
        if not isinstance(payload, Mapping):
            raise PermanentError(f"{self._name}(): the payload must be an object, not {type(payload).__name__}")
        found = cast("Mapping[str, Any]", payload)
        for name in found:
            if name not in self._payload_signature.parameters:
                raise PermanentError(f"{self._name}(): the payload has an unknown argument {name!r}")
        return found


def check_function(function: Any) -> str:
    """Return a function's name without its `<locals>`; raises `TypeError` if it cannot be a task."""
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function):
        raise TypeError(f"a task must be a function made by def, not {type(function).__name__} ({name})")
    if function.__name__ == "<lambda>":
        raise TypeError("a task must be a function made by def: a lambda has no name of its own")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"task {name} must not yield: a task returns one result")
    if "." in name.rpartition("<locals>.")[2]:
        raise TypeError(f"task {name} is in a class; a task is a plain function, because no object travels with a call")
    return name.replace("<locals>.", "")


class TaskDefinition:
    """The declaration of a task: its queue, its parameters, and the type of its result."""

    def __init__(self, host: AppHost, queue: Queue, parameters: Parameters) -> None:
        self.queue = queue
        self.parameters = parameters
        self.host = host

    def convert_result(self, value: Any) -> Any:
        """Convert a result to the type of the return annotation, which the queue does not know."""
        wanted = self.parameters.result
        if wanted is Any or type(value) is wanted:
            return value
        serde = self.host.codec(self.queue.name).result
        return decode(serde, encode(serde, value, "result"), wanted)


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

    @property
    def queue(self) -> Queue:
        """The queue that the calls go to."""
        return self.definition.queue

    def options(self, **options: Unpack[TaskOptions]) -> TaskCall[P, R]:
        """Return the same task with options for its next calls; of options given twice, the later ones win."""
        return TaskCall(self.definition, cast("TaskOptions", {**self._options, **options}))

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return the payload of a call, for `job.then(task.queue.name, task.payload(...))` and other producers."""
        return self.definition.parameters.payload(args, kwargs)

    def entry(self, *args: P.args, **kwargs: P.kwargs) -> Entry:
        """Return the entry of a call, for `enqueue_many`; wrong arguments are a `TypeError`."""
        return Entry(self.payload(*args, **kwargs), **self._job_options())

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

    async def _entries(self, calls: AsyncIterable[Any]) -> AsyncIterator[Entry]:
        async for call in calls:
            yield self._as_entry(call)

    def _as_entry(self, call: Any) -> Entry:
        if isinstance(call, Entry):
            return call
        if not isinstance(call, tuple):
            raise TypeError(f"each call must be a tuple of arguments or an entry, not {type(call).__name__}")
        payload = self.definition.parameters.payload(cast("tuple[Any, ...]", call), {})
        return Entry(payload, **self._job_options())

    def _job_options(self) -> dict[str, Any]:
        options = dict[str, Any](self._options)
        options.pop("timeout", None)
        if "run_timeout" in options:
            options["timeout"] = options.pop("run_timeout")
        return options


@refused_in_plain_handlers(lambda task: task.definition.host.driven)
class Task(TaskCall[P, R], Generic[P, R, V]):
    """A function whose calls can be jobs: `task(1)` runs it here, `enqueue(1)` and `call(1)` let a worker run it.

    Made by `@app.task`. The payload is an object of the arguments by name. A parameter annotated `Job`
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
        options: HandlerArguments,
    ) -> None:
        parameters = Parameters(function)
        self.name: str = name if name is not None else check_function(function)
        self.function = function
        queue = self.name if queue is None else queue
        if options.get("batch_size", 1) != 1:
            raise ValueError(f"task {self.name}: a task runs one call at a time; batch_size is for handlers")
        check_serdes(host.codec(queue), serde, result_serde, parameters, f"task {self.name}")
        self.__handler__ = handler_for(function, parameters)
        host.listen(queue, self.__handler__, serde=serde, result_serde=result_serde, **options)
        super().__init__(TaskDefinition(host, host.queue(queue), parameters), {})
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


def _is_job(hint: Any) -> bool:
    """Return whether a parameter takes the running job: it is annotated `Job` or `Job | None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return Job in typing.get_args(hint)
    return hint is Job


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Return the payload field of a parameter; `*args` becomes a list, and `**kwargs` an object."""
    if parameter.kind is Kind.VAR_POSITIONAL:
        return parameter.name, list[hint], MISSING
    if parameter.kind is Kind.VAR_KEYWORD:
        unpacked = typing.get_origin(hint) is typing.Unpack
        return parameter.name, typing.get_args(hint)[0] if unpacked else dict[str, hint], MISSING
    if parameter.default is MISSING:
        return parameter.name, hint
    return parameter.name, hint, MISSING


def _result_type(hint: Any) -> Any:
    """Return the type to decode a result to; of an awaitable, which the worker awaits, its result type."""
    if typing.get_origin(hint) in (Awaitable, Coroutine):
        hint = typing.get_args(hint)[-1]
    return Any if hint in (type(None), typing.NoReturn, typing.Never) else hint
