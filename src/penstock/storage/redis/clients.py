"""Clients of redis-py for a URL: one server, Sentinel or Cluster, for asyncio or for threads."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis.backoff import NoBackoff

__all__ = [
    "CONNECT_TIMEOUT",
    "READ_TIMEOUT",
    "ClientClasses",
    "check_url",
    "client_of",
    "close",
    "describe",
    "options_of",
    "read_timeout_of",
]

#: The timeout (seconds) of connecting, login included.
CONNECT_TIMEOUT = 5.0

#: The timeout (seconds) of an answer, unless the URL has `socket_timeout`. On a Cluster it is shorter, because only
#: after a timeout do its clients look for the new primary of a slot.
READ_TIMEOUT, CLUSTER_READ_TIMEOUT = 15.0, 5.0

_PLAIN_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
_CLUSTER, _SENTINEL = "redis+cluster", "redis+sentinel"
#: For a pool without a limit.
_NO_LIMIT = 2**30


class ClientClasses(NamedTuple):
    """The classes of redis-py for asyncio, or those for threads."""

    redis: Any
    cluster: Any
    sentinel: Any
    retry: Any


def check_url(url: str) -> None:
    """Raise `ValueError` for a URL that names no server. The text quotes no part of it, which may be a password."""
    try:
        parts = urlsplit(url)
        _hosts(parts.netloc, 0)
    except ValueError as error:
        if "port" in str(error).lower():
            raise ValueError("the port must be a number below 65536") from None
        raise ValueError("the address is not valid; / : @ ? # in a password are written %2F %3A %40 %3F %23") from None
    query, path = _query(parts), parts.path.strip("/")
    databases = [query.get("db", "")]
    if parts.scheme == "unix":
        if not path:
            raise ValueError("unix:// needs the path of a socket")
    elif parts.scheme == _SENTINEL:
        service, _, db = path.partition("/")
        databases.append(db)
        if not service:
            raise ValueError("it must name its service: redis+sentinel://host:26379/mymaster")
    else:
        databases.append(path)
    if not all(db == "" or (db.isascii() and db.isdigit()) for db in databases):
        raise ValueError("the database after the address must be a number, as in /0")
    if parts.scheme == _CLUSTER and any(db.strip("0") for db in databases):
        raise ValueError("a Cluster has only the database 0")
    read_timeout_of(url)


def describe(url: str) -> tuple[str, bool]:
    """Return the address in a URL, without credentials, and whether it is a Cluster."""
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2] or parts.path
    return f"{parts.scheme}://{address}", parts.scheme == _CLUSTER


def read_timeout_of(url: str) -> float:
    """Return the timeout (seconds) of an answer; raises `ValueError` if the URL has none that makes sense."""
    parts = urlsplit(url)
    given = _query(parts).get("socket_timeout")
    if given is None:
        return CLUSTER_READ_TIMEOUT if parts.scheme == _CLUSTER else READ_TIMEOUT
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"socket_timeout in a storage URL is a number of seconds above 0, not {given!r}")
    return seconds


def options_of(classes: ClientClasses, read_timeout: float) -> dict[str, Any]:
    """Return the options of every client: a timeout for connecting and login, and no retry."""
    return {
        "retry": classes.retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": min(CONNECT_TIMEOUT, read_timeout),
    }


def client_of(url: str, classes: ClientClasses, timeout: float | None = None) -> Any:
    """Make the redis-py client for a URL. It retries nothing, and waits at most `timeout` seconds for a server.

    Its socket timeout is that of connecting: `Pipeline` and `ThreadConnection` set their own for answers.
    """
    parts = urlsplit(url)
    read_timeout = read_timeout_of(url)
    if timeout is not None:
        read_timeout = min(read_timeout, timeout)
    options = options_of(classes, read_timeout)
    if parts.scheme in _PLAIN_SCHEMES:
        plain = _PLAIN_SCHEMES[parts.scheme] + url[len(parts.scheme) :]
        client = classes.redis.from_url(plain, **options, health_check_interval=0, max_connections=_NO_LIMIT)
        client.connection_pool.connection_kwargs["socket_timeout"] = options["socket_timeout"]  # not the one of the URL
        return client
    query = _query(parts)
    login: dict[str, Any] = {"username": _unquoted(parts.username), "password": _unquoted(parts.password)}
    if query.get("tls") in ("1", "true"):
        login["ssl"] = True
    if parts.scheme == _CLUSTER:
        host, port = _hosts(parts.netloc, 6379)[0]
        return classes.cluster(host=host, port=port, **login, **(options | {"socket_timeout": read_timeout}))
    if parts.scheme == _SENTINEL:
        return _sentinel_client(classes, parts, query, login, options)
    raise ValueError(f"unknown storage scheme {parts.scheme!r}")


def _sentinel_client(
    classes: ClientClasses, parts: SplitResult, query: dict[str, str], login: dict[str, Any], options: dict[str, Any]
) -> Any:
    """Make a client of a service's primary for `redis+sentinel://[user:password@]host:port,host:port/service[/db]`."""
    service, _, db = parts.path.strip("/").partition("/")
    sentinel_login = {"password": query["sentinel_password"]} if "sentinel_password" in query else {}
    sentinel = classes.sentinel(_hosts(parts.netloc, 26379), sentinel_kwargs={**options, **sentinel_login})
    return sentinel.master_for(service, db=int(db or 0), **login, **options)


async def close(client: Any) -> None:
    """Close a client and the connections to the Sentinels that found its server."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        await sentinel.aclose()


def _query(parts: SplitResult) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_qs(parts.query).items()}


def _unquoted(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _hosts(netloc: str, default_port: int) -> list[tuple[str, int]]:
    hosts: list[tuple[str, int]] = []
    for part in netloc.rpartition("@")[2].split(","):
        bare = urlsplit(f"//{part}")
        hosts.append((bare.hostname or "127.0.0.1", bare.port or default_port))
    return hosts
