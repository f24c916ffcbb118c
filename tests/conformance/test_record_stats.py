"""stats, record_stats, history: totals and latencies of queues, and samples of them."""

from __future__ import annotations

from contextlib import closing

import pytest

from penstock.model.job import State
from penstock.model.stats import Sample
from penstock.storage.base import Storage
from penstock.storage.observing import STATS_MS, Histogram, Observing, RunTimes, Totals, need_observing
from penstock.storage.redis import observing as redis_observing
from penstock.storage.sqlite import stats as sqlite_stats
from tests.support import (
    HOUR,
    LEASE,
    SECOND,
    STATS_KEYS,
    T0,
    Backend,
    Clock,
    RedisBackend,
    SqliteBackend,
    claim1,
    claim_all,
    complete,
    fail,
    new,
    put1,
    retried,
    settle1,
    stall,
)

pytestmark = [pytest.mark.one_per_engine, pytest.mark.beyond_model]

MINUTE = 60 * SECOND


async def totals_of(storage: Storage, queue: str = "q") -> Totals:
    [stats] = await need_observing(storage).stats([queue])
    return stats.sample.totals


async def run_one(storage: Storage, queue: str = "q", ttl: int | None = HOUR) -> None:
    """Put a job and complete it."""
    await put1(storage, queue)
    await settle1(storage, complete(await claim1(storage, queue), ttl=ttl))


async def look(storage: Storage, clock: Clock, minutes: float = 1) -> Observing:
    """Let time pass, and look at the storage as a reader does."""
    clock.advance(seconds=60 * minutes)
    observing = need_observing(storage)
    assert await observing.record_stats("", []) == clock.ms
    return observing


def finished(samples: list[Sample]) -> list[tuple[int, int]]:
    """Return the minute since T0 and the finished jobs of each sample."""
    return [((sample.at - T0) // MINUTE, sample.totals.finished) for sample in samples]


async def test_each_transition_is_counted_once(storage: Storage, clock: Clock) -> None:
    """Every end, retry, stall and timeout of a run grows the total of its name, and no other."""
    await storage.put([new("q", str(i)) for i in range(8)])
    claims = await claim_all(storage)
    await storage.settle([
        complete(claims[0]), fail(claims[1]), fail(claims[2], count="timeouts"), retried(claims[3], delay=HOUR),
        retried(claims[4], delay=HOUR, count="timeouts"), stall(claims[5]),
    ])  # fmt: skip
    await storage.settle([complete(claims[0]), fail(claims[1])])  # again
    await storage.cancel("q", ["3"])
    await storage.discard("q", ["4"])
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    assert await totals_of(storage) == Totals(
        finished=5, failed=2, cancelled=2, retried=2, stalled=3, timed_out=2
    )  # fmt: skip


async def test_stats_and_a_sample_count_the_jobs_that_expire_under_them(storage: Storage, clock: Clock) -> None:
    """A job whose start-by time is over is ended by the call that reads it: counts and totals both have its end."""
    observing = need_observing(storage)
    await put1(storage, "q", "a", start_by=clock.ms + SECOND)
    await put1(storage, "q", "b", start_by=clock.ms + 2 * MINUTE)
    clock.advance(seconds=1)
    assert await totals_of(storage) == Totals(finished=1, cancelled=1)
    await look(storage, clock, 2)
    assert [sample.totals for sample in await observing.history("q")] == [Totals(finished=2, cancelled=2)]


async def test_a_minute_is_sampled_once_by_the_call_that_comes_first(storage: Storage, clock: Clock) -> None:
    """The sample has the state that the first call of a minute finds; the difference of two is exact."""
    observing = need_observing(storage)
    await run_one(storage)
    times = RunTimes("q", Histogram((0, 1), 150), Histogram((1,), 50))
    assert await observing.record_stats("w", [times]) == T0
    await run_one(storage)
    clock.advance(seconds=30)
    await observing.record_stats("v", [times])
    assert finished(await observing.history("q")) == [(0, 1)]
    await look(storage, clock)
    first, second = await observing.history("q")
    assert (second.at - first.at, second.totals.finished - first.totals.finished) == (90 * SECOND, 1)
    assert (first.wait, second.wait) == (Histogram((0, 1), 150), Histogram((0, 2), 300))
    assert second.counts[State.COMPLETED] == 2
    assert await observing.history("q", since=second.at) == [second]
    assert await observing.history("other") == []


async def test_all_queues_together_are_the_sum_of_their_changes(storage: Storage, clock: Clock) -> None:
    """The samples of all queues grow by the changes of each, and do not fall when a queue is deleted."""
    observing = await look(storage, clock, 0)
    for queue in ("q", "r"):
        await run_one(storage, queue)
    await look(storage, clock)
    for queue in ("q", "r"):
        await run_one(storage, queue)
    await put1(storage, "r", "waits")
    await look(storage, clock)
    await storage.delete_queue("q")
    await look(storage, clock)
    samples = await observing.history(None)
    assert [sample.totals.finished for sample in samples] == [0, 0, 2, 2]
    assert [sample.counts[State.QUEUED] for sample in samples] == [0, 0, 1, 1]
    assert samples[-1].oldest == 2 * MINUTE


async def test_a_queue_in_which_nothing_changes_stores_nothing_and_a_gap_is_known(
    storage: Storage, clock: Clock
) -> None:
    """Between two samples that are alike nothing happened; where no call came, two that differ are far apart."""
    await run_one(storage)
    observing = await look(storage, clock, 0)
    for _ in range(5):
        await look(storage, clock)
    assert finished(await observing.history("q")) == [(0, 1), (5, 1)]
    await run_one(storage)
    await look(storage, clock)
    assert finished(await observing.history("q")) == [(0, 1), (5, 1), (6, 2)]
    await run_one(storage)
    await look(storage, clock, 20)
    assert finished(await observing.history("q")) == [(0, 1), (5, 1), (6, 2), (26, 3)]


async def test_coarser_steps_keep_samples_for_longer(storage: Storage, clock: Clock) -> None:
    """A minute is kept for two hours, the first sample of ten minutes for two days, that of an hour for two weeks."""
    observing = need_observing(storage)
    for _ in range(33):
        await run_one(storage)
        await look(storage, clock, 4)
    minutes = finished(await observing.history("q", 1))
    assert (minutes[0][0], minutes[-1][0], len(minutes)) == (16, 132, 30)
    tens = [at for at, _ in finished(await observing.history("q", 10))]
    assert tens == [4, 12, 20, 32, 40, 52, 60, 72, 80, 92, 100, 112, 120, 132]
    assert [at for at, _ in finished(await observing.history("q", 60))] == [4, 60, 120]


async def test_totals_go_on_when_a_queue_was_forgotten(storage: Storage, clock: Clock) -> None:
    """A queue without records is forgotten by purge, but not by its samples: its totals do not fall."""
    await run_one(storage, ttl=0)
    await look(storage, clock, 0)
    await run_one(storage, ttl=0)
    await look(storage, clock, 2)
    await storage.purge(["q"])
    assert await storage.queues() == []
    assert await totals_of(storage) == Totals(finished=2)
    await run_one(storage, ttl=0)
    observing = await look(storage, clock)
    assert finished(await observing.history("q"))[-1] == (3, 3)
    assert finished(await observing.history(None))[-1] == (3, 2)  # the first sample of a queue is where it begins


async def test_measured_times_of_a_queue_that_does_not_exist_are_dropped(storage: Storage) -> None:
    """A heartbeat after the deletion of a queue leaves nothing behind."""
    observing = need_observing(storage)
    await observing.record_stats("w", [RunTimes("q", Histogram((1,), 1), Histogram((1,), 1))])
    [stats] = await observing.stats(["q"])
    assert stats.sample.wait == Histogram()
    assert await storage.queues() == []


async def test_nothing_is_left_of_statistics_when_their_time_is_over(
    storage: Storage, clock: Clock, backend: Backend
) -> None:
    """Two weeks after the last change nothing is left: keys expire, and purge deletes rows (S25)."""
    await run_one(storage)
    observing = need_observing(storage)
    await observing.record_stats("w", [RunTimes("q", Histogram((1,), 1), Histogram((1,), 1))])
    if isinstance(backend, RedisBackend):
        found = backend.keys()
        assert len([key for key in found if key.endswith(STATS_KEYS)]) == 4
        return  # the fixture looks whether all of them expire
    assert isinstance(backend, SqliteBackend)
    clock.advance(ms=STATS_MS)
    while await storage.purge(["q"]):
        pass
    with closing(backend.connect()) as db:
        for table in backend.EXPIRING_TABLES:
            assert db.execute(f"SELECT * FROM {table}").fetchall() == []


async def test_the_next_job_has_an_age_whether_or_not_the_queue_is_paused(storage: Storage, clock: Clock) -> None:
    """The age of the next job grows while the queue is paused; without a job that is due there is none."""
    observing = need_observing(storage)
    await put1(storage, "q", "later", delay=10 * SECOND)
    [stats] = await observing.stats(["q"])
    assert (stats.sample.oldest, stats.pause) == (None, None)
    await storage.set_pause("q", True, by="ann")
    clock.advance(seconds=25)
    [stats] = await observing.stats(["q"])
    assert stats.sample.oldest == 15 * SECOND
    assert stats.pause is not None
    assert stats.pause.by == "ann"


async def test_more_queues_than_have_samples_are_in_those_of_all_together(
    storage: Storage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that comes when there are too many has no samples of its own, but counts in the sum."""
    for module in (redis_observing, sqlite_stats):
        monkeypatch.setattr(module, "MAX_RINGS", 1)
    await run_one(storage)
    observing = await look(storage, clock)
    await run_one(storage, "q/more")
    await look(storage, clock)
    for queue in ("q", "q/more"):
        await run_one(storage, queue)
    await look(storage, clock)
    assert finished(await observing.history("q")) == [(1, 1), (2, 1), (3, 2)]
    assert await observing.history("q/more") == []
    assert finished(await observing.history(None)) == [(1, 0), (2, 0), (3, 2)]


async def test_the_bytes_of_samples_grow_with_them_and_end_with_their_queue(storage: Storage, clock: Clock) -> None:
    """Those of all queues together are counted always, those of single queues if they are named."""
    observing = need_observing(storage)
    assert await observing.history_bytes(["q", "none"]) == 0
    await run_one(storage)
    await look(storage, clock)
    together, with_queue = await observing.history_bytes([]), await observing.history_bytes(["q", "none"])
    assert 50 < together < with_queue
    for _ in range(5):
        await run_one(storage)
        await look(storage, clock)
    assert await observing.history_bytes(["q"]) > with_queue
    await storage.delete_queue("q")
    assert await observing.history_bytes(["q"]) == await observing.history_bytes([])
