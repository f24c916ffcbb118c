"""The SQLite storage for threads without an event loop: every verb is a transaction on the calling thread.

Its coroutines never suspend: whoever drives one gets its answer from the first step. It shares the
engine, so also the connection, of the storage on whose event loop this process waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from penstock.storage.sqlite import SqliteStorage
from penstock.storage.sqlite.core import Engine
from penstock.storage.sqlite.tx import Tx

__all__ = ["DirectSqliteStorage"]

T = TypeVar("T")


class DirectSqliteStorage(SqliteStorage):
    """A `Storage` whose verbs block the calling thread; any number of threads may use it at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def open(self) -> None:
        """Open the file and create what is missing. Idempotent."""
        self.engine.open()

    async def close(self) -> None:
        """Let go of the connection. Idempotent; `open` may follow."""
        self.engine.close()

    async def _write(self, verb: Callable[[Tx], T]) -> T:
        return self.engine.run(verb)

    async def _read(self, verb: Callable[[Tx], T]) -> T:
        return self.engine.run(verb, False)

    def _waiting(self) -> NoReturn:
        raise RuntimeError("this waits for others: it needs a storage with an event loop")
