"""Stored form of samples, the same in every storage: the time (6 bytes), then the numbers as msgpack."""

from __future__ import annotations

import msgspec

from penstock.errors import UNREADABLE
from penstock.model.clock import MAX_MS
from penstock.model.job import State
from penstock.model.stats import BUCKETS, Histogram, Sample, Totals

__all__ = ["encode_body", "encode_sample", "encode_times", "read_sample", "read_times"]

_TIME_SIZE = 6

_Body = tuple[list[int], list[int], int, list[int], int, list[int], int]
_decode_body = msgspec.msgpack.Decoder(_Body).decode
_decode_times = msgspec.msgpack.Decoder(tuple[list[int], int, list[int], int]).decode
_encode = msgspec.msgpack.Encoder().encode

_STATES = tuple(State)
_TOTALS = len(Totals.__struct_fields__)


def encode_times(wait: Histogram, run: Histogram) -> bytes:
    """Encode measured times."""
    return _encode([wait.counts, wait.sum_us, run.counts, run.sum_us])


def read_times(data: bytes | None) -> tuple[Histogram, Histogram]:
    """Read measured times; none if they cannot be read."""
    try:
        wait, wait_sum, run, run_sum = _decode_times(data or b"")
    except UNREADABLE:
        return Histogram(), Histogram()
    if max(len(wait), len(run)) > BUCKETS or min(*wait, wait_sum, *run, run_sum) < 0:
        return Histogram(), Histogram()
    return Histogram(_trimmed(wait), wait_sum), Histogram(_trimmed(run), run_sum)


def encode_sample(sample: Sample) -> bytes:
    """Encode a sample."""
    return sample.at.to_bytes(_TIME_SIZE, "big") + encode_body(sample)


def encode_body(sample: Sample) -> bytes:
    """Encode a sample without its time."""
    totals = msgspec.structs.astuple(sample.totals)
    oldest = -1 if sample.oldest is None else sample.oldest
    wait, run = sample.wait, sample.run
    counts = [sample.counts.get(state, 0) for state in _STATES]
    return _encode([counts, totals, oldest, wait.counts, wait.sum_us, run.counts, run.sum_us])


def read_sample(record: bytes | None) -> Sample | None:
    """Read a sample; None if it cannot be read."""
    if record is None or len(record) <= _TIME_SIZE:
        return None
    at = int.from_bytes(record[:_TIME_SIZE], "big")
    try:
        counts, totals, oldest, wait, wait_sum, run, run_sum = _decode_body(record[_TIME_SIZE:])
    except UNREADABLE:
        return None
    sound = len(counts) == len(_STATES) and len(totals) == _TOTALS and max(len(wait), len(run)) <= BUCKETS
    if not sound or at > MAX_MS or oldest > MAX_MS or min(*counts, *totals, *wait, wait_sum, *run, run_sum) < 0:
        return None
    return Sample(
        at=at,
        counts=dict(zip(_STATES, counts, strict=True)),
        totals=Totals(*totals),
        oldest=None if oldest < 0 else oldest,
        wait=Histogram(_trimmed(wait), wait_sum),
        run=Histogram(_trimmed(run), run_sum),
    )


def _trimmed(counts: list[int]) -> tuple[int, ...]:
    while counts and counts[-1] == 0:
        counts.pop()
    return tuple(counts)
