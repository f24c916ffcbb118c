"""The verbs of schedules of the SQLite storage: the protocol `Scheduling`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.scheduling import DueSchedules, Fired, Firing, SchedulePage, ScheduleRecord
from penstock.storage.sqlite import due, fire, schedules, set_schedule
from penstock.storage.sqlite.verbs import SqliteVerbs

__all__ = ["SqliteScheduling"]


class SqliteScheduling(SqliteVerbs):
    """The part of `SqliteStorage` that keeps schedules; see `penstock.storage.scheduling` for each verb."""

    async def set_schedule(self, record: ScheduleRecord, version: int, firing: Firing | None = None) -> int | None:
        """Create or replace a schedule if its version is still this one, 0 for none; returns the new version."""
        return await self._write(lambda tx: set_schedule.set_schedule(tx, record, version, firing))

    async def get_schedule(self, queue: str, name: str) -> ScheduleRecord | None:
        """Return a schedule, or None."""
        return await self._read(lambda tx: schedules.get_schedule(tx, queue, name))

    async def due(self, queues: Sequence[str], worker: str) -> DueSchedules:
        """Return the schedules whose next tick is due, and when this worker must ask again."""
        return await self._read(lambda tx: due.due(tx, queues, worker))

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        """Put the jobs of ticks and move the cursors, each schedule in one step, if its version is unchanged."""
        return await self._write(lambda tx: fire.fire(tx, firings))

    async def drop_schedule(self, queue: str, name: str, version: int) -> bool:
        """Delete a schedule if its version is still this one; the jobs that it put stay."""
        return await self._write(lambda tx: schedules.drop_schedule(tx, queue, name, version))

    async def schedules(self, queue: str, after: str | None = None, limit: int = 100) -> SchedulePage:
        """Return a page of the schedules of a queue, by the UTF-8 bytes of their names."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        return await self._read(lambda tx: schedules.schedules(tx, queue, after, limit))
