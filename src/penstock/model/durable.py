"""Durable code: the steps, sleeps, signals, cursors and children of a handler, recorded in the journal of its job."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, get_type_hints

import msgspec

from penstock.errors import InvalidPayload, JobCancelled, JournalFull, PermanentError, SignalTimeout
from penstock.model.bindings import Ended
from penstock.model.clock import Span, span_ms
from penstock.model.durable_children import ChildCall, check_child, child_job, ended_child, first_part, refusal
from penstock.model.flow import (
    MAX_CHILDREN,
    Checkpoint,
    CheckpointKind,
    DependencyEntry,
    DependencyPage,
    NewCheckpoint,
    SignalWait,
    plain_generation,
)
from penstock.model.job import Claim, NewJob
from penstock.model.serde import Codec, decode, encode
from penstock.model.source import source
from penstock.model.suspend import Suspend

__all__ = ["Cursor", "Durable", "DurableServices", "Leave", "Recorded", "Signal", "Suspension", "decode_range"]

T = TypeVar("T")

#: The checkpoints of one job at most, and their bytes together, in payloads of the largest size.
MAX_CHECKPOINTS, MAX_JOURNAL = 10_000, 32

#: For each checkpoint of a call, the one of its name that is stored now; None for a signal that has not come.
Recorded = tuple[Checkpoint | None, ...]

#: Why a run should end at the next move of a cursor: it was cancelled, or another run can go on later.
Leave = Literal["cancel", "pause"]

_encode_range = msgspec.msgpack.Encoder().encode
#: Decodes the checkpoint of a call: the number of its first child, and how many there are.
decode_range = msgspec.msgpack.Decoder(tuple[int, int]).decode


class Suspension(BaseException):
    """Raised by a durable call to end the run; it is no `Exception`, so that handlers do not catch it."""

    def __init__(self, suspend: Suspend, name: str) -> None:
        super().__init__(f"the run is suspended by {name!r}; do not catch BaseException")
        self.suspend = suspend
        self.name = name


class Signal(msgspec.Struct, frozen=True):
    """A signal that a job got."""

    name: str
    value: Any


class DurableServices(Protocol):
    """The services of a worker that durable code uses."""

    @property
    def max_payload(self) -> int: ...

    def record(self, claim: Claim, checkpoints: Sequence[NewCheckpoint]) -> Coroutine[Any, Any, Recorded]: ...

    def journal(self, claim: Claim) -> Coroutine[Any, Any, tuple[list[Checkpoint], list[DependencyEntry]]]: ...

    def dependency_page(self, claim: Claim, after: int) -> Coroutine[Any, Any, DependencyPage | None]: ...

    def codec(self, queue: str) -> Codec: ...

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob: ...

    def wait_for(self, call: Awaitable[T]) -> T: ...


class Durable:
    """The journal of a job during one run, and the calls that use it; `leave` returns whether the run should end."""

    def __init__(self, claim: Claim, services: DurableServices, leave: Callable[[], Leave | None]) -> None:
        self._claim = claim
        self._services = services
        self._leave = leave
        self._began = source.monotonic()
        self._loaded = False
        self._checkpoints: dict[str, Checkpoint] = {}
        self._size = 0
        self._dependencies: dict[int, DependencyEntry] = {}
        self._names: set[str] = set()
        self._waits: Counter[tuple[str, ...]] = Counter()
        self._cursors: list[Cursor[Any]] = []
        self._under_way: str | None = None
        #: The suspension that ended the run.
        self.suspension: Suspension | None = None

    @property
    def generation(self) -> str:
        """The generation of the job, with the number of its fresh starts."""
        flow = self._claim.flow
        if flow is None:
            return plain_generation(self._claim.created)
        return f"{flow.generation}.{flow.fresh}" if flow.fresh else flow.generation

    def key(self, name: str) -> str:
        """Return a text that is the same in every run of this job, and different for each name and job."""
        claim = self._claim
        text = "\0".join((claim.queue, claim.id, self.generation, name))
        return blake2b(text.encode(), digest_size=16).hexdigest()

    # journal -------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, name: str) -> Generator[None]:
        """Refuse a durable call while another one is under way."""
        if self._under_way is not None:
            raise refusal(
                f"{name!r} began while {self._under_way!r} was under way: one durable call at a time; "
                "job.gather and job.map run children side by side"
            )
        self._under_way = name
        try:
            yield
        finally:
            self._under_way = None

    async def _use(self, name: str, kind: CheckpointKind) -> Checkpoint | None:
        """Return the checkpoint of a name; raises if that was used in this run, or is of another kind."""
        if not isinstance(name, str) or not name:
            raise refusal(f"the name of a {kind} must be a text that is not empty")
        if name in self._names:
            raise refusal(f"the name {name!r} is used twice in one run: give each call a name of its own")
        self._names.add(name)
        if not self._loaded:
            checkpoints, dependencies = await self._services.journal(self._claim)
            self._checkpoints = {each.name: each for each in checkpoints}
            self._size = sum(len(each.value) for each in checkpoints)
            self._dependencies = {each.number: each for each in dependencies}
            self._loaded = True
        found = self._checkpoints.get(name)
        if found is not None and found.kind != kind:
            raise PermanentError(f"{name!r} was recorded as a {found.kind} and is now a {kind}: give it another name")
        return found

    async def _record(self, new: NewCheckpoint) -> Checkpoint | None:
        self._check_size(new)
        [stored] = await self._services.record(self._claim, [new])
        if stored is not None:
            before = self._checkpoints.get(new.name)
            self._size += len(stored.value) - (0 if before is None else len(before.value))
            self._checkpoints[new.name] = stored
        return stored

    def _check_size(self, new: NewCheckpoint) -> None:
        most = self._services.max_payload
        if len(new.value) > most:
            raise PermanentError(f"the value of {new.name!r} has {len(new.value)} bytes, at most {most} are allowed")
        full = len(self._checkpoints) >= MAX_CHECKPOINTS and new.name not in self._checkpoints
        if full or self._size + len(new.value) > MAX_JOURNAL * most:
            raise JournalFull(
                f"the journal has no room for {new.name!r}: use a cursor or job.map, or go on in a new job by job.then"
            )

    def _suspend(self, suspend: Suspend, name: str) -> Suspension:
        """Return the suspension of the run; raises `JobCancelled` if the job was cancelled meanwhile."""
        flow = self._claim.flow
        if flow is not None and flow.cancel is not None:
            raise JobCancelled(f"job {self._claim.id!r} was cancelled while it waited for {name!r}")
        self.suspension = Suspension(suspend, name)
        return self.suspension

    def _decode(self, found: Checkpoint, data: bytes, type: Any) -> Any:
        serde = self._services.codec(self._claim.queue).result_for(self._claim.id)
        try:
            return decode(serde, data, type)
        except InvalidPayload as error:
            raise PermanentError(f"the recorded value of {found.name!r} cannot be read: {error}") from error

    def _encode(self, value: Any, what: str) -> bytes:
        try:
            return encode(self._services.codec(self._claim.queue).result_for(self._claim.id), value, what)
        except InvalidPayload as error:
            raise PermanentError(str(error)) from error

    # calls ---------------------------------------------------------------------------------------

    async def step(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the recorded value of a step, or call the function and record its value."""
        with self._alone(name):
            found = await self._use(name, "step")
            if found is None:
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = await value
                found = await self._record_step(name, value)
        return self._decode(found, found.value, _return_type(function))

    def step_in_thread(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Do as `step` does in the thread of a plain handler."""
        wait = self._services.wait_for
        with self._alone(name):
            found = wait(self._use(name, "step"))
            if found is None:
                value = function(*args, **kwargs)
                if inspect.iscoroutine(value):
                    value.close()
                    raise refusal(f"step {name!r} gets an async function, which a plain handler cannot await")
                found = wait(self._record_step(name, value))
        return self._decode(found, found.value, _return_type(function))

    async def _record_step(self, name: str, value: Any) -> Checkpoint:
        found = await self._record(NewCheckpoint(name, "step", self._encode(value, f"value of step {name!r}")))
        assert found is not None
        return found

    async def sleep(self, name: str, delay: int | None, at: int | None) -> None:
        """Suspend the job until a time, unless that has come."""
        with self._alone(name):
            found = await self._use(name, "sleep")
            if found is None:
                raise self._suspend(Suspend(delay=delay, at=at, sleep=name), name)
            flow = self._claim.flow
            passed = 0 if flow is None else flow.at + round((source.monotonic() - self._began) * 1000)
            wake = int(found.value)
            if wake > passed:
                raise self._suspend(Suspend(at=wake, sleep=name), name)

    async def signal(self, names: tuple[str, ...], type: Any, timeout: int | None) -> Signal:
        """Return the next signal of one of these names, or suspend the job until one comes."""
        if not names or not all(isinstance(each, str) and each for each in names):
            raise refusal("a wait for a signal needs the name of one, a text that is not empty")
        with self._alone(", ".join(names)):
            self._waits[names] += 1
            name = f"signal {self._waits[names]} {' '.join(names)}"
            found = await self._use(name, "signal")
            if found is None:
                found = await self._record(NewCheckpoint(name, "signal", signals=names))
            if found is None:
                raise self._suspend(Suspend(signal=SignalWait(name, names), delay=timeout), ", ".join(names))
        if not found.value:
            raise SignalTimeout(f"no signal {', '.join(map(repr, names))} came in time")
        which, _, value = found.value.partition(b"\0")
        return Signal(which.decode(), self._decode(found, value, type) if value else None)

    async def cursor(self, name: str, default: T, every: Span) -> Cursor[T]:
        """Return a cursor with its last saved value."""
        with self._alone(name):
            found = await self._use(name, "cursor")
        value = default if found is None else self._decode(found, found.value, _type_of(default))
        cursor = Cursor(name, cast("T", value), span_ms(every, "every") / 1000, self)
        self._cursors.append(cursor)
        return cursor

    async def save(self, name: str, value: Any) -> None:
        """Record the value of a cursor."""
        await self._record(NewCheckpoint(name, "cursor", self._encode(value, f"cursor {name!r}")))

    async def flush(self) -> None:
        """Save the cursors that have moved: the run ends otherwise than by success."""
        for cursor in self._cursors:
            await cursor.flush()

    async def leave(self, name: str) -> None:
        """End the run if it was cancelled, or if another one should go on; all cursors are saved before."""
        why = self._leave()
        if why is None:
            return
        await self.flush()
        if why == "cancel":
            raise JobCancelled(f"job {self._claim.id!r} was cancelled")
        raise self._suspend(Suspend(), name)

    # children ------------------------------------------------------------------------------------

    async def children(self, name: str, calls: Sequence[ChildCall], outcomes: bool = False) -> list[Any]:
        """Return the results of children, or suspend the job until they have ended; the first failure is raised.

        With `outcomes` it returns how each of them ended.
        """
        with self._alone(name):
            entries = await self._ended_children(name, calls)
        found: list[Any] = []
        for call, entry in zip(calls, entries, strict=True):
            if not outcomes:
                check_child(entry)
            try:
                ended: Ended[Any] = ended_child(entry, call, self._services.codec)
            except InvalidPayload as error:
                raise PermanentError(f"the result of {entry.id!r} for {name!r} cannot be read: {error}") from error
            found.append(ended if outcomes else ended.value)
        return found

    async def _ended_children(self, name: str, calls: Sequence[ChildCall]) -> list[DependencyEntry]:
        """Return the dependencies of a call; stores the children part by part, and suspends the job until they end."""
        flow = self._claim.flow
        total = 0 if flow is None else flow.total
        checkpoints: tuple[NewCheckpoint, ...] = ()
        found = await self._use(name, "call")
        if found is None:
            if len(calls) > MAX_CHILDREN:
                raise refusal(f"{name!r} has {len(calls)} children, at most {MAX_CHILDREN} are allowed")
            checkpoints = (NewCheckpoint(name, "call", _encode_range((total, len(calls)))),)
            first, count = total, len(calls)
            self._check_size(checkpoints[0])
        else:
            first, count = decode_range(found.value)
        stored = total - first
        if stored < count or found is None:
            if len(calls) != count:
                raise PermanentError(f"{name!r} began with {count} children, and now has {len(calls)}")
            made = (
                child_job(self._claim, self.generation, name, at, first + at, calls, self._services.new_job)
                for at in range(stored, count)
            )
            puts = first_part(made)
            last = stored + len(puts) == count
            raise self._suspend(
                Suspend(checkpoints=checkpoints, puts=puts, first=first, count=count if last else 0), name
            )
        if len(calls) != count:
            raise PermanentError(f"{name!r} began with {count} children, and now has {len(calls)}")
        entries = [self._dependencies[number] for number in range(first, first + count)]
        if any(entry.end is None for entry in entries):
            raise self._suspend(Suspend(first=first, count=count), name)
        return entries


class Cursor(Generic[T]):
    """A position in a long loop, which the next run goes on from."""

    def __init__(self, name: str, value: T, every: float, durable: Durable) -> None:
        self._name, self._every, self._durable = name, every, durable
        self._saved_at = source.monotonic()
        self._moved = False
        #: The last value that was set, or that an earlier run saved.
        self.value = value

    async def set(self, value: T) -> None:
        """Move the cursor; it is saved at most once in `every` seconds, and when the run ends without success.

        This is where the run ends if the job was cancelled, if the worker stops, or if half of its timeout is over: in
        the last two cases the job goes back to its place, and another run goes on, which counts as no further attempt.
        """
        self.value, self._moved = value, True
        if source.monotonic() - self._saved_at >= self._every:
            await self.flush()
        await self._durable.leave(self._name)

    async def flush(self) -> None:
        """Save the value if it is not saved."""
        if self._moved:
            await self._durable.save(self._name, self.value)
            self._saved_at, self._moved = source.monotonic(), False


def _return_type(function: Any) -> Any:
    try:
        found = get_type_hints(function).get("return", Any)
    except Exception:  # annotations that cannot be resolved are no annotations
        return Any
    return Any if isinstance(found, TypeVar) else found


def _type_of(value: Any) -> Any:
    return Any if value is None else cast("Any", type(value))
