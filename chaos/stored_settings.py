"""The limits and schedules in the storage of a run: stopped when the faults are over, recorded, and deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from chaos.limited_queues import FAMILY, LIMITED_SETTINGS
from penstock import Penstock, ScheduleNotFound
from penstock.storage.limiting import Limiting, Scope
from penstock.storage.scheduling import ScheduleRecord, Scheduling

__all__ = ["delete_settings", "record_stored_schedules", "stop_schedules", "stored_schedules"]

#: Queues with schedules.
QUEUES = ("tick", "tickcancel")


async def stop_schedules(app: Penstock) -> None:
    """Pause all schedules, so that all jobs can finish."""
    async for record in stored_schedules(app):
        try:
            await app.queue(record.queue).schedules.pause(record.name)
        except ScheduleNotFound:
            continue


async def record_stored_schedules(app: Penstock, record: Callable[..., None]) -> None:
    """Record every schedule as stored."""
    async for each in stored_schedules(app):
        counts = [each.fired, each.skipped, each.missed, each.dropped]
        record("final_schedule", q=each.queue, name=each.name, v=each.version, cursor=each.cursor, counts=counts)


async def stored_schedules(app: Penstock) -> AsyncIterator[ScheduleRecord]:
    """Yield every schedule as stored."""
    storage: Any = app.storage
    assert isinstance(storage, Scheduling)
    for queue in QUEUES:
        cursor: str | None = None
        while True:
            page = await storage.schedules(queue, cursor)
            for each in page.schedules:
                yield each
            cursor = page.cursor
            if cursor is None:
                break


async def delete_settings(app: Penstock) -> None:
    """Delete the limits and schedules of the limited queues, which no purge deletes."""
    for queue in LIMITED_SETTINGS:
        await app.queue(queue).delete(settings=True)
    storage: Any = app.storage
    if isinstance(storage, Limiting):
        scope = Scope("family", FAMILY)
        await storage.set_limit(scope, None, b"", (await storage.get_limit(scope)).version)
