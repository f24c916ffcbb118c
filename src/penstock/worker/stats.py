"""Times of a worker's runs: how long their jobs waited and how long they took, counted here and sent now and then."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from penstock.errors import StorageError, StorageUnavailable, StorageUnusable
from penstock.host import AppHost
from penstock.model.printing import escape_controls
from penstock.model.stats import BUCKETS, Histogram, bucket_of
from penstock.storage.observing import RunTimes, observing_of
from penstock.worker.run import RunJob

__all__ = ["SAMPLE_EVERY", "RunStats", "stats_wanted"]

log = logging.getLogger("penstock.worker")

#: Of the jobs that are settled together at most this many are measured; each counts for its neighbours.
MEASURED = 8

#: How often (seconds) a worker that has measured nothing has the storage sample its queues, once in each minute.
SAMPLE_EVERY = 20.0


def stats_wanted() -> bool:
    """Return whether runs are measured: `PENSTOCK_STATS=off` turns that off."""
    return os.environ.get("PENSTOCK_STATS", "on").strip().lower() not in ("off", "0", "no", "false")


class _Times:
    """Counts of one queue since they were last sent."""

    __slots__ = ("run", "run_us", "wait", "wait_us")

    def __init__(self) -> None:
        self.wait = [0] * BUCKETS
        self.run = [0] * BUCKETS
        self.wait_us = 0.0
        self.run_us = 0.0

    def taken(self, queue: str) -> RunTimes:
        return RunTimes(queue, _histogram(self.wait, self.wait_us), _histogram(self.run, self.run_us))


class RunStats:
    """Counts the runs of one process, and sends the counts to the storage with each heartbeat."""

    def __init__(self, host: AppHost, worker: str, sample_every: float = SAMPLE_EVERY) -> None:
        self._host = host
        self._worker = worker
        self._sample_every = sample_every
        self._on = stats_wanted()
        self._times: dict[str, _Times] = {}
        self._refused = False
        self._next = 0.0
        #: The time of the storage (ms) when the event loop's clock was 0; None until the first answer.
        self._epoch: float | None = None

    def set_clock(self, storage_ms: int, now: float) -> None:
        """Take note of the storage's time at a time of the event loop's clock."""
        self._epoch = storage_ms - now * 1000

    def count(self, jobs: Sequence[RunJob]) -> None:
        """Count the runs of jobs whose outcomes were recorded together."""
        total, epoch = len(jobs), self._epoch
        if not self._on or epoch is None or not total:
            return
        measured = min(total, MEASURED)
        before = 0
        for part in range(1, measured + 1):
            after = part * total // measured
            job, weight, before = jobs[before], after - before, after
            run = job.run
            if run is None or not run.began:
                continue
            claim = job.claim
            times = self._times.get(claim.queue)
            if times is None:
                times = self._times[claim.queue] = _Times()
            wait = max((run.began * 1000 + epoch - claim.run_at) * 1000, 0.0)
            took = run.took * 1e6
            times.wait[bucket_of(wait)] += weight
            times.run[bucket_of(took)] += weight
            times.wait_us += wait * weight
            times.run_us += took * weight

    async def send(self, now: float) -> None:
        """Send the counts since the last time; if that fails, they are sent with the next. `now` is the loop's time."""
        storage = observing_of(self._host.storage) if self._on else None
        if storage is None:
            return
        counted, self._times = self._times, {}
        try:
            at = await storage.record_stats(self._worker, [each.taken(queue) for queue, each in counted.items()])
        except BaseException:
            self._add(counted)
            raise
        self.set_clock(at, now)

    async def try_send(self, now: float) -> None:
        """Send the counts, and go on if the storage refuses them: statistics stop no worker.

        An outage is noticed by the other calls of the worker; another error is logged once. Without new counts it is
        called only now and then, to have the queues sampled.
        """
        if not self._times and now < self._next:
            return
        self._next = now + self._sample_every
        try:
            await self.send(now)
        except StorageUnusable:
            raise
        except StorageUnavailable:
            pass
        except StorageError as error:
            if not self._refused:
                log.warning("the storage does not take the times of runs: %s", escape_controls(str(error)))
            self._refused = True
        else:
            self._refused = False

    def _add(self, counted: dict[str, _Times]) -> None:
        for queue, times in counted.items():
            known = self._times.setdefault(queue, times)
            if known is not times:
                known.wait = [a + b for a, b in zip(known.wait, times.wait, strict=True)]
                known.run = [a + b for a, b in zip(known.run, times.run, strict=True)]
                known.wait_us += times.wait_us
                known.run_us += times.run_us


def _histogram(counts: list[int], sum_us: float) -> Histogram:
    size = max((index + 1 for index, count in enumerate(counts) if count), default=0)
    return Histogram(tuple(counts[:size]), round(sum_us))
