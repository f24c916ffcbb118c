"""Workload `limits`: what limits cost, called on the storage directly by one client.

`limits/work/…` compares queues with limits that are never reached with the same queues without. `limits/claim/…` is the
time of a claim of the one open key beside many closed ones, with the commands of its put, claim and settle, and
`limits/crowd/…` that of the only job of a key beside a key with many waiting jobs. The sizes of these two are measured
in turns, each in a queue of its own; their CPU time is that of the claims alone.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from bench.cases import Sample, record
from bench.results import REPETITIONS, Measurements
from bench.storages import BenchStorage
from bench.systems import penstock_system
from penstock._version import __version__
from penstock.model.ids import new_ids, new_token
from penstock.model.job import NewJob
from penstock.model.limit import Limit
from penstock.storage import connect
from penstock.storage.base import Claim, Complete, Request, Settlement, Storage
from penstock.storage.limiting import Limiting, Scope

QUEUE, LEASE, BATCH, TRIES = "bench", 3_600_000, 100, 200
PAYLOAD = b'{"user":12345,"action":"resize","size":[640,480]}'
GROUPS = 1000
#: The limits of the queues whose work is compared, by the kind of their jobs.
WORK: dict[str, dict[str, tuple[Scope, Limit] | None]] = {
    "plain": {"none": None, "queue": (Scope("queue", QUEUE), Limit(concurrency=1_000_000))},
    "groups": {"none": None, "groups": (Scope("groups", QUEUE), Limit(concurrency=2))},
}


async def _set(storage: Storage, scope: Scope, limit: Limit) -> None:
    rule = limit.rule("queue" if scope.kind == "queue" else "group", 0)
    await cast(Limiting, storage).set_limit(scope, rule, b"", 0)


async def _put(storage: Storage, count: int, group: str | None = None, groups: int = 0, queue: str = QUEUE) -> None:
    for at in range(0, count, 500):
        jobs = [
            NewJob(queue=queue, id=id, payload=PAYLOAD, fresh=True, group=f"g{(at + i) % groups}" if groups else group)
            for i, id in enumerate(new_ids(min(500, count - at)))
        ]
        await storage.put(jobs)


async def _claim(storage: Storage, limit: int, queue: str = QUEUE) -> list[Claim]:
    return (await storage.claim([Request(queue, limit)], "bench", LEASE, new_token())).claims


async def _complete(storage: Storage, claims: list[Claim]) -> None:
    await storage.settle([Settlement(c.queue, c.id, c.token, Complete(b"null", LEASE)) for c in claims])


async def _work(storage: Storage, kind: str, limit: tuple[Scope, Limit] | None, count: int) -> float:
    """Return the jobs claimed and settled per second."""
    if limit is not None:
        await _set(storage, *limit)
    await _put(storage, count, groups=GROUPS if kind == "groups" else 0)
    start, done = time.perf_counter(), 0
    while done < count:
        claims = await _claim(storage, BATCH)
        await _complete(storage, claims)
        done += len(claims)
    took = time.perf_counter() - start
    await storage.delete_queue(QUEUE, True)
    return count / took


class Beside:
    """The only job of a key beside others, in a queue of its own: many closed keys, or one key with many jobs."""

    def __init__(self, storage: Storage, queue: str, key: str) -> None:
        self.storage, self.queue, self.key = storage, queue, key
        #: Seconds of the clock, and of the CPU in this process and in the server, for each claim.
        self.times: list[float] = []
        self.client: list[float] = []
        self.server = 0.0
        self.commands = 0

    async def try_once(self, bench_storage: BenchStorage) -> None:
        """Put a job of the key, time its claim, and complete it; count the commands of all three."""
        before = _commands(bench_storage)
        await _put(self.storage, 1, self.key, queue=self.queue)
        server, cpu, start = bench_storage.cpu(), time.process_time(), time.perf_counter()
        claims = await _claim(self.storage, 1, self.queue)
        self.times.append(time.perf_counter() - start)
        self.client.append(time.process_time() - cpu)
        self.server += bench_storage.cpu() - server
        assert [claim.group for claim in claims] == [self.key]
        await _complete(self.storage, claims)
        self.commands += _commands(bench_storage) - before


async def _close_keys(storage: Storage, queue: str, keys: int) -> Beside:
    """Close keys by their rate, and put jobs into all of them; one more key is open."""
    await _set(storage, Scope("groups", queue), Limit(rate="1/day"))
    await _set(storage, Scope("group", queue, "open"), Limit(concurrency=1))
    await _put(storage, keys, groups=keys, queue=queue)
    while claims := await _claim(storage, 1000, queue):
        await _complete(storage, claims)
    await _put(storage, keys, groups=keys, queue=queue)
    return Beside(storage, queue, "open")


async def _crowd(storage: Storage, queue: str, jobs: int) -> Beside:
    """Put many jobs into one key, of which one runs."""
    await _set(storage, Scope("groups", queue), Limit(concurrency=1))
    await _put(storage, jobs, "crowd", queue=queue)
    assert len(await _claim(storage, 1, queue)) == 1
    return Beside(storage, queue, "other")


def _commands(bench_storage: BenchStorage) -> int:
    """Return the commands that the server has run, those inside of scripts included; 0 for an SQLite file."""
    return sum(each["calls"] for each in bench_storage.info("commandstats").values())


Make = Callable[[Storage, str, int], Awaitable[Beside]]


async def _compare(
    storage: Storage, bench_storage: BenchStorage, name: str, make: Make, sizes: Sequence[int]
) -> list[Sample]:
    """Time claims beside queues of several sizes, in turns, so that a slow minute affects all of them."""
    found = {size: await make(storage, f"{name}-{size}", size) for size in sizes}
    for _ in range(TRIES):
        for each in found.values():
            await each.try_once(bench_storage)
    samples: list[Sample] = []
    for size, each in found.items():
        client, server = 1e6 * statistics.median(each.client), 1e6 * each.server / TRIES
        median = 1e6 * statistics.median(each.times)
        samples.append(Sample(f"{name}/{size}", "us", median, client, server, TRIES))
        if each.commands:
            samples.append(Sample(f"{name}/{size}/commands", "commands", each.commands / TRIES, jobs=TRIES))
        await storage.delete_queue(each.queue, True)
    return samples


async def _run(bench_storage: BenchStorage, measurements: Measurements, sizes: LimitSizes) -> None:
    system, about = penstock_system(), {"version": __version__, "loop": None}
    storage = connect(bench_storage.url)
    await storage.open()

    def note(sample: Sample) -> None:
        named = replace(sample, workload=f"limits/{sample.workload}")
        record(measurements, system, bench_storage, about, named)

    for _ in range(REPETITIONS if sizes.work else 0):
        for kind, limits in WORK.items():
            for name, limit in limits.items():
                rate = await _work(storage, kind, limit, sizes.work)
                note(Sample(f"work/{kind}/{name}", "jobs/s", rate, jobs=sizes.work))
    for name, make, several in (("claim", _close_keys, sizes.keys), ("crowd", _crowd, sizes.crowd)):
        for sample in await _compare(storage, bench_storage, name, make, several):
            note(sample)
    await storage.close()


@dataclass(frozen=True)
class LimitSizes:
    """How much is measured: jobs of `limits/work`, closed keys of `limits/claim`, and jobs of `limits/crowd`."""

    work: int
    keys: Sequence[int]
    crowd: Sequence[int]


USUAL = LimitSizes(10_000, (100, 10_000), (1, 20_000))
FULL = LimitSizes(50_000, (100, 10_000, 100_000), (1, 1_000_000))


def run(
    bench_storage: BenchStorage, measurements: Measurements, full: bool, sizes: Mapping[str, Any] | None = None
) -> list[str]:
    """Measure what limits cost; `sizes` are fields of `LimitSizes` that replace the usual ones."""
    asyncio.run(_run(bench_storage, measurements, replace(FULL if full else USUAL, **(sizes or {}))))
    return []
