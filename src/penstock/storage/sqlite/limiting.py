"""The verbs of limits of the SQLite storage: the protocol `Limiting`."""

from __future__ import annotations

from penstock.model.limit import Rule
from penstock.storage.limiting import LimitPage, LimitRecord, Scope
from penstock.storage.sqlite import limits
from penstock.storage.sqlite.verbs import SqliteVerbs

__all__ = ["SqliteLimiting"]


class SqliteLimiting(SqliteVerbs):
    """The part of `SqliteStorage` that keeps limits; see `penstock.storage.limiting` for each verb."""

    async def set_limit(self, scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        """Set the limit of a scope if its version is still this one; returns the new version, or None."""
        return await self._write(lambda tx: limits.set_limit(tx, scope, rule, settings, version))

    async def get_limit(self, scope: Scope) -> LimitRecord:
        """Return the limit of a scope and the state of its gate."""
        return await self._read_whole(lambda tx: limits.get_limit(tx, scope))

    async def limits(self, queue: str, after: str | None = None, limit: int = 100) -> LimitPage:
        """Return a page of the limits that hold for a queue."""
        cursor = limits.parse_cursor(after)
        return await self._read_whole(lambda tx: limits.limits(tx, queue, cursor, limit))
