"""Verbs of operators: pause or resume a queue or a group, delete a queue, and keep a finished job longer."""

from __future__ import annotations

from penstock.model.flow import End, JobRef
from penstock.model.ids import FAIL_SUFFIX, family_of
from penstock.model.pause import Pause
from penstock.storage.sqlite.flow_rows import Effect, add_message, notice_of
from penstock.storage.sqlite.gates import begin_limits, lane_of, mark_changed, save_lane
from penstock.storage.sqlite.ordering import promote
from penstock.storage.sqlite.purge import delete_rows
from penstock.storage.sqlite.reads import counts
from penstock.storage.sqlite.rows import expiry
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["delete_queue", "pause_until", "set_pause", "set_ttl", "wake_many"]

#: Rows of a queue that its deletion deletes at once; purge deletes the rest step by step.
DELETE_AT_ONCE = 5_000

#: Idle workers that a resume wakes at most; claims that leave jobs behind wake more.
WAKE_AT_ONCE = 100


def set_pause(
    tx: Transaction, name: str, paused: bool, until: int | None = None, by: str = "", group: str | None = None
) -> bool:
    """Pause or resume claims from a queue or a group; returns whether that changed anything.

    A pause until a time that has passed is none.
    """
    paused = paused and (until is None or until > tx.now)
    queue = tx.ensure_queue(name) if paused else tx.queue(name)
    if queue is None:
        return False
    if group is not None:
        promote(tx, queue)
    old = _live_pause(tx, queue, group)
    new = Pause(old.since if old else tx.now, until, by) if paused else None
    _store_pause(tx, queue, group, new)
    if new == old:
        return False
    if group is not None:
        mark_changed(tx, queue, group)
    if new is None:
        wake_many(tx, queue)
    elif new.until is not None:
        tx.notify_work(queue)  # the claim of this worker sets the alarm
        queue.wake_paused = True
    return True


def wake_many(tx: Transaction, queue: QueueRow) -> None:
    """Wake idle workers for all jobs of a queue that may start now, at most `WAKE_AT_ONCE`."""
    # One worker more than there are jobs: its claim promotes the jobs that became due meanwhile.
    tx.notify_work(queue, tx.one("work_count", queue.k, WAKE_AT_ONCE)[0] + 1)


def pause_until(tx: Transaction, queue: QueueRow, group: str | None, until: int) -> None:
    """Pause a queue or a group until a retry is due; a pause that ends later stays."""
    old = _live_pause(tx, queue, group)
    if until > tx.now and (old is None or (old.until is not None and old.until < until)):
        _store_pause(tx, queue, group, Pause(old.since if old else tx.now, until))


def _live_pause(tx: Transaction, queue: QueueRow, group: str | None) -> Pause | None:
    return queue.live_pause(tx.now) if group is None else lane_of(tx, queue, group).live_pause(tx.now)


def _store_pause(tx: Transaction, queue: QueueRow, group: str | None, pause: Pause | None) -> None:
    if group is None:
        queue.set_pause(pause)
        return
    if pause is not None:
        begin_limits(tx, queue)
    lane = lane_of(tx, queue, group)
    if pause is not None or lane.paused is not None:
        lane.set_pause(pause)
        save_lane(tx, queue, group, lane)


def delete_queue(tx: Transaction, name: str, settings: bool = False) -> int:
    """Delete a queue with all its records, and with `settings` its limits and schedules; returns how many jobs it had.

    The queue is gone at once whatever its size: its number is never used again, so rows that
    purge has still to delete belong to no queue. Schedules that stay get the number of a new one.
    """
    if settings:
        tx.run("limits_drop", tx.namespace, name)
        tx.forget_rules()
    for statement in ("stats_drop", "history_drop", "error_groups_drop"):
        tx.run(statement, tx.namespace, name)
    queue = tx.queue(name)
    if queue is None:
        return 0
    if queue.limited and not name.endswith(FAIL_SUFFIX):
        tx.notify_family(family_of(name))
    count = sum(counts(tx, name).values())
    if queue.flows:
        for id, *notice in tx.all("notices_of_queue", queue.k):
            add_message(tx, name, Effect(notice_of(*notice), JobRef(name, id), End.CANCELLED))
        tx.generations.clear()
    [ticker] = tx.one("ticker_get", queue.k)
    tx.run("delete_queue", queue.k)
    tx.forget_queue(queue)
    if not settings and tx.one("schedules_any", queue.k) is not None:
        new = tx.ensure_queue(name)
        tx.run("schedules_move", new.k, queue.k)
        tx.run("ticker_set", ticker, new.k)
        new.tick, new.marked = queue.tick, True
    tx.run("delete_lanes", queue.k)
    if delete_rows(tx, queue.k, DELETE_AT_ONCE) == DELETE_AT_ONCE:
        tx.run("add_deleted_queue", queue.k)
    tx.emit("queue_deleted", queue, "", 0)
    tx.finished_jobs.append((name, None))  # wakes the waiters of all its jobs
    return count


def set_ttl(tx: Transaction, name: str, id: str, ttl: int | None) -> bool:
    """Keep a finished job for `ttl` ms from now; False if it does not exist or is not finished."""
    queue = tx.queue(name)
    job = tx.job(queue, id) if queue else None
    if queue is None or job is None or not job.ended or job.expired(tx.now):
        return False
    if ttl == 0:
        tx.delete(queue, job)
    else:
        tx.run("ttl_set", expiry(ttl, tx.now), job.n)
    return True
