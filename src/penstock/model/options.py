"""The options of handlers, the bounds of single jobs, and the rules that follow from both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, Any, Literal, TypedDict, cast

import msgspec
from msgspec import UNSET, UnsetType

from penstock.errors import UNREADABLE
from penstock.model.argument_keys import By, check_by, check_cost_by
from penstock.model.checks import check_choice, check_whole
from penstock.model.clock import MAX_MS, Span, span_ms
from penstock.model.limit import Limit, LimitScope

__all__ = [
    "FAILURE_DEFAULTS",
    "HandlerArguments",
    "HandlerOptions",
    "JobBounds",
    "Retain",
    "RetryPosition",
    "handler_options",
    "rules_for",
]


RetryPosition = Literal["keep", "due"]
Retain = Literal["ttl", "none", "forever"]

DAY = 86_400.0


def _exception_classes(value: object, name: str) -> tuple[type[BaseException], ...]:
    """Return one exception class or a tuple of them as a tuple; raises `TypeError`, which names the option."""
    classes = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            shown = each.__name__ if isinstance(each, type) else type(each).__name__
            raise TypeError(f"{name} must be an exception class or a tuple of them, not {shown}")
    return cast("tuple[type[BaseException], ...]", classes)


class HandlerArguments(TypedDict, total=False):
    """The options that `handler` and `listen` accept, for type checkers; `HandlerOptions` has the defaults."""

    max_retries: int | None
    """How often a job that failed is run again."""
    max_stalls: int | None
    """After this many stalls (the process died, the lease expired) the job fails."""
    max_timeouts: int | None
    """After this many timeouts the job fails."""
    max_attempts: int | None
    """After this many runs the job fails, however each of them ended."""
    min_backoff: Span
    """The pause after the first failure; it doubles each time."""
    max_backoff: Span
    """The longest pause."""
    jitter: float
    """From 0 to 1: the part by which a pause may be shortened at random."""
    size: int
    """Units that a run holds, of the worker's `capacity`."""
    concurrency: int | None
    """Instead of `size`: the number of runs of this handler at once in a process."""
    timeout: Span | None
    """How long a run may take; None for persistent tasks."""
    priority: int
    """The queue with the higher number is served first."""
    batch_size: int
    """More than 1: the handler gets lists of up to this many payloads and jobs, 1000 at most."""
    on_failure: Callable[..., Any] | str | None
    """A function, or "module:function", that gets a `Failure` when a job has failed for good."""
    failure_options: Mapping[str, Any]
    """The options of the jobs that run `on_failure`."""
    permanent: type[BaseException] | tuple[type[BaseException], ...]
    """Exceptions of these classes fail the job at once."""
    retry_position: RetryPosition
    """The position of a retried job: "keep" its old one, or "due" as a new job of its due time."""
    at_most_once: bool
    """After a stall the job fails instead of running again."""
    result_ttl: Span
    """How long a completed job and its result are kept."""
    failed_ttl: Span
    """How long a failed job is kept."""
    max_queued: int | None
    """While this many jobs wait in the queue, `enqueue` and `call` raise `QueueFull`."""
    limit: Limit | None
    """The limit of the queue, over all workers: how many jobs run at once, and start in a span of time."""
    group_limit: Limit | None
    """The limit of each group of the queue; a group without one is `Limit(concurrency=1)`."""
    id_by: By | None
    """The id of a job that is enqueued without one: names of fields of the payload, or a function of it."""
    group_by: By | None
    """The group of a job that is enqueued without one, as `id_by`."""
    cost_by: str | Callable[..., Any] | None
    """The cost of a job that is enqueued without one: the name of a field of the payload, or a function of it."""
    retain: Retain
    """"ttl": completed jobs are kept for `result_ttl`; "none": not at all; "forever": until deleted."""


class HandlerOptions(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """How a handler's jobs are run, retried and kept. Durations are seconds; a limit of None is no limit.

    They are read when a run starts and ends, and never stored with waiting jobs.

    - `max_retries`: how often a job that failed is run again
    - `max_stalls`: after this many stalls (the process died, the lease expired) the job fails
    - `max_timeouts`: after this many timeouts the job fails
    - `max_attempts`: after this many runs the job fails, however each of them ended
    - `min_backoff`: the pause after the first failure; it doubles each time
    - `max_backoff`: the longest pause
    - `jitter`: from 0 to 1: the part by which a pause may be shortened at random
    - `size`: units that a run holds, of the worker's `capacity`
    - `concurrency`: instead of `size`: the number of runs of this handler at once in a process
    - `timeout`: how long a run may take; None for persistent tasks
    - `priority`: the queue with the higher number is served first
    - `batch_size`: more than 1: the handler gets lists of up to this many payloads and jobs, 1000 at most
    - `on_failure`: a function, or "module:function", that gets a `Failure` when a job has failed for good
    - `failure_options`: the options of the jobs that run `on_failure`
    - `permanent`: exceptions of these classes fail the job at once
    - `retry_position`: the position of a retried job: "keep" its old one, or "due" as a new job of its due time
    - `at_most_once`: after a stall the job fails instead of running again
    - `result_ttl`: how long a completed job and its result are kept
    - `failed_ttl`: how long a failed job is kept
    - `max_queued`: while this many jobs wait in the queue, `enqueue` and `call` raise `QueueFull`
    - `limit`: the limit of the queue, over all workers: how many jobs run at once, and start in a span of time
    - `group_limit`: the limit of each group of the queue; a group without one is `Limit(concurrency=1)`
    - `id_by`: the id of a job that is enqueued without one: names of fields of the payload, or a function of it
    - `group_by`: the group of a job that is enqueued without one, as `id_by`
    - `cost_by`: the cost of a job that is enqueued without one: the name of a field of the payload, or a function of it
    - `retain`: "ttl": completed jobs are kept for `result_ttl`; "none": not at all; "forever": until deleted
    """

    max_retries: int | None = 10
    max_stalls: int | None = 3
    max_timeouts: int | None = 3
    max_attempts: int | None = None
    min_backoff: float = 2.0
    max_backoff: float = 300.0
    jitter: float = 0.0
    size: int = 10
    concurrency: int | None = None
    timeout: float | None = 60.0
    priority: int = 100
    batch_size: int = 1
    on_failure: Callable[..., Any] | str | None = None
    failure_options: Mapping[str, Any] = {}
    permanent: tuple[type[BaseException], ...] = ()
    retry_position: RetryPosition = "keep"
    at_most_once: bool = False
    result_ttl: float = 3600.0
    failed_ttl: float = 7 * DAY
    max_queued: int | None = None
    limit: Limit | None = None
    group_limit: Limit | None = None
    id_by: By | None = None
    group_by: By | None = None
    cost_by: str | Callable[..., Any] | None = None
    retain: Retain = "ttl"

    def __post_init__(self) -> None:
        for name in ("max_retries", "max_stalls", "max_timeouts"):
            check_whole(getattr(self, name), name, least=0, optional=True)
        for name in ("max_attempts", "concurrency", "max_queued"):
            check_whole(getattr(self, name), name, least=1, optional=True)
        for name in ("size", "batch_size"):
            check_whole(getattr(self, name), name, least=1)
        check_whole(self.priority, "priority", least=-(2**31))
        if self.batch_size > 1000:
            raise ValueError(f"batch_size must be at most 1000, not {self.batch_size}")
        for name in ("min_backoff", "max_backoff", "result_ttl", "failed_ttl"):
            self._seconds(name)
        if self.min_backoff > self.max_backoff:
            raise ValueError(f"min_backoff ({self.min_backoff}) must not be more than max_backoff ({self.max_backoff})")
        if self.timeout is not None:
            self._seconds("timeout", zero=False)
        if isinstance(self.jitter, bool) or not isinstance(self.jitter, int | float):
            raise TypeError(f"jitter must be a number from 0 to 1, not {type(self.jitter).__name__}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be from 0 to 1, not {self.jitter!r}")
        check_choice(self.retry_position, "retry_position", ("keep", "due"))
        check_choice(self.retain, "retain", ("ttl", "none", "forever"))
        if not isinstance(self.at_most_once, bool):
            raise TypeError("at_most_once must be True or False")
        if not (self.on_failure is None or callable(self.on_failure) or isinstance(self.on_failure, str)):
            raise TypeError('on_failure must be a function or "module:function"')
        for name in ("id_by", "group_by"):
            if getattr(self, name) is not None:
                msgspec.structs.force_setattr(self, name, check_by(getattr(self, name), name))
        if self.cost_by is not None:
            msgspec.structs.force_setattr(self, "cost_by", check_cost_by(self.cost_by))
        msgspec.structs.force_setattr(self, "permanent", _exception_classes(self.permanent, "permanent"))
        self._check_limit("limit", "queue")
        self._check_limit("group_limit", "group")
        if not isinstance(self.failure_options, Mapping):
            raise TypeError("failure_options must be a mapping of handler options")
        if self.failure_options and self.on_failure is None:
            raise ValueError("failure_options are the options of on_failure, but on_failure is not given")

    def _check_limit(self, name: str, scope: LimitScope) -> None:
        limit = getattr(self, name)
        if limit is None:
            return
        if not isinstance(limit, Limit):
            raise TypeError(f"{name} must be a Limit or None, not {type(limit).__name__}")
        try:
            limit.check_scope(scope)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def _seconds(self, name: str, zero: bool = True) -> None:
        seconds = span_ms(getattr(self, name), name, zero=zero) / 1000
        msgspec.structs.force_setattr(self, name, seconds)

    @cached_property
    def reads_payload(self) -> bool:
        """Whether an enqueue reads options of its job from the payload."""
        return not (self.id_by is None and self.group_by is None and self.cost_by is None)

    @cached_property
    def keep_ms(self) -> int | None:
        """How long a completed or cancelled job is kept, in milliseconds; None is for ever."""
        if self.retain == "ttl":
            return round(self.result_ttl * 1000)
        return 0 if self.retain == "none" else None

    @property
    def keep_failed_ms(self) -> int:
        """How long a failed job is kept, in milliseconds."""
        return round(self.failed_ttl * 1000)


#: The defaults of fail handlers: a fail job is the last notice of a failure, so it retries for days at a small size.
FAILURE_DEFAULTS = HandlerOptions(max_retries=100, min_backoff=10.0, max_backoff=900.0, size=2)


def handler_options(given: Mapping[str, Any], defaults: HandlerOptions | None = None) -> HandlerOptions:
    """Return options from keyword arguments; an unknown name is a `TypeError` that suggests the nearest one."""
    known = HandlerOptions.__struct_fields__
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known options: {', '.join(known)}"
            raise TypeError(f"unknown handler option {name!r}; {hint}")
    if given.get("concurrency") is not None and "size" in given:
        raise ValueError("give size or concurrency, not both: concurrency=n has room for n runs of its own")
    options = msgspec.structs.replace(defaults or HandlerOptions(), **given)
    if options.on_failure is not None:
        for name in ("id_by", "group_by", "cost_by"):
            if name in options.failure_options:
                raise ValueError(f"failure_options: {name} is for jobs that are enqueued, and these are not")
        try:
            handler_options(options.failure_options, FAILURE_DEFAULTS)
        except (TypeError, ValueError) as error:
            raise type(error)(f"failure_options: {error}") from None
    return options


#: The ranges of stored bounds: another program that writes to the storage may have stored any value.
_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_MS)]
_Timeout = Annotated[int, msgspec.Meta(ge=1, le=MAX_MS)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Attempts = Annotated[int, msgspec.Meta(ge=1)]


class JobBounds(msgspec.Struct, frozen=True, kw_only=True):
    """A job's own timeout, bounds and result TTL (durations in ms); for an unset one the handler's option holds."""

    timeout: _Timeout | UnsetType | None = UNSET
    max_attempts: _Attempts | UnsetType | None = UNSET
    max_retries: _Count | UnsetType | None = UNSET
    result_ttl: _Milliseconds | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        timeout: Span | UnsetType | None = UNSET,
        max_attempts: int | UnsetType | None = UNSET,
        max_retries: int | UnsetType | None = UNSET,
        result_ttl: Span | UnsetType = UNSET,
    ) -> JobBounds:
        """Return the bounds that a user gave; raises `TypeError` or `ValueError`, which name the option."""
        if max_attempts is not UNSET:
            check_whole(max_attempts, "max_attempts", least=1, optional=True)
        if max_retries is not UNSET:
            check_whole(max_retries, "max_retries", least=0, optional=True)
        return cls(
            timeout=timeout if timeout is UNSET or timeout is None else span_ms(timeout, "timeout", zero=False),
            max_attempts=max_attempts,
            max_retries=max_retries,
            result_ttl=result_ttl if result_ttl is UNSET else span_ms(result_ttl, "result_ttl"),
        )

    def encode(self) -> bytes:
        """Return its stored form, b"" when every limit is unset."""
        return b"" if self == NO_BOUNDS else _encode_bounds(self)

    @classmethod
    def decode(cls, data: bytes) -> JobBounds:
        """Decode stored bounds; unreadable bytes give no bounds, so the handler's options hold."""
        try:
            return _decode_bounds(data) if data else NO_BOUNDS
        except UNREADABLE:
            return NO_BOUNDS


def rules_for(options: HandlerOptions, bounds: JobBounds) -> HandlerOptions:
    """Return the options that hold for one job: its own bounds win over its handler's options."""
    if bounds is NO_BOUNDS:
        return options
    changes: dict[str, Any] = {}
    for name in ("max_attempts", "max_retries"):
        if (value := getattr(bounds, name)) is not UNSET:
            changes[name] = value
    if bounds.timeout is not UNSET:
        changes["timeout"] = None if bounds.timeout is None else bounds.timeout / 1000
    if bounds.result_ttl is not UNSET:
        changes.update(result_ttl=bounds.result_ttl / 1000, retain="ttl")
    return msgspec.structs.replace(options, **changes)


NO_BOUNDS = JobBounds()


_encode_bounds = msgspec.msgpack.Encoder().encode
_decode_bounds = msgspec.msgpack.Decoder(JobBounds).decode
