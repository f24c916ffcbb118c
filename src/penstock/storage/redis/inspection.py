"""Inspection: facts about the servers, and counters of the queues."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, cast

from penstock.errors import StorageError, StorageUnavailable
from penstock.model.job import Snapshot, State
from penstock.model.storage_info import NodeInfo, QueueMeter, ServerInfo
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import read_number, read_snapshot, text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["Inspector"]

#: Sends one command to one server.
Ask = Callable[..., Awaitable[Any]]

#: The latency is the best of this many tries, so that other load on the server counts as little as possible.
TRIES = 5


class Inspector:
    """Reads facts about the servers and the queues; see `penstock.model.storage_info.Inspectable`."""

    def __init__(self, connection: Connection, keys: Keys, calls: ScriptCalls) -> None:
        self._connection = connection
        self._keys = keys
        self._calls = calls

    async def inspect(self) -> ServerInfo:
        """Read the state of the servers."""
        schema = read_number(await self._connection.command("GET", self._keys.schema) or b"")
        nodes = [await read_node(where, ask) for where, ask in self._servers()]
        return ServerInfo(schema=schema, cluster=self._connection.cluster, nodes=nodes)

    def _servers(self) -> list[tuple[str, Ask]]:
        """Return each server with its address: the only one, or the primaries of a Cluster."""
        if not self._connection.cluster:
            return [(self._connection.where, self._connection.command)]
        client = self._connection.client

        def to(node: Any) -> Ask:
            async def ask(*command: object) -> Any:
                try:
                    answer = client.execute_command(*command, target_nodes=node)
                    return await answer if isawaitable(answer) else answer  # that of a thread is there already
                except Exception as error:
                    raise self._connection.explain(error) from error

            return ask

        return [(f"{node.host}:{node.port}", to(node)) for node in client.get_primaries()]

    async def meters(self, queues: Sequence[str]) -> list[QueueMeter]:
        """Read the counters of each of these queues."""
        calls = [self._calls.build("meters", name, ()) for name in queues]
        counted = await self._connection.run_many(calls, repeat=True) if calls else []
        return [_meter(name, *numbers) for name, numbers in zip(queues, counted, strict=True)]

    async def latest(self, queue: str, state: State, limit: int = 10) -> list[Snapshot]:
        """Read finished jobs of one state, those that are kept longest first."""
        now, *rows = await self._connection.run(*self._calls.build("latest", queue, (state.value, limit)), repeat=True)
        read = (
            read_snapshot(queue, text(id), int(now), record, None, None, end, None, *part)
            for id, record, end, *part in rows
        )
        return [snapshot for snapshot in read if snapshot is not None]

    async def forget_namespace(self) -> None:
        """Delete the keys of the namespace that belong to no queue: its schema, lists and marks, and its workers."""
        keys = [
            self._keys.schema,
            self._keys.workers,
            self._keys.requests,
            *(self._keys.operators(name) for name in ("activity", "bulk", "releases")),
            self._keys.families,
            self._keys.names(""),
            self._keys.listeners(""),
            f"{self._keys.ops}history",
            f"{self._keys.ops}minute",
        ]
        for key in keys:
            await self._connection.command("DEL", key)


async def read_node(where: str, ask: Ask) -> NodeInfo:
    """Read the facts about one server; those that it does not show keep their defaults."""
    info = await _info(ask)
    config = await _config(ask)
    ahead, latency = await _clock(ask)
    return NodeInfo(
        where=where,
        software="valkey" if info.get("server_name") == "valkey" or "valkey_version" in info else "redis",
        version=info.get("valkey_version") or info.get("redis_version", ""),
        role=info.get("role", "master"),
        policy=info.get("maxmemory_policy"),
        max_memory=_int(info.get("maxmemory")),
        used_memory=_int(info.get("used_memory")),
        machine_memory=_int(info.get("total_system_memory")),
        evicted=_int(info.get("evicted_keys")),
        aof=info.get("aof_enabled") == "1",
        appendfsync=config.get("appendfsync"),
        save=config.get("save"),
        saved_at=_int(info.get("rdb_last_save_time")),
        changes=_int(info.get("rdb_changes_since_last_save")),
        writes_work="err" not in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")),
        replicas=_int(info.get("connected_slaves")),
        needs_replicas=_int(config["min-replicas-to-write"]) if "min-replicas-to-write" in config else None,
        clients=_int(info.get("connected_clients")),
        max_clients=_int(info.get("maxclients")),
        ahead_ms=ahead,
        latency_ms=latency,
    )


async def _info(ask: Ask) -> dict[str, str]:
    """Read INFO as text by name; some clients parse it, others return the text."""
    answer = await _try(ask, "INFO")
    if isinstance(answer, Mapping):
        return _texts(cast("Mapping[Any, Any]", answer))
    lines = _text(answer or "").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


async def _config(ask: Ask) -> dict[str, str]:
    """Read the settings that Penstock checks; hosted servers often refuse to show them."""
    found: dict[str, str] = {}
    for name in ("appendfsync", "save", "min-replicas-to-write"):
        answer = await _try(ask, "CONFIG", "GET", name)
        if isinstance(answer, Mapping):
            found |= _texts(cast("Mapping[Any, Any]", answer))
        elif answer:
            found |= _texts(dict(zip(answer[::2], answer[1::2], strict=True)))
    return found


async def _clock(ask: Ask) -> tuple[float, float]:
    """Measure by how much the server's clock is ahead, and the round trip, in ms: the fastest of a few tries."""
    best = (0.0, float("inf"))
    for _ in range(TRIES):
        sent, began = time.time(), time.perf_counter()
        answer = await ask("TIME")
        took = (time.perf_counter() - began) * 1000
        if took < best[1]:
            best = (int(answer[0]) * 1000 + int(answer[1]) / 1000 - sent * 1000 - took / 2, took)
    return best


async def _try(ask: Ask, *command: object) -> Any:
    """Send a command that a server may refuse; return None then."""
    try:
        return await ask(*command)
    except StorageUnavailable:
        raise
    except StorageError:
        return None


def _texts(values: Mapping[Any, Any]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in values.items()}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _int(value: str | None) -> int:
    try:
        return int(float(value or 0))
    except ValueError:
        return 0


def _meter(queue: str, finished: int, overdue: int, damaged: int, tick: int | None) -> QueueMeter:
    return QueueMeter(queue, int(finished), int(overdue), int(damaged), None if tick is None else int(tick))
