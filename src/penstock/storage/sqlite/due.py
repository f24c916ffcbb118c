"""due: the schedules whose next tick has come, for the worker that holds the alarm of their queue."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.base import MAX_BYTES
from penstock.storage.scheduling import HELP_MS, LOOK_MS, MAX_DUE, DueSchedules, ScheduleRecord
from penstock.storage.sqlite.schedule_row import read_schedule, set_aside
from penstock.storage.sqlite.transaction import NeedsWriteLock, QueueRow, Transaction

__all__ = ["due"]


def due(tx: Transaction, names: Sequence[str], worker: str) -> DueSchedules:
    """Return the due schedules of these queues and when to look again; a read unless the alarm gets another holder."""
    found: list[ScheduleRecord] = []
    looks: list[int] = []
    for name in names:
        queue = tx.queue(name)
        if queue is None or queue.tick is None:
            continue
        first = queue.tick
        [holder] = tx.one("ticker_get", queue.k)
        if worker and holder not in (None, worker) and tx.now < first + HELP_MS:
            looks.append(min(first + HELP_MS, tx.now + LOOK_MS))
            continue
        if worker and holder != worker:
            if not tx.write:
                raise NeedsWriteLock
            tx.run("ticker_set", worker, queue.k)
        late = _late(tx, queue) if first <= tx.now else []
        found += late
        looks.append(tx.now if late else first if first > tx.now else tx.now + LOOK_MS)
    return DueSchedules(found, min(looks, default=None))


def _late(tx: Transaction, queue: QueueRow) -> list[ScheduleRecord]:
    """Return the due schedules of a queue, bounded; those that cannot be read are set aside."""
    late: list[ScheduleRecord] = []
    room = MAX_BYTES
    for row in tx.all("schedules_due", queue.k, tx.now, MAX_DUE):
        record = read_schedule(tx, queue, row)
        if record is None:
            set_aside(tx, queue, row[0])
        elif room > 0:
            late.append(record)
            room -= len(record.spec)
    return late
