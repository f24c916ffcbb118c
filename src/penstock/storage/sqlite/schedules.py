"""Reads of schedules, and their deletion: get_schedule, schedules, drop_schedule."""

from __future__ import annotations

from contextlib import closing

from penstock.storage.base import MAX_BYTES
from penstock.storage.scheduling import SchedulePage, ScheduleRecord
from penstock.storage.sqlite.schedule_row import drop, read_schedule, stored
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["drop_schedule", "get_schedule", "schedules"]


def get_schedule(tx: Transaction, name: str, schedule: str) -> ScheduleRecord | None:
    """Return a schedule, or None."""
    return stored(tx, tx.queue(name), schedule)


def schedules(tx: Transaction, name: str, after: str | None, limit: int) -> SchedulePage:
    """Return a page of the schedules of a queue, by name; those that cannot be read are left out."""
    queue = tx.queue(name)
    if queue is None:
        return SchedulePage([])
    found: list[ScheduleRecord] = []
    room = MAX_BYTES
    with closing(tx.rows("schedules_page", queue.k, after or "", tx.now)) as rows:
        for row in rows:
            record = read_schedule(tx, queue, row)
            if record is None:
                continue
            if len(found) == limit or room <= 0:
                return SchedulePage(found, found[-1].name)
            found.append(record)
            room -= len(record.spec)
    return SchedulePage(found)


def drop_schedule(tx: Transaction, name: str, schedule: str, version: int) -> bool:
    """Delete a schedule if its version is still this one."""
    queue = tx.queue(name)
    record = stored(tx, queue, schedule)
    if queue is None or record is None or record.version != version:
        return False
    drop(tx, queue, schedule)
    return True
