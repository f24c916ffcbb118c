"""A job as the producer asks for it, checked at the call and turned into what a storage stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from penstock.errors import InvalidPayload
from penstock.model.clock import Moment, Span, milliseconds, span_ms
from penstock.model.headers import encode_headers
from penstock.model.ids import check_name, new_id
from penstock.model.job import MAX_PRIORITY, NewJob, Update
from penstock.model.options import JobLimits
from penstock.model.serde import Serde, encode

__all__ = ["Entry", "OnConflict", "job_from", "plain_job"]

OnConflict = Literal["reject", "update", "raise"] | Update

#: Headers are labels: together they have at most this many bytes.
MAX_HEADERS = 32_768

UPDATE = Update()


class Entry:
    """A payload with the options of `enqueue`, for `enqueue_many`."""

    __slots__ = (
        "delay", "group", "headers", "id", "max_attempts", "max_retries", "on_conflict", "payload", "priority",
        "result_ttl", "run_at", "timeout",
    )  # fmt: skip

    def __init__(
        self,
        payload: Any,
        *,
        id: str | None = None,
        run_at: Moment | None = None,
        delay: Span | None = None,
        priority: int = 0,
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


def job_from(entry: Entry, queue: str, serde: Serde, max_payload: int, fresh_id: str | None = None) -> NewJob:
    """What to store for an entry; a bad value is an exception that names the argument."""
    if entry.run_at is not None and entry.delay is not None:
        raise ValueError("give run_at or delay, not both")
    priority, group = entry.priority, entry.group
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority must be an int, not {type(priority).__name__}")
    if abs(priority) > MAX_PRIORITY:
        raise ValueError(f"priority must be between -{MAX_PRIORITY} and {MAX_PRIORITY}, not {priority}")
    if group is not None:
        check_name(group, "group")
        if priority:
            raise ValueError("priority does not reorder a group: give group or priority, not both")
    return NewJob(
        queue=queue,
        id=(fresh_id or new_id()) if entry.id is None else check_name(entry.id, "id"),
        fresh=entry.id is None,
        payload=_sized(encode(serde, entry.payload, "payload"), "payload", max_payload),
        update=update_for(entry.on_conflict),
        run_at=None if entry.run_at is None else milliseconds(entry.run_at, "run_at"),
        delay=None if entry.delay is None else span_ms(entry.delay, "delay"),
        priority=priority,
        group=group,
        headers=_headers(entry.headers) if entry.headers is not None else b"",
        limits=_limits(entry),
    )


def plain_job(payload: Any, queue: str, serde: Serde, max_payload: int, id: str) -> NewJob:
    """What to store for a payload without options."""
    data = _sized(encode(serde, payload, "payload"), "payload", max_payload)
    return NewJob(queue=queue, id=id, fresh=True, payload=data)


def update_for(on_conflict: OnConflict | None) -> Update | None:
    """What an enqueue may change in a job that has its id already; None is nothing."""
    if on_conflict is None or on_conflict == "reject" or on_conflict == "raise":
        return None
    if on_conflict == "update":
        return UPDATE
    if isinstance(on_conflict, Update):
        return on_conflict
    raise ValueError(f'on_conflict must be "reject", "update", "raise" or an Update, not {on_conflict!r}')


def _limits(entry: Entry) -> bytes:
    given = (entry.timeout, entry.max_attempts, entry.max_retries, entry.result_ttl)
    if given == (UNSET, UNSET, UNSET, UNSET):
        return b""
    return JobLimits.of(*given).encode()


def _headers(headers: Mapping[str, str]) -> bytes:
    data = encode_headers(headers)
    if len(data) > MAX_HEADERS:
        raise ValueError(f"headers are {len(data)} bytes together, more than {MAX_HEADERS}; put data into the payload")
    return data


def _sized(data: bytes, name: str, most: int) -> bytes:
    if len(data) > most:
        raise InvalidPayload(f"{name} is {len(data)} bytes, more than max_payload ({most})")
    return data
