"""The SQLite storage for threads without an event loop: every verb is a transaction on the calling thread.

Its coroutines never suspend: the first `send` ends them with the answer. It shares the engine, so also the
connection, of the storage on whose event loop this process waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from penstock.model.clock import Clock
from penstock.model.job import NewJob
from penstock.storage.base import Put
from penstock.storage.sqlite import SqliteStorage
from penstock.storage.sqlite.engine import BUSY_TIMEOUT, Engine
from penstock.storage.sqlite.fast_path import is_plain_job
from penstock.storage.sqlite.fast_put import put_fast
from penstock.storage.sqlite.file_errors import locked
from penstock.storage.sqlite.put import QUEUED
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["BlockingSqliteStorage", "RefCountedSqliteStorage"]

T = TypeVar("T")


class BlockingSqliteStorage(SqliteStorage):
    """A `Storage` whose verbs block the calling thread; any number of threads may use it at once.

    Whether its fast paths are on is a setting of the engine.
    """

    shares_connection = True

    def __init__(self, engine: Engine, timeout: float = BUSY_TIMEOUT) -> None:
        self.engine = engine
        #: The longest wait (s) for the lock of the file.
        self._timeout = timeout

    def bounded(self, timeout: float) -> BlockingSqliteStorage:
        """Return this storage for producers: a request waits at most `timeout` seconds for the lock of the file."""
        bounded = BlockingSqliteStorage(self.engine, timeout)
        bounded.durability_report = self.durability_report
        return bounded

    async def open(self) -> None:
        """Open the file and create missing tables. Idempotent."""
        self.engine.open()

    async def close(self) -> None:
        """Close the connection, unless the database is in memory and would be lost. Idempotent; `open` may follow."""
        if not self.engine.memory:
            self.engine.close()

    async def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]:
        """Put jobs as `SqliteStorage.put` does, and a single plain one by the fast path (`fast_put.py`)."""
        if len(jobs) == 1 and max_queued is None and self.durability_report is None:
            [new] = jobs
            try:
                if new.fresh and is_plain_job(new) and put_fast(self.engine, new, self._timeout):
                    return [QUEUED]
            except TimeoutError:
                raise locked(self.engine.path, self._timeout) from None
        return await super().put(jobs, max_queued)

    async def _write(self, verb: Callable[[Transaction], T]) -> T:
        return self.engine.run(verb, True, self._timeout)

    async def _read(self, verb: Callable[[Transaction], T]) -> T:
        return self.engine.run(verb, False, self._timeout)

    def open_notifier(self) -> NoReturn:
        raise RuntimeError("waiting for other processes needs a storage with an event loop")


class RefCountedSqliteStorage(SqliteStorage):
    """A database in memory for several event loops: it exists until each `open` was followed by a `close`."""

    def __init__(
        self, path: str, *, clock: Clock | None = None, namespace: str = "penstock", fast: bool = True
    ) -> None:
        super().__init__(path, clock=clock, namespace=namespace, fast=fast)
        self._users_lock = threading.Lock()
        self._users = 0

    async def open(self) -> None:
        """Open it if it is closed, and count this user."""
        with self._users_lock:  # held while the writer starts: this blocks another loop for that time
            await super().open()
            self._users += 1

    async def close(self) -> None:
        """Close it if this was its last user."""
        with self._users_lock:
            self._users = max(0, self._users - 1)
            if not self._users:
                await super().close()
