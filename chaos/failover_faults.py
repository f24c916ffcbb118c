"""Faults of servers with failover (Sentinel, Cluster), and the choice of a storage by its name.

A primary that fails loses the writes that it acknowledged and had not replicated: the server promises no more. That
time is recorded as a `loss_window`, and writes acknowledged in it may be lost without a violation. With `--durability`
an enqueue is acknowledged after its replication, so an accepted job may not be lost even then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path
from typing import Any

from chaos.failover_servers import ClusterServers, SentinelServers, cluster_state_ok, family_slot
from chaos.faults import EXCLUSIVE as BASIC_EXCLUSIVE
from chaos.faults import FAULTS as BASIC_FAULTS
from chaos.faults import Fault
from chaos.limited_queues import LIMITED_SETTINGS
from chaos.log import now
from chaos.queues import SETTINGS
from chaos.setup import Setup
from chaos.storages import SingleServer, SqliteFile, StorageUnderTest, wait_for
from tests.servers import Server

__all__ = ["EXCLUSIVE", "FAULTS", "storage_for", "wait_for_takeover"]

#: The replicas may lack writes that the primary acknowledged in this time (µs) before it failed.
REPLICATION_LAG = 1_000_000
#: Time (µs) that an answer of the old primary may take to reach its client.
ANSWER_DELAY = 500_000
#: Families that have jobs during the whole run, and those of a run of limits.
BUSY = ("plain", "lane", "lanes", "bunch", "single", "brief")
BUSY_LIMITED = ("cap", "caps", "order", "rate", "pack", "fam", "tick")


def _record_loss_window(setup: Setup, first: int, last: int) -> None:
    """Record that writes acknowledged between these moments may be lost."""
    setup.record("loss_window", first=first, last=last + ANSWER_DELAY)


# Sentinel -----------------------------------------------------------------------------------------


def _sentinels_of(setup: Setup) -> SentinelServers:
    assert isinstance(setup.storage, SentinelServers)
    return setup.storage


async def kill_primary(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Kill the primary, wait for the promotion of a replica, and restart the killed one as a replica."""
    storage = _sentinels_of(setup)
    old, began = storage.primary, now()
    old.kill()
    new = await asyncio.to_thread(_wait_for_promotion, storage, old)
    setup.record("failover", since=began, families=None)
    _record_loss_window(setup, began - REPLICATION_LAG, began)
    await asyncio.sleep(draw.uniform(0.0, 2.0))
    await asyncio.to_thread(storage.rejoin, old)
    await asyncio.to_thread(_wait_for_replicas, storage, new)
    return {"old": old.port, "new": new.port, "took": (now() - began) / 1e6}


async def freeze_primary(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Stop the primary until a replica is promoted; when it continues, it still takes itself for the primary."""
    storage = _sentinels_of(setup)
    old, began = storage.primary, now()
    _signal(old, signal.SIGSTOP)
    try:
        new = await asyncio.to_thread(_wait_for_promotion, storage, old)
        setup.record("failover", since=began, families=None)
        await asyncio.sleep(draw.uniform(0.0, 2.0))
    finally:
        woken = now()
        _signal(old, signal.SIGCONT)
    await asyncio.to_thread(wait_for, lambda: not storage.is_primary(old), "the old primary stays one")
    _record_loss_window(setup, began - REPLICATION_LAG, began)
    _record_loss_window(setup, woken, now())
    await asyncio.to_thread(_wait_for_replicas, storage, new)
    return {"old": old.port, "new": new.port, "took": (now() - began) / 1e6}


def _wait_for_promotion(storage: SentinelServers, old: Server) -> Server:
    """Wait for the promotion of a replica and return it."""

    def there() -> bool:
        new = storage.primary
        return new is not old and storage.is_primary(new)

    wait_for(there, "no replica was promoted")
    return storage.primary


def _wait_for_replicas(storage: SentinelServers, primary: Server) -> None:
    """Wait until both replicas follow: a second failover before that may lose writes of any age."""

    def follow() -> bool:
        with contextlib.closing(primary.client()) as client:
            about = client.info("replication")
        links = [about.get(f"slave{i}", {}) for i in range(2)]
        return all(link.get("state") == "online" and link.get("lag", 9) <= 1 for link in links)

    wait_for(follow, "the replicas do not follow")


def _signal(server: Server, number: int) -> None:
    assert server.process is not None
    server.process.send_signal(number)


# Cluster ------------------------------------------------------------------------------------------


def _cluster_of(setup: Setup) -> ClusterServers:
    assert isinstance(setup.storage, ClusterServers)
    return setup.storage


async def kill_node(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Kill a primary, wait until its replica takes over, and restart the killed one as a replica."""
    storage = _cluster_of(setup)
    old, families = _pick_primary(setup, draw)
    began = now()
    old.kill()
    await asyncio.to_thread(wait_for_takeover, storage, old)
    setup.record("failover", since=began, families=families)
    _record_loss_window(setup, began - REPLICATION_LAG, began)
    await asyncio.sleep(draw.uniform(0.0, 2.0))
    await asyncio.to_thread(storage.heal)
    return {"port": old.port, "families": families, "took": (now() - began) / 1e6}


async def freeze_node(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Stop a primary until its replica has taken over, and up to two seconds longer."""
    storage = _cluster_of(setup)
    old, families = _pick_primary(setup, draw)
    began = now()
    _signal(old, signal.SIGSTOP)
    try:
        await asyncio.to_thread(wait_for_takeover, storage, old)
        setup.record("failover", since=began, families=families)
        await asyncio.sleep(draw.uniform(0.0, 2.0))
    finally:
        woken = now()
        _signal(old, signal.SIGCONT)
    await asyncio.to_thread(storage.heal)
    _record_loss_window(setup, began - REPLICATION_LAG, began)
    _record_loss_window(setup, woken, now())
    return {"port": old.port, "families": families, "took": (now() - began) / 1e6}


async def move_slot(setup: Setup, draw: random.Random) -> dict[str, Any]:
    """Move a family's slot to another primary, key by key, while clients use it."""
    storage = _cluster_of(setup)
    family = draw.choice(BUSY_LIMITED if setup.settings.schedules else BUSY)
    slot = family_slot(family)
    source = storage.serves(slot)
    targets = [node for node in storage.primaries() if node is not source]
    if source is None or not targets:
        return {"skipped": "no primary serves it"}
    target = draw.choice(targets)
    moved = await asyncio.to_thread(_migrate, storage, slot, source, target, draw.uniform(0.0, 0.05))
    return {"family": family, "slot": slot, "keys": moved}


def _pick_primary(setup: Setup, draw: random.Random) -> tuple[Server, list[str]]:
    """Pick a primary that serves families of the run; return it and those families."""
    storage, owners = _cluster_of(setup), dict[int, list[str]]()
    queues = LIMITED_SETTINGS if setup.settings.schedules else SETTINGS
    for family in sorted({queue.partition("/")[0] for queue in queues}):
        server = storage.serves(family_slot(family))
        if server is not None:
            owners.setdefault(storage.nodes.index(server), []).append(family)
    chosen = draw.choice(sorted(owners))
    return storage.nodes[chosen], owners[chosen]


def wait_for_takeover(storage: ClusterServers, old: Server) -> None:
    """Wait until another node serves the slots of a node and the cluster state is ok."""

    def over() -> bool:
        others = [node for node in storage.nodes if node is not old]
        for node in others:
            with contextlib.closing(node.client()) as client:
                if not cluster_state_ok(client):
                    return False
        seen = storage.seen_by(others[0])
        return not any(each["slots"] for address, each in seen.items() if address.endswith(f":{old.port}"))

    wait_for(over, "no replica took over")


def _migrate(storage: ClusterServers, slot: int, source: Server, target: Server, pause: float) -> int:
    """MIGRATE the keys of a slot one by one, with pauses in which clients meet the half-moved slot."""
    import time

    moved, ids = 0, {node.port: storage.id_of(node) for node in storage.nodes}
    with contextlib.closing(source.client()) as here, contextlib.closing(target.client()) as there:
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
        while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            here.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            moved += 1
            time.sleep(pause)
        for node in (target, source, *(each for each in storage.primaries() if each not in (source, target))):
            with contextlib.closing(node.client()) as client:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])
    return moved


FAILOVER_FAULTS: dict[str, Fault] = {
    each.__name__: each for each in (kill_primary, freeze_primary, kill_node, freeze_node, move_slot)
}
FAULTS = BASIC_FAULTS | FAILOVER_FAULTS
EXCLUSIVE = BASIC_EXCLUSIVE | FAILOVER_FAULTS.keys()


def storage_for(storage: str, folder: Path, fsync: str) -> StorageUnderTest:
    """Start the storage that the command line names."""
    match storage:
        case "sqlite":
            return SqliteFile(folder)
        case "sentinel":
            return SentinelServers(folder)
        case "cluster":
            return ClusterServers()
        case _:
            return SingleServer(storage, fsync)
