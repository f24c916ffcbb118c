"""Schedules: when to put jobs into a queue and which, as a user gives it and as a storage keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from penstock.errors import UNREADABLE
from penstock.model.checks import check_choice, check_cost, check_flag, check_priority, check_whole
from penstock.model.clock import Moment, Span, milliseconds, span_ms
from penstock.model.cron import Cron
from penstock.model.every import Every
from penstock.model.headers import encode_user_headers
from penstock.model.ids import check_name
from penstock.model.options import JobBounds
from penstock.model.tick import check_schedule_name

__all__ = [
    "CATCH_UPS", "GROUPED", "MAX_MOST", "OVERLAPS", "CatchUp", "Overlap", "Schedule", "ScheduleSpec", "When",
    "WhenSpec",
]  # fmt: skip

When: TypeAlias = Cron | Every
Overlap = Literal["allow", "skip", "queue", "replace", "kill"]
CatchUp = Literal["skip", "latest", "all"]

#: The policies for late ticks and for overlap, and those whose jobs share a group.
CATCH_UPS: tuple[CatchUp, ...] = ("skip", "latest", "all")
OVERLAPS: tuple[Overlap, ...] = ("allow", "skip", "queue", "replace", "kill")
GROUPED = ("queue", "replace", "kill")
#: The largest `most`.
MAX_MOST = 1_000
#: The format of a stored schedule.
FORMAT = 1


@dataclass(frozen=True, init=False)
class Schedule:
    """When to put jobs into a queue, and which.

    - `when`: a `Cron` or an `Every`
    - `name`: the name of the schedule, the queue's unless given
    - `payload`: the payload of each job: a value, or a function of the `Tick`
    - `kwargs`: the arguments of a task, in place of `payload`
    - `start`, `end`: the first and the last time at which a tick may be, both included
    - `jitter`: the longest delay of a job after its tick; each tick has its own
    - `overlap`: if the last job is unfinished: "skip" the tick, "allow" another job, "queue" it behind, "replace" the
      last one by a cancel, or "kill" it
    - `catch_up`: of ticks later than `grace`: "skip" them, put the "latest" or "all"
    - `grace`: how late a tick may be without being late
    - `most`: with `catch_up="all"`: the most late ticks that are put, 1000 at most
    - `at_once`: whether the creation of the schedule puts a job too, a manual tick
    - `priority`, `group`, `timeout`, `max_retries`, `max_attempts`, `result_ttl`, `headers`, `cost`: as of `enqueue`
    """

    when: When
    name: str | None
    payload: Any
    kwargs: Mapping[str, Any] | None
    start: int | None
    end: int | None
    jitter: int
    overlap: Overlap
    catch_up: CatchUp
    grace: int
    most: int
    at_once: bool
    priority: int
    group: str | None
    bounds: JobBounds
    headers: bytes
    cost: int

    def __init__(
        self,
        when: When,
        *,
        name: str | None = None,
        payload: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        jitter: Span = 0,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "latest",
        grace: Span = 30,
        most: int = 100,
        at_once: bool = False,
        priority: int = 0,
        group: str | None = None,
        timeout: Span | UnsetType | None = UNSET,
        max_retries: int | UnsetType | None = UNSET,
        max_attempts: int | UnsetType | None = UNSET,
        result_ttl: Span | UnsetType = UNSET,
        headers: Mapping[str, str] | None = None,
        cost: int = 1,
    ) -> None:
        check_choice(overlap, "overlap", OVERLAPS)
        check_choice(catch_up, "catch_up", CATCH_UPS)
        check_whole(most, "most", least=1, most=MAX_MOST)
        check_flag(at_once, "at_once")
        values = {
            "when": _checked_when(when),
            "name": None if name is None else check_schedule_name(name),
            "payload": payload,
            "kwargs": _checked_kwargs(kwargs, payload),
            **_checked_range(start, end),
            "jitter": span_ms(jitter, "jitter"),
            "overlap": overlap,
            "catch_up": catch_up,
            "grace": span_ms(grace, "grace"),
            "most": most,
            "at_once": at_once,
            **_checked_place(priority, group, overlap),
            "bounds": JobBounds.of(timeout, max_attempts, max_retries, result_ttl),
            "headers": encode_user_headers(headers),
            "cost": check_cost(cost),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def payload_function(self) -> Callable[..., Any] | None:
        """Return the function that computes the payload of a tick; None if the payload is a value."""
        return self.payload if callable(self.payload) else None

    def spec(self, payload: bytes | None) -> ScheduleSpec:
        """Return what is stored of it, with an encoded payload; None if a function computes it."""
        return ScheduleSpec(
            when=WhenSpec.of(self.when), start=self.start, end=self.end, jitter=self.jitter, overlap=self.overlap,
            catch_up=self.catch_up, grace=self.grace, most=self.most, payload=payload, headers=self.headers,
            bounds=self.bounds.encode(), priority=self.priority, group=self.group, cost=self.cost,
        )  # fmt: skip


def _checked_when(when: object) -> When:
    if not isinstance(when, Cron | Every):
        raise TypeError(f"when must be a Cron or an Every, not {type(when).__name__}")
    return when


def _checked_kwargs(kwargs: object, payload: object) -> Mapping[str, Any] | None:
    if kwargs is None:
        return None
    given = cast("Mapping[Any, Any]", kwargs) if isinstance(kwargs, Mapping) else {0: kwargs}
    if not all(isinstance(key, str) for key in given):
        raise TypeError("kwargs must be a mapping of the task's arguments by name")
    if payload is not None:
        raise ValueError("give payload or kwargs, not both: kwargs are the arguments of a task")
    return given


def _checked_range(start: Moment | None, end: Moment | None) -> dict[str, int | None]:
    first = None if start is None else milliseconds(start, "start")
    last = None if end is None else milliseconds(end, "end")
    if first is not None and last is not None and last < first:
        raise ValueError("end must not be before start")
    return {"start": first, "end": last}


def _checked_place(priority: int, group: str | None, overlap: str) -> dict[str, Any]:
    if group is not None:
        check_name(group, "group")
    if check_priority(priority) and (group is not None or overlap in GROUPED):
        why = "give group or priority, not both" if group is not None else f"overlap={overlap!r} puts them into one"
        raise ValueError(f"priority does not reorder a group: {why}")
    return {"priority": priority, "group": group}


class WhenSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored form of a `Cron`, with an expression and a zone, or of an `Every`, with seconds."""

    cron: str | None = None
    tz: str = "UTC"
    every: int | None = None
    phase: int = 0

    @classmethod
    def of(cls, when: When) -> WhenSpec:
        """Return the stored form."""
        if isinstance(when, Cron):
            return cls(cron=when.expression, tz=when.tz)
        return cls(every=when.span, phase=when.phase)

    def value(self) -> When:
        """Return the value; raises `ValueError` if this machine does not know the zone, or this software the kind."""
        return _value_of(self)


@lru_cache(maxsize=1024)
def _value_of(spec: WhenSpec) -> When:
    if spec.cron is not None:
        return Cron(spec.cron, tz=spec.tz)
    if spec.every is not None:
        return Every(spec.every, phase=spec.phase)
    raise ValueError("when is of a kind that this version of Penstock does not know")


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a schedule that is stored; times and spans are milliseconds.

    `payload` is None if a function computes it. Fields that newer software adds are left out when it is read.
    """

    format: int = FORMAT
    when: WhenSpec
    start: int | None = None
    end: int | None = None
    jitter: int = 0
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    grace: int = 30_000
    most: int = 100
    payload: bytes | None = None
    headers: bytes = b""
    bounds: bytes = b""
    priority: int = 0
    group: str | None = None
    cost: int = 1

    @property
    def tz(self) -> str:
        """The time zone, "UTC" for an interval."""
        return self.when.tz

    def group_of(self, name: str) -> str | None:
        """Return the group of the jobs of the schedule with this name."""
        if self.group is None and self.overlap in GROUPED:
            return f"schedule {name}"
        return self.group

    def following(self, ms: int) -> Iterator[int]:
        """Yield the nominal times strictly after `ms`, from `start` to `end`; raises as `WhenSpec.value` does."""
        when = self.when.value()
        if isinstance(when, Every):
            times = when.following_ms(ms, self.start)
        else:
            times = when.following_ms(ms if self.start is None else max(ms, self.start - 1))
        for nominal in times:
            if self.end is not None and nominal > self.end:
                return
            yield nominal

    def encode(self) -> bytes:
        """Return its stored form, which `decode` reads."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> ScheduleSpec | None:
        """Return a stored schedule; None if the bytes are not one, or one that this software does not know."""
        try:
            return _decode(data)
        except UNREADABLE:
            return None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScheduleSpec).decode
