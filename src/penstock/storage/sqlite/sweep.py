"""Rows that no verb would read again, because a value in them is damaged: purge looks for them.

Each kind is found by an index, a bounded number at a time, so that a sound queue costs a few short statements.
"""

from __future__ import annotations

from penstock.storage.sqlite.damage import set_aside
from penstock.storage.sqlite.gate_purge import recount_lane
from penstock.storage.sqlite.gates import begin_limits, family_of_queue, mark_changed
from penstock.storage.sqlite.ordering import recount_holds, update_turn
from penstock.storage.sqlite.reads import are_counts
from penstock.storage.sqlite.rows import (
    FOREVER,
    LANE,
    QUARANTINE_MS,
    RETRYING,
    RUNNING,
    Bucket,
    read_job,
)  # fmt: skip
from penstock.storage.sqlite.schedule_row import set_aside as set_schedule_aside
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["sweep"]

#: Damaged rows of one kind that one call repairs at most.
SWEEP_MAX = 100

#: Runs, and jobs in groups, of a queue above which its groups are not compared: that reads all runs and groups.
MAX_RUNS, MAX_GROUPED = 1_000, 10_000

#: The lease (ms) of a run whose own has no readable end: its worker, if it is alive, renews it earlier.
STRAY_LEASE_MS = 60_000


def sweep(tx: Transaction, queue: QueueRow) -> None:
    """Set aside or repair the damaged rows of a queue that other verbs cannot find."""
    found = tx.one("sweep_counts", queue.k)
    counts = found[:-2]
    if not are_counts(counts) or (found[-2] and not queue.has_later) or (found[-1] and not queue.has_blocked):
        queue.note_damage()
        queue.recount = True
    for row in tx.all("stray_later", queue.k, SWEEP_MAX):
        set_aside(tx, queue, read_job(row))
    damaged = tx.run("stray_running", queue.k, tx.now + STRAY_LEASE_MS, SWEEP_MAX)
    for bucket in (Bucket.COMPLETED, Bucket.FAILED, Bucket.CANCELLED):
        damaged += tx.run("stray_ended", queue.k, bucket, tx.now + QUARANTINE_MS, SWEEP_MAX)
    first = tx.one("expire_next", queue.k)[0]
    if first is not None and (queue.expiry is None or first < queue.expiry):
        queue.expiry, damaged = first, damaged + 1
    lowest = tx.one("park_lowest", queue.k)[0]
    if lowest < FOREVER and (queue.parked is None or lowest < queue.parked):
        queue.parked, damaged = lowest, damaged + 1
    for (n,) in tx.all("stray_schedules", queue.k, SWEEP_MAX):
        set_schedule_aside(tx, queue, n)
    tick = tx.one("schedules_first", queue.k)[0]
    if tick != queue.tick:
        queue.tick, damaged = tick, damaged + 1
    if damaged:
        queue.note_damage(damaged)
    if not are_counts(counts) or (counts[RUNNING] <= MAX_RUNS and counts[LANE] + counts[RETRYING] <= MAX_GROUPED):
        _sweep_groups(tx, queue)


def _sweep_groups(tx: Transaction, queue: QueueRow) -> None:
    """Give the groups their turn that have none, although nothing holds them."""
    for (group,) in tx.all("stray_parked", queue.k, tx.format, SWEEP_MAX):
        queue.note_damage()
        update_turn(tx, queue, group)
    if not queue.limited:
        family = family_of_queue(queue.name)
        if tx.one("limits_has", tx.namespace, queue.name, family) or tx.one("gates_used", queue.k):
            begin_limits(tx, queue)
            mark_changed(tx, queue)
            queue.note_damage()
    for statement in ("stray_lanes", "stray_groups"):
        for (group,) in tx.all(statement, queue.k, SWEEP_MAX):
            recount_holds(tx, queue, group)
            update_turn(tx, queue, group)
    if queue.limited:
        for (group,) in tx.all("stray_closed", queue.k, SWEEP_MAX):
            recount_lane(tx, queue, group)
            queue.note_damage()
