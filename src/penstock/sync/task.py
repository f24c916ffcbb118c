"""Tasks without `await`: functions with ordinary arguments that a worker can call."""

from __future__ import annotations

import copy
import functools
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from msgspec import UNSET

from penstock.client.answers import Enqueued
from penstock.client.entry import Entry, TaskOptions
from penstock.client.tasks import Task as AsyncTask
from penstock.client.tasks import TaskCall as AsyncTaskCall
from penstock.client.tasks import TaskDefinition, TaskEntry
from penstock.model.clock import Span
from penstock.model.hints import no_task_attribute
from penstock.sync.backends import BackendApp, SyncBackends
from penstock.sync.queue import Queue
from penstock.sync.streams import Stream

__all__ = ["Task", "TaskCall", "TaskDecorator"]

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
D = TypeVar("D")
C = TypeVar("C", bound=AsyncTaskCall[..., Any])


def _bound_to(app: BackendApp, task: C) -> C:
    """Return a copy of a task whose calls go to another app with the same declarations."""
    bound = copy.copy(task)
    known = task.definition
    bound.definition = TaskDefinition(app, app.queue(task.queue.name), known.parameters, known.checked)
    return bound


class TaskCall(Generic[P, R]):
    """A task with options for its next calls, as `task.options(...)` returns it."""

    def __init__(self, backends: SyncBackends, task: AsyncTaskCall[P, R]) -> None:
        self._backends = backends
        self._task = task

    def __repr__(self) -> str:
        return repr(self._task)

    if not TYPE_CHECKING:  # a type checker finds such mistakes by itself

        def __getattr__(self, name: str) -> Any:
            raise no_task_attribute(self, name)

    @property
    def queue(self) -> Queue:
        """The queue that the calls go to."""
        return Queue(self._backends, self._task.queue.name)

    def options(self, **options: Unpack[TaskOptions]) -> TaskCall[P, R]:
        """Return the same task with options for its next calls; of options given twice, the later ones win."""
        return TaskCall(self._backends, self._task.options(**options))

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return the payload of a call, for `job.then(task.name, task.payload(...))` and for other producers."""
        return self._task.payload(*args, **kwargs)

    @property
    def unwrapped(self) -> AsyncTaskCall[P, R]:
        """The same task of the async app. For flows."""
        return self._task

    def job_options(self) -> dict[str, Any]:
        """Return the options of the next call that are options of a job."""
        return self._task.job_options()

    @property
    def definition(self) -> TaskDefinition:
        """The declaration of the task. For durable calls."""
        return self._task.definition

    def returned(self, value: Any) -> R:
        """Convert a result to the type of the return annotation, which the queue does not know."""
        return self._task.returned(value)

    def entry(self, *args: P.args, **kwargs: P.kwargs) -> TaskEntry[R]:
        """Return the entry of a call, for `enqueue_many` and `job.gather`; wrong arguments are a `TypeError`."""
        return self._task.entry(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Add a job that calls the function with these arguments; wrong ones are a `TypeError` at once."""
        return self._backends.run(_bound_to(self._backends.app, self._task).enqueue(*args, **kwargs))

    def enqueue_many(self, calls: Iterable[Entry | tuple[Any, ...]]) -> list[Enqueued]:
        """Add many jobs, each given as a tuple of arguments or as an `entry(...)` of this task."""
        if isinstance(calls, AsyncIterable):
            raise TypeError("calls must be a list or an iterator; an async iterator is for the async app's tasks")
        return self._backends.run(_bound_to(self._backends.app, self._task).enqueue_many(calls))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Have a worker call the function, and return its result: waits 30 s, or `options(timeout=...)`.

        Raises `JobFailed`, `JobCancelled`, or `CallTimeout`, after which the job goes on.
        """
        return self._backends.run_blocking(
            "call()", _bound_to(self._backends.loop_app, self._task).call(*args, **kwargs)
        )

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Stream:
        """Return the stream of a new job that calls the function; the first step of the iteration enqueues it."""
        return Stream(self._backends, _bound_to(self._backends.loop_app, self._task).stream(*args, **kwargs))


class Task(TaskCall[P, R], Generic[P, R, V]):
    """A function whose calls can be jobs: `task(1)` runs it here, `enqueue(1)` and `call(1)` let a worker run it.

    Made by `@app.task`. The payload is an object of the arguments by name. They are checked against the
    annotations when the job is enqueued, and again when it is run. A parameter annotated `Job`
    gets the running job and is no argument of `enqueue` and `call`; type checkers do not know that, so
    write `job: Job | None = None`.
    """

    def __init__(self, backends: SyncBackends, task: AsyncTask[P, R, V]) -> None:
        super().__init__(backends, task)
        self._async_task = task
        self.name: str = task.name
        self.function = task.function
        self.__handler__ = task.__handler__
        functools.update_wrapper(cast("Callable[..., Any]", self), self.function)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V:
        """Run the function here, as an ordinary call."""
        return self.function(*args, **kwargs)

    @overload
    def result(self, id: str) -> R: ...

    @overload
    def result(self, id: str, default: D) -> R | D: ...

    def result(self, id: str, default: Any = UNSET) -> Any:
        """Return the result of a job; `default` is returned instead if there is none for any reason."""
        return self._backends.run(_bound_to(self._backends.app, self._async_task).result(id, default))

    def wait(self, id: str, timeout: Span | None = None) -> R:
        """Wait for a job that was enqueued earlier and return its result."""
        return self._backends.run_blocking(
            "wait()", _bound_to(self._backends.loop_app, self._async_task).wait(id, timeout)
        )


class TaskDecorator(Protocol):
    """The decorator that `app.task(...)` returns, typed by whether the function is async."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Task[..., Any, Any]:
        """Declare a function as a task."""
        ...
