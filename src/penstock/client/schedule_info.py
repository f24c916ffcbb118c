"""Facts about a schedule, as users read them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from penstock.errors import InvalidPayload
from penstock.host import AppHost
from penstock.model.clock import as_datetime
from penstock.model.schedule import CatchUp, Overlap, ScheduleSpec, When
from penstock.model.schedule_settings import ScheduleSettings
from penstock.model.serde import decode
from penstock.storage.scheduling import ScheduleRecord

__all__ = ["ScheduleInfo", "schedule_info"]


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at the time of the call: when it ticks, the jobs it puts, and what became of its ticks.

    `when` is a text if this machine does not know its time zone. `payload` is None if `payload_function`, the name of a
    function in code, computes it. `source` is "code" if code declares it, else "api"; `changed` names the fields that
    were changed at run time and win over the declared ones. Durations are seconds.

    `next_at` is the next tick, None while it is paused or retired, and after the last one. `last_at` and `last_id` are
    time and id of the last tick that became a job. `fired`, `skipped`, `missed` and `dropped` count its ticks. A
    schedule is retired, `retired_since`, if no live worker declares it any more. `version` grows with every change.
    """

    queue: str
    name: str
    when: When | str
    payload: Any
    payload_function: str | None
    start: datetime | None
    end: datetime | None
    jitter: float
    overlap: Overlap
    catch_up: CatchUp
    grace: float
    most: int
    source: Literal["code", "api"]
    paused_since: datetime | None
    note: str
    next_at: datetime | None
    last_at: datetime | None
    last_id: str | None
    fired: int
    skipped: int
    missed: int
    dropped: int
    retired_since: datetime | None
    changed: list[str]
    version: int


def schedule_info(host: AppHost, record: ScheduleRecord, settings: ScheduleSettings) -> ScheduleInfo:
    """Return the `ScheduleInfo` of a stored schedule; raises `ValueError` for one that cannot be read."""
    spec = settings.spec
    declared = settings.declared is not None
    return ScheduleInfo(
        queue=record.queue,
        name=record.name,
        when=_when(spec),
        payload=_payload(host, record, spec),
        payload_function=settings.payload_function,
        start=_moment(spec.start),
        end=_moment(spec.end),
        jitter=spec.jitter / 1000,
        overlap=spec.overlap,
        catch_up=spec.catch_up,
        grace=spec.grace / 1000,
        most=spec.most,
        source="code" if declared else "api",
        paused_since=_moment(settings.paused),
        note=settings.note,
        next_at=_moment(record.next),
        last_at=_moment(record.last_at),
        last_id=record.last_id,
        fired=record.fired,
        skipped=record.skipped,
        missed=record.missed,
        dropped=record.dropped,
        retired_since=_moment(settings.retired),
        changed=sorted(settings.changed) if declared else [],
        version=record.version,
    )


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else as_datetime(ms)


def _when(spec: ScheduleSpec) -> When | str:
    try:
        return spec.when.value()
    except ValueError:
        return f"{spec.when.cron or spec.when.every} ({spec.tz})"


def _payload(host: AppHost, record: ScheduleRecord, spec: ScheduleSpec) -> Any:
    if spec.payload is None:
        return None
    try:
        return decode(host.codec(record.queue).payload_for(record.name), spec.payload)
    except InvalidPayload:
        return spec.payload
