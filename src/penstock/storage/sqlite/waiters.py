"""The rows of waiters: idle workers, callers that wait for the end of a job, listeners to events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from penstock.storage.sqlite.claim import next_id
from penstock.storage.sqlite.ordering import must_promote
from penstock.storage.sqlite.transaction import CANCEL_QUEUE, Transaction, Wake, reader_key

__all__ = [
    "add_cancel_waiter",
    "add_done_waiter",
    "add_idle",
    "add_listener",
    "add_reader",
    "forget_process",
    "has_entries",
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

#: A listener's row expires this long (ms of real time) after its last renewal.
LISTENER_MS = 30_000

#: A read of events ends with the row that brings it to this many bytes.
READ_BYTES = 1_000_000

#: A waiter's row expires this long (ms) after its timeout.
GRACE_MS = 60_000


def is_ready(tx: Transaction, queues: Sequence[str]) -> bool:
    """Return whether a claim from one of the queues would find a job, or has closed groups to look at.

    The look is left to the claim: a wait changes nothing that a later call depends on.
    """
    for name in queues:
        queue = tx.queue(name)
        if queue is None or queue.live_pause(tx.now) is not None:
            continue
        if queue.limited:
            if must_promote(tx, queue) or next_id(tx, queue) is not None:
                return True
            continue
        known = queue.parked is not None and queue.parked <= tx.format
        if known or tx.one("work_ready", queue.k, tx.now):
            return True
    return False


def add_idle(tx: Transaction, queues: Sequence[str], waiter: str, address: str, timeout: int) -> bool:
    """Add the rows of an idle worker; True, with none added, if there is work."""
    if is_ready(tx, queues):
        return True
    until = tx.wall + timeout + GRACE_MS
    for name in dict.fromkeys(queues):
        tx.run("idle_add", tx.namespace, name, tx.wall, waiter, address, until)
        tx.mark_idle(name)
    return False


def is_idle(tx: Transaction, queues: Sequence[str], waiter: str) -> bool:
    """Return whether an idle worker may sleep on: its rows are there, and no job is ready."""
    listed = not queues or tx.one("idle_has", waiter) is not None
    return listed and not is_ready(tx, queues)


def remove_idle(tx: Transaction, queues: Sequence[str], waiter: str, claims_next: bool) -> bool:
    """Delete the rows of an idle worker; True if it had been woken already.

    `claims_next` is whether the worker will claim now. If not, its wake-up is passed on to another one.
    """
    woken = tx.run("idle_drop", waiter) == 0 and len(queues) > 0
    if woken and not claims_next:
        for name in queues:
            queue = tx.queue(name)
            if queue is not None and tx.one("work_ready", queue.k, tx.now):
                tx.notify_work(queue)
    return woken


def is_done(tx: Transaction, name: str, id: str) -> bool:
    """Return whether a job has ended or does not exist."""
    queue = tx.queue(name)
    return queue is None or tx.one("wait_state", queue.k, id) is None


def add_done_waiter(tx: Transaction, name: str, id: str, waiter: str, address: str, timeout: int) -> bool:
    """Add the row of a caller that waits for the end of a job; True, with none added, if it has ended."""
    if is_done(tx, name, id):
        return True
    tx.run("wait_add", tx.namespace, name, id, waiter, address, tx.wall + timeout + GRACE_MS)
    tx.mark_awaited(name)
    return False


def has_entries(tx: Transaction, name: str, id: str, kind: int, after: int) -> bool:
    """Return whether a history has entries after a number."""
    queue = tx.queue(name)
    return queue is not None and tx.one("history_after", queue.k, id, kind, after) is not None


def add_reader(tx: Transaction, name: str, id: str, waiter: str, address: str, timeout: int) -> bool:
    """Add the rows of a reader of a history, which also waits for the end of the job; True if that has ended.

    The second row is filed under the name that `Transaction.notify_readers` uses.
    """
    if add_done_waiter(tx, name, id, waiter, address, timeout):
        return True
    until = tx.wall + timeout + GRACE_MS
    tx.run("wait_add", tx.namespace, CANCEL_QUEUE, reader_key(name, id), waiter, address, until)
    return False


def add_cancel_waiter(tx: Transaction, worker: str, waiter: str, address: str, timeout: int) -> bool:
    """Add or renew the row of a waiter for cancel requests to a worker (see `Transaction.notify_cancel`).

    The row stays between two waits, and a request deletes it. So True, for a row that was not there,
    means that there may have been a request.
    """
    requested = tx.run("wait_drop", waiter) == 0
    tx.run("wait_add", tx.namespace, CANCEL_QUEUE, worker, waiter, address, tx.wall + timeout + GRACE_MS)
    return requested


def is_cancel_requested(tx: Transaction, worker: str) -> bool:
    """Return whether a cancel request to a worker has deleted the rows of those that wait for one."""
    return not tx.has_waiter(CANCEL_QUEUE, worker)


def remove_done_waiter(tx: Transaction, waiter: str) -> bool:
    """Delete the row of a caller that waits for the end of a job; True if it had been woken already."""
    return tx.run("wait_drop", waiter) == 0


def add_listener(
    tx: Transaction, waiter: str, address: str, queue: str | None = None, names: Collection[str] | None = None
) -> int:
    """Add or renew the row of a listener to the events of one queue or all, of these names or all.

    Returns the number of the last event so far.
    """
    wanted = "" if names is None else f",{','.join(sorted(names))},"
    tx.run("listen", waiter, tx.namespace, address, tx.wall + LISTENER_MS, queue, wanted)
    tx.reread_listeners()
    return tx.one("event_last")[0]


def remove_listener(tx: Transaction, waiter: str) -> None:
    """Delete the row of a listener."""
    tx.run("listen_end", waiter)


def read_events(tx: Transaction, after: int, queue: str | None, limit: int) -> list[tuple[int, bytes | None]]:
    """Return rows of events after a number: the number, and the encoded records or None for those of other queues.

    There are at most `limit` rows, and fewer if these have many bytes.
    """
    rows: list[Any] = []
    cursor, room = tx.rows("event_read", after, tx.namespace, queue, limit), READ_BYTES
    for row in cursor:
        rows.append(row)
        room -= len(row[1] or b"") if isinstance(row[1], bytes) else 0
        if room <= 0:
            break
    cursor.close()
    return rows


def replace_dead(tx: Transaction, dead: Sequence[Wake], own: str) -> None:
    """Delete the rows of waiters that are gone, and wake others for the work that those were woken for.

    The process at the address `own` is this one: a waiter of it that is gone says nothing of its others.
    """
    for wake in dead:
        tx.run("idle_drop", wake.waiter)
        tx.run("wait_drop", wake.waiter)
        tx.run("listen_end", wake.waiter)
        if wake.queue is not None:
            tx.work_counts[wake.queue] = tx.work_counts.get(wake.queue, 0) + 1
    for address in {wake.address for wake in dead if wake.address != own and not wake.address.startswith("none:")}:
        forget_process(tx, address)


def forget_process(tx: Transaction, address: str) -> None:
    """Delete the rows of all waiters at an address."""
    for statement in ("idle_dead", "wait_dead", "listen_dead"):
        tx.run(statement, address)
