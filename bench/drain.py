"""How fast is a full queue worked off? The jobs are handed in first, then the worker is started.

Timed from the first sign of work to the last handler, in the worker's own process or processes; then the
system itself must say that nothing is left. Every job must have run; runs beyond that are told.
"""

from __future__ import annotations

import time
from typing import Any

from bench.cases import Case, Reading
from bench.rig import WORKER_SECONDS, Failed, Rig
from bench.systems import System, ours

DRAIN_SECONDS = 300.0
KINDS = ("ids", "groups", "priorities")


def once(rig: Rig, name: str, jobs: int, kind: str = "plain") -> list[Reading]:
    """Jobs per second, and what one cost the worker and the server."""
    what = {"kind": kind} if kind != "plain" else {}
    rig.ask("fill", count=jobs, **what)
    worker = rig.start_worker(BENCH_JOBS=str(jobs))
    start = rig.await_runs(1, WORKER_SECONDS)
    first, here, there = rig.tally.runs(), worker.cpu(), rig.storage.cpu()
    end = rig.await_runs(jobs, DRAIN_SECONDS)
    here, there = worker.cpu() - here, rig.storage.cpu() - there
    rig.await_settled()
    time.sleep(0.05)
    if (extra := rig.tally.runs() - jobs) > jobs // 100:
        raise Failed(f"{rig.system.name} ran {jobs + extra} handlers for {jobs} jobs")
    done, took = jobs - first, end - start
    busy: dict[str, Any] = {"worker_busy": round(here / took, 2)} | ({"runs_again": extra} if extra else {})
    if rig.storage.process is not None:
        busy["server_busy"] = round(there / took, 2)
    server = there / done * 1e6 if rig.storage.process is not None else None
    return [Reading(name, "jobs/s", done / took, here / done * 1e6, server, jobs, busy)]


def case(system: System, name: str = "drain", jobs: int = 0, kind: str = "plain") -> Case:
    size = jobs or system.jobs
    return Case(name, system, lambda rig: once(rig, name, size, kind))


def computing(jobs: int) -> list[Case]:
    """Handlers that compute, in one process and in two: what more processes are for."""
    one, two = (ours(processes=n, computes=True, concurrency=100) for n in (1, 2))
    return [case(one, "drain/computing", jobs), case(two, "drain/computing-2", jobs)]


def cases(full: bool) -> list[Case]:
    """Ours: with many at once, at default options, with ids, groups and priorities, in two processes."""
    jobs = 200_000 if full else 20_000
    many = ours(concurrency=100)
    found = [case(many, "drain", jobs), case(ours(), "drain/default", jobs)]
    found += [case(many, f"drain/{kind}", jobs, kind) for kind in KINDS]
    found += [case(ours(processes=2, concurrency=100), "drain/processes-2", jobs)]
    return found + computing(jobs // 10)
