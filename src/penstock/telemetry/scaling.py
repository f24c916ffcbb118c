"""How many workers a queue needs, for autoscalers: from its arrivals, its backlog and the duration of its runs."""

from __future__ import annotations

import math

import msgspec

from penstock.model.job import FINISHED, State
from penstock.model.stats import Histogram, Sample, changes_since
from penstock.model.worker_info import WorkerInfo, worker_info
from penstock.storage.base import Storage
from penstock.storage.observing import need_observing

__all__ = ["Scale", "read_scale", "wanted_workers"]

#: The minutes over which arrivals and durations are measured.
MINUTES = 5

#: The share of its units that a worker is planned to use.
LOAD = 0.8

#: The units of a worker if none serves the queue, as those of `Worker`.
DEFAULT_CAPACITY = 100


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a queue, and the number of workers that would clear its backlog within the target."""

    queued: int
    oldest_seconds: float
    wait_p95_seconds: float | None
    busy_ratio: float
    workers: int
    wanted_workers: int


async def read_scale(storage: Storage, queue: str, target: float, units: int = 1) -> Scale:
    """Read the load of a queue; `target` is the time (seconds) in which its backlog should be gone.

    `units` is the size of one run of its handler. Raises `NotSupported` on a storage without statistics.
    """
    observing = need_observing(storage)
    await observing.record_stats("", [])
    [now] = await observing.stats([queue])
    since = now.sample.at - MINUTES * 60_000
    before = next(iter(await observing.history(queue, 1, since)), None)
    recent = now.sample if before is None else changes_since(now.sample, before)
    seconds = max((now.sample.at - before.at) / 1000, 1.0) if before is not None else 0.0
    arrivals = _arrived(now.sample, before, recent) / seconds if before is not None and seconds else 0.0
    mean = recent.run.mean or now.sample.run.mean or 0.0
    serving = [
        info
        for each in await storage.workers()
        if queue in (info := worker_info(each.id, each.seen, each.until, each.info)).queues
    ]
    capacity = sum(worker.capacity for worker in serving)
    return Scale(
        queued=now.sample.counts.get(State.QUEUED, 0),
        oldest_seconds=(now.sample.oldest or 0) / 1000,
        wait_p95_seconds=_percentile(recent.wait),
        busy_ratio=round(sum(worker.busy for worker in serving) / capacity, 3) if capacity else 0.0,
        workers=len(serving),
        wanted_workers=wanted_workers(now.sample, arrivals, mean, target, units, _units_of_a_worker(serving)),
    )


def wanted_workers(
    sample: Sample, arrivals: float, mean: float, target: float, units: int, units_per_worker: float
) -> int:
    """Return the workers that run what arrives (jobs per second), and the backlog within `target` seconds.

    0 if no job is open, never fewer than run now, and at least one if a job may start.
    """
    running = sample.counts.get(State.RUNNING, 0)
    if not sum(count for state, count in sample.counts.items() if state not in FINISHED):
        return 0
    queued = sample.counts.get(State.QUEUED, 0)
    needed = (arrivals * mean + queued * mean / target) * units
    wanted = math.ceil(needed / (LOAD * units_per_worker))
    least = math.ceil(running * units / units_per_worker)
    return max(wanted, least, 1 if queued or running else 0)


def _arrived(now: Sample, before: Sample | None, recent: Sample) -> int:
    """Return the jobs that arrived since the earlier sample: those that ended, and the growth of the open ones."""
    return max(now.open - (before.open if before is not None else 0) + recent.totals.finished, 0)


def _percentile(wait: Histogram) -> float | None:
    found = wait.percentile(95)
    return None if found is None else round(found, 6)


def _units_of_a_worker(workers: list[WorkerInfo]) -> float:
    """Return the units of a worker of the queue, in the mean."""
    return sum(worker.capacity for worker in workers) / len(workers) if workers else DEFAULT_CAPACITY
