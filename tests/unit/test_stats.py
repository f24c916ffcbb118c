"""Histograms, samples and their differences."""

from __future__ import annotations

import random

import pytest

from penstock.model.job import State
from penstock.model.sample_codec import encode_sample, read_sample, read_times
from penstock.model.stats import (
    BUCKETS,
    Histogram,
    Sample,
    Totals,
    add,
    bucket_of,
    changes_since,
    combine,
    difference,
    upper_bound,
    within_ring,
)

MINUTE = 60_000


def counted(durations: list[float]) -> Histogram:
    """Return the histogram of durations in seconds."""
    counts = [0] * BUCKETS
    for seconds in durations:
        counts[bucket_of(seconds * 1e6)] += 1
    size = max((i + 1 for i, count in enumerate(counts) if count), default=0)
    return Histogram(tuple(counts[:size]), round(sum(durations) * 1e6))


def test_a_bucket_ends_where_the_next_begins() -> None:
    """Each bucket has the durations from its lower to its upper bound; longer ones than all are in the last."""
    for bucket in range(BUCKETS - 1):
        end = upper_bound(bucket) * 1e6
        assert (bucket_of(end * 0.999), bucket_of(end * 1.001)) == (bucket, bucket + 1)
    assert (bucket_of(-1), bucket_of(0), bucket_of(1e18)) == (0, 0, BUCKETS - 1)


def test_a_percentile_is_off_by_at_most_19_percent() -> None:
    """Of many durations of any size the percentile is near the exact one, and the mean is exact."""
    durations = sorted(random.Random(1).lognormvariate(-3, 2) for _ in range(5_000))
    times = counted(durations)
    for percent in (1, 50, 95, 99):
        exact = durations[round(len(durations) * percent / 100) - 1]
        found = times.percentile(percent)
        assert found is not None
        assert abs(found - exact) <= 0.19 * exact + 0.0001
    assert times.mean == pytest.approx(sum(durations) / len(durations), rel=1e-6)
    assert (Histogram().percentile(50), Histogram().mean) == (None, None)


def test_the_difference_of_two_sums_is_what_was_added() -> None:
    """Cumulative histograms are subtracted; one that has begun anew counts as a whole."""
    first, more = counted([0.001, 0.5]), counted([0.002] * 3)
    both = add(first, more)
    assert difference(both, first) == more
    assert difference(more, both) == more


def test_totals_that_fall_have_begun_anew() -> None:
    """A queue that was deleted between two samples is counted from zero."""
    before, after = Sample(at=1, totals=Totals(finished=9, failed=1)), Sample(at=2, totals=Totals(finished=3))
    assert changes_since(after, before).totals == Totals(finished=3)
    assert changes_since(before, after).totals == Totals(finished=6, failed=1)


def test_the_sum_of_samples_has_the_longest_wait() -> None:
    """Counts, totals and times are added; of the ages the largest stays."""
    one = Sample(at=1, counts={State.QUEUED: 2}, totals=Totals(finished=1), oldest=5, run=counted([1]))
    two = Sample(at=2, counts={State.QUEUED: 3}, totals=Totals(finished=4, failed=1), run=counted([2]))
    both = combine([one, two], 9)
    assert (both.at, both.counts[State.QUEUED], both.totals, both.oldest) == (9, 5, Totals(5, 1), 5)
    assert both.run == counted([1, 2])


def test_samples_before_the_span_of_a_ring_are_dropped_but_the_last_of_them() -> None:
    """A ring keeps what its slots hold: the sample before the span shows where the first difference begins."""
    samples = [Sample(at=minute * MINUTE) for minute in (1, 2, 200, 300, 320)]
    assert [sample.at // MINUTE for sample in within_ring(reversed(samples), 120)] == [200, 300, 320]
    assert [sample.at // MINUTE for sample in within_ring(samples, 120, 310 * MINUTE)] == [320]
    assert within_ring([], 120) == []


def test_a_stored_sample_is_read_back_and_a_damaged_one_is_none() -> None:
    """Whatever bytes a storage has, there is a sample or none."""
    sample = Sample(
        at=123, counts=dict.fromkeys(State, 7),
        totals=Totals(1, 2, 3, 4, 5, 6), oldest=0, wait=counted([1]), run=counted([2, 3])
    )  # fmt: skip
    stored = encode_sample(sample)
    assert read_sample(stored) == sample
    for size in range(len(stored)):
        assert read_sample(stored[:size]) is None
    for at in range(6, len(stored)):
        read_sample(stored[:at] + b"\xff" + stored[at + 1 :])
    assert (read_sample(None), read_times(b"\xc1"), read_times(None)) == (None, (Histogram(),) * 2, (Histogram(),) * 2)
