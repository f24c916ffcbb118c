"""How fast are jobs taken in? One awaited at a time, from 100 callers at once, and many in one call."""

from __future__ import annotations

from bench.cases import Case, Reading
from bench.rig import Failed, Rig
from bench.systems import System, ours

WAYS = {"enqueue/one": "enqueue", "enqueue/callers": "callers", "enqueue/many": "many", "sync-enqueue": "enqueue"}


def once(rig: Rig, name: str, jobs: int) -> list[Reading]:
    """Jobs per second; all of them must be there afterwards."""
    rig.ask(WAYS[name], count=max(10, jobs // 100))  # connected, scripts loaded
    before, there = rig.ask("left")["left"], rig.storage.cpu()
    answer = rig.ask(WAYS[name], count=jobs)
    there = rig.storage.cpu() - there
    if (left := rig.ask("left")["left"] - before) != jobs:
        raise Failed(f"{rig.system.name} has {left} jobs of {jobs}")
    server = there / jobs * 1e6 if rig.storage.process is not None else None
    return [Reading(name, "jobs/s", jobs / answer["seconds"], answer["cpu"] / jobs * 1e6, server, jobs)]


def case(system: System, name: str, jobs: int) -> Case:
    return Case(name, system, lambda rig: once(rig, name, jobs))


def cases(full: bool) -> list[Case]:
    one, many = (20_000, 200_000) if full else (3_000, 20_000)
    return [
        case(ours(), "enqueue/one", one),
        case(ours(), "enqueue/callers", many),
        case(ours(), "enqueue/many", many),
        case(ours(sync=True), "sync-enqueue", one),
    ]
