"""Statistics of queues: histograms of durations, totals, samples of both, and the arithmetic of their differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.model.job import FINISHED, State

__all__ = [
    "BUCKETS", "Histogram", "Sample", "Totals", "add", "bucket_of", "changes_since", "combine", "difference", "is_same",
    "upper_bound", "within_ring",
]  # fmt: skip

#: The number of buckets of a histogram. Each spans half an octave; the first ends at `FIRST_US`, the last has no end.
BUCKETS = 72

#: The upper bound (microseconds) of the first bucket.
FIRST_US = 100


def bucket_of(microseconds: float) -> int:
    """Return the bucket of a duration. Bucket k > 0 begins at 0.1 ms times the square root of 2^(k-1)."""
    ratio = microseconds / FIRST_US
    return min(int(ratio * ratio).bit_length(), BUCKETS - 1) if ratio > 0 else 0


def upper_bound(bucket: int) -> float:
    """Return the duration (seconds) below which the durations of a bucket are."""
    return float(FIRST_US) / 1e6 * 2.0 ** (bucket / 2)


class Histogram(msgspec.Struct, frozen=True, array_like=True):
    """Counted durations: the number in each bucket, trailing zeros left off, and the sum of all (microseconds)."""

    counts: tuple[int, ...] = ()
    sum_us: int = 0

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """The mean (seconds); None without any duration."""
        count = self.count
        return self.sum_us / count / 1e6 if count else None

    def percentile(self, percent: float) -> float | None:
        """Return the duration (seconds) that this part of all did not exceed; None without any duration.

        It is the geometric middle of its bucket, so it is off by at most 19 %.
        """
        wanted = self.count * percent / 100
        if not self.counts or wanted < 0:
            return None
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return upper_bound(bucket) / (2.0**0.25 if bucket else 1.0)
        return None


class Totals(msgspec.Struct, frozen=True):
    """The transitions of a queue's jobs since it was created, counted as they happen.

    `finished` jobs ended: completed, `failed` for good, or `cancelled` (also expired or discarded before their end).
    `retried` runs failed and went back to wait; `timed_out` runs exceeded their timeout, whatever followed; `stalled`
    runs lost their worker.
    """

    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    stalled: int = 0
    timed_out: int = 0

    @property
    def completed(self) -> int:
        """The jobs that completed."""
        return max(self.finished - self.failed - self.cancelled, 0)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a queue, or of all queues together, at the time `at` (ms of the storage's clock).

    `oldest` is how long (ms) the job has been due that waits longest, None if none waits. Totals and histograms count
    from the creation of the queue on, so the difference of any two samples is exact. `wait` has the times from due to
    begin of runs, `run` the times that runs took; both are measured by workers and arrive with their heartbeats.
    """

    at: int
    counts: Mapping[State, int] = {}
    totals: Totals = Totals()
    oldest: int | None = None
    wait: Histogram = Histogram()
    run: Histogram = Histogram()

    @property
    def open(self) -> int:
        """The number of jobs that have not ended."""
        return sum(count for state, count in self.counts.items() if state in _OPEN)


def add(first: Histogram, second: Histogram) -> Histogram:
    """Return the durations of both histograms."""
    return Histogram(_added(first.counts, second.counts), first.sum_us + second.sum_us)


def difference(later: Histogram, earlier: Histogram) -> Histogram:
    """Return the durations that were counted between two moments; all of the later one if counting began anew."""
    counts = _added(later.counts, [-count for count in earlier.counts])
    if any(count < 0 for count in counts) or later.sum_us < earlier.sum_us:
        return later
    return Histogram(counts, later.sum_us - earlier.sum_us)


def combine(samples: Iterable[Sample], at: int) -> Sample:
    """Return the sum of samples of several queues, at one time; `oldest` is that of the longest wait."""
    counts = dict.fromkeys(State, 0)
    totals = [0] * len(Totals.__struct_fields__)
    wait, run, oldest = Histogram(), Histogram(), None
    for sample in samples:
        for state, count in sample.counts.items():
            counts[state] += count
        totals = [a + b for a, b in zip(totals, msgspec.structs.astuple(sample.totals), strict=True)]
        wait, run = add(wait, sample.wait), add(run, sample.run)
        if sample.oldest is not None:
            oldest = max(oldest or 0, sample.oldest)
    return Sample(at=at, counts=counts, totals=Totals(*totals), oldest=oldest, wait=wait, run=run)


def is_same(first: Sample, second: Sample) -> bool:
    """Return whether nothing has changed from one sample to the other but the time."""
    return (first.counts, first.totals, first.wait, first.run) == (
        second.counts, second.totals, second.wait, second.run,
    )  # fmt: skip


def changes_since(later: Sample, earlier: Sample) -> Sample:
    """Return a sample with the totals and times since an earlier one; all of them if one of them began anew."""
    before = msgspec.structs.astuple(earlier.totals)
    totals = [a - b for a, b in zip(msgspec.structs.astuple(later.totals), before, strict=True)]
    wait, run = difference(later.wait, earlier.wait), difference(later.run, earlier.run)
    anew = (earlier.wait.counts and wait == later.wait) or (earlier.run.counts and run == later.run)
    if min(totals) < 0 or anew:
        return later
    return msgspec.structs.replace(later, totals=Totals(*totals), wait=wait, run=run)


def within_ring(samples: Iterable[Sample], minutes: int, since: int = 0) -> list[Sample]:
    """Return samples by time: those of the last minutes before the newest, and the one before these."""
    ordered = list({sample.at: sample for sample in sorted(samples, key=lambda sample: sample.at)}.values())
    if not ordered:
        return []
    begin = ordered[-1].at - minutes * 60_000
    first = max((index for index, sample in enumerate(ordered) if sample.at <= begin), default=0)
    return [sample for sample in ordered[first:] if sample.at >= since]


def _added(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    size = max(len(first), len(second))
    padded = [*first, *[0] * (size - len(first))]
    for index, count in enumerate(second):
        padded[index] += count
    while padded and padded[-1] == 0:
        padded.pop()
    return tuple(padded)


_OPEN = frozenset(State) - FINISHED
