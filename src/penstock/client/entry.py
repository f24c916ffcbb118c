"""The options of a job: their types, their checks, and `Entry`, a payload together with its options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from penstock.model.clock import Moment, Span, milliseconds, span_ms
from penstock.model.headers import MAX_HEADERS, encode_headers
from penstock.model.ids import check_name
from penstock.model.job import MAX_PRIORITY, OnConflict, Update
from penstock.model.options import JobLimits

__all__ = [
    "CommonOptions",
    "Entry",
    "JobOptions",
    "OnConflict",
    "TaskOptions",
    "entry_fields",
    "job_fields",
    "options_of",
]

UPDATE, UPDATE_WITHOUT_PRIORITY = Update(), Update(priority=False)


class CommonOptions(TypedDict, total=False):
    """The options that `enqueue` and `call` share, for type checkers."""

    id: str | None
    run_at: Moment | None
    delay: Span | None
    expires: Span | datetime | None
    priority: int | UnsetType
    group: str | None
    on_conflict: OnConflict | None
    max_attempts: int | UnsetType | None
    max_retries: int | UnsetType | None
    result_ttl: Span | UnsetType
    headers: Mapping[str, str] | None


class JobOptions(CommonOptions, total=False):
    """The options of `enqueue`, for type checkers; `Entry` has their defaults."""

    timeout: Span | UnsetType | None


class TaskOptions(CommonOptions, total=False):
    """The options of one call: those of `Queue.call`, for `enqueue` too.

    `timeout` is how long `call` waits; `run_timeout` is how long the run itself may take.
    """

    run_timeout: Span | UnsetType | None
    timeout: Span | None


class Entry:
    """A payload with the options of `enqueue`, for `enqueue_many`."""

    __slots__ = ("payload", *JobOptions.__annotations__)

    def __init__(
        self,
        payload: Any,
        *,
        id: str | None = None,
        run_at: Moment | None = None,
        delay: Span | None = None,
        expires: Span | datetime | None = None,
        priority: int | UnsetType = UNSET,
        group: str | None = None,
        on_conflict: OnConflict | None = None,
        timeout: Span | UnsetType | None = UNSET,
        max_attempts: int | UnsetType | None = UNSET,
        max_retries: int | UnsetType | None = UNSET,
        result_ttl: Span | UnsetType = UNSET,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.payload = payload
        self.id = id
        self.run_at = run_at
        self.delay = delay
        self.expires = expires
        self.priority = priority
        self.group = group
        self.on_conflict: OnConflict | None = on_conflict
        self.timeout = timeout
        self.max_attempts = max_attempts
        self.max_retries = max_retries
        self.result_ttl = result_ttl
        self.headers = headers

    def __repr__(self) -> str:
        return f"Entry({self.payload!r}, id={self.id!r})"


#: The names of the options.
NAMES = tuple(JobOptions.__annotations__)


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Check the options of an entry and return the fields of a `NewJob` that they set, as `job_fields` does."""
    return _fields(
        id=entry.id, run_at=entry.run_at, delay=entry.delay, expires=entry.expires, priority=entry.priority,
        group=entry.group, on_conflict=entry.on_conflict, timeout=entry.timeout, max_attempts=entry.max_attempts,
        max_retries=entry.max_retries, result_ttl=entry.result_ttl, headers=entry.headers,
    )  # fmt: skip


def options_of(entry: Entry) -> JobOptions:
    """Return the options of an entry as keyword arguments of `enqueue`."""
    return cast("JobOptions", {name: getattr(entry, name) for name in NAMES})


def job_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a job and return the fields of a `NewJob` that they set.

    Raises `TypeError` or `ValueError`, which name the option.
    """
    for name in options:
        if name not in JobOptions.__annotations__:
            raise TypeError(f"unknown option {name!r}; known options: {', '.join(NAMES)}")
    return _fields(**options)


def _fields(
    *,
    id: str | None = None,
    run_at: Moment | None = None,
    delay: Span | None = None,
    expires: Span | datetime | None = None,
    priority: int | UnsetType = UNSET,
    group: str | None = None,
    on_conflict: OnConflict | None = None,
    timeout: Span | UnsetType | None = UNSET,
    max_attempts: int | UnsetType | None = UNSET,
    max_retries: int | UnsetType | None = UNSET,
    result_ttl: Span | UnsetType = UNSET,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    if run_at is not None and delay is not None:
        raise ValueError("give run_at or delay, not both")
    fields: dict[str, Any] = {}
    if priority is not UNSET and _check_priority(priority):
        fields["priority"] = priority
    if group is not None:
        fields["group"] = check_name(group, "group")
        if "priority" in fields:
            raise ValueError("priority does not reorder a group: give group or priority, not both")
    if id is not None:
        fields["id"] = check_name(id, "id")
    if on_conflict is not None:
        fields["update"] = update_for(on_conflict, priority=priority is not UNSET)
    if run_at is not None:
        fields["run_at"] = milliseconds(run_at, "run_at")
    if delay is not None:
        fields["delay"] = span_ms(delay, "delay")
    if expires is not None:
        _add_expiry(fields, expires)
    if headers is not None:
        fields["headers"] = _encode_headers(headers)
    if not (timeout is max_attempts is max_retries is result_ttl is UNSET):
        fields["limits"] = JobLimits.of(timeout, max_attempts, max_retries, result_ttl).encode()
    return fields


def _add_expiry(fields: dict[str, Any], expires: Span | datetime) -> None:
    """Add the start-by time: a datetime is a moment, all else a span from the acceptance of the job."""
    if isinstance(expires, datetime):
        fields["start_by"] = by = milliseconds(expires, "expires")
        due, name = fields.get("run_at", -1), "run_at"
    else:
        fields["start_within"] = by = span_ms(expires, "expires", zero=False)
        due, name = fields.get("delay", -1), "delay"
    if by <= due:
        raise ValueError(f"expires must be later than {name}: the job would expire before it may run")


def _check_priority(priority: int) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority must be an int, not {type(priority).__name__}")
    if abs(priority) > MAX_PRIORITY:
        raise ValueError(f"priority must be between -{MAX_PRIORITY} and {MAX_PRIORITY}, not {priority}")
    return priority


def update_for(on_conflict: OnConflict, *, priority: bool) -> Update | None:
    """Return the changes that an enqueue makes to a job that has its id already, None for no change.

    `priority` is whether the enqueue gives a priority; without one it does not change that of the job.
    """
    if on_conflict == "reject" or on_conflict == "raise":
        return None
    if on_conflict == "update":
        return UPDATE if priority else UPDATE_WITHOUT_PRIORITY
    if isinstance(on_conflict, Update):
        return on_conflict if priority or not on_conflict.priority else replace(on_conflict, priority=False)
    raise ValueError(f'on_conflict must be "reject", "update", "raise" or an Update, not {on_conflict!r}')


def _encode_headers(headers: Mapping[str, str]) -> bytes:
    data = encode_headers(headers)
    if len(data) > MAX_HEADERS:
        raise ValueError(f"headers are {len(data)} bytes together, more than {MAX_HEADERS}; put data into the payload")
    return data
