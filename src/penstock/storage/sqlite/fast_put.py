"""The fast path of put: one plain job inserted by a single SQL statement that is its own transaction.

The general path is `put.put` in a transaction of five statements: BEGIN, read the queue, insert, update the
queue, COMMIT. `put_fast` runs one: an insert into a temporary view whose trigger (`fast_put.sql`) does the
same. It takes 22 µs instead of 35 µs per job, and only blocking storages use it: an async put pays for a
switch to the writer thread anyway.

It works for a queue whose number is known and in which a put has no further effect: no job may expire, no
idle worker has to be woken, no listener wants an event. `put._put_plain` finds such queues
(`allows_fast_put`), the engine keeps their numbers after the commit (`remember`), and the trigger checks the
conditions again with each job. If one does not hold, the statement changes nothing, the number is forgotten
and the caller takes the general path.

`tests/storage/test_sqlite_fast_put.py` proves that both paths leave equal rows, and
`tests/conformance/test_model.py` compares random walks with the model.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Protocol

from penstock.model.job import NewJob
from penstock.storage.sqlite.sql import SQL
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["MAX_QUEUES", "allows_fast_put", "put_fast", "remember"]

#: Queues whose numbers an engine keeps at most; all are forgotten when there are more.
MAX_QUEUES = 1_000

_INSERT = SQL["fast_put"]


class FastPutEngine(Protocol):
    """The parts of `Engine` that the fast path uses: its module is above this one."""

    lock: threading.RLock
    format: int
    fast_put_queues: dict[str, int]

    def connection(self) -> sqlite3.Connection:
        """Return the open connection of this process."""
        ...

    def now(self) -> int:
        """Return the storage's time in milliseconds."""
        ...


def put_fast(engine: FastPutEngine, new: NewJob, timeout: float = -1) -> bool:
    """Insert a plain job (`fast_path.is_plain_job`) with a fresh id; False if nothing was done.

    After False the caller must use `put.put`, which also raises the error if there is one. The clock
    is read before SQLite has the lock of the file: the trigger's `max(time, …)` keeps the order. Raises
    `TimeoutError` if other threads use the connection for `timeout` seconds.
    """
    if not engine.lock.acquire(timeout=timeout):
        raise TimeoutError
    try:
        db = engine.connection()
        queue = engine.fast_put_queues.get(new.queue)
        if queue is None:
            return False
        before = db.total_changes
        db.execute(_INSERT, (queue, new.id, new.payload, -new.priority, engine.now(), engine.format))
        if db.total_changes != before:
            return True
        del engine.fast_put_queues[new.queue]
        return False
    except sqlite3.Error:
        return False
    finally:
        engine.lock.release()


def allows_fast_put(tx: Transaction, queue: QueueRow) -> bool:
    """Return whether a put of a plain job into this queue has no effect but its row and the counts."""
    return tx.fast and not (queue.expiry is not None or queue.idle or tx.wants("enqueued", queue.name))


def remember(queues: dict[str, int], name: str, number: int) -> None:
    """Keep the number (`queues.k`) of a queue for which `allows_fast_put` was true in a committed transaction."""
    if len(queues) >= MAX_QUEUES:
        queues.clear()
    queues[name] = number
