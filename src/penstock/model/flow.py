"""The values of flows: generations, dependencies, notices, checkpoints and signals, and how a dependency is met."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec.structs import replace

from penstock.errors import ErrorKind, JobError
from penstock.model.ids import MAX_NAME_BYTES

__all__ = [
    "ABANDONED",
    "ABANDONED_MS",
    "FOLLOW_UPS",
    "JOURNAL_BYTES",
    "JOURNAL_ENTRIES",
    "MAX_CHILDREN",
    "MAX_DEPTH",
    "MAX_EFFECTS",
    "MAX_SIGNALS",
    "UNMET_MS",
    "Checkpoint",
    "CheckpointKind",
    "ClaimFlow",
    "Condition",
    "DependencyEntry",
    "DependencyPage",
    "End",
    "Extended",
    "FlowPart",
    "FlowSnapshot",
    "GenerationRef",
    "JobRef",
    "JournalPage",
    "NewCheckpoint",
    "Notice",
    "Plan",
    "Relayed",
    "SignalStatus",
    "SignalWait",
    "dropped_error",
    "end_of_unmet",
    "fatal_end",
    "flow_error",
    "is_met",
    "plain_generation",
    "short_id",
    "signal_value",
    "unmet_error",
]

#: How long (ms) a job is kept that ended without a run because of its dependencies or its flow: as failed ones are.
UNMET_MS = 7 * 24 * 3600 * 1000

#: How long (ms) a producer that stores a flow in several calls may be silent before the flow is abandoned.
ABANDONED_MS = 60_000

#: The error of an abandoned flow.
ABANDONED = JobError("Abandoned", "its producer stopped before it had stored all of it", ErrorKind.ABANDONED).encode()

#: The unread signals of one job at most.
MAX_SIGNALS = 1_000

#: The bytes of a journal that come along with a claim at most: checkpoints and values of dependencies.
JOURNAL_BYTES = 16_384

#: The notices that one transition applies at most; further ones are stored in the outbox, in their order.
MAX_EFFECTS = 1_000

#: The number of the first dependency of a plan on a follow-up job of one of its children. Those that the producer
#: stores have lower numbers, so that a plan can be extended while its first children end.
FOLLOW_UPS = 1 << 30

#: The children of one job at most, and how deep flows may contain flows.
MAX_CHILDREN, MAX_DEPTH = 1_000_000, 100

#: The checkpoints and dependencies that come along with a claim at most, together.
JOURNAL_ENTRIES = 1_000

#: When a dependency is met: by completion, by failing or being cancelled, or by any end.
Condition = Literal["completed", "failed", "ended"]

#: What a checkpoint records. A storage treats all kinds alike, except that a cursor may be written again, and that a
#: signal takes its value from the unread signals of its job.
CheckpointKind = Literal["step", "sleep", "signal", "call", "cursor"]


class End(StrEnum):
    """How a job ended, as its dependents see it. The last three are the state cancelled, without a run.

    `upstream`: a dependency cannot be met any more. `skipped`: it was not needed. `dropped`: its flow has ended.
    """

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UPSTREAM = "upstream"
    SKIPPED = "skipped"
    DROPPED = "dropped"


class JobRef(msgspec.Struct, frozen=True, gc=False):
    """A job by its queue and id."""

    queue: str
    id: str


class GenerationRef(msgspec.Struct, frozen=True, gc=False):
    """One generation of a job: it exists until a put of its id starts anew, or until its record is gone."""

    queue: str
    id: str
    generation: str


class Notice(msgspec.Struct, frozen=True, gc=False):
    """Notice that a job sends when it ends: to dependency `number` of the job `queue`, `id` in this generation.

    `on` is the condition of the dependency. With `wants` the result or the error is copied to it. Of a notice to a
    plan, `handled` means that another job takes up a failure, so that it does not make the flow fail, and `required`
    that the flow fails unless this job completes.
    """

    queue: str
    id: str
    generation: str
    number: int
    on: Condition = "completed"
    wants: bool = False
    handled: bool = False
    required: bool = False


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A job without a run, which the storage ends with its last dependency.

    `result` is the number of the dependency whose value becomes its result; without one that is `default`. It is kept
    `ttl` ms if it completes, else `failed_ttl` (None: for ever, 0: not at all).
    """

    result: int | None = None
    fail_fast: bool = False
    ttl: int | None = 3_600_000
    failed_ttl: int | None = UNMET_MS
    default: bytes = b""


class FlowPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a new job that concerns flows.

    `dependencies` are the jobs that must end before its first run, numbered from 0 on; their own puts carry the notices
    to it, and come after this one. `open` means that `extend` adds more. `binds` is for the worker, and opaque here:
    which arguments take the values of which dependencies. `parent` is the flow that it belongs to.
    """

    generation: str = ""
    dependencies: tuple[JobRef, ...] = ()
    notices: tuple[Notice, ...] = ()
    binds: bytes = b""
    parent: GenerationRef | None = None
    plan: Plan | None = None
    open: bool = False


class NewCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint to be stored unless there is one of its name.

    Of the kind `signal`, its value is the first unread signal of one of these names, see `signal_value`; it is not
    stored if there is none.
    """

    name: str
    kind: CheckpointKind = "step"
    value: bytes = b""
    signals: tuple[str, ...] = ()


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """A checkpoint of a job's journal; `n` is its number, from 1 on in the order of storing."""

    n: int
    name: str
    kind: CheckpointKind
    value: bytes


class JournalPage(msgspec.Struct, frozen=True):
    """A page of the checkpoints of a job, by their numbers; `more` if there are further ones."""

    checkpoints: list[Checkpoint]
    more: bool = False


class DependencyEntry(msgspec.Struct, frozen=True, gc=False):
    """A dependency of a job, with the job that it waits for, how that ended (None while it is open), and the value.

    The value is a result or the record of an error, None if there was none or it was not wanted.
    """

    number: int
    queue: str
    id: str
    end: End | None = None
    value: bytes | None = None


class DependencyPage(msgspec.Struct, frozen=True):
    """A page of the dependencies of a job, by their numbers; `more` if there are further ones."""

    dependencies: list[DependencyEntry]
    more: bool = False


class SignalWait(msgspec.Struct, frozen=True, gc=False):
    """A wait for the first signal of one of these names; the checkpoint gets it, or the fact that it came too late."""

    checkpoint: str
    signals: tuple[str, ...]


class ClaimFlow(msgspec.Struct, frozen=True):
    """The part of a claim that concerns flows; only jobs with a generation of their own have one.

    `at` is the storage's time (ms) of the claim. `total` is the number of the next dependency, `needs` the number of
    those that were given with the put. `whole` is False if the journal has more than `JOURNAL_BYTES` (names and values)
    or `JOURNAL_ENTRIES`: then
    `checkpoints` and `dependencies` are empty, and are read in pages. `fresh` counts how often the journal was
    forgotten. `cancel` is the mode in which the cancellation of the job was requested while it was suspended.
    """

    generation: str
    at: int
    parent: GenerationRef | None = None
    binds: bytes = b""
    needs: int = 0
    total: int = 0
    fresh: int = 0
    checkpoints: tuple[Checkpoint, ...] = ()
    dependencies: tuple[DependencyEntry, ...] = ()
    whole: bool = True
    cancel: str | None = None


class FlowSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a snapshot that concerns flows; only jobs with a generation of their own have one.

    `open` is the number of open dependencies, and `ends` that of the others by how they ended. `waits_for` names up to
    three open ones of those that the job waits for now. `wakes_at` (ms) is when it is resumed by the clock, `signals`
    are the names that it waits for. `final` is False while `extend` adds to it. `needs` is the number of dependencies
    that it had before its first run: of a plan they are its children, of other jobs the children come after them.
    """

    generation: str
    parent: GenerationRef | None = None
    plan: bool = False
    final: bool = True
    needs: int = 0
    open: int = 0
    ends: dict[End, int] = {}
    waits_for: tuple[JobRef, ...] = ()
    wakes_at: int | None = None
    signals: tuple[str, ...] = ()
    unread: int = 0


class Extended(msgspec.Struct, frozen=True, gc=False):
    """The answer to `extend`: the number of dependencies now; `over` means that the generation is gone or has ended."""

    total: int
    over: bool = False


class Relayed(msgspec.Struct, frozen=True, gc=False):
    """The answer to `relay`: the number of effects that were applied, and whether there are more now."""

    applied: int
    more: bool = False


#: What became of a signal: a waiting job got it, it is kept for a later wait, there are too many, or the job has ended
#: or does not exist.
SignalStatus = Literal["delivered", "kept", "full", "finished", "not_found"]


def short_id(id: str) -> str:
    """Return the id of a child, or a digest of it if it is too long."""
    return id if len(id.encode()) <= MAX_NAME_BYTES else blake2b(id.encode(), digest_size=16).hexdigest()


def plain_generation(created: int) -> str:
    """Return the generation of a job that was put without one: the time (ms) of its acceptance."""
    return f"{created:x}"


def is_met(on: Condition, end: End) -> bool:
    """Return whether the end of a job meets a dependency on it."""
    if on == "ended":
        return True
    if on == "completed":
        return end is End.COMPLETED
    return end not in (End.COMPLETED, End.SKIPPED)


def end_of_unmet(end: End) -> End:
    """Return how a job ends one of whose dependencies was not met because of this end."""
    return End.SKIPPED if end in (End.COMPLETED, End.SKIPPED) else End.UPSTREAM


def fatal_end(notice: Notice, end: End) -> Literal["failed", "cancelled"] | None:
    """Return what the end of a job makes of its plan; None if it does no harm."""
    if end is End.COMPLETED:
        return None
    if notice.required:
        return "failed"
    if notice.handled or end is End.SKIPPED:
        return None
    return "failed" if end is End.FAILED else "cancelled"


#: The longest message (characters) of another error that an error quotes.
MAX_QUOTED = 1_024


def unmet_error(source: JobRef, end: End, error: bytes | None) -> bytes:
    """Return the error of a job that is not run, because of the end of this job.

    The error of a job that was not run itself is handed on as it is: it names the first cause.
    """
    if end in (End.UPSTREAM, End.SKIPPED) and error is not None:
        return error
    name = f"'{source.id}' in '{source.queue}'"
    if end_of_unmet(end) is End.SKIPPED:
        return JobError("Skipped", f"it was not needed: {name} completed", ErrorKind.PERMANENT).encode()
    text = f"{name} was cancelled" if end is not End.FAILED else f"{name} failed"
    if error is not None:
        cause = JobError.decode(error)
        text += f": {cause.type}: {cause.message[:MAX_QUOTED]}"
    return JobError("UpstreamFailed", text, ErrorKind.PERMANENT).encode()


def flow_error(source: JobRef, error: bytes | None) -> bytes:
    """Return the error of a flow that failed because of this job: that of the job, with its name."""
    name = f"'{source.id}' in '{source.queue}'"
    if error is None:
        return JobError("JobCancelled", f"{name} was cancelled", ErrorKind.PERMANENT).encode()
    cause = JobError.decode(error)
    return replace(cause, message=f"{name}: {cause.message}").encode()


def dropped_error(flow: JobRef, state: str) -> bytes:
    """Return the error of a job that was cancelled because its flow has ended in this state."""
    text = f"its flow '{flow.id}' in '{flow.queue}' has ended: it is {state}"
    return JobError("FlowEnded", text, ErrorKind.PERMANENT).encode()


def signal_value(name: str | None, value: bytes = b"") -> bytes:
    """Return the value of a checkpoint of the kind `signal`: the name and value of a signal; None for a timeout."""
    return b"" if name is None else name.encode() + b"\0" + value
