"""Connection of storages by URL; a backend is imported only when its URL is used."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl

from penstock.model.clock import Clock
from penstock.model.durability import Durability, DurabilityReport
from penstock.storage.base import BlockingStorage, Storage

__all__ = [
    "DEFAULT_URL",
    "SqliteLocation",
    "bound_requests",
    "choose_url",
    "connect",
    "connect_blocking",
    "connect_refcounted",
    "location_of",
    "redact",
]

DEFAULT_URL = "sqlite:penstock.db"

SERVERS = ("redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel", "redis+cluster")
KNOWN = ("memory:", "sqlite:PATH", "file:DIRECTORY", *(f"{scheme}://" for scheme in SERVERS))

FILES = ("sqlite:", "file:")

#: The part of a URL before its login.
_SCHEME = re.compile(
    rf"(?:[A-Za-z][A-Za-z0-9+.-]*:?)?//|(?:{'|'.join(map(re.escape, SERVERS))}):|{'|'.join(FILES)}|memory:"
)
#: Hosts with ports, and a path.
_HOST = r"(?:\[[0-9A-Fa-f:.]*\]|[\w.%-]*)(?::\d{1,5})?"
_ADDRESS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^#]*)?")
_SHOWN_OPTION = re.compile(
    r"(?:db|protocol|socket_timeout)=[\d.]{1,8}|(?:tls|ssl_check_hostname)=(?:[01]|true|false|yes|no)"
    "|ssl_cert_reqs=(?:required|optional|none)"
)
_HIDDEN_OPTION = re.compile(
    "(?:(?:sentinel_)?(?:username|password)|client_name|db|protocol|socket_timeout|tls|ssl_[a-z_]{1,20})="
)
_SECRET_OPTION = re.compile(r"(?i)([?&][^=&#]*(?:password|secret|token|key|user)[^=&#]*=).*", re.DOTALL)

Synchronous = Literal["NORMAL", "FULL"]
SYNCHRONOUS: dict[str, Synchronous] = {"NORMAL": "NORMAL", "FULL": "FULL"}


class SqliteLocation(NamedTuple):
    """File that a URL names, and its `synchronous` setting."""

    path: str
    synchronous: Synchronous = "NORMAL"


def choose_url(given: str | None, project: str | None = None) -> str:
    """Return the URL to use: the given one, that in PENSTOCK_URL, the project's, or the default.

    An empty one is a `ValueError`: each program would use a `penstock.db` in its own directory instead.
    """
    if given is None:
        given = os.environ.get("PENSTOCK_URL")
        if given is not None and not given.strip():
            raise ValueError(f"PENSTOCK_URL is set but empty; unset it to use {DEFAULT_URL}, or name a storage in it")
    elif isinstance(given, str) and not given.strip():
        raise ValueError(f"url is empty; leave it out to use PENSTOCK_URL or {DEFAULT_URL}, or name a storage")
    return given or project or DEFAULT_URL


def connect(
    url: str, *, namespace: str = "penstock", clock: Clock | None = None, durability: Durability | None = None
) -> Storage:
    """Return the storage of a URL, not opened yet."""
    location = location_of(url)
    if location is not None:
        if durability is not None:
            location = _on_disk(location, durability)
        from penstock.storage.sqlite import SqliteStorage

        if url.startswith("file:"):
            with contextlib.suppress(OSError):  # `open` raises a precise error
                Path(location.path).parent.mkdir(0o700, parents=True, exist_ok=True)
        storage = SqliteStorage(location.path, clock=clock, synchronous=location.synchronous, namespace=namespace)
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
    try:
        return RedisStorage(url, clock=clock, namespace=namespace, durability=durability)
    except ValueError as error:
        raise ValueError(f"url {redact(url)!r}: {error}") from None


def connect_blocking(
    url: str,
    async_storage: Storage,
    *,
    namespace: str = "penstock",
    clock: Clock | None = None,
    durability: Durability | None = None,
) -> BlockingStorage:
    """Return the storage of a URL for threads without an event loop: its verbs never suspend.

    `async_storage` is the one that `connect` returned for the URL. A SQLite connection is shared with it.
    """
    if location_of(url) is None:
        from penstock.storage.redis.blocking import BlockingRedisStorage

        return BlockingRedisStorage(url, clock=clock, namespace=namespace, durability=durability)
    from penstock.storage.sqlite import SqliteStorage
    from penstock.storage.sqlite.blocking import BlockingSqliteStorage

    assert isinstance(async_storage, SqliteStorage)
    direct = BlockingSqliteStorage(async_storage.engine)
    direct.durability_report = async_storage.durability_report
    return direct


def connect_refcounted(
    url: str, *, namespace: str = "penstock", clock: Clock | None = None, durability: Durability | None = None
) -> Storage:
    """Connect as `connect` does, but keep a database in memory until every opener has closed it."""
    location = location_of(url)
    if location is None or location.path != ":memory:" or durability is not None:
        return connect(url, namespace=namespace, clock=clock, durability=durability)
    from penstock.storage.sqlite.blocking import RefCountedSqliteStorage

    return RefCountedSqliteStorage(location.path, clock=clock, namespace=namespace)


def bound_requests(storage: Storage, timeout: float | None) -> Storage:
    """Return a storage as producers use it: each request ends within `timeout` seconds, if that is not None.

    It shares the connections of the storage. The verbs that wait for work, ends or events are not bounded. A storage
    whose class has no method `bounded` is returned as it is.
    """
    bounded: Callable[[Storage, float], Storage] | None = getattr(type(storage), "bounded", None)
    return storage if timeout is None or bounded is None else bounded(storage, timeout)


def location_of(url: str) -> SqliteLocation | None:
    """Return the file that a URL names, None for a server; an unknown scheme is a `ValueError`."""
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


def _on_disk(location: SqliteLocation, durability: Durability) -> SqliteLocation:
    """Return the location with `synchronous` FULL, so that every commit reaches the disk."""
    if location.path == ":memory:":
        raise ValueError("durability: a storage in memory keeps nothing; use sqlite:PATH or a server")
    if durability.copies:
        raise ValueError('durability: a file has no replicas; use durability="fsync", or a server that has them')
    return location._replace(synchronous="FULL")


def redact(url: str) -> str:
    """Return a URL for messages: without user, password and secret options.

    Everything up to the last @ counts as login, because a password may have any character. In the URL of a server the
    values of most options are left out too, and an address that is none.
    """
    scheme = _SCHEME.match(url)
    shown, rest = (scheme.group(), url[scheme.end() :]) if scheme else ("", url)
    if "@" in rest and (shown.endswith("//") or not shown.startswith(FILES)):
        login, _, rest = rest.rpartition("@")
        if _SECRET_OPTION.search(login):  # the @ may be in its value
            return f"{shown}***"
        shown += "***@"
    if url.partition(":")[0] not in SERVERS:
        return shown + _SECRET_OPTION.sub(r"\1***", rest)
    address, mark, query = rest.partition("?")
    if not _ADDRESS.fullmatch(address):
        return f"{shown}***"
    return shown + address + mark + "&".join(map(_redact_option, query.split("&")))


def _redact_option(option: str) -> str:
    """Return an option, without its value if that may be secret, or *** if it may be a piece of a password."""
    if not option or _SHOWN_OPTION.fullmatch(option):
        return option
    known = _HIDDEN_OPTION.match(option)
    return f"{known.group() if known else ''}***"


def _synchronous(query: str) -> Synchronous:
    synchronous: Synchronous = "NORMAL"
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key != "synchronous":
            named = f", not {key}" if re.fullmatch("[a-z_]{1,40}", key) else ""
            raise ValueError(f"url: the only option is ?synchronous={'|'.join(SYNCHRONOUS)}{named}")
        if value.upper() not in SYNCHRONOUS:
            raise ValueError(f"url: synchronous must be {' or '.join(SYNCHRONOUS)}")
        synchronous = SYNCHRONOUS[value.upper()]
    return synchronous


def _path(text: str, form: str) -> str:
    """Return the path after the scheme: relative, absolute, or absolute behind the two slashes of a URL."""
    text = text.removeprefix("//")
    if not text:
        raise ValueError(f"url: {form} needs a path")
    return text if text == ":memory:" else str(Path(text).expanduser())
