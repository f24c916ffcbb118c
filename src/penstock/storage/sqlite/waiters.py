"""Who waits for what: idle workers, callers who wait for a job's end, readers of the feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.storage.sqlite.transaction import Transaction, Wake

__all__ = [
    "add_cancel_waiter",
    "add_done_waiter",
    "add_idle",
    "add_listener",
    "forget_process",
    "is_cancel_requested",
    "is_done",
    "is_idle",
    "is_ready",
    "read_events",
    "remove_done_waiter",
    "remove_idle",
    "remove_listener",
    "replace_dead",
]  # fmt: skip

#: A listener that was not heard of for so long (ms of real time) is gone.
LISTENER_MS = 30_000

#: A waiter's row outlives its own timeout by this much (ms).
GRACE_MS = 60_000


def is_ready(tx: Transaction, queues: Sequence[str]) -> bool:
    """Whether one of the queues has something to hand out."""
    for name in queues:
        queue = tx.queue(name)
        if queue is None or queue.paused is not None:
            continue
        known = queue.parked is not None and queue.parked <= tx.format
        if known or tx.one("work_ready", queue.k, tx.now):
            return True
    return False


def add_idle(tx: Transaction, queues: Sequence[str], waiter: str, path: str, timeout: int) -> bool:
    """Put a waiter on the list, unless there is work: then True."""
    if is_ready(tx, queues):
        return True
    until = tx.wall + timeout + GRACE_MS
    for name in dict.fromkeys(queues):
        tx.run("idle_add", tx.namespace, name, tx.wall, waiter, path, until)
        tx.mark_idle(name)
    return False


def is_idle(tx: Transaction, queues: Sequence[str], waiter: str) -> bool:
    """Whether a waiter may go on sleeping: still on the list, and nothing ready."""
    listed = not queues or tx.one("idle_has", waiter) is not None
    return listed and not is_ready(tx, queues)


def remove_idle(tx: Transaction, queues: Sequence[str], waiter: str, woken: bool) -> bool:
    """Take a waiter off the list; True when somebody had woken it already.

    One that leaves without looking passes the wake-up on.
    """
    picked = tx.run("idle_drop", waiter) == 0 and len(queues) > 0
    if picked and not woken:
        for name in queues:
            queue = tx.queue(name)
            if queue is not None and tx.one("work_ready", queue.k, tx.now):
                tx.notify_work(queue)
    return picked


def is_done(tx: Transaction, name: str, id: str) -> bool:
    """Whether a job has ended or is not there."""
    queue = tx.queue(name)
    return queue is None or tx.one("wait_state", queue.k, id) is None


def add_done_waiter(tx: Transaction, name: str, id: str, waiter: str, path: str, timeout: int) -> bool:
    """Wait for a job's end, unless it is over: then True."""
    if is_done(tx, name, id):
        return True
    tx.run("wait_add", tx.namespace, name, id, waiter, path, tx.wall + timeout + GRACE_MS)
    tx.mark_awaited(name)
    return False


def add_cancel_waiter(tx: Transaction, worker: str, waiter: str, path: str, timeout: int) -> bool:
    """Be told of requests to cancel runs of a worker; the empty name is no queue's, so it is free for this.

    A waiter stays on the list between its waits, and a request takes it off. So True says that
    there may have been one: it was not on the list.
    """
    asked = tx.run("wait_drop", waiter) == 0
    tx.run("wait_add", tx.namespace, "", worker, waiter, path, tx.wall + timeout + GRACE_MS)
    return asked


def is_cancel_requested(tx: Transaction, worker: str) -> bool:
    """Whether somebody has woken all who waited for a request to a worker."""
    return not tx.has_waiter("", worker)


def remove_done_waiter(tx: Transaction, waiter: str) -> bool:
    """Stop waiting for a job's end; True when somebody had woken the waiter already."""
    return tx.run("wait_drop", waiter) == 0


def add_listener(tx: Transaction, waiter: str, path: str) -> int:
    """Read the feed from now on, and say so again in time; answers the number of the last line."""
    tx.run("listen", waiter, tx.namespace, path, tx.wall + LISTENER_MS)
    tx.reread_listeners()
    return tx.one("event_last")[0]


def remove_listener(tx: Transaction, waiter: str) -> None:
    """Stop reading the feed."""
    tx.run("listen_end", waiter)


def read_events(tx: Transaction, after: int, limit: int) -> list[tuple[int, str, bytes]]:
    """The lines of the feed after a number."""
    rows: list[Any] = tx.all("event_read", after, tx.namespace, limit)
    return rows


def replace_dead(tx: Transaction, dead: Sequence[Wake]) -> None:
    """Forget the waiters of dead processes and wake others for the work they were meant to take."""
    for wake in dead:
        tx.run("idle_drop", wake.waiter)
        tx.run("wait_drop", wake.waiter)
        tx.run("listen_end", wake.waiter)
        if wake.queue is not None:
            tx.work_counts[wake.queue] = tx.work_counts.get(wake.queue, 0) + 1
    for path in {wake.path for wake in dead if wake.path.startswith("/")}:
        forget_process(tx, path)


def forget_process(tx: Transaction, path: str) -> None:
    """Nobody waits at an address any more."""
    for statement in ("idle_dead", "wait_dead", "listen_dead"):
        tx.run(statement, path)
