"""The verbs about operators of the Redis storage: the protocol `Auditing`."""

from __future__ import annotations

from penstock.model.activity import (
    ACTIVITY_MS,
    BULK_MS,
    MAX_ACTIVITY,
    MAX_BULK,
    MAX_RELEASES,
    REQUEST_MS,
    Activity,
    ActivityPage,
    BulkAction,
    Release,
    WorkerRequest,
)
from penstock.storage.auditing import check_limit, filled_page
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["RedisAuditing"]


class RedisAuditing:
    """The part of `RedisStorage` with records about operators; see `penstock.storage.auditing` for each verb."""

    _connection: Connection
    _keys: Keys
    _calls: ScriptCalls
    _schema: Schema

    async def log_activity(self, entry: Activity) -> None:
        """Add an entry to the activity."""
        await self._schema.write(self._connection)
        key = self._keys.operators("activity")
        await self._calls.run_once_for_operators("log_activity", key, entry.encode(), MAX_ACTIVITY, ACTIVITY_MS)

    async def activity(
        self, queue: str | None = None, id: str | None = None, after: str | None = None, limit: int = 100
    ) -> ActivityPage:
        """Return a page of the activity, newest first."""

        async def read(before: int | None, limit: int) -> list[tuple[int, Activity | None]]:
            key, first = self._keys.operators("activity"), "" if before is None else before
            found = await self._calls.run_for_operators("activity", key, first, limit, ACTIVITY_MS)
            return [(_number(entry), Activity.decode(entry[12:], _number(entry[6:]))) for entry in found]

        return await filled_page(read, queue, id, after, limit)

    async def put_bulk(self, action: BulkAction) -> int | None:
        """Store a bulk action if its version is unchanged; returns the new version, or None."""
        await self._schema.write(self._connection)
        args = action.id, action.version, action.encode(), MAX_BULK, BULK_MS
        answer = await self._calls.run_once_for_operators("put_bulk", self._keys.operators("bulk"), *args)
        return int(answer) or None

    async def get_bulk(self, id: str) -> BulkAction | None:
        """Return a bulk action, or None."""
        found = await self._bulk(id) if id else []
        return found[0] if found else None

    async def bulk_actions(self, limit: int = 100) -> list[BulkAction]:
        """Return the bulk actions that are kept, those that start last first."""
        check_limit(limit)
        return sorted(await self._bulk(""), key=lambda action: (-action.starts_at, action.id))[:limit]

    async def _bulk(self, id: str) -> list[BulkAction]:
        records = await self._calls.run_for_operators("bulk_actions", self._keys.operators("bulk"), id, BULK_MS)
        read = (BulkAction.decode(record[12:], _number(record[6:]), _number(record)) for record in records)
        return [action for action in read if action is not None]

    async def add_release(self, name: str) -> bool:
        """Note a release; False if one of this name is kept already."""
        await self._schema.write(self._connection)
        key = self._keys.operators("releases")
        return await self._calls.run_once_for_operators("add_release", key, name, MAX_RELEASES) == 1

    async def releases(self) -> list[Release]:
        """Return the last releases, newest first."""
        found: list[bytes] = await self._connection.command("LRANGE", self._keys.operators("releases"), 0, -1)
        return [Release(text(entry[6:]), _number(entry)) for entry in found if len(entry) > 6]

    async def ask_worker(self, worker: str, request: WorkerRequest) -> bool:
        """Ask a worker to claim no more, or to stop; False if there is no live worker of this id."""
        channel, key = self._keys.cancel(worker), self._keys.requests
        return await self._calls.run_for_workers("ask_worker", worker, request, REQUEST_MS, channel, key) == 1


def _number(data: bytes) -> int:
    return int.from_bytes(data[:6], "big")
