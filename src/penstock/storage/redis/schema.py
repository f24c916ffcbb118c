"""Version of the stored records: read when a storage is opened, and written with its first write.

Opening a storage writes nothing, so that it can be opened and read while the server takes no writes.
"""

from __future__ import annotations

from penstock.errors import StorageError
from penstock.model.storage_info import schema_mismatch
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import FORMAT
from penstock.storage.redis.keys import SCHEMA_VERSION, Keys

__all__ = ["Schema"]


class Schema:
    """The schema version of a namespace. A namespace without one is empty."""

    def __init__(self, keys: Keys) -> None:
        self._key = keys.schema
        #: Whether the namespace has a version, which this software knows.
        self.known = False
        #: The newest record format that the scripts read, and the one they write.
        self.format = FORMAT

    async def check(self, connection: Connection) -> None:
        """Read the version; raises `VersionMismatch` if it is not that of this software."""
        found = await connection.command("GET", self._key)
        if found is not None and not found.isdigit():
            raise StorageError(
                f"{connection.where}: the key {self._key!r} holds no schema version: other software overwrote it; "
                f"set it to {SCHEMA_VERSION} if this Penstock wrote the jobs"
            )
        if found is not None and int(found) != SCHEMA_VERSION:
            raise schema_mismatch(connection.where, int(found), SCHEMA_VERSION)
        self.known = found is not None

    async def write(self, connection: Connection) -> None:
        """Write the version if the namespace has none yet. Verbs that create something call this first."""
        if not self.known:
            await connection.write("SET", self._key, SCHEMA_VERSION, "NX")
            await self.check(connection)
