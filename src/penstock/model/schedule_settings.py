"""The parts of a stored schedule: as code declares it, as it was changed at run time, and its pause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from penstock.errors import UNREADABLE
from penstock.model.schedule import Schedule, ScheduleSpec, When
from penstock.model.settings import Declarer

__all__ = ["RETIRED_MS", "DeclaredSchedule", "GivenSchedules", "ScheduleSettings", "fields_of"]

#: One schedule or several, as the option `schedule` of handlers and tasks takes them.
GivenSchedules: TypeAlias = When | Schedule | Sequence[When | Schedule]

#: How long (ms) a retired schedule is kept, and one made at run time after its end.
RETIRED_MS = 7 * 86_400_000


def fields_of(spec: ScheduleSpec, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the fields of a stored schedule as plain values, all of them or those named."""
    plain = msgspec.structs.asdict(spec)
    plain["when"] = msgspec.to_builtins(spec.when)
    return {name: plain[name] for name in (plain if names is None else names)}


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A stored schedule, opaque to storages: its declared and its changed fields, the changed ones win.

    `function` is the name of the function that computes the declared payload. `by` and `started` are the worker whose
    declaration holds and when it started. Times are milliseconds: `paused` is the begin of a pause, `retired` is when a
    worker found that no live one declares the schedule any more.
    """

    declared: dict[str, Any] | None = None
    changed: dict[str, Any] = {}
    function: str | None = None
    by: str = ""
    started: int = 0
    paused: int | None = None
    note: str = ""
    retired: int | None = None

    @cached_property
    def spec(self) -> ScheduleSpec:
        """The schedule in force; raises `ValueError` if this software cannot read it."""
        try:
            return msgspec.convert({**(self.declared or {}), **self.changed}, ScheduleSpec)
        except msgspec.ValidationError as error:
            raise ValueError(f"its record cannot be read: {error}") from None

    @property
    def payload_function(self) -> str | None:
        """The name of the function that computes the payload in force; None if the payload is a value."""
        return None if "payload" in self.changed else self.function

    @property
    def declarer(self) -> Declarer | None:
        """The worker whose declaration holds, None if there is none."""
        return Declarer(self.by, self.started) if self.by else None

    @property
    def fires(self) -> bool:
        """Whether its ticks fire: it is neither paused nor retired."""
        return self.paused is None and self.retired is None

    def next_after(self, ms: int) -> int | None:
        """Return the next nominal time strictly after a time; None while its ticks do not fire, and after the last."""
        return next(self.spec.following(ms), None) if self.fires else None

    def encode(self) -> bytes:
        """Return its stored form."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> ScheduleSettings:
        """Decode a stored form; raises `ValueError` for bytes that are none."""
        try:
            return _decode(data)
        except UNREADABLE:
            raise ValueError("its record cannot be read") from None


class DeclaredSchedule(msgspec.Struct, frozen=True, dict=True):
    """A schedule that code declares for a queue, with its name and the checked payload."""

    queue: str
    name: str
    schedule: Schedule
    #: The payload, or a function of the tick that returns it.
    payload: Any

    @property
    def function(self) -> str | None:
        """The name of the function that computes the payload, None if it is a value."""
        if (function := self.schedule.payload_function()) is None:
            return None
        return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', repr(function))}"

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The declared fields without the payload, which is encoded when it is stored."""
        fields = fields_of(self.schedule.spec(None))
        del fields["payload"]
        return fields

    def is_held_by(self, settings: ScheduleSettings) -> bool:
        """Return whether a stored schedule has this declaration; its payload function may be called for it then."""
        known = {name: value for name, value in (settings.declared or {}).items() if name != "payload"}
        return settings.declared is not None and self.function == settings.function and self.fields == known


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ScheduleSettings).decode
