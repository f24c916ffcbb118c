"""Durable calls: the methods of a running job that are recorded, so that later runs go on after them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from penstock.model.bindings import Ended
from penstock.model.clock import Moment, Span, milliseconds, span_ms
from penstock.model.durable import Cursor, Durable, Signal
from penstock.model.durable_children import ChildCall, DurableEntry, DurableTask, refusal

__all__ = ["DurableCalls", "check_entries", "sleep_times"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class DurableCalls:
    """The calls of a job that later runs do not repeat. A call that waits ends the run; another one goes on after it.

    Four rules: a name means the same for ever, and is used once in a run; what is outside of a step happens in every
    run; one durable call at a time; do not catch `BaseException`.
    """

    __slots__ = ()

    def _journal(self) -> Durable:
        raise NotImplementedError

    def key(self, name: str) -> str:
        """Return a text that is the same in every run of this job, for other systems to recognise a repetition by."""
        return self._journal().key(name)

    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once and record its value: later runs of the job return that.

        The function runs again if the record was lost with its worker. The value is the recorded one, also the first
        time: a tuple is a list in both.
        """
        return await self._journal().step(name, fn, args, kwargs)

    async def sleep(self, name: str, delay: Span | None = None, *, until: Moment | None = None) -> None:
        """Suspend the job for a time, or until one. It holds no worker meanwhile, and no attempt is counted."""
        await self._journal().sleep(name, *sleep_times(delay, until))

    @overload
    async def signal(self, name: str, *, timeout: Span | None = None) -> Any: ...

    @overload
    async def signal(self, name: str, type: type[T], *, timeout: Span | None = None) -> T: ...

    async def signal(self, name: str, type: Any = Any, *, timeout: Span | None = None) -> Any:
        """Return the next signal of this name, and suspend the job until it comes; raises `SignalTimeout`.

        The nth wait for a name gets the nth signal, also one that came before the first run.
        """
        ms = None if timeout is None else span_ms(timeout, "timeout")
        return (await self._journal().signal((name,), type, ms)).value

    async def any_signal(self, *names: str, timeout: Span | None = None) -> Signal:
        """Return the next signal of one of these names, as `signal` does."""
        ms = None if timeout is None else span_ms(timeout, "timeout")
        return await self._journal().signal(names, Any, ms)

    async def cursor(self, name: str, default: T, *, every: Span = 1.0) -> Cursor[T]:
        """Return a position that the next run goes on from; it has the default at first."""
        return await self._journal().cursor(name, default, every)

    async def call(self, name: str, task: DurableTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a task in a job of its own, suspend this job until that has ended, and return the result.

        A failure raises `JobFailed`. Unless it is caught, this job fails for good; its retry runs the child again.
        """
        call = ChildCall(task, task.payload(*args, **kwargs), task.job_options())
        [result] = await self._journal().children(name, [call])
        return result

    async def map(self, name: str, task: DurableTask[Concatenate[T, ...], R], items: Iterable[T], /) -> list[R]:
        """Call a task for each item, in jobs of their own, as `call` does; returns the results in order."""
        calls = [ChildCall(task, task.payload(item), task.job_options()) for item in items]
        return await self._journal().children(name, calls)

    @overload
    async def gather(self, name: str, one: DurableEntry[A], /, *, outcomes: Literal[False] = False) -> tuple[A]: ...

    @overload
    async def gather(
        self, name: str, one: DurableEntry[A], two: DurableEntry[B], /, *, outcomes: Literal[False] = False
    ) -> tuple[A, B]: ...

    @overload
    async def gather(
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
    async def gather(
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
    async def gather(
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
    async def gather(
        self, name: str, /, *entries: DurableEntry[R], outcomes: Literal[False] = False
    ) -> tuple[R, ...]: ...

    @overload
    async def gather(self, name: str, one: DurableEntry[A], /, *, outcomes: Literal[True]) -> tuple[Ended[A]]: ...

    @overload
    async def gather(
        self, name: str, one: DurableEntry[A], two: DurableEntry[B], /, *, outcomes: Literal[True]
    ) -> tuple[Ended[A], Ended[B]]: ...

    @overload
    async def gather(
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
    async def gather(
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
    async def gather(
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
    async def gather(
        self, name: str, /, *entries: DurableEntry[R], outcomes: Literal[True]
    ) -> tuple[Ended[R], ...]: ...

    async def gather(self, name: str, /, *entries: DurableEntry[Any], outcomes: bool = False) -> tuple[Any, ...]:
        """Call several tasks side by side, in jobs of their own, each given as `task.entry(...)`; returns all results.

        The job is suspended until all have ended; then the first failure is raised, as by `call`. With `outcomes=True`
        nothing is raised, and each result is an `Ended`.
        """
        return tuple(await self._journal().children(name, check_entries(name, entries), outcomes))


def sleep_times(delay: Span | None, until: Moment | None) -> tuple[int | None, int | None]:
    """Return the two ways to give the end of a sleep in milliseconds: a delay, or a time."""
    if (delay is None) == (until is None):
        raise ValueError("give one of delay and until")
    return (
        None if delay is None else span_ms(delay, "delay"),
        None if until is None else milliseconds(until, "until"),
    )


def check_entries(name: str, entries: Iterable[Any]) -> list[ChildCall]:
    """Return the calls that entries stand for; raises `ValueError` for an entry without a task."""
    calls: list[ChildCall] = []
    for entry in entries:
        task = getattr(entry, "task", None)
        if task is None:
            raise refusal(f"{name!r} takes entries of tasks, task.entry(...), not {type(entry).__name__}")
        calls.append(ChildCall(task, entry.payload, entry.job_options()))
    return calls
