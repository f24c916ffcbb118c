"""Clients of redis-py for a URL: one server, Sentinel or Cluster, for asyncio or for threads."""

from __future__ import annotations

from typing import Any, NamedTuple

from redis.backoff import NoBackoff

from penstock.storage.redis.server_url import CLUSTER, SENTINEL, UNIX, ServerUrl

__all__ = ["CONNECT_TIMEOUT", "ClientClasses", "client_of", "close", "node_client_of"]

#: The timeout (seconds) of connecting, login included.
CONNECT_TIMEOUT = 5.0

#: For a pool without a limit.
_NO_LIMIT = 2**30


class ClientClasses(NamedTuple):
    """The classes of redis-py for asyncio, or those for threads."""

    redis: Any
    cluster: Any
    cluster_node: Any
    sentinel: Any
    retry: Any


def client_of(server: ServerUrl, classes: ClientClasses, timeout: float | None = None) -> Any:
    """Make the redis-py client for a URL. It retries nothing, and waits at most `timeout` seconds for a server.

    Its socket timeout is that of connecting: `Pipeline` and `ThreadConnection` set their own for answers.
    """
    read_timeout = server.read_timeout if timeout is None else min(server.read_timeout, timeout)
    options = _options_of(server, classes, read_timeout)
    if server.scheme == CLUSTER:
        nodes = [classes.cluster_node(host, port) for host, port in server.hosts]
        return classes.cluster(startup_nodes=nodes, **(options | {"socket_timeout": read_timeout}))
    if server.scheme == SENTINEL:
        bare = {key: value for key, value in options.items() if key not in server.login}
        sentinel = classes.sentinel(server.hosts, sentinel_kwargs={**bare, **server.sentinel_login})
        return sentinel.master_for(server.service, db=server.database, **options)
    pool = {"db": server.database, "health_check_interval": 0, "max_connections": _NO_LIMIT}
    if server.scheme == UNIX:
        return classes.redis(unix_socket_path=server.path, **options, **pool)
    host, port = server.hosts[0]
    return classes.redis(host=host, port=port, **options, **pool)


def node_client_of(server: ServerUrl, classes: ClientClasses, host: str, port: int) -> Any:
    """Make a redis-py client for one node of a Cluster, with the login and the TLS options of the URL."""
    return classes.redis(host=host, port=port, **_options_of(server, classes, server.read_timeout))


def _options_of(server: ServerUrl, classes: ClientClasses, read_timeout: float) -> dict[str, Any]:
    """Return the options of every client: login and TLS, a timeout for connecting, and no retry."""
    return {
        "retry": classes.retry(NoBackoff(), 0),
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": min(CONNECT_TIMEOUT, read_timeout),
        **server.login,
        **server.tls,
        **server.options,
    }


async def close(client: Any) -> None:
    """Close a client and the connections to the Sentinels that found its server."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        await sentinel.aclose()
