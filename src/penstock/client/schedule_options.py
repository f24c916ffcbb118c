"""The options of a schedule: their types, and the stored form of those that a call gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from penstock.host import AppHost
from penstock.model.clock import Moment, Span
from penstock.model.options import JobBounds
from penstock.model.schedule import CatchUp, Overlap, Schedule, ScheduleSpec, When
from penstock.model.schedule_settings import fields_of
from penstock.ticking import encode_template

__all__ = ["DeclaredOptions", "ScheduleChanges", "ScheduleOptions", "changed_fields", "stored_fields"]


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule that is made at run time, for type checkers; `Schedule` explains them."""

    payload: Any
    kwargs: Mapping[str, Any] | None
    start: Moment | None
    end: Moment | None
    jitter: Span
    overlap: Overlap
    catch_up: CatchUp
    grace: Span
    most: int
    at_once: bool
    priority: int
    group: str | None
    timeout: Span | UnsetType | None
    max_retries: int | UnsetType | None
    max_attempts: int | UnsetType | None
    result_ttl: Span | UnsetType
    headers: Mapping[str, str] | None
    cost: int


class DeclaredOptions(ScheduleOptions, total=False):
    """The options of a schedule in code, for type checkers."""

    name: str | None


class ScheduleChanges(ScheduleOptions, total=False):
    """The options that `edit` changes, for type checkers."""

    when: When


#: The options that are stored together, as bounds.
BOUNDS = ("timeout", "max_attempts", "max_retries", "result_ttl")


def stored_fields(host: AppHost, queue: str, name: str, schedule: Schedule) -> dict[str, Any]:
    """Return the stored fields of a schedule that is made at run time, with the encoded payload."""
    return fields_of(schedule.spec(_payload(host, queue, name, schedule)))


def changed_fields(
    host: AppHost, queue: str, name: str, spec: ScheduleSpec, changes: ScheduleChanges
) -> dict[str, Any]:
    """Return the stored fields that an edit changes; raises `TypeError` or `ValueError`, which name the option."""
    given = dict[str, Any](changes)
    if "at_once" in given:
        raise TypeError("at_once is for a new schedule; trigger() puts a job now")
    if not given:
        raise TypeError("edit() needs at least one option to change")
    when = given.pop("when", None) or spec.when.value()
    schedule = Schedule(when, **given)
    names = {"bounds" if option in BOUNDS else option for option in changes} - {"kwargs"}
    payload: bytes | None = None
    if "payload" in given or "kwargs" in given:
        payload = _payload(host, queue, name, schedule)
        names.add("payload")
    fields = fields_of(schedule.spec(payload), sorted(names))
    if "bounds" in fields:
        known = JobBounds.decode(spec.bounds)
        own = {option: value for option in BOUNDS if (value := getattr(schedule.bounds, option)) is not UNSET}
        fields["bounds"] = msgspec.structs.replace(known, **own).encode()
    _check_together(msgspec.convert({**fields_of(spec), **fields}, ScheduleSpec), name)
    return fields


def _check_together(spec: ScheduleSpec, name: str) -> None:
    """Check options that exclude each other, after some of them were changed."""
    if spec.start is not None and spec.end is not None and spec.end < spec.start:
        raise ValueError("end must not be before start")
    if spec.priority and spec.group_of(name) is not None:
        raise ValueError("priority does not reorder a group: give priority=0, or another group and overlap")


def _payload(host: AppHost, queue: str, name: str, schedule: Schedule) -> bytes:
    if schedule.payload_function() is not None:
        raise TypeError("payload must be a value: a function can be declared in code only, by app.schedule()")
    value = schedule.payload if schedule.kwargs is None else dict(schedule.kwargs)
    return encode_template(host, queue, name, value)
