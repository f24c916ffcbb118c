"""redis-py's clients for a URL: a plain server, Sentinel or Cluster, for asyncio or for threads."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis.backoff import NoBackoff

__all__ = ["CONNECT", "SILENCE", "Kit", "client_of", "close", "describe", "options_of", "silence_of"]

#: A server that cannot be connected to, or does not greet, within so long (seconds) is away.
CONNECT = 5.0

#: One that has not answered for so long is given up, unless the URL says `socket_timeout`. On a Cluster that is
#: sooner: only then its clients look for who has taken over.
SILENCE, CLUSTER_SILENCE = 15.0, 5.0

_PLAIN_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
_CLUSTER, _SENTINEL = "redis+cluster", "redis+sentinel"
_MANY = 2**30


class Kit(NamedTuple):
    """redis-py has everything twice, for asyncio and for threads: the classes of one way."""

    redis: Any
    cluster: Any
    sentinel: Any
    retry: Any


def describe(url: str) -> tuple[str, bool]:
    """Where a URL leads, without its credentials; and whether it is a Cluster."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] or parts.path
    return f"{parts.scheme}://{place}", parts.scheme == _CLUSTER


def silence_of(url: str) -> float:
    """How long (seconds) an answer is waited for."""
    parts = urlsplit(url)
    given = _query(parts).get("socket_timeout")
    if given is None:
        return CLUSTER_SILENCE if parts.scheme == _CLUSTER else SILENCE
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"socket_timeout in a storage URL is a number of seconds above 0, not {given!r}")
    return seconds


def options_of(kit: Kit, silence: float) -> dict[str, Any]:
    """How any connection is made: in a bounded time, greeting included, and not tried again."""
    return {
        "retry": kit.retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT,
        "socket_timeout": min(CONNECT, silence),
    }


def client_of(url: str, kit: Kit) -> Any:
    """The redis-py client for a URL. It repeats nothing; who takes its sockets sets their timeout himself."""
    parts = urlsplit(url)
    silence = silence_of(url)
    options = options_of(kit, silence)
    if parts.scheme in _PLAIN_SCHEMES:
        plain = _PLAIN_SCHEMES[parts.scheme] + url[len(parts.scheme) :]
        client = kit.redis.from_url(plain, **options, health_check_interval=0, max_connections=_MANY)
        client.connection_pool.connection_kwargs["socket_timeout"] = options["socket_timeout"]  # the URL's is ours
        return client
    query = _query(parts)
    login: dict[str, Any] = {"username": _unquoted(parts.username), "password": _unquoted(parts.password)}
    if query.get("tls") in ("1", "true"):
        login["ssl"] = True
    if parts.scheme == _CLUSTER:
        host, port = _hosts(parts.netloc, 6379)[0]
        return kit.cluster(host=host, port=port, **login, **(options | {"socket_timeout": silence}))
    if parts.scheme == _SENTINEL:
        return _sentinel_client(kit, parts, query, login, options)
    raise ValueError(f"unknown storage scheme {parts.scheme!r}")


def _sentinel_client(
    kit: Kit, parts: SplitResult, query: dict[str, str], login: dict[str, Any], options: dict[str, Any]
) -> Any:
    """`redis+sentinel://[user:password@]host:port,host:port/service[/db]`: the service's primary."""
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("a redis+sentinel:// URL names its service: redis+sentinel://host:26379/mymaster")
    sentinel_login = {"password": query["sentinel_password"]} if "sentinel_password" in query else {}
    sentinel = kit.sentinel(_hosts(parts.netloc, 26379), sentinel_kwargs={**options, **sentinel_login})
    return sentinel.master_for(service, db=int(db or 0), **login, **options)


async def close(client: Any) -> None:
    """Close a client and, where a Sentinel found it, the Sentinel's own connections."""
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
