"""On a Cluster no script can reach a list of families, which has a slot of its own: the clients keep it up."""

from __future__ import annotations

import time
from collections.abc import Iterable

from penstock.model.ids import family_of
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.keys import Keys

__all__ = ["EARS_MS", "Families"]

#: A client says once in so many seconds that a family it puts to is there.
_AGAIN = 60.0
#: How long the mark of a listener lives unless it is renewed.
EARS_MS = 15_000


class Families:
    """The families that hold queues. Without a Cluster there is one list of queues, and nothing to keep up."""

    def __init__(self, connection: Connection, keys: Keys) -> None:
        self._connection = connection
        self._keys = keys
        self._said: dict[str, float] = {}

    async def all(self) -> list[str]:
        """The families there are; one without a name stands for all of them where there is no Cluster."""
        if not self._keys.cluster:
            return [""]
        return [name.decode() for name in await self._connection.command("SMEMBERS", self._keys.families)]

    async def add(self, queue: str, *, created: bool = False) -> None:
        """Say that a queue's family is there; at once when the queue has just been created."""
        if not self._keys.cluster:
            return
        family, now = family_of(queue), time.monotonic()
        if created or now - self._said.get(family, -_AGAIN) >= _AGAIN:
            await self._connection.command("SADD", self._keys.families, family)
            self._said[family] = now
            # Whoever listens has told the families there were; a new one is told before anything happens in it.
            if channel := await self._connection.command("GET", self._keys.ears("workers")):
                await self._connection.command("SET", self._keys.ears(family), channel, "PX", EARS_MS)

    async def drop_empty(self, queues: Iterable[str]) -> None:
        """Forget families without a queue. One that gets a queue meanwhile is added again, here or by who put it."""
        if not self._keys.cluster:
            return
        command = self._connection.command
        for family in {family_of(queue) for queue in queues}:
            if not await command("SCARD", self._keys.names(family)):
                await command("SREM", self._keys.families, family)
                self._said.pop(family, None)
                if await command("SCARD", self._keys.names(family)):
                    await command("SADD", self._keys.families, family)
