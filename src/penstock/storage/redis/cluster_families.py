"""List of families on a Cluster. It has a slot of its own that no script can reach, so the clients maintain it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from penstock.model.ids import family_of
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.listener_marks import LISTENER_MS

__all__ = ["ClusterFamilies"]

#: A client adds a family that it puts jobs into again after this many seconds.
_ADD_EVERY = 60.0


class ClusterFamilies:
    """The families that have queues. Without a Cluster there is one list of queues, and nothing to maintain."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._added_at: dict[str, float] = {}

    async def all(self) -> list[str]:
        """Return the families; without a Cluster one empty name, which stands for all of them."""
        if not self._keys.cluster:
            return [""]
        return [text(name) for name in await self._connection.command("SMEMBERS", self._keys.families)]

    async def add(self, queue: str, *, created: bool = False) -> None:
        """Add the family of a queue to the list, unless this was done recently and the queue is not new."""
        if not self._keys.cluster:
            return
        family, now = family_of(queue), time.monotonic()
        if created or now - self._added_at.get(family, -_ADD_EVERY) >= _ADD_EVERY:
            # The family of a queue that exists is listed even if the server is full, unlike that of a queue to be.
            send = self._connection.write if created else self._connection.command
            await send("SADD", self._keys.families, family)
            self._added_at[family] = now
            # A listener to all queues has marked the families that it found; a new family gets the marks here, before
            # its first event.
            if marks := await self._connection.command("HGET", self._keys.listeners("workers"), ""):
                await self._connection.write("HSET", self._keys.listeners(family), "", marks)
                await self._connection.write("PEXPIRE", self._keys.listeners(family), LISTENER_MS)

    async def drop_empty(self, queues: Iterable[str]) -> None:
        """Remove families without a queue. One that gets a queue meanwhile is added again, here or by the producer."""
        if not self._keys.cluster:
            return
        command = self._connection.command
        for family in {family_of(queue) for queue in queues}:
            if not await command("SCARD", self._keys.names(family)):
                await command("SREM", self._keys.families, family)
                self._added_at.pop(family, None)
                if await command("SCARD", self._keys.names(family)):
                    await self._connection.write("SADD", self._keys.families, family)
