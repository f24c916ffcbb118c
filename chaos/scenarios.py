"""The faults of servers that stand in for each other, and the places by name.

While a primary is away, what it acknowledged just before and had not passed on is lost: the server promises no more.
Such a stretch of time is written down as `shaky`, and what was acknowledged in it is held against nobody. With
`--durability` an enqueue is not acknowledged before others have it: then no accepted job may be lost all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from pathlib import Path
from typing import Any

from chaos.failover import ClusterPlace, SentinelPlace, agrees, family_slot
from chaos.faults import FAULTS as USUAL
from chaos.faults import TAKING_TURNS as USUALLY_IN_TURN
from chaos.faults import Fault
from chaos.log import now
from chaos.places import Place, ServerPlace, SqlitePlace, wait_for
from chaos.queues import SETTINGS
from chaos.stage import Stage
from tests.servers import Server

__all__ = ["FAULTS", "TAKING_TURNS", "place_for"]

#: What a primary acknowledged so long (µs) before it died may not have reached its replicas.
BEHIND = 1_000_000
#: Clients may hear so long (µs) after the fact what the old primary answered.
OVERLAP = 500_000
#: Families that always have something to do.
BUSY = ("plain", "lane", "lanes", "bunch", "single", "brief")


def _shaken(stage: Stage, first: int, last: int) -> None:
    """What was acknowledged between these moments may be lost."""
    stage.note("shaky", first=first, last=last + OVERLAP)


# Sentinel -----------------------------------------------------------------------------------------


def _watched(stage: Stage) -> SentinelPlace:
    assert isinstance(stage.place, SentinelPlace)
    return stage.place


async def kill_primary(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """The primary dies, a replica takes its place, and the dead one comes back as a replica."""
    place = _watched(stage)
    old, began = place.primary, now()
    old.kill()
    new = await asyncio.to_thread(_promoted, place, old)
    stage.note("failover", since=began, families=None)
    _shaken(stage, began - BEHIND, began)
    await asyncio.sleep(draw.uniform(0.0, 2.0))
    await asyncio.to_thread(place.rejoin, old)
    await asyncio.to_thread(_in_step, place, new)
    return {"old": old.port, "new": new.port, "took": (now() - began) / 1e6}


async def freeze_primary(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """The primary is cut off by standing still; when it goes on it still thinks that it is the primary."""
    place = _watched(stage)
    old, began = place.primary, now()
    _signal(old, signal.SIGSTOP)
    try:
        new = await asyncio.to_thread(_promoted, place, old)
        stage.note("failover", since=began, families=None)
        await asyncio.sleep(draw.uniform(0.0, 2.0))
    finally:
        woken = now()
        _signal(old, signal.SIGCONT)
    await asyncio.to_thread(wait_for, lambda: not place.is_primary(old), "the old primary stays one")
    _shaken(stage, began - BEHIND, began)
    _shaken(stage, woken, now())
    await asyncio.to_thread(_in_step, place, new)
    return {"old": old.port, "new": new.port, "took": (now() - began) / 1e6}


def _promoted(place: SentinelPlace, old: Server) -> Server:
    """Wait for another primary."""

    def there() -> bool:
        new = place.primary
        return new is not old and place.is_primary(new)

    wait_for(there, "no replica was promoted")
    return place.primary


def _in_step(place: SentinelPlace, primary: Server) -> None:
    """Wait until both replicas follow: two failovers in a row without that would be more than anybody promises."""

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


def _clustered(stage: Stage) -> ClusterPlace:
    assert isinstance(stage.place, ClusterPlace)
    return stage.place


async def kill_node(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A primary dies, its replica takes over, and the dead one comes back as a replica."""
    place = _clustered(stage)
    old, families = _with_families(place, draw)
    began = now()
    old.kill()
    await asyncio.to_thread(_taken_over, place, old)
    stage.note("failover", since=began, families=families)
    _shaken(stage, began - BEHIND, began)
    await asyncio.sleep(draw.uniform(0.0, 2.0))
    await asyncio.to_thread(place.heal)
    return {"port": old.port, "families": families, "took": (now() - began) / 1e6}


async def freeze_node(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A primary is cut off by standing still until its replica has taken over, and for a while longer."""
    place = _clustered(stage)
    old, families = _with_families(place, draw)
    began = now()
    _signal(old, signal.SIGSTOP)
    try:
        await asyncio.to_thread(_taken_over, place, old)
        stage.note("failover", since=began, families=families)
        await asyncio.sleep(draw.uniform(0.0, 2.0))
    finally:
        woken = now()
        _signal(old, signal.SIGCONT)
    await asyncio.to_thread(place.heal)
    _shaken(stage, began - BEHIND, began)
    _shaken(stage, woken, now())
    return {"port": old.port, "families": families, "took": (now() - began) / 1e6}


async def move_slot(stage: Stage, draw: random.Random) -> dict[str, Any]:
    """A family's slot moves to another primary, key by key, while everybody works on it."""
    place = _clustered(stage)
    family = draw.choice(BUSY)
    slot = family_slot(family)
    source = place.serves(slot)
    targets = [node for node in place.primaries() if node is not source]
    if source is None or not targets:
        return {"skipped": "nobody serves it"}
    target = draw.choice(targets)
    moved = await asyncio.to_thread(_migrate, place, slot, source, target, draw.uniform(0.0, 0.05))
    return {"family": family, "slot": slot, "keys": moved}


def _with_families(place: ClusterPlace, draw: random.Random) -> tuple[Server, list[str]]:
    """A primary that serves a family, and the families that it serves."""
    owners: dict[int, list[str]] = {}
    for family in sorted({queue.partition("/")[0] for queue in SETTINGS}):
        server = place.serves(family_slot(family))
        if server is not None:
            owners.setdefault(place.nodes.index(server), []).append(family)
    chosen = draw.choice(sorted(owners))
    return place.nodes[chosen], owners[chosen]


def _taken_over(place: ClusterPlace, old: Server) -> None:
    """Wait until somebody else serves the slots of a node and everybody is served."""

    def over() -> bool:
        others = [node for node in place.nodes if node is not old]
        for node in others:
            with contextlib.closing(node.client()) as client:
                if not agrees(client):
                    return False
        seen = place.seen_by(others[0])
        return not any(each["slots"] for address, each in seen.items() if address.endswith(f":{old.port}"))

    wait_for(over, "no replica took over")


def _migrate(place: ClusterPlace, slot: int, source: Server, target: Server, rest: float) -> int:
    """MIGRATE the keys of a slot one by one, with time in between for everybody to meet the half-moved slot."""
    import time

    moved, ids = 0, {node.port: place.id_of(node) for node in place.nodes}
    with contextlib.closing(source.client()) as here, contextlib.closing(target.client()) as there:
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
        while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            here.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            moved += 1
            time.sleep(rest)
        for node in (target, source, *(each for each in place.primaries() if each not in (source, target))):
            with contextlib.closing(node.client()) as client:
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])
    return moved


OWN: dict[str, Fault] = {
    each.__name__: each for each in (kill_primary, freeze_primary, kill_node, freeze_node, move_slot)
}
FAULTS = USUAL | OWN
TAKING_TURNS = USUALLY_IN_TURN | OWN.keys()


def place_for(storage: str, folder: Path, fsync: str) -> Place:
    """The place that the command line names."""
    match storage:
        case "sqlite":
            return SqlitePlace(folder)
        case "sentinel":
            return SentinelPlace(folder)
        case "cluster":
            return ClusterPlace()
        case _:
            return ServerPlace(storage, fsync)
