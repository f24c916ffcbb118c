"""The children of durable code: the jobs of a call, and how they ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from penstock.errors import ErrorKind, JobError, JobFailed
from penstock.model.bindings import Ended
from penstock.model.flow import (
    MAX_DEPTH,
    DependencyEntry,
    End,
    FlowPart,
    GenerationRef,
    Notice,
    plain_generation,
    short_id,
)
from penstock.model.headers import RESERVED, decode_headers, encode_headers, user_headers
from penstock.model.job import Claim, NewJob
from penstock.model.serde import Codec, decode

__all__ = [
    "ChildCall",
    "DurableEntry",
    "DurableTask",
    "check_child",
    "child_job",
    "ended_child",
    "first_part",
    "refusal",
]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

#: The children that one suspension stores at most, and the bytes of their payloads.
PART, PART_BYTES = 1_000, 4_000_000

#: The header of a child that has its depth below the first job, if that is more than one.
DEPTH = f"{RESERVED}depth"


class DurableTask(Protocol[P, R_co]):
    """A task that durable code can call: `penstock.Task`, or what its `options` returns."""

    @property
    def definition(self) -> Any: ...

    @property
    def queue(self) -> Any: ...

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]: ...

    def job_options(self) -> dict[str, Any]: ...

    def returned(self, value: Any) -> R_co: ...


class DurableEntry(Protocol[R_co]):
    """An entry of a task, as `task.entry(...)` returns it."""

    @property
    def task(self) -> DurableTask[..., R_co]: ...

    @property
    def payload(self) -> Any: ...

    def job_options(self) -> dict[str, Any]: ...


class ChildCall(NamedTuple):
    """A call of a task in a job of its own."""

    task: DurableTask[..., Any]
    payload: Any
    options: Mapping[str, Any]


def refusal(text: str) -> ValueError:
    """Return the error for a wrong use of durable code, which a retry would not mend."""
    error = ValueError(text)
    error.kind = ErrorKind.PERMANENT  # type: ignore[attr-defined]
    return error


def child_job(
    claim: Claim, generation: str, name: str, at: int, number: int, calls: Sequence[ChildCall],
    new_job: Callable[[str, Any, Mapping[str, Any]], NewJob],
) -> NewJob:  # fmt: skip
    """Return the job of one call; `number` is the dependency of the running job that it notifies."""
    task, payload, given = calls[at]
    mark = plain_generation(claim.created) if claim.flow is None else claim.flow.generation
    parent = GenerationRef(claim.queue, claim.id, mark)
    if given.get("on_conflict") == "raise":
        raise refusal(f'{name!r} cannot have on_conflict="raise": it joins the job that has its id')
    headers = decode_headers(claim.headers)
    depth = int(headers.get(DEPTH, "1" if claim.flow is not None and claim.flow.parent is not None else "0")) + 1
    if depth > MAX_DEPTH:
        raise refusal(f"{name!r} is a child at depth {depth}, at most {MAX_DEPTH} are allowed")
    own: Mapping[str, str] = given.get("headers") or {}
    inherited = {**user_headers(headers), **own}
    id = f"{claim.id}~{generation}/{name}" + (f"/{at}" if len(calls) > 1 else "")
    options: dict[str, Any] = {**given, "id": given.get("id") or short_id(id), "headers": inherited or None}
    new = new_job(task.queue.name, payload, options)
    if depth > 1:
        new = replace(new, headers=encode_headers({**decode_headers(new.headers), DEPTH: str(depth)}))
    notice = Notice(claim.queue, claim.id, mark, number, "ended", wants=True)
    return replace(new, flow=FlowPart(parent=parent, notices=(notice,)))


def first_part(jobs: Iterable[NewJob]) -> tuple[NewJob, ...]:
    """Return as many jobs as one suspension stores."""
    part: list[NewJob] = []
    size = 0
    for job in jobs:
        size += len(job.payload)
        if part and size > PART_BYTES:
            break
        part.append(job)
        if len(part) == PART:
            break
    return tuple(part)


def check_child(entry: DependencyEntry) -> None:
    """Raise the failure of a child: permanent if the handler does not catch it, because a retry would meet it."""
    if entry.end is End.COMPLETED:
        return
    error = error_of_child(entry) or JobError("JobCancelled", "it was cancelled")
    failed = JobFailed(f"job {entry.id!r} in {entry.queue!r} failed: {error.type}: {error.message}", error)
    failed.kind = ErrorKind.PERMANENT  # type: ignore[attr-defined]
    failed.culprits = (entry.number,)  # type: ignore[attr-defined]
    raise failed


def error_of_child(entry: DependencyEntry) -> JobError | None:
    """Return the error of a child that did not complete."""
    return None if entry.end is End.COMPLETED or entry.value is None else JobError.decode(entry.value)


def ended_child(entry: DependencyEntry, call: ChildCall, codec: Callable[[str], Codec]) -> Ended[Any]:
    """Return how a child ended, with its result or its error; raises `InvalidPayload`."""
    assert entry.end is not None
    value = None
    if entry.end is End.COMPLETED and entry.value is not None:
        value = call.task.returned(decode(codec(entry.queue).result_for(entry.id), entry.value))
    return Ended(entry.end, value, error_of_child(entry))
