"""The open connections of one process to a server: those of an event loop, or those of its threads."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.storage.redis.blocking_pipeline import ThreadConnectionPool
from penstock.storage.redis.pipeline import Pipeline

__all__ = ["Sockets"]

#: A command of redis-py's Cluster client holds a connection of its own: at most this many, other calls wait.
_MAX_CALLS = 50


class Sockets:
    """The client and the connections of a `Connection`. A copy of it with a bound shares them."""

    def __init__(self) -> None:
        # redis-py's clients are typed loosely: `Connection` and its subclass handle them as Any.
        self.client: Any = None
        self.pipeline: Pipeline | None = None
        self.connecting: asyncio.Task[Pipeline] | None = None
        #: Pipelines to a server that is no primary any more, while answers are still under way.
        self.retired: list[Pipeline] = []
        self.idle: list[Pipeline] = []
        self.taken: set[Pipeline] = set()
        self.call_limit = asyncio.Semaphore(_MAX_CALLS)
        #: The connections of threads without an event loop; None on a Cluster, whose client has its own.
        self.threads: ThreadConnectionPool | None = None
        #: The bound (seconds) of all requests of these threads, which that client needs when it is made.
        self.threads_timeout: float | None = None
