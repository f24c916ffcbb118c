"""Durable code: the steps, sleeps, signals, cursors and children of a handler, recorded in the journal of its job."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, get_type_hints

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidPayload, JobCancelled, JobError, JobFailed, PermanentError, SignalTimeout
from penstock.model.clock import Span, span_ms
from penstock.model.flow import (
    Checkpoint,
    CheckpointKind,
    DependencyEntry,
    End,
    FlowPart,
    GenerationRef,
    NewCheckpoint,
    Notice,
    SignalWait,
    plain_generation,
)
from penstock.model.job import Claim, NewJob
from penstock.model.serde import Codec, decode, encode
from penstock.model.source import source
from penstock.model.suspend import Suspend

__all__ = ["Cursor", "Durable", "DurableServices", "DurableTask", "Recorded", "Signal", "Suspension"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

#: The checkpoints of one job at most, and their bytes together, in payloads of the largest size.
MAX_CHECKPOINTS, MAX_JOURNAL = 10_000, 32

#: For each checkpoint of a call, the one of its name that is stored now; None for a signal that has not come.
Recorded = tuple[Checkpoint | None, ...]

_encode_range = msgspec.msgpack.Encoder().encode
_decode_range = msgspec.msgpack.Decoder(tuple[int, int]).decode


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


class DurableTask(Protocol[P, R_co]):
    """A task that durable code can call: `penstock.Task`, or what its `options` returns."""

    @property
    def definition(self) -> Any: ...

    @property
    def queue(self) -> Any: ...

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]: ...

    def job_options(self) -> dict[str, Any]: ...

    async def call(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class DurableServices(Protocol):
    """The services of a worker that durable code uses."""

    @property
    def max_payload(self) -> int: ...

    def record(
        self, claim: Claim, checkpoints: Sequence[NewCheckpoint]
    ) -> Awaitable[tuple[Checkpoint | None, ...]]: ...

    def journal(self, claim: Claim) -> Awaitable[tuple[list[Checkpoint], list[DependencyEntry]]]: ...

    def codec(self, queue: str) -> Codec: ...

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob: ...


class Durable:
    """The journal of a job during one run, and the calls that use it."""

    def __init__(self, claim: Claim, services: DurableServices) -> None:
        self._claim = claim
        self._services = services
        self._began = source.monotonic()
        self._loaded = False
        self._checkpoints: dict[str, Checkpoint] = {}
        self._dependencies: dict[int, DependencyEntry] = {}
        self._names: set[str] = set()
        self._waits: Counter[tuple[str, ...]] = Counter()
        self._cursors: list[Cursor[Any]] = []
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

    async def _use(self, name: str, kind: CheckpointKind, *, once: bool = True) -> Checkpoint | None:
        """Return the checkpoint of a name; raises if that was used in this run, or is of another kind."""
        if not isinstance(name, str) or not name:
            raise TypeError("name must be a text that is not empty")
        if once and name in self._names:
            raise PermanentError(f"the name {name!r} is used twice in one run") from ValueError(name)
        self._names.add(name)
        if not self._loaded:
            checkpoints, dependencies = await self._services.journal(self._claim)
            self._checkpoints = {each.name: each for each in checkpoints}
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
            self._checkpoints[new.name] = stored
        return stored

    def _check_size(self, new: NewCheckpoint) -> None:
        most = self._services.max_payload
        if len(new.value) > most:
            raise PermanentError(f"the value of {new.name!r} has {len(new.value)} bytes, at most {most} are allowed")
        size = sum(len(each.value) for each in self._checkpoints.values()) + len(new.value)
        if len(self._checkpoints) >= MAX_CHECKPOINTS or size > MAX_JOURNAL * most:
            raise PermanentError(f"JournalFull: there is no room for {new.name!r}: use a cursor, or children")

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
        return encode(self._services.codec(self._claim.queue).result_for(self._claim.id), value, what)

    # calls ---------------------------------------------------------------------------------------

    async def step(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the recorded value of a step, or call the function and record its value."""
        found = await self._use(name, "step")
        if found is None:
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            found = await self._record(NewCheckpoint(name, "step", self._encode(value, f"value of step {name!r}")))
        assert found is not None
        return self._decode(found, found.value, _return_type(function))

    async def sleep(self, name: str, delay: int | None, at: int | None) -> None:
        """Suspend the job until a time, unless that has come."""
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
        found = await self._use(name, "cursor")
        value = default if found is None else self._decode(found, found.value, _type_of(default))
        cursor = Cursor(name, cast("T", value), span_ms(every, "every") / 1000, self._save)
        self._cursors.append(cursor)
        return cursor

    async def _save(self, name: str, value: Any) -> None:
        await self._record(NewCheckpoint(name, "cursor", self._encode(value, f"cursor {name!r}")))

    async def flush(self) -> None:
        """Save the cursors that have moved: the run ends otherwise than by success."""
        for cursor in self._cursors:
            await cursor.flush()

    # children ------------------------------------------------------------------------------------

    async def children(self, name: str, task: DurableTask[..., Any], calls: Iterable[Any]) -> list[Any]:
        """Return the results of children, or suspend the job until they have ended; the first failure is raised."""
        found = await self._use(name, "call")
        if found is None:
            raise await self._call(name, task, list(calls))
        first, count = _decode_range(found.value)
        entries = [self._dependencies[number] for number in range(first, first + count)]
        if any(entry.end is None for entry in entries):
            raise self._suspend(Suspend(first=first, count=count), name)
        for entry in entries:
            self._check_child(entry)
        codec = self._services.codec(task.queue.name)
        values = [decode(codec.result_for(entry.id), entry.value or b"") for entry in entries]
        return [task.definition.convert_result(value) for value in values]

    async def _call(self, name: str, task: DurableTask[..., Any], calls: list[Any]) -> Suspension:
        claim = self._claim
        first = 0 if claim.flow is None else claim.flow.total
        mark = plain_generation(claim.created) if claim.flow is None else claim.flow.generation
        parent = GenerationRef(claim.queue, claim.id, mark)
        puts: list[NewJob] = []
        for at, payload in enumerate(calls):
            options = task.job_options()
            id = f"{claim.id}~{self.generation}/{name}" + (f"/{at}" if len(calls) > 1 else "")
            new = self._services.new_job(task.queue.name, payload, {"id": _short(id), **options})
            notice = Notice(claim.queue, claim.id, mark, first + at, "ended", wants=True)
            puts.append(replace(new, flow=FlowPart(parent=parent, notices=(notice,))))
        checkpoint = NewCheckpoint(name, "call", _encode_range((first, len(calls))))
        return self._suspend(Suspend(checkpoints=(checkpoint,), puts=tuple(puts), first=first, count=len(puts)), name)

    def _check_child(self, entry: DependencyEntry) -> None:
        """Raise the failure of a child: permanent if the handler does not catch it, because a retry would meet it."""
        if entry.end is End.COMPLETED:
            return
        error = JobError("JobCancelled", "it was cancelled") if entry.value is None else JobError.decode(entry.value)
        failed = JobFailed(f"job {entry.id!r} in {entry.queue!r} failed: {error.type}: {error.message}", error)
        failed.kind = "permanent"  # type: ignore[attr-defined]
        failed.culprits = (entry.number,)  # type: ignore[attr-defined]
        raise failed


class Cursor(Generic[T]):
    """A position in a long loop, which the next run goes on from."""

    def __init__(self, name: str, value: T, every: float, save: Callable[[str, Any], Awaitable[None]]) -> None:
        self._name, self._every, self._save = name, every, save
        self._saved_at = source.monotonic()
        self._moved = False
        #: The last value that was set, or that an earlier run saved.
        self.value = value

    async def set(self, value: T) -> None:
        """Move the cursor; it is saved at most once in `every` seconds, and when the run ends without success."""
        self.value, self._moved = value, True
        if source.monotonic() - self._saved_at >= self._every:
            await self.flush()

    async def flush(self) -> None:
        """Save the value if it is not saved."""
        if self._moved:
            await self._save(self._name, self.value)
            self._saved_at, self._moved = source.monotonic(), False


def _short(id: str) -> str:
    """Return an id of a child, or a digest of it if it is too long."""
    return id if len(id.encode()) <= 512 else blake2b(id.encode(), digest_size=16).hexdigest()


def _return_type(function: Any) -> Any:
    try:
        return get_type_hints(function).get("return", Any)
    except Exception:  # annotations that cannot be resolved are no annotations
        return Any


def _type_of(value: Any) -> Any:
    return Any if value is None else cast("Any", type(value))
