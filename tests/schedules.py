"""Builders of schedules and firings for the tests."""

from __future__ import annotations

from typing import Any

from penstock.model.job import NewJob
from penstock.storage.base import Storage
from penstock.storage.scheduling import Fired, Firing, ScheduleRecord, Scheduling, TickJob
from tests.support import MINUTE, T0

__all__ = ["fire1", "firing", "record", "scheduling", "set1", "stored", "tick"]


def scheduling(storage: Storage) -> Scheduling:
    """Return the storage as one with schedules."""
    assert isinstance(storage, Scheduling)
    return storage


def record(name: str = "s", queue: str = "q", **fields: Any) -> ScheduleRecord:
    """Return a schedule that was created at `T0` and ticks every minute."""
    given: dict[str, Any] = {"queue": queue, "name": name, "spec": b"x", "cursor": T0, "next": T0 + MINUTE}
    return ScheduleRecord(**given | fields)


def tick(number: int = 1, name: str = "s", queue: str = "q", **options: Any) -> TickJob:
    """Return the job of the tick at `T0` plus this number of minutes."""
    at = T0 + number * MINUTE
    given: dict[str, Any] = {"queue": queue, "id": f"{name}@{number}", "payload": b"x"}
    return TickJob(at, NewJob(**given | options))


def firing(version: int, *ticks: TickJob, name: str = "s", queue: str = "q", **fields: Any) -> Firing:
    """Return a firing that moves the cursor to the last of these ticks, and the next one a minute further."""
    cursor = ticks[-1].at if ticks else T0
    given: dict[str, Any] = {"cursor": cursor, "next": cursor + MINUTE}
    return Firing(queue=queue, name=name, version=version, ticks=ticks, **given | fields)


async def set1(storage: Storage, name: str = "s", queue: str = "q", **fields: Any) -> int:
    """Create a schedule and return its version."""
    version = await scheduling(storage).set_schedule(record(name, queue, **fields), 0)
    assert version is not None, f"there is a schedule {name!r}"
    return version


async def fire1(storage: Storage, version: int, *ticks: TickJob, **fields: Any) -> Fired:
    """Fire ticks of one schedule."""
    [answer] = await scheduling(storage).fire([firing(version, *ticks, **fields)])
    return answer


async def stored(storage: Storage, name: str = "s", queue: str = "q") -> ScheduleRecord:
    """Return a schedule; an error if there is none."""
    found = await scheduling(storage).get_schedule(queue, name)
    assert found is not None, f"no schedule {name!r} in {queue!r}"
    return found
