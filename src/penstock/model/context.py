"""The context that a handler gets: the job it runs, its progress, and its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol, cast

import msgspec

from penstock.errors import UNREADABLE, escaped
from penstock.model.bindings import Inputs, InputServices, inputs_of
from penstock.model.clock import as_datetime
from penstock.model.durable import Durable, DurableServices, Leave
from penstock.model.durable_calls import DurableCalls
from penstock.model.flow import GenerationRef
from penstock.model.headers import decode_headers, user_headers
from penstock.model.history import LOG_LEVELS, LogLevel
from penstock.model.job import Claim, NewJob
from penstock.model.options import HandlerOptions
from penstock.model.tick import Tick, read_tick

__all__ = ["CURRENT", "Cancellation", "HeldJob", "Job", "JobInfo", "JobServices", "Progress", "current_job"]

#: The longest message of a progress report, in characters: a longer one is cut.
MAX_MESSAGE = 1_000


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """Progress of a run: a fraction from 0 to 1 and a short message."""

    fraction: float
    message: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.fraction, bool) or not isinstance(self.fraction, int | float):
            raise TypeError(f"fraction must be a number from 0 to 1, not {type(self.fraction).__name__}")
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"fraction must be from 0 to 1, not {self.fraction!r}")
        if not isinstance(self.message, str):
            raise TypeError(f"message must be a str, not {type(self.message).__name__}")

    def encode(self) -> bytes:
        """Return its stored form; a long message is cut, and text that UTF-8 cannot encode is escaped."""
        message = self.message if len(self.message) <= MAX_MESSAGE else f"{self.message[: MAX_MESSAGE - 1]}…"
        return _encode(Progress(self.fraction, escaped(message)))

    @classmethod
    def decode(cls, data: bytes) -> Progress | None:
        """Decode stored progress; unreadable bytes give None."""
        try:
            return _decode_progress(data)
        except UNREADABLE:
            return None


class Cancellation:
    """Whether the cancellation of a run was requested: `if job.cancelled`, or `await job.cancelled`."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def __await__(self) -> Generator[Any, None, bool]:
        return self._event.wait().__await__()

    def __repr__(self) -> str:
        return f"<Cancellation {'requested' if self else 'not requested'}>"

    def request(self) -> None:
        """Set the flag. For the worker; a handler only reads it."""
        self._event.set()


class JobInfo:
    """The job of a run. `retries`, `stalls` and `timeouts` are the counts before this run."""

    __slots__ = ("_claim",)

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} of {self.queue!r}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self._claim.id

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._claim.queue

    @property
    def group(self) -> str | None:
        """The group it belongs to, or None."""
        return self._claim.group

    @property
    def attempt(self) -> int:
        """1 in the first run."""
        return self._claim.attempts

    @property
    def retries(self) -> int:
        """How many runs failed before this one."""
        return self._claim.retries

    @property
    def stalls(self) -> int:
        """How many runs stalled before this one."""
        return self._claim.stalls

    @property
    def timeouts(self) -> int:
        """How many runs took too long before this one."""
        return self._claim.timeouts

    @property
    def created_at(self) -> datetime:
        """When it was accepted."""
        return as_datetime(self._claim.created)

    @property
    def run_at(self) -> datetime:
        """When it was due."""
        return as_datetime(self._claim.run_at)

    @property
    def headers(self) -> dict[str, str]:
        """The labels that were enqueued with the payload."""
        return user_headers(decode_headers(self._claim.headers))

    @property
    def tick(self) -> Tick | None:
        """The tick of the schedule that put the job, None for any other job."""
        return read_tick(decode_headers(self._claim.headers))

    @property
    def fence(self) -> str:
        """The token of the claim, different in each run: pass it to systems that must refuse writes of a stale run."""
        return self._claim.token


class JobServices(Protocol):
    """The services of a worker that a run may use."""

    @property
    def worker(self) -> str: ...

    def report(self, claim: Claim, progress: Progress) -> Awaitable[bool]: ...

    def log(self, claim: Claim, text: str, level: LogLevel) -> None: ...

    def emit(self, claim: Claim, value: Any) -> Awaitable[bool]: ...

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob: ...

    def stopping(self) -> bool:
        """Return whether the worker stops, so that long runs should end."""
        ...

    def now(self) -> float:
        """Return the time of the worker's event loop (seconds)."""
        ...


class Job(JobInfo, DurableCalls):
    """The running job that a handler gets: its facts, its progress, its follow-up jobs, and its cancellation."""

    __slots__ = {
        "_durable": None,
        "_held": None,
        "_services": None,
        "cancelled": "Whether the end of this run was requested, by a cancel or because the lease was lost: "
        "`if job.cancelled`, or `await job.cancelled`.",
        "follow_ups": None,
    }

    cancelled: Cancellation
    follow_ups: list[NewJob]

    def __init__(self, claim: Claim, services: JobServices, held: HeldJob | None = None) -> None:
        super().__init__(claim)
        self._held = held
        self._services = services
        self.cancelled = Cancellation()
        self.follow_ups = []
        self._durable: Durable | None = None

    @property
    def worker(self) -> str:
        """The id of the worker that runs it."""
        return self._services.worker

    def progress(self, fraction: float, message: str = "") -> Awaitable[bool]:
        """Report the progress of the run. It is sent whether awaited or not; gives False if the claim was lost.

        A message of more than 1,000 characters is cut.
        """
        return self._services.report(self._claim, Progress(fraction, message))

    def log(self, text: str, level: LogLevel = "info") -> None:
        """Add a line to the log that is kept with the job. It returns at once, also in a thread.

        Lines are gathered and sent a few times a second, and before the end of the run is recorded. The log keeps the
        last 1,000 lines or 256 KiB; a line of more than 8 KiB is cut. Lines of a run that lost its claim are dropped.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}, not {level!r}")
        self._services.log(self._claim, text, level)

    def emit(self, value: Any) -> Awaitable[bool]:
        """Add a part to the stream of the job, which `Queue.stream` and `Queue.follow` read. It returns at once.

        Parts are gathered for 20 ms and sent whether awaited or not; awaited, it gives False if the claim was lost. The
        stream keeps the last 1,000 parts or 1 MiB. A part of more than 64 KiB raises `InvalidPayload`.
        """
        return self._services.emit(self._claim, value)

    def then(self, queue: str, payload: Any, **options: Any) -> str:
        """Add a follow-up job that is enqueued if, and only if, this run completes; returns its id."""
        new = self._services.new_job(queue, payload, options)
        self.follow_ups.append(new)
        return new.id

    @property
    def parent(self) -> GenerationRef | None:
        """The flow that the job belongs to, or None."""
        return None if self._claim.flow is None else self._claim.flow.parent

    @property
    def durable(self) -> Durable | None:
        """The journal that this run has used. For the worker."""
        return self._durable

    def _journal(self) -> Durable:
        if self._durable is None:
            self._durable = Durable(self._claim, cast("DurableServices", self._services), self._leave)
        return self._durable

    def _leave(self) -> Leave | None:
        if self.cancelled:
            return "cancel"
        return "pause" if self._held is not None and self._held.should_pause() else None

    def inputs(self, name: str, type: Any) -> Inputs[Any]:
        """Return the values that an argument reads page by page. For tasks."""
        return inputs_of(self._claim, cast("InputServices", self._services), name, type)


class HeldJob(Protocol):
    """A job of a run, as its worker holds it; `job` is made when it is first asked for."""

    @property
    def claim(self) -> Claim: ...

    @property
    def rules(self) -> HandlerOptions: ...

    @property
    def job(self) -> Job: ...

    @property
    def cancelled(self) -> bool: ...

    def should_pause(self) -> bool:
        """Return whether a long run should end soon: its worker stops, or half of its timeout is over."""
        ...


#: The job whose handler runs in this task or thread; of a batch, its first one.
CURRENT: ContextVar[HeldJob | None] = ContextVar("penstock_current_job", default=None)


def current_job() -> Job | None:
    """Return the job whose handler is running, also in tasks and threads that the handler starts; None outside of runs.

    Of a batch it is the first job. A thread that the handler starts by itself has it if it runs in a copy of the
    context, as those of `asyncio.to_thread` do.
    """
    held = CURRENT.get()
    return None if held is None else held.job


_encode = msgspec.msgpack.Encoder().encode
_decode_progress = msgspec.msgpack.Decoder(Progress).decode
