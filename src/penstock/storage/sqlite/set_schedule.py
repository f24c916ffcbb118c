"""set_schedule: nothing or an older version → a schedule, after the ticks that were due before the change."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.storage.scheduling import Firing, ScheduleRecord
from penstock.storage.sqlite.fire import carry_out
from penstock.storage.sqlite.schedule_row import next_version, save, set_tick, stored
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["set_schedule"]


def set_schedule(tx: Transaction, record: ScheduleRecord, version: int, firing: Firing | None) -> int | None:
    """Write a schedule if its version is still this one, 0 for none; returns the new version or None."""
    old = stored(tx, tx.queue(record.queue), record.name)
    if version != (old.version if old else 0):
        return None
    queue = tx.ensure_queue(record.queue)
    base = old or record
    if firing is not None:
        base, _ = carry_out(tx, queue, base, firing)
    new = replace(
        record, version=next_version(tx, version), last_id=base.last_id, last_at=base.last_at, fired=base.fired,
        skipped=base.skipped, missed=base.missed, dropped=base.dropped,
    )  # fmt: skip
    save(tx, queue, new)
    if new.next is not None and (queue.tick is None or new.next < queue.tick):
        # Some worker must learn of it before the holder of the alarm looks again.
        tx.run("ticker_set", None, queue.k)
        tx.notify_work(queue)
    set_tick(tx, queue)
    return new.version
