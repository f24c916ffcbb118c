"""The SQLite storage for threads without an event loop: every verb is a transaction on the calling thread.

Its coroutines never suspend: whoever drives one gets its answer from the first step. It shares the
engine, so also the connection, of the storage on whose event loop this process waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from penstock.model.clock import Clock
from penstock.model.job import NewJob
from penstock.storage.base import Put
from penstock.storage.sqlite import SqliteStorage
from penstock.storage.sqlite.engine import Engine
from penstock.storage.sqlite.put import QUEUED, is_plain
from penstock.storage.sqlite.transaction import Tx

__all__ = ["BlockingSqliteStorage", "RefCountedSqliteStorage"]

T = TypeVar("T")


class BlockingSqliteStorage(SqliteStorage):
    """A `Storage` whose verbs block the calling thread; any number of threads may use it at once."""

    shares_connection = True

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def open(self) -> None:
        """Open the file and create what is missing. Idempotent."""
        self.engine.open()

    async def close(self) -> None:
        """Let go of the connection, unless it is the database. Idempotent; `open` may follow."""
        if not self.engine.memory:
            self.engine.close()

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """nothing → queued / scheduled / blocked, or updated in place, or the existing state."""
        if len(jobs) == 1 and self.durability_report is None:
            [new] = jobs
            if new.fresh and is_plain(new) and self.engine.put_alone(new):
                return [QUEUED]
        return await super().put(jobs)

    async def _write(self, verb: Callable[[Tx], T]) -> T:
        return self.engine.run(verb)

    async def _read(self, verb: Callable[[Tx], T]) -> T:
        return self.engine.run(verb, False)

    def _waiting(self) -> NoReturn:
        raise RuntimeError("this waits for others: it needs a storage with an event loop")


class RefCountedSqliteStorage(SqliteStorage):
    """A database in memory for several event loops: it is there until everybody who opened it has closed it."""

    def __init__(self, path: str, *, clock: Clock | None = None, namespace: str = "penstock") -> None:
        super().__init__(path, clock=clock, namespace=namespace)
        self._counting = threading.Lock()
        self._users = 0

    async def open(self) -> None:
        """Open it if nobody has, and count."""
        with self._counting:  # held while the writer starts: another loop may stand still for that long
            await super().open()
            self._users += 1

    async def close(self) -> None:
        """Close it if nobody else has it open."""
        with self._counting:
            self._users = max(0, self._users - 1)
            if not self._users:
                await super().close()
