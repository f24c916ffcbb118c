"""Signals of a transaction to the engine: that it must write, and the waiters to wake after its commit."""

from __future__ import annotations

import msgspec

__all__ = ["NeedsWriteLock", "Wake"]


class NeedsWriteLock(Exception):
    """Raised by a read that must write; the engine runs the transaction again with the write lock."""


class Wake(msgspec.Struct, frozen=True):
    """A waiter to wake after the commit.

    `queue` names the queue whose work it was woken for, if any: another waiter takes that if this one is dead.
    """

    address: str
    waiter: str
    queue: str | None = None
