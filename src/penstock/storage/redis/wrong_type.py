"""Keys that hold another type of data than Penstock's, because other software has overwritten them.

A script that meets one fails, and the server's error does not name the key. It is found here, after the error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError, ResponseError

from penstock.errors import StorageError
from penstock.storage.redis.keys import QUEUE_KEYS

__all__ = ["find_wrong_type", "is_wrong_type", "wrong_type"]

#: For each type of key a command that only reads it, and fails for other types. A user of Penstock may call them all.
_READS = {"hash": "HLEN", "sorted set": "ZCARD", "list": "LLEN", "set": "SMEMBERS", "string": "GET"}


def is_wrong_type(error: BaseException) -> bool:
    """Return whether an answer is the error for a key of another type."""
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)


async def find_wrong_type(
    where: str, send: Callable[..., Awaitable[Any]], keys: list[str], args: list[Any]
) -> StorageError:
    """Find the key because of which a script failed, by its keys and arguments, and return an error that names it."""
    prefix = str(args[1])
    if not prefix.endswith(":"):  # the table of workers, which has no queue
        return wrong_type(where, prefix)
    types = {prefix + name: text for name, text in QUEUE_KEYS.items()}
    for key, text in {**types, keys[1]: "set"}.items():
        command = next(command for kind, command in _READS.items() if text.startswith(kind))
        try:
            await send(command, key)
        except RedisError as error:
            if is_wrong_type(error):
                return wrong_type(where, key)
    return wrong_type(where, f"{prefix}*")


def wrong_type(where: str, key: str) -> StorageError:
    """Return the error for a key of another type."""
    return StorageError(
        f"{where}: the key {key!r} is not of the type that Penstock keeps there: other software has overwritten it; "
        "rename or delete it"
    )
