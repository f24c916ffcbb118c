"""Storages by URL: the backend is imported when it is asked for, so that nobody needs them all."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl

from penstock.model.clock import Clock
from penstock.model.durability import Durability, DurabilityReport
from penstock.storage.base import BlockingStorage, Storage

__all__ = ["SqliteLocation", "connect", "connect_blocking", "connect_refcounted", "location_of", "redact"]

SERVERS = ("redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel", "redis+cluster")
KNOWN = ("memory:", "sqlite:PATH", "file:DIRECTORY", *(f"{scheme}://" for scheme in SERVERS))

Synchronous = Literal["NORMAL", "FULL"]
SYNCHRONOUS: dict[str, Synchronous] = {"NORMAL": "NORMAL", "FULL": "FULL"}


class SqliteLocation(NamedTuple):
    """Where a URL leads, when it is a file."""

    path: str
    synchronous: Synchronous = "NORMAL"


def connect(
    url: str, *, namespace: str = "penstock", clock: Clock | None = None, durability: Durability | None = None
) -> Storage:
    """The storage that a URL names, not opened yet."""
    place = location_of(url)
    if place is not None:
        if durability is not None:
            place = _on_disk(place, durability)
        from penstock.storage.sqlite import SqliteStorage

        if url.startswith("file:"):
            with contextlib.suppress(OSError):  # opening it will say what is wrong
                Path(place.path).parent.mkdir(0o700, parents=True, exist_ok=True)
        storage = SqliteStorage(place.path, clock=clock, synchronous=place.synchronous, namespace=namespace)
        storage.durability_report = durability and DurabilityReport(asked=durability, fsynced=True)
        return storage
    try:
        from penstock.storage.redis import RedisStorage
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("redis", "hiredis"):
            raise
        raise ModuleNotFoundError(
            f'url {redact(url)!r} needs the redis package: pip install "penstock[redis]"', name=error.name
        ) from None
    return RedisStorage(url, clock=clock, namespace=namespace, durability=durability)


def connect_blocking(
    url: str,
    beside: Storage,
    *,
    namespace: str = "penstock",
    clock: Clock | None = None,
    durability: Durability | None = None,
) -> BlockingStorage:
    """The same place for threads without an event loop: verbs that end on the calling thread.

    `beside` is what `connect` gave for the URL. A file's connection is shared with it, and so is a
    database in memory.
    """
    if location_of(url) is None:
        from penstock.storage.redis.blocking import BlockingRedisStorage

        return BlockingRedisStorage(url, clock=clock, namespace=namespace, durability=durability)
    from penstock.storage.sqlite import SqliteStorage
    from penstock.storage.sqlite.blocking import BlockingSqliteStorage

    assert isinstance(beside, SqliteStorage)
    direct = BlockingSqliteStorage(beside.engine)
    direct.durability_report = beside.durability_report
    return direct


def connect_refcounted(
    url: str, *, namespace: str = "penstock", clock: Clock | None = None, durability: Durability | None = None
) -> Storage:
    """As `connect`; a database in memory stays until everybody who opened it has closed it."""
    place = location_of(url)
    if place is None or place.path != ":memory:" or durability is not None:
        return connect(url, namespace=namespace, clock=clock, durability=durability)
    from penstock.storage.sqlite.blocking import RefCountedSqliteStorage

    return RefCountedSqliteStorage(place.path, clock=clock, namespace=namespace)


def location_of(url: str) -> SqliteLocation | None:
    """The file that a URL names, None for a server; an unknown scheme is a `ValueError`."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, not {type(url).__name__}")
    scheme, colon, rest = url.partition(":")
    if colon and scheme in SERVERS:
        return None
    path, _, query = rest.partition("?")
    if scheme == "memory" and path in ("", "//"):
        return SqliteLocation(":memory:", _synchronous(query))
    if scheme == "sqlite":
        return SqliteLocation(_path(path, "sqlite:PATH"), _synchronous(query))
    if scheme == "file":
        return SqliteLocation(str(Path(_path(path, "file:DIRECTORY")) / "penstock.db"), _synchronous(query))
    raise ValueError(f"url {redact(url)!r} names no storage; known: {', '.join(KNOWN)}")


def _on_disk(place: SqliteLocation, durability: Durability) -> SqliteLocation:
    """A file that every commit brings to the disk; it has no replicas."""
    if place.path == ":memory:":
        raise ValueError("durability: a storage in memory keeps nothing; use sqlite:PATH or a server")
    if durability.copies:
        raise ValueError('durability: a file has no replicas; use durability="fsync", or a server that has them')
    return place._replace(synchronous="FULL")


def redact(url: str) -> str:
    """A URL as it may be shown: without user, password or secret query values."""
    url = re.sub(r"//[^?#]*@", "//***@", url)
    return re.sub(r"(?i)([?&][^=&#]*(?:password|secret|token|key|user)[^=&#]*=)[^&#]*", r"\1***", url)


def _synchronous(query: str) -> Synchronous:
    synchronous: Synchronous = "NORMAL"
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key != "synchronous" or value.upper() not in SYNCHRONOUS:
            raise ValueError(f"url: the only option is ?synchronous={'|'.join(SYNCHRONOUS)}, not {key}={value}")
        synchronous = SYNCHRONOUS[value.upper()]
    return synchronous


def _path(text: str, form: str) -> str:
    """A path after the scheme: relative, absolute, or absolute behind the two slashes of a URL."""
    text = text.removeprefix("//")
    if not text:
        raise ValueError(f"url: {form} needs a path")
    return text if text == ":memory:" else str(Path(text).expanduser())
