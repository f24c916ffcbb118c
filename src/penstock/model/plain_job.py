"""The running job of a plain handler: its durable calls wait in the thread of the handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, overload

from penstock.model import context
from penstock.model.bindings import Ended
from penstock.model.clock import Moment, Span, span_ms
from penstock.model.durable import Cursor as AsyncCursor
from penstock.model.durable import DurableServices, Signal
from penstock.model.durable_calls import check_entries, sleep_times
from penstock.model.durable_children import ChildCall, DurableEntry, DurableTask

__all__ = ["Cursor", "Job"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Cursor(Generic[T]):
    """A position in a long loop, which the next run goes on from."""

    def __init__(self, cursor: AsyncCursor[T], wait: Callable[[Awaitable[None]], None]) -> None:
        self._cursor, self._wait = cursor, wait

    @property
    def value(self) -> T:
        """The last value that was set, or that an earlier run saved."""
        return self._cursor.value

    def set(self, value: T) -> None:
        """Move the cursor; it is saved at most once in `every` seconds, and when the run ends without success.

        This is where the run ends if the job was cancelled, if the worker stops, or if half of its timeout is over: in
        the last two cases the job goes back to its place, and another run goes on, which counts as no further attempt.
        """
        self._wait(self._cursor.set(value))


class Job(context.Job):
    """The running job that a plain handler gets: as `penstock.Job`, with durable calls that need no `await`."""

    __slots__ = ()

    def _wait(self, call: Awaitable[Any]) -> Any:
        """Wait for a call in the thread of the handler."""
        return cast("DurableServices", self._services).wait_for(call)

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        """Call a function once and record its value: later runs of the job return that.

        The function runs again if the record was lost with its worker. The value is the recorded one, also the first
        time: a tuple is a list in both.
        """
        return self._journal().step_in_thread(name, fn, args, kwargs)

    def sleep(self, name: str, delay: Span | None = None, *, until: Moment | None = None) -> None:  # type: ignore[override]
        """Suspend the job for a time, or until one. It holds no worker meanwhile, and no attempt is counted."""
        self._wait(self._journal().sleep(name, *sleep_times(delay, until)))

    @overload  # type: ignore[override]
    def signal(self, name: str, *, timeout: Span | None = None) -> Any: ...

    @overload
    def signal(self, name: str, type: type[T], *, timeout: Span | None = None) -> T: ...

    def signal(  # type: ignore[override]
        self, name: str, type: Any = Any, *, timeout: Span | None = None
    ) -> Any:
        """Return the next signal of this name, and suspend the job until it comes; raises `SignalTimeout`.

        The nth wait for a name gets the nth signal, also one that came before the first run.
        """
        ms = None if timeout is None else span_ms(timeout, "timeout")
        return self._wait(self._journal().signal((name,), type, ms)).value

    def any_signal(self, *names: str, timeout: Span | None = None) -> Signal:  # type: ignore[override]
        """Return the next signal of one of these names, as `signal` does."""
        ms = None if timeout is None else span_ms(timeout, "timeout")
        return self._wait(self._journal().signal(names, Any, ms))

    def cursor(self, name: str, default: T, *, every: Span = 1.0) -> Cursor[T]:  # type: ignore[override]
        """Return a position that the next run goes on from; it has the default at first."""
        return Cursor(self._wait(self._journal().cursor(name, default, every)), self._wait)

    def call(self, name: str, task: DurableTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        """Call a task in a job of its own, suspend this job until that has ended, and return the result.

        A failure raises `JobFailed`. Unless it is caught, this job fails for good; its retry runs the child again.
        """
        call = ChildCall(task, task.payload(*args, **kwargs), task.job_options())
        [result] = self._wait(self._journal().children(name, [call]))
        return result

    def map(self, name: str, task: DurableTask[Concatenate[T, ...], R], items: Iterable[T], /) -> list[R]:  # type: ignore[override]
        """Call a task for each item, in jobs of their own, as `call` does; returns the results in order."""
        calls = [ChildCall(task, task.payload(item), task.job_options()) for item in items]
        return self._wait(self._journal().children(name, calls))

    @overload  # type: ignore[override]
    def gather(self, name: str, one: DurableEntry[A], /, *, outcomes: Literal[False] = False) -> tuple[A]: ...

    @overload
    def gather(
        self, name: str, one: DurableEntry[A], two: DurableEntry[B], /, *, outcomes: Literal[False] = False
    ) -> tuple[A, B]: ...

    @overload
    def gather(
        self,
        name: str,
        one: DurableEntry[A],
        two: DurableEntry[B],
        three: DurableEntry[C],
        /,
        *,
        outcomes: Literal[False] = False,
    ) -> tuple[A, B, C]: ...

    @overload
    def gather(
        self,
        name: str,
        one: DurableEntry[A],
        two: DurableEntry[B],
        three: DurableEntry[C],
        four: DurableEntry[D],
        /,
        *,
        outcomes: Literal[False] = False,
    ) -> tuple[A, B, C, D]: ...

    @overload
    def gather(
        self,
        name: str,
        one: DurableEntry[A],
        two: DurableEntry[B],
        three: DurableEntry[C],
        four: DurableEntry[D],
        five: DurableEntry[E],
        /,
        *,
        outcomes: Literal[False] = False,
    ) -> tuple[A, B, C, D, E]: ...

    @overload
    def gather(self, name: str, /, *entries: DurableEntry[R], outcomes: Literal[False] = False) -> tuple[R, ...]: ...

    @overload
    def gather(self, name: str, one: DurableEntry[A], /, *, outcomes: Literal[True]) -> tuple[Ended[A]]: ...

    @overload
    def gather(
        self, name: str, one: DurableEntry[A], two: DurableEntry[B], /, *, outcomes: Literal[True]
    ) -> tuple[Ended[A], Ended[B]]: ...

    @overload
    def gather(
        self,
        name: str,
        one: DurableEntry[A],
        two: DurableEntry[B],
        three: DurableEntry[C],
        /,
        *,
        outcomes: Literal[True],
    ) -> tuple[Ended[A], Ended[B], Ended[C]]: ...

    @overload
    def gather(
        self,
        name: str,
        one: DurableEntry[A],
        two: DurableEntry[B],
        three: DurableEntry[C],
        four: DurableEntry[D],
        /,
        *,
        outcomes: Literal[True],
    ) -> tuple[Ended[A], Ended[B], Ended[C], Ended[D]]: ...

    @overload
    def gather(
        self,
        name: str,
        one: DurableEntry[A],
        two: DurableEntry[B],
        three: DurableEntry[C],
        four: DurableEntry[D],
        five: DurableEntry[E],
        /,
        *,
        outcomes: Literal[True],
    ) -> tuple[Ended[A], Ended[B], Ended[C], Ended[D], Ended[E]]: ...

    @overload
    def gather(self, name: str, /, *entries: DurableEntry[R], outcomes: Literal[True]) -> tuple[Ended[R], ...]: ...

    def gather(  # type: ignore[override]
        self, name: str, /, *entries: DurableEntry[Any], outcomes: bool = False
    ) -> tuple[Any, ...]:
        """Call several tasks side by side, in jobs of their own, each given as `task.entry(...)`; returns all results.

        The job is suspended until all have ended; then the first failure is raised, as by `call`. With `outcomes=True`
        nothing is raised, and each result is an `Ended`.
        """
        return tuple(self._wait(self._journal().children(name, check_entries(name, entries), outcomes)))
