"""Hooks: context managers around each run of a handler and each enqueue, and around reservations and settles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, cast

from msgspec import UNSET

from penstock.errors import ErrorKind, Retry, attempted
from penstock.model.context import HeldJob, Job
from penstock.model.job import Claim
from penstock.model.outcome import Failed, Outcome, Raised, Value, is_permanent
from penstock.model.retry_policy import NO_REQUEST, GiveUp, RetryRequest, decide

__all__ = ["Exchange", "ExchangeHook", "Hooks", "RunHook", "RunOutcome", "Running", "Within"]

RunOutcome = Literal["completed", "cancelled", "released", "retrying", "failed"]

#: The outcomes, the worst one first.
ORDER: tuple[RunOutcome, ...] = ("failed", "retrying", "cancelled", "released", "completed")

S = TypeVar("S", contravariant=True)


class Interruptible(Protocol):
    """A run, and why it was interrupted: a member of an enumeration with the names of `Running.interruption`."""

    @property
    def interruption(self) -> Any: ...


class Running:
    """A run as its hooks see it: `queue`, `jobs`, and after the run `returned`, the value of its handler."""

    __slots__ = ("_batch", "_held", "_run", "jobs", "queue", "returned")

    def __init__(self, queue: str, held: Sequence[HeldJob], run: Interruptible, batch: bool) -> None:
        self._batch = batch
        self._held = held
        self._run = run
        self.queue = queue
        self.jobs: tuple[Job, ...] = tuple(each.job for each in held)
        #: The value that the handler returned; `msgspec.UNSET` before, and if it raised.
        self.returned: Any = UNSET

    def __repr__(self) -> str:
        return f"<Running {len(self.jobs)} of {self.queue!r}>"

    @property
    def job(self) -> Job:
        """The job; of a batch, its first one."""
        return self.jobs[0]

    @property
    def last_attempt(self) -> bool:
        """Whether an ordinary exception in this run would be the last: a job of it would fail for good."""
        return any(self._ends(each, ErrorKind.RETRIABLE) for each in self._held)

    @property
    def interruption(self) -> Literal["timeout", "kill", "release", "loss"] | None:
        """Why the run was interrupted: its timeout, a kill, a release (the worker stops), a lost lease; or None."""
        why = self._run.interruption
        return None if why is None else why.name.lower()

    def outcome(self, error: BaseException | None = None) -> RunOutcome:
        """Return how the run ends, with this exception or without one; of a batch the worst outcome of its jobs.

        Hooks around this one may still change it by an exception of their own, and the storage if the lease is lost.
        """
        if error is not None:
            found = {self._judge(each, error) for each in self._held}
        elif self._batch and self.returned:
            values = cast("Sequence[Any]", self.returned)
            found = {self._value(each, value) for each, value in zip(self._held, values, strict=False)}
        else:
            found = {self._value(self._held[0], self.returned)}
        return next(each for each in ORDER if each in found)

    def _value(self, held: HeldJob, value: Any) -> RunOutcome:
        if not isinstance(value, Outcome) or isinstance(value, Value):
            return "completed"
        if isinstance(value, Failed):
            return self._judge(held, value.error, shared=False)
        if isinstance(value, Raised):
            kind, request = value.error.kind, value.retry_request
            return "failed" if self._ends(held, kind, request, shared=False) else "retrying"
        return "released"

    def _judge(self, held: HeldJob, error: BaseException, shared: bool | None = None) -> RunOutcome:
        why = self.interruption
        if why == "timeout" and not held.cancelled:
            return "failed" if self._ends(held, ErrorKind.TIMEOUT) else "retrying"
        if why == "kill" or held.cancelled:
            return "cancelled"
        if why is not None:
            return "released"
        permanent = held.rules.permanent
        last = attempted(
            lambda: is_permanent(error, permanent) or getattr(error, "kind", None) == ErrorKind.PERMANENT, False
        )
        request = RetryRequest(counted=not isinstance(error, Retry) or bool(error.count))
        kind = ErrorKind.PERMANENT if last else ErrorKind.RETRIABLE
        return "failed" if self._ends(held, kind, request, shared) else "retrying"

    def _ends(
        self, held: HeldJob, kind: ErrorKind, request: RetryRequest = NO_REQUEST, shared: bool | None = None
    ) -> bool:
        """Return whether a failure of this kind would fail the job for good."""
        shared = len(self._held) > 1 if shared is None else shared
        return isinstance(decide(held.claim, held.rules, kind, request, lambda: 0.0, shared), GiveUp)


class Exchange:
    """A call about claims as its hooks see it: a "reserve" of one queue, or a "settle" of runs of any queues.

    The claims of a reserve are there when it has ended.
    """

    __slots__ = ("claims", "operation", "queue")

    def __init__(self, operation: Literal["reserve", "settle"], claims: Sequence[Claim] = (), queue: str = "") -> None:
        self.operation = operation
        self.claims = claims
        self.queue = queue


RunHook = Callable[[Running], AbstractContextManager[Any]]
ExchangeHook = Callable[[Exchange], AbstractContextManager[Any]]


class Hooks:
    """The hooks of an app, in the order of their registration, which is from the outermost to the innermost."""

    def __init__(self, run: Sequence[RunHook] = (), enqueue: Sequence[Callable[[Any], Any]] = ()) -> None:
        self.run: list[RunHook] = list(run)
        #: Each takes the `Sending` of the client.
        self.enqueue: list[Callable[[Any], AbstractContextManager[Any]]] = list(enqueue)
        #: Those of `Queue.reserve` and of settled claims, for the telemetry alone.
        self.reserve: list[ExchangeHook] = []
        self.settle: list[ExchangeHook] = []

    def add(self, point: str, hook: Callable[[Any], AbstractContextManager[Any]]) -> None:
        """Register a hook; raises `ValueError` or `TypeError` for one that cannot be called, or is async."""
        if point not in ("run", "enqueue"):
            raise ValueError(f'around("run") or around("enqueue"), not around({point!r})')
        if not callable(hook):
            raise TypeError(f"a hook must be a function that returns a context manager, not {type(hook).__name__}")
        (self.run if point == "run" else self.enqueue).append(hook)

    def copy(self) -> Hooks:
        """Return other hooks that begin with these."""
        made = Hooks(self.run, self.enqueue)
        made.reserve, made.settle = list(self.reserve), list(self.settle)
        return made


class Within:
    """A `with` block inside of hooks: `with Within(hooks, subject):`.

    An exception of the block reaches every hook, and is raised behind the block even if a hook swallows it. An
    exception of a hook takes its place.
    """

    __slots__ = ("_entered", "_hooks", "_subject")

    def __init__(self, hooks: Sequence[Callable[[S], AbstractContextManager[Any]]], subject: S) -> None:
        self._hooks: Sequence[Callable[[Any], Any]] = hooks
        self._subject = subject
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        try:
            for hook in self._hooks:
                manager = hook(self._subject)
                if not hasattr(manager, "__enter__"):
                    name = getattr(hook, "__qualname__", repr(hook))
                    raise TypeError(f"hook {name} must return a context manager, not {type(manager).__name__}")
                manager.__enter__()
                self._entered.append(manager)
        except BaseException as error:
            self._leave(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        """Leave the hooks that were entered, the innermost first; raises what one raised in place of `error`."""
        first = error
        while self._entered:
            manager = self._entered.pop()
            try:
                manager.__exit__(None if error is None else type(error), error, error and error.__traceback__)
            except BaseException as raised:
                error = raised
        try:
            if error is not None and error is not first:
                raise error
        finally:
            del error, first  # or its traceback and this frame would keep each other alive
