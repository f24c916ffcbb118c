"""Workload `residue`: the keys or rows that are left after many jobs are finished and their TTLs have expired."""

from __future__ import annotations

import asyncio
import time

from bench.cases import Sample, record
from bench.results import Measurements
from bench.storages import BenchStorage
from bench.systems import penstock_system
from penstock._version import __version__
from penstock.model.ids import new_ids, new_token
from penstock.model.job import NewJob
from penstock.storage import connect
from penstock.storage.base import Complete, Fail, Request, Settlement, Storage

CHUNK = 500


async def _work(storage: Storage, count: int) -> None:
    """Put, claim and settle plain, grouped, prioritized and failing jobs, and one in ten whose result is not kept."""
    for _ in range(0, count, CHUNK):
        jobs = [
            NewJob(
                queue="bench", id=id, payload=b"{}", fresh=True, group=f"g{i % 97}" if i % 4 == 0 else None,
                priority=i % 3 if i % 4 else 0,
            )
            for i, id in enumerate(new_ids(CHUNK))
        ]  # fmt: skip
        await storage.put(jobs)
        done = 0
        while done < CHUNK:
            claimed = await storage.claim([Request("bench", CHUNK)], "bench", 60_000, new_token())
            settlements: list[Settlement] = []
            for i, claim in enumerate(claimed.claims):
                resolution = Fail(b"", 1) if i % 5 == 0 else Complete(b"null", 0 if i % 10 == 1 else 1)
                settlements.append(Settlement(claim.queue, claim.id, claim.token, resolution))
            await storage.settle(settlements)
            done += len(settlements)
        while await storage.purge(["bench"]):
            pass


class _ShiftedClock:
    """Clock that is an hour ahead."""

    def time(self) -> float:
        return time.time() + 3600


async def _run(bench_storage: BenchStorage, count: int) -> tuple[int, int]:
    """Return the number of keys or rows before the jobs, and after a purge an hour later."""
    storage = connect(bench_storage.url)
    await storage.open()
    before = bench_storage.size()
    await _work(storage, count)
    await storage.close()
    later = connect(bench_storage.url, clock=_ShiftedClock())
    await later.open()
    while await later.purge(["bench"]):
        pass
    await later.close()
    return before, bench_storage.size()


def run(bench_storage: BenchStorage, measurements: Measurements, full: bool) -> list[str]:
    """Count once, since a count needs no repetition."""
    count = 1_000_000 if full else 20_000
    bench_storage.clear()
    before, after = asyncio.run(_run(bench_storage, count))
    notes = {"before": before, "after": after}
    sample = Sample("residue", "keys or rows left", after - before, jobs=count, notes=notes)
    record(measurements, penstock_system(), bench_storage, {"version": __version__, "loop": None}, sample)
    return [] if after == before else [f"residue on {bench_storage.kind}: {before} before, {after} after"]
