"""Workload `schedules`: how late ticks are, how many a second a worker fires, and the cost of idle schedules.

The lateness of a tick is the time between its nominal time and the acceptance of its job, both by the storage's clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from statistics import median

from bench.cases import Case, Sample
from bench.harness import Harness, SystemFailed
from bench.monitor import Monitor
from bench.systems import penstock_system
from penstock import Cron, Every, JobStatus, Penstock

PAYLOAD = {"user": 1}
#: How long (seconds) before a common tick all of its schedules must be stored.
AHEAD = 3
#: How long (seconds) a worker has been idle when its commands are counted: its children wait in turn from then on.
IDLE_BEFORE = 8.0


async def _put(app: Penstock, when: Cron | Every, count: int) -> None:
    """Make schedules that tick at the same times, a hundred at once."""
    schedules = app.queue("work").schedules
    for at in range(0, count, 100):
        await asyncio.gather(
            *(
                schedules.put(f"s{number}", when, payload=PAYLOAD, overlap="allow")
                for number in range(at, min(at + 100, count))
            )
        )


async def _jobs(app: Penstock, count: int, within: float) -> list[JobStatus]:
    """Wait for this many completed jobs of ticks, and return them."""
    queue, end = app.queue("work"), time.monotonic() + within
    while (await queue.counts())["completed"] < count:  # type: ignore[index]
        if time.monotonic() > end:
            raise SystemFailed(f"fewer than {count} ticks ran within {within} s")
        await asyncio.sleep(0.2)
    found: list[JobStatus] = []
    cursor: str | None = None
    while True:
        page = await queue.find("completed", cursor, 1000)
        found += [job for job in page if job.tick is not None]
        cursor = page.cursor
        if cursor is None:
            return found


def _lateness(jobs: list[JobStatus]) -> list[float]:
    """Return the lateness of each tick in milliseconds, sorted."""
    return sorted((job.created_at - job.tick.nominal).total_seconds() * 1000 for job in jobs if job.tick is not None)


async def _lateness_samples(url: str, seconds: int, schedules: int) -> list[Sample]:
    async with Penstock(url) as app:
        await _put(app, Every(1), schedules)
        jobs = await _jobs(app, schedules * seconds, seconds * 3.0)
    first = min(job.tick.nominal for job in jobs if job.tick is not None)
    late = _lateness([job for job in jobs if job.tick is not None and job.tick.nominal > first])
    return [
        Sample("schedules/late/median", "ms", median(late), jobs=len(late)),
        Sample("schedules/late/p99", "ms", late[int(len(late) * 0.99)], jobs=len(late)),
    ]


async def _rate_samples(url: str, count: int) -> list[Sample]:
    async with Penstock(url) as app:
        began = time.perf_counter()
        await _put(app, Cron("@yearly"), 100)
        each = (time.perf_counter() - began) / 100
        tick = int(time.time() + each * count * 2 + AHEAD)
        await _put(app, Every(days=1, phase=tick % 86_400), count)
        if time.time() > tick:
            raise SystemFailed("the schedules were not stored in time for their tick")
        jobs = await _jobs(app, count, tick - time.time() + 60)
    accepted = [job.created_at.timestamp() for job in jobs]
    took = max(accepted) - min(accepted)
    return [Sample("schedules/rate", "ticks/s", count / max(took, 0.001), jobs=count)]


async def _make_idle(url: str, count: int) -> None:
    async with Penstock(url) as app:
        await _put(app, Cron("@yearly"), count)


def late(harness: Harness, seconds: int, schedules: int) -> list[Sample]:
    harness.start_worker()
    harness.warm_up()
    return asyncio.run(_lateness_samples(harness.storage.url, seconds, schedules))


def rate(harness: Harness, count: int) -> list[Sample]:
    harness.start_worker()
    harness.warm_up()
    return asyncio.run(_rate_samples(harness.storage.url, count))


def idle(harness: Harness, name: str, seconds: float, count: int) -> list[Sample]:
    worker = harness.start_worker()
    harness.warm_up()
    asyncio.run(_make_idle(harness.storage.url, count))
    harness.request("close")
    time.sleep(IDLE_BEFORE)
    monitor = Monitor(harness.storage.url) if harness.storage.process is not None else None
    cpu, start = worker.cpu(), time.perf_counter()
    time.sleep(seconds)
    took, cpu = time.perf_counter() - start, worker.cpu() - cpu
    found = [Sample(f"{name}/cpu", "% of a core", cpu / took * 100, jobs=count)]
    if monitor is not None:
        seen = Counter(command.name for command in monitor.commands())
        notes = {"commands": dict(seen), "seconds": round(took, 1)}
        found.append(Sample(f"{name}/commands", "commands/s", seen.total() / took, jobs=count, notes=notes))
    return found


def cases(full: bool, *, schedules: int = 100, idle_schedules: int = 1000, seconds: int | None = None) -> list[Case]:
    """Return the cases; `seconds` is how long ticks are late and schedules idle, by default 5 and 20, or 20 and 60."""
    system, supervised = penstock_system(processes=0), penstock_system(processes=2)
    late_for, idle_for = (20, 60) if full else (5, 20)
    return [
        Case("schedules/late", system, lambda harness: late(harness, seconds or late_for, schedules)),
        Case("schedules/rate", system, lambda harness: rate(harness, 10_000 if full else 2_000)),
        *(
            Case(name, each, lambda harness, name=name: idle(harness, name, seconds or idle_for, idle_schedules))
            for name, each in (("schedules/idle", system), ("schedules/idle-supervised", supervised))
        ),
    ]
