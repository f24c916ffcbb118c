"""The verbs about operators of the SQLite storage: the protocol `Auditing`."""

from __future__ import annotations

from penstock.model.activity import Activity, ActivityPage, BulkAction, Release, WorkerRequest
from penstock.storage.auditing import check_limit, filled_page
from penstock.storage.sqlite import activity as operators
from penstock.storage.sqlite.verbs import SqliteVerbs

__all__ = ["SqliteAuditing"]


class SqliteAuditing(SqliteVerbs):
    """The part of `SqliteStorage` with records about operators; see `penstock.storage.auditing` for each verb."""

    async def log_activity(self, entry: Activity) -> None:
        """Add an entry to the activity."""
        await self._write(lambda tx: operators.log_activity(tx, entry))

    async def activity(
        self, queue: str | None = None, id: str | None = None, after: str | None = None, limit: int = 100
    ) -> ActivityPage:
        """Return a page of the activity, newest first."""

        async def read(before: int | None, limit: int) -> list[tuple[int, Activity | None]]:
            return await self._read(lambda tx: operators.read_activity(tx, before, limit))

        return await filled_page(read, queue, id, after, limit)

    async def put_bulk(self, action: BulkAction) -> int | None:
        """Store a bulk action if its version is unchanged; returns the new version, or None."""
        return await self._write(lambda tx: operators.put_bulk(tx, action))

    async def get_bulk(self, id: str) -> BulkAction | None:
        """Return a bulk action, or None."""
        return await self._read(lambda tx: operators.get_bulk(tx, id))

    async def bulk_actions(self, limit: int = 100) -> list[BulkAction]:
        """Return the bulk actions that are kept, those that start last first."""
        check_limit(limit)
        found = await self._read(operators.bulk_actions)
        return sorted(found, key=lambda action: (-action.starts_at, action.id))[:limit]

    async def add_release(self, name: str) -> bool:
        """Note a release; False if one of this name is kept already."""
        return await self._write(lambda tx: operators.add_release(tx, name))

    async def releases(self) -> list[Release]:
        """Return the last releases, newest first."""
        return await self._read(operators.releases)

    async def ask_worker(self, worker: str, request: WorkerRequest) -> bool:
        """Ask a worker to claim no more, or to stop; False if there is no live worker of this id."""
        return await self._write(lambda tx: operators.ask_worker(tx, worker, request))
