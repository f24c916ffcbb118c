"""The base of the parts of `SqliteStorage`, each of which has the verbs of one protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.storage.sqlite.transaction import Transaction

__all__ = ["SqliteVerbs"]

T = TypeVar("T")


class SqliteVerbs:
    """The ways to run a verb; `SqliteStorage` has them."""

    def _write(self, verb: Callable[[Transaction], T]) -> Awaitable[T]:
        """Run a verb in a transaction that writes."""
        raise NotImplementedError

    def _read(self, verb: Callable[[Transaction], T]) -> Awaitable[T]:
        """Run a verb in a transaction that reads."""
        raise NotImplementedError

    def _read_whole(self, verb: Callable[[Transaction], T | None]) -> Awaitable[T]:
        """Repeat a read that answers None while more jobs are due than one transaction promotes."""
        raise NotImplementedError
