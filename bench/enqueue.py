"""Workload `enqueue`: one job awaited at a time, from 100 callers at once, and many in one call."""

from __future__ import annotations

from bench.cases import Case, Sample
from bench.harness import Harness, SystemFailed
from bench.systems import System, penstock_system

REQUESTS = {"enqueue/one": "enqueue", "enqueue/callers": "callers", "enqueue/many": "many", "sync-enqueue": "enqueue"}


def once(harness: Harness, name: str, jobs: int) -> list[Sample]:
    """Measure the jobs per second; all of them must be in the queue afterwards."""
    harness.request(REQUESTS[name], count=max(10, jobs // 100))  # to connect, and to load the scripts
    before, there = harness.request("left")["left"], harness.storage.cpu()
    answer = harness.request(REQUESTS[name], count=jobs)
    there = harness.storage.cpu() - there
    if (left := harness.request("left")["left"] - before) != jobs:
        raise SystemFailed(f"{harness.system.name} has {left} jobs of {jobs}")
    server = there / jobs * 1e6 if harness.storage.process is not None else None
    return [Sample(name, "jobs/s", jobs / answer["seconds"], answer["cpu"] / jobs * 1e6, server, jobs)]


def case(system: System, name: str, jobs: int) -> Case:
    return Case(name, system, lambda harness: once(harness, name, jobs))


def cases(full: bool) -> list[Case]:
    one, many = (20_000, 200_000) if full else (3_000, 20_000)
    return [
        case(penstock_system(), "enqueue/one", one),
        case(penstock_system(), "enqueue/callers", many),
        case(penstock_system(), "enqueue/many", many),
        case(penstock_system(sync=True), "sync-enqueue", one),
    ]
