"""The options of a job: their types, their checks, and `Entry`, a payload together with its options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from penstock.model.checks import check_cost, check_priority
from penstock.model.clock import Moment, Span, milliseconds, span_ms
from penstock.model.headers import encode_user_headers
from penstock.model.ids import check_name
from penstock.model.job import OnConflict, Update
from penstock.model.options import JobBounds

__all__ = [
    "CommonOptions",
    "Entry",
    "JobOptions",
    "OnConflict",
    "TaskOptions",
    "entry_fields",
    "entry_from",
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
    cost: int | None
    window: Span | None
    debounce: Span | None
    max_wait: Span | None


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
        cost: int | None = None,
        window: Span | None = None,
        debounce: Span | None = None,
        max_wait: Span | None = None,
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
        self.cost = cost
        self.window = window
        self.debounce = debounce
        self.max_wait = max_wait

    def __repr__(self) -> str:
        return f"Entry({self.payload!r}, id={self.id!r})"


#: The names of the options.
NAMES = tuple(JobOptions.__annotations__)


def entry_from(payload: Any, options: Mapping[str, Any]) -> Entry:
    """Return the entry of a payload and options; raises `TypeError` for an unknown option."""
    check_names(options)
    return Entry(payload, **options)


def entry_fields(entry: Entry) -> dict[str, Any]:
    """Check the options of an entry and return the fields of a `NewJob` that they set, as `job_fields` does.

    The options are given by position: a call with this many by name would build a dict of them.
    """
    return _fields(
        entry.id, entry.run_at, entry.delay, entry.expires, entry.priority, entry.group, entry.on_conflict,
        entry.timeout, entry.max_attempts, entry.max_retries, entry.result_ttl, entry.headers, entry.cost,
        entry.window, entry.debounce, entry.max_wait,
    )  # fmt: skip


def options_of(entry: Entry) -> JobOptions:
    """Return the options of an entry as keyword arguments of `enqueue`."""
    return cast("JobOptions", {name: getattr(entry, name) for name in NAMES})


def job_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a job and return the fields of a `NewJob` that they set.

    Raises `TypeError` or `ValueError`, which name the option.
    """
    check_names(options)
    return _fields(**options)


def check_names(options: Mapping[str, Any]) -> None:
    """Raise `TypeError` for an unknown option."""
    for name in options:
        if name not in JobOptions.__annotations__:
            raise TypeError(f"unknown option {name!r}; known options: {', '.join(NAMES)}")


def _fields(
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
    cost: int | None = None,
    window: Span | None = None,
    debounce: Span | None = None,
    max_wait: Span | None = None,
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if run_at is not None and delay is not None:
        raise ValueError("give run_at or delay, not both")
    if debounce is not None or max_wait is not None:
        on_conflict = debounced(debounce, max_wait, run_at=run_at, delay=delay, on_conflict=on_conflict)
        delay = debounce
    if priority is not UNSET and check_priority(priority):
        fields["priority"] = priority
    if group is not None:
        fields["group"] = check_name(group, "group")
        if "priority" in fields:
            raise ValueError("priority does not reorder a group: give group or priority, not both")
    if id is not None:
        fields["id"] = check_name(id, "id")
    if cost is not None:
        fields["cost"] = check_cost(cost)
    if window is not None or debounce is not None:
        _add_window(fields, window, debounce)
    if on_conflict is not None:
        _add_update(fields, on_conflict, priority=priority is not UNSET)
    if run_at is not None:
        fields["run_at"] = milliseconds(run_at, "run_at")
    if delay is not None:
        fields["delay"] = span_ms(delay, "delay")
    if expires is not None:
        _add_expiry(fields, expires, "delay" if debounce is None else "debounce")
    if headers is not None:
        fields["headers"] = encode_user_headers(headers)
    if not (timeout is max_attempts is max_retries is result_ttl is UNSET):
        fields["bounds"] = JobBounds.of(timeout, max_attempts, max_retries, result_ttl).encode()
    return fields


def _add_window(fields: dict[str, Any], window: Span | None, debounce: Span | None) -> None:
    """Add the window; raises `ValueError` if a window or a debounce has no id."""
    if "id" not in fields:
        option = "window" if debounce is None else "debounce"
        raise ValueError(f"{option} needs an id: give id, or declare id_by with the handler or task")
    if window is not None:
        fields["window"] = span_ms(window, "window", zero=False)


def _add_update(fields: dict[str, Any], on_conflict: OnConflict, *, priority: bool) -> None:
    """Add the changes that the enqueue makes to a job that has its id already."""
    fields["update"] = update = update_for(on_conflict, priority=priority)
    if update is not None and update.max_wait is not None:
        fields["max_wait"] = span_ms(update.max_wait, "max_wait")


def debounced(debounce: Span | None, max_wait: Span | None, **others: object) -> Update:
    """Return the changes of an enqueue with `debounce`: the job is due later, at most `max_wait` after the first one.

    Raises `ValueError` or `TypeError`, which name the option; `others` are options that it excludes.
    """
    if debounce is None:
        raise ValueError(
            "max_wait needs debounce: it bounds how long that postpones a job; see also Update(max_wait=...)"
        )
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"give debounce or {name}, not both: debounce delays a job, and updates it")
    least = span_ms(debounce, "debounce", zero=False)
    if max_wait is not None and span_ms(max_wait, "max_wait", zero=False) < least:
        raise ValueError(f"max_wait must not be less than debounce ({debounce}), not {max_wait}")
    return Update(run_at="if_later", max_wait=max_wait)


def _add_expiry(fields: dict[str, Any], expires: Span | datetime, name_of_delay: str) -> None:
    """Add the start-by time: a datetime is a moment, all else a span from the acceptance of the job."""
    if isinstance(expires, datetime):
        fields["start_by"] = by = milliseconds(expires, "expires")
        due, name = fields.get("run_at", -1), "run_at"
    else:
        fields["start_within"] = by = span_ms(expires, "expires", zero=False)
        due, name = fields.get("delay", -1), name_of_delay
    if by <= due:
        raise ValueError(f"expires must be later than {name}: the job would expire before it may run")


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
