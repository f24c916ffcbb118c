"""Workload `drain`: the jobs are enqueued first, then the worker is started and runs all of them.

Timed from the first handler run to the last one; then the system itself must report that no job is left. Every job must
have run; additional runs are recorded, and more than 1 % of them is a failure.
"""

from __future__ import annotations

import time
from typing import Any

from bench.cases import Case, Sample
from bench.harness import WORKER_SECONDS, Harness, SystemFailed
from bench.systems import System, penstock_system

DRAIN_SECONDS = 300.0
KINDS = ("ids", "groups", "priorities")


def once(harness: Harness, name: str, jobs: int, kind: str = "plain") -> list[Sample]:
    """Measure the jobs per second, and the CPU cost of one in the worker and in the server."""
    what = {"kind": kind} if kind != "plain" else {}
    harness.request("fill", count=jobs, **what)
    worker = harness.start_worker(BENCH_JOBS=str(jobs))
    start = harness.wait_for_runs(1, WORKER_SECONDS)
    first, here, there = harness.counter.runs(), worker.cpu(), harness.storage.cpu()
    end = harness.wait_for_runs(jobs, DRAIN_SECONDS)
    here, there = worker.cpu() - here, harness.storage.cpu() - there
    harness.wait_until_settled()
    time.sleep(0.05)
    if (extra := harness.counter.runs() - jobs) > jobs // 100:
        raise SystemFailed(f"{harness.system.name} ran {jobs + extra} handlers for {jobs} jobs")
    done, took = jobs - first, end - start
    busy: dict[str, Any] = {"worker_busy": round(here / took, 2)} | ({"runs_again": extra} if extra else {})
    if harness.storage.process is not None:
        busy["server_busy"] = round(there / took, 2)
    server = there / done * 1e6 if harness.storage.process is not None else None
    return [Sample(name, "jobs/s", done / took, here / done * 1e6, server, jobs, busy)]


def case(system: System, name: str = "drain", jobs: int = 0, kind: str = "plain") -> Case:
    size = jobs or system.jobs
    return Case(name, system, lambda harness: once(harness, name, size, kind))


def computing(jobs: int) -> list[Case]:
    """Return the cases with handlers that compute, in one process and in two."""
    one, two = (penstock_system(processes=n, computes=True, concurrency=100) for n in (1, 2))
    return [case(one, "drain/computing", jobs), case(two, "drain/computing-2", jobs)]


def cases(full: bool) -> list[Case]:
    """Return Penstock's cases: concurrency=100, default options, ids, groups, priorities, and two processes."""
    jobs = 200_000 if full else 20_000
    many = penstock_system(concurrency=100)
    found = [case(many, "drain", jobs), case(penstock_system(), "drain/default", jobs)]
    found += [case(many, f"drain/{kind}", jobs, kind) for kind in KINDS]
    found += [case(penstock_system(processes=2, concurrency=100), "drain/processes-2", jobs)]
    return found + computing(jobs // 10)
