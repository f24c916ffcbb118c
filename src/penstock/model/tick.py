"""Ticks: one nominal time of a schedule, the ids of its jobs, and the reserved headers that carry it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime

import msgspec

from penstock.model.clock import MAX_MS, as_datetime, floor_ms
from penstock.model.cron import zone_of
from penstock.model.headers import RESERVED
from penstock.model.ids import check_name

__all__ = [
    "MAX_SCHEDULE_NAME",
    "Tick",
    "check_schedule_name",
    "jitter_ms",
    "read_tick",
    "tick_headers",
    "tick_id",
    "trigger_id",
]

#: The most bytes of a schedule's name: a job's id is the name, a time and a mark.
MAX_SCHEDULE_NAME = 480

SCHEDULE, NOMINAL, PREVIOUS = f"{RESERVED}schedule", f"{RESERVED}nominal", f"{RESERVED}previous"
MANUAL, ZONE = f"{RESERVED}manual", f"{RESERVED}tz"


class Tick(msgspec.Struct, frozen=True):
    """One nominal time of a schedule.

    - `schedule`: the name of the schedule
    - `nominal`: the time for which the job was put, in UTC; of a manual tick the time at which it was put
    - `previous`: the nominal time of the last tick before that became a job, None if there is none
    - `manual`: whether `trigger` or `at_once` put the job
    - `tz`: the time zone of the schedule
    """

    schedule: str
    nominal: datetime
    previous: datetime | None = None
    manual: bool = False
    tz: str = "UTC"

    @property
    def local(self) -> datetime:
        """The nominal time in the schedule's zone; raises `ValueError` if this machine does not know the zone."""
        return self.nominal.astimezone(zone_of(self.tz))


def check_schedule_name(name: object) -> str:
    """Return the name of a schedule, 1 to 480 bytes; raises `TypeError` or `ValueError`, which name `name`."""
    return check_name(name, "name", MAX_SCHEDULE_NAME)


def tick_id(name: str, nominal: int) -> str:
    """Return the id of a tick's job: `NAME@2030-05-01T00:00:00Z`."""
    return f"{name}@{as_datetime(nominal):%Y-%m-%dT%H:%M:%S}Z"


def trigger_id(name: str, at: int) -> str:
    """Return the id of a manual tick's job: `NAME@2030-05-01T00:00:00.123Z!`."""
    return f"{name}@{as_datetime(at):%Y-%m-%dT%H:%M:%S}.{at % 1000:03}Z!"


def jitter_ms(queue: str, name: str, nominal: int, jitter: int) -> int:
    """Return the share of a tick in the jitter, from 0 to below `jitter` (ms): the same on every machine."""
    digest = hashlib.sha256(f"{queue}\0{name}\0{nominal}".encode()).digest()
    return int.from_bytes(digest[:8]) * jitter >> 64


def tick_headers(tick: Tick) -> dict[str, str]:
    """Return the reserved headers of a tick's job."""
    headers = {SCHEDULE: tick.schedule, NOMINAL: str(floor_ms(tick.nominal, "nominal")), ZONE: tick.tz}
    if tick.previous is not None:
        headers[PREVIOUS] = str(floor_ms(tick.previous, "previous"))
    if tick.manual:
        headers[MANUAL] = "1"
    return headers


def read_tick(headers: Mapping[str, str]) -> Tick | None:
    """Return the tick that headers carry; None if they carry none, or one that cannot be read."""
    if SCHEDULE not in headers:
        return None
    nominal, previous = _time(headers.get(NOMINAL)), _time(headers.get(PREVIOUS))
    if nominal is None:
        return None
    return Tick(headers[SCHEDULE], nominal, previous, headers.get(MANUAL) == "1", headers.get(ZONE, "UTC"))


def _time(text: str | None) -> datetime | None:
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= 15) or int(text) > MAX_MS:
        return None
    return as_datetime(int(text))
