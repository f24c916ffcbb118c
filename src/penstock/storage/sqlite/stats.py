"""stats, record_stats and history: counts, totals and latencies of queues, and samples of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from penstock.errors import UNREADABLE
from penstock.model.clock import MAX_MS
from penstock.model.sample_codec import encode_sample, encode_times, read_sample, read_times
from penstock.model.stats import Sample, Totals, add, changes_since, combine, is_same, within_ring
from penstock.storage.observing import MAX_RINGS, RINGS, QueueStats, RunTimes, Step
from penstock.storage.sqlite.queue_row import TOTALS
from penstock.storage.sqlite.reads import counts, promote_all
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["history", "history_bytes", "keep_totals", "record_stats", "stats"]

#: The name under which the statistics of all queues together are stored; no queue has it.
ALL_QUEUES = ""

_decode_totals = msgspec.msgpack.Decoder(Totals).decode
_encode = msgspec.msgpack.Encoder().encode


class StatsRow(msgspec.Struct):
    """A row of `stats`, with values in place of those that cannot be read."""

    times: bytes | None = None
    newest: bytes | None = None
    looked: int | None = None
    base: bytes | None = None
    summed: bytes | None = None


def stats(tx: Transaction, names: Sequence[str]) -> list[QueueStats] | None:
    """Return the statistics of queues; None if more jobs are due than one transaction promotes."""
    found: list[QueueStats] = []
    for name in names:
        queue = tx.queue(name)
        if queue is not None and promote_all(tx, queue):
            return None
        sample, overdue, damaged = _sample(tx, name, queue)
        pause = None if queue is None else queue.live_pause(tx.now)
        found.append(QueueStats(name, sample, pause, overdue, damaged))
    return found


def _sample(tx: Transaction, name: str, queue: QueueRow | None) -> tuple[Sample, int, int]:
    """Return the sample of this moment, the number of expired leases, and of damaged records."""
    row = _row(tx, name)
    wait, run = read_times(row.times)
    if queue is None:
        return Sample(at=tx.now, counts=counts(tx, name), totals=_totals(row.base), wait=wait, run=run), 0, 0
    own, overdue, damaged = _counted(tx, queue)
    totals = _plus(own, _totals(row.base))
    at, counted, oldest = tx.now, counts(tx, name), _oldest(tx, queue)
    return Sample(at=at, counts=counted, totals=totals, oldest=oldest, wait=wait, run=run), overdue, damaged


def _counted(tx: Transaction, queue: QueueRow) -> tuple[Totals, int, int]:
    """Return the totals of a queue's row with what this transaction has counted, expired leases, damaged records."""
    _, *stored, overdue, damaged = tx.one("totals", queue.k, tx.now)
    pending = queue.totals or dict.fromkeys(TOTALS, 0)
    counted = [max(number, 0) + more for number, more in zip(stored, pending.values(), strict=True)]
    return Totals(max(queue.finished, 0), *counted), overdue, damaged


def _oldest(tx: Transaction, queue: QueueRow) -> int | None:
    """Return how long (ms) the next job has been due, whether or not the queue is paused or limited."""
    job, turn = tx.one("stats_next", queue.k), tx.one("stats_next_turn", queue.k)
    if job is None and turn is None:
        return None
    if job is None or (turn is not None and not _is_before(job[:3], (0, *turn[:2]))):
        due: Any = turn[2]
    else:
        due = job[3]
    return max(tx.now - due, 0) if type(due) is int and due <= MAX_MS else None


def _is_before(first: Sequence[Any], second: Sequence[Any]) -> bool:
    numbers = all(type(part) is int for part in (*first, *second))
    return not numbers or tuple(first) < tuple(second)


def record_stats(tx: Transaction, times: Sequence[RunTimes]) -> int:
    """Add measured times, and take the samples of a new minute; returns the time."""
    for each in times:
        if (each.wait.counts or each.run.counts) and tx.queue(each.queue) is not None:
            row = _row(tx, each.queue)
            wait, run = read_times(row.times)
            row.times = encode_times(add(wait, each.wait), add(run, each.run))
            _save(tx, each.queue, row)
    last = tx.one("stats_minute", tx.namespace)
    if last is None or last[0] // 60_000 != tx.now // 60_000:
        _sample_all(tx)
    return tx.now


def _sample_all(tx: Transaction) -> None:
    names = [name for (name,) in tx.all("stats_queues", tx.namespace) if isinstance(name, str) and name]
    changes = [_take(tx, name, len(names) <= MAX_RINGS) for name in names]
    row = _row(tx, ALL_QUEUES)
    now, newest = combine(changes, tx.now), read_sample(row.newest)
    if newest is not None:
        totals, wait, run = _plus(newest.totals, now.totals), add(newest.wait, now.wait), add(newest.run, now.run)
        now = replace(now, totals=totals, wait=wait, run=run)
    _keep(tx, ALL_QUEUES, row, now)
    _save(tx, ALL_QUEUES, row)


def _take(tx: Transaction, name: str, ring: bool) -> Sample:
    """Keep a sample of a queue, and return what has changed since the last one."""
    queue = tx.queue(name)
    if queue is not None:
        promote_all(tx, queue)
    sample, _, _ = _sample(tx, name, queue)
    row = _row(tx, name)
    before = read_sample(row.summed)
    summed = encode_sample(replace(sample, at=0, counts={}, oldest=None))
    changed = summed != row.summed
    row.summed = summed
    if ring or row.newest is not None:
        changed |= _keep(tx, name, row, sample)
    if changed:
        _save(tx, name, row)
    return changes_since(sample, sample if before is None else before)


def _keep(tx: Transaction, name: str, row: StatsRow, sample: Sample) -> bool:
    """Keep a sample, unless nothing has changed since the newest: then only the time of this look; False then.

    When something changes again, the newest is repeated for the last look, so that a longer distance of two samples
    that differ means that there was none.
    """
    newest = read_sample(row.newest)
    if newest is not None:
        if is_same(newest, sample):
            row.looked = tx.now
            tx.run("stats_looked", tx.now, tx.namespace, name)
            return False
        if row.looked is not None and row.looked > newest.at:
            _store(tx, name, _repeated(newest, row.looked))
    row.newest, row.looked = encode_sample(sample), None
    _store(tx, name, sample)
    return True


def _repeated(sample: Sample, at: int) -> Sample:
    return replace(sample, at=at, oldest=None if sample.oldest is None else sample.oldest + at - sample.at)


def _store(tx: Transaction, name: str, sample: Sample) -> None:
    """Store a sample as that of its minute, and of its ten minutes and its hour if these have none yet."""
    for step, size in RINGS.items():
        number = sample.at // (step * 60_000)
        slot = (tx.namespace, name, step, number % size)
        known = None if step == 1 else tx.one("history_number", *slot)
        if known is None or known[0] != number:
            tx.run("history_put", *slot, number, encode_sample(sample))


def history(tx: Transaction, name: str | None, step: Step, since: int) -> list[Sample]:
    """Return the samples of one step, oldest first."""
    queue = ALL_QUEUES if name is None else name
    records = [record for (record,) in tx.all("history_get", tx.namespace, queue, step, RINGS[step])]
    samples = [sample for record in records if (sample := read_sample(_blob(record))) is not None]
    row = _row(tx, queue)
    newest = read_sample(row.newest)
    if newest is not None and row.looked is not None and row.looked > newest.at:
        samples.append(_repeated(newest, row.looked))
    return within_ring(samples, step * RINGS[step], since)


def keep_totals(tx: Transaction, queue: QueueRow) -> None:
    """Keep the totals of a queue that is about to be forgotten, if it has samples: they go on if it comes back."""
    row = _row(tx, queue.name)
    if row.summed is not None:
        own, _, _ = _counted(tx, queue)
        base = _encode(_plus(own, _totals(row.base)))
        tx.run("stats_base", base, tx.namespace, queue.name)


def _plus(first: Totals, second: Totals) -> Totals:
    return Totals(*(a + b for a, b in zip(astuple(first), astuple(second), strict=True)))


def _totals(data: bytes | None) -> Totals:
    try:
        totals = Totals() if data is None else _decode_totals(data)
    except UNREADABLE:
        return Totals()
    return totals if min(astuple(totals)) >= 0 else Totals()


def _row(tx: Transaction, name: str) -> StatsRow:
    found = tx.one("stats_get", tx.namespace, name)
    if found is None:
        return StatsRow()
    times, newest, looked, base, summed = found
    sound = type(looked) is int and 0 <= looked <= MAX_MS
    return StatsRow(_blob(times), _blob(newest), looked if sound else None, _blob(base), _blob(summed))


def _blob(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _save(tx: Transaction, name: str, row: StatsRow) -> None:
    tx.run("stats_put", tx.namespace, name, tx.now, *astuple(row))


def history_bytes(tx: Transaction, queues: Sequence[str]) -> int:
    """Return how many bytes the samples of queues have, and those of all queues together."""
    return sum(tx.one("history_bytes", tx.namespace, name)[0] for name in ("", *queues))
