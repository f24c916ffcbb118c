"""Requests to a server with a full memory: it refuses new jobs, and no other request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock import Penstock, StorageUnavailable

__all__ = ["try_full_server"]

#: A namespace of its own, so that no worker takes its jobs.
NAMESPACE = "full"

#: How often a request is sent: another fault may cut its connection.
TRIES = 5

#: Requests that only read, or write little.
ACCEPTED: dict[str, Callable[[Penstock], Awaitable[object]]] = {
    "queues": lambda app: app.queues(),
    "workers": lambda app: app.workers(),
    "counts": lambda app: app.queue("q").counts(),
    "find": lambda app: app.queue("q").find(),
    "cancel": lambda app: app.queue("q").cancel("a"),
    "reserve": lambda app: app.queue("q").reserve(),
    "pause": lambda app: app.queue("q").pause(),
    "delete": lambda app: app.queue("q").delete(),
}


async def try_full_server(url: str) -> list[str]:
    """Try all kinds of requests, and return sentences about those that were answered wrongly."""
    wrong: list[str] = []
    async with Penstock(url, namespace=NAMESPACE) as app:
        try:
            await app.queue("q").enqueue(1, id="a")
            wrong.append("enqueue was accepted by a full server")
        except StorageUnavailable:
            pass
        for name, request in ACCEPTED.items():
            for _ in range(TRIES):
                try:
                    await request(app)
                    break
                except StorageUnavailable as error:
                    if "maxmemory" in str(error):
                        wrong.append(f"{name} was refused by a full server: {error}")
                        break
    return wrong
