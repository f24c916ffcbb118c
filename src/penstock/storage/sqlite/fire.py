"""fire: ticks → jobs and the cursor's move in one step, if the version of the schedule is unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from penstock.storage.base import CancelMode
from penstock.storage.scheduling import Fired, Firing, ScheduleRecord, TickJob
from penstock.storage.sqlite.cancel import cancel
from penstock.storage.sqlite.expire import expire
from penstock.storage.sqlite.ordering import promote
from penstock.storage.sqlite.put import put
from penstock.storage.sqlite.schedule_row import next_version, save, set_tick, stored
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["carry_out", "fire"]

#: How a running job is cancelled for the next tick of its schedule.
_CANCELS: dict[str, CancelMode] = {"replace": "signal", "kill": "kill"}


def fire(tx: Transaction, firings: Sequence[Firing]) -> list[Fired]:
    """Carry out firings in order, each only if the version of its schedule is unchanged."""
    answers = [_fire(tx, firing) for firing in firings]
    for name in dict.fromkeys(firing.queue for firing in firings):
        if queue := tx.queue(name):
            set_tick(tx, queue)
    return answers


def _fire(tx: Transaction, firing: Firing) -> Fired:
    queue = tx.queue(firing.queue)
    record = stored(tx, queue, firing.name)
    if queue is None or record is None or record.version != firing.version:
        return Fired(record.version if record else 0, stale=True)
    record, fired = carry_out(tx, queue, record, firing)
    version = next_version(tx, firing.version)
    save(tx, queue, replace(record, version=version))
    return replace(fired, version=version)


def carry_out(tx: Transaction, queue: QueueRow, record: ScheduleRecord, firing: Firing) -> tuple[ScheduleRecord, Fired]:
    """Put the jobs of a firing, tick by tick; returns the record to be saved and the answer, without its version."""
    expire(tx, queue)
    ids: list[str] = []
    counts = Counter[str]()
    for tick in firing.ticks:
        outcome = _fire_tick(tx, queue, record, tick, firing)
        if outcome == "fired":
            ids.append(tick.job.id)
            record = replace(record, last_id=tick.job.id, last_at=tick.at)
        counts[outcome] += 1
    fired = Fired(
        0, fired=counts["fired"] + counts["known"], skipped=counts["skipped"], dropped=counts["dropped"],
        known=counts["known"], ids=tuple(ids),
    )  # fmt: skip
    if not firing.manual:
        record = replace(
            record, cursor=firing.cursor, next=firing.next, fired=record.fired + fired.fired,
            skipped=record.skipped + fired.skipped, missed=record.missed + firing.missed,
            dropped=record.dropped + fired.dropped,
        )  # fmt: skip
    return record if firing.expires is None else replace(record, expires=firing.expires), fired


def _fire_tick(
    tx: Transaction, queue: QueueRow, record: ScheduleRecord, tick: TickJob, firing: Firing
) -> Literal["fired", "known", "skipped", "dropped"]:
    """Put the job of a tick if its id is free and the overlap allows it; returns the outcome of the tick."""
    old = tx.job(queue, tick.job.id)
    if old is not None and not old.expired(tx.now):
        return "known"
    if firing.overlap == "queue" and tick.job.group is not None:
        promote(tx, queue)
        if tx.one("lane_count", queue.k, tick.job.group, firing.room)[0] >= firing.room:
            return "dropped"
    last = tx.job(queue, record.last_id) if record.last_id is not None else None
    if last is not None and not last.ended:
        if firing.overlap == "skip":
            return "skipped"
        if mode := _CANCELS.get(firing.overlap):
            cancel(tx, queue.name, [last.id], mode, firing.cancel_ttl)
    put(tx, [replace(tick.job, fresh=old is None, update=None, waiter=None)])
    return "fired"
