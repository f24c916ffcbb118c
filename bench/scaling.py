"""Workload `flat`: the cost of claim and settle with growing backlogs of waiting jobs, scheduled jobs and groups.

For each backlog: fill it, claim and settle jobs in batches of ten, three times, and measure the CPU time of this
process and of the server (other programs on the machine affect it less than the wall clock). The median is compared
with the smallest backlog of its kind. Afterwards the queue is deleted, and as many keys or rows as before must be left.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from bench.cases import Sample, record
from bench.results import REPETITIONS, Measurements
from bench.storages import BenchStorage
from bench.systems import penstock_system
from penstock._version import __version__
from penstock.model.ids import new_ids, new_token
from penstock.model.job import NewJob
from penstock.storage import connect
from penstock.storage.base import Claimed, Complete, Request, Settlement, Storage

PAYLOAD = b'{"user":12345,"action":"resize","size":[640,480]}'
CHUNK = 1000
BATCH = 10
JOBS_PER_ROUND = 2000


async def _fill(storage: Storage, count: int, kind: str, groups: int) -> None:
    soon = await storage.time() + 3_600_000
    for at in range(0, count, CHUNK):
        ids = new_ids(min(CHUNK, count - at))
        options: dict[str, Any] = {"run_at": soon} if kind == "scheduled" else {}
        await storage.put(
            [
                NewJob(
                    queue="bench", id=id, payload=PAYLOAD, fresh=True, **options,
                    group=f"group-{(at + i) % groups}" if kind == "groups" else None,
                )
                for i, id in enumerate(ids)
            ]
        )  # fmt: skip


async def _cycle(storage: Storage, bench_storage: BenchStorage, jobs: int) -> tuple[float, float]:
    """Return the CPU µs per job to claim and settle, here and in the server; new jobs keep the backlog full."""
    here = there = 0.0
    done = 0
    while done < jobs:
        server, client = bench_storage.cpu(), time.process_time()
        claimed: Claimed = await storage.claim([Request("bench", BATCH)], "bench", 60_000, new_token())
        settlements = [Settlement(c.queue, c.id, c.token, Complete(b"null", 1)) for c in claimed.claims]
        await storage.settle(settlements)
        here += time.process_time() - client
        there += bench_storage.cpu() - server
        done += len(claimed.claims)
        groups = [claim.group for claim in claimed.claims]
        fresh = new_ids(len(groups))
        await storage.put(
            [
                NewJob(queue="bench", id=id, payload=PAYLOAD, fresh=True, group=g)
                for id, g in zip(fresh, groups, strict=True)
            ]
        )
        while await storage.purge(["bench"]):
            pass
    return here / done * 1e6, there / done * 1e6


async def _empty(storage: Storage, bench_storage: BenchStorage, before: int) -> int:
    """Delete the queue, a large one in bounded steps; return how many keys or rows are left."""
    await storage.delete_queue("bench")
    after = bench_storage.size()
    while after > before:
        await storage.purge(["bench"])
        left, after = after, bench_storage.size()
        if after == left:
            break
    return after - before


async def _case(
    bench_storage: BenchStorage, kind: str, count: int, group_count: int, small: int
) -> tuple[list[tuple[float, float]], int]:
    bench_storage.clear()
    storage = connect(bench_storage.url)
    await storage.open()
    before = bench_storage.size()
    if kind == "scheduled":
        await _fill(storage, small, "waiting", 1)
    await _fill(storage, count, kind, group_count or 1)
    costs = [await _cycle(storage, bench_storage, JOBS_PER_ROUND) for _ in range(REPETITIONS)]
    left = await _empty(storage, bench_storage, before)
    await storage.close()
    return costs, left


def run(bench_storage: BenchStorage, measurements: Measurements, full: bool) -> list[str]:
    """Measure the CPU µs per job for each backlog, and its ratio to the smallest backlog of its kind."""
    sizes, groups = sizes_for(full)
    cases = [("waiting", n, 0) for n in sizes] + [("scheduled", n, 0) for n in sizes]
    cases += [("groups", max(g, min(sizes)), g) for g in groups]
    base: dict[str, float] = {}
    for kind, count, group_count in cases:
        costs, left = asyncio.run(_case(bench_storage, kind, count, group_count, sizes[0]))
        cost = statistics.median(sum(both) for both in costs)
        notes = {"ratio": round(cost / base.setdefault(kind, cost), 2), "left_behind": left}
        for here, there in costs:
            server = there if bench_storage.process is not None else None
            name, unit = f"flat/{kind}/{group_count or count}", "CPU µs/job"
            sample = Sample(name, unit, here + there, here, server, JOBS_PER_ROUND, notes)
            record(measurements, penstock_system(), bench_storage, {"version": __version__, "loop": None}, sample)
    return []


def sizes_for(full: bool) -> tuple[list[int], list[int]]:
    return ([1000, 100_000, 1_000_000], [10, 1000, 100_000]) if full else ([1000, 20_000], [10, 1000])
