"""Statistics through the public API: what a queue is doing, what it did, and which of its jobs failed alike."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import FailureGroup, Penstock, Queue, State
from penstock.model.clock import as_datetime
from penstock.ops.failures import read_failures, retry_group
from penstock.ops.history import Rates, read_history, read_rates, read_stats, take_samples
from penstock.storage.observing import Histogram, RunTimes, need_observing
from penstock.testing import Clock

EVERY = 60


async def fail_some(queue: Queue, count: int, error: Exception, first: int = 0) -> None:
    """Put jobs and have them fail for good, each by a run of 2 seconds."""
    for n in range(first, first + count):
        await queue.enqueue(n, id=f"{n}")
    for job in await queue.reserve(limit=count):
        await job.fail(error)


async def look(app: Penstock, clock: Clock, seconds: float = EVERY) -> None:
    clock.advance(seconds=seconds)
    await need_observing(app.storage).record_stats("", [])


async def test_a_job_has_the_times_of_its_last_run(app: Penstock, clock: Clock) -> None:
    """`started_at` is when the run was claimed, and the duration lasts until the job ended."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    status = await queue.status("a")
    assert status is not None
    assert (status.started_at, status.finished_at, status.duration) == (None, None, None)
    clock.advance(seconds=5)
    [job] = await queue.reserve()
    clock.advance(seconds=2)
    await job.complete()
    status = await queue.status("a")
    assert status is not None
    assert status.started_at == status.created_at + timedelta(seconds=5)
    assert status.duration == timedelta(seconds=2)


async def test_history_has_the_changes_of_each_minute(app: Penstock, clock: Clock) -> None:
    """Points have what arrived and ended between two samples, with the latencies that workers measured."""
    app.listen("q", len, max_retries=0)
    queue = app.queue("q")
    await queue.enqueue_many(range(4))
    await look(app, clock, 0)
    first, second = await queue.reserve(limit=2)
    await first.complete()
    await second.fail(ValueError("no"))
    await queue.enqueue(9)
    times = RunTimes("q", Histogram((0,) * 14 + (2,), 20_000_000), Histogram((0,) * 20 + (2,), 200_000_000))
    clock.advance(seconds=EVERY)
    await need_observing(app.storage).record_stats("w", [times])
    [point] = await queue.history()
    assert (point.arrived, point.completed, point.failed, point.minutes, point.gap) == (1, 1, 1, 1.0, False)
    assert point.counts[State.QUEUED] == 3
    assert (point.wait.count, point.run.mean) == (2, 100.0)
    assert point.run.p95 == pytest.approx(0.1 / 1000 * 2**9.75)
    assert point.oldest == EVERY
    assert [each.arrived for each in await app.history()] == [1]
    assert await app.history("14d", queue="q") == []
    await queue.enqueue(9)
    await look(app, clock, 30 * EVERY)
    assert [each.gap for each in await queue.history()] == [False, True]
    with pytest.raises(ValueError, match="span must be one of '2h', '2d', '14d', not '1h'"):
        await queue.history("1h")  # type: ignore[arg-type]


async def test_jobs_that_failed_alike_are_listed_and_retried_together(app: Penstock, clock: Clock) -> None:
    """A retry takes the jobs of one error that have failed by now, in steps, and leaves all others."""
    app.listen("q", len, max_retries=0)
    queue = app.queue("q")
    await fail_some(queue, 3, ConnectionError("host 1 not reachable"))
    clock.advance(seconds=1)
    await fail_some(queue, 1, ValueError("bad"), 7)
    value, connection = await queue.failures()
    assert connection == FailureGroup(
        queue="q", key=connection.key, type="ConnectionError", message="host 1 not reachable", kind="retriable",
        first_at=as_datetime(round(clock.time() * 1000) - 1000), last_at=as_datetime(round(clock.time() * 1000) - 1000),
        count=3, open=3, sample="2",
    )  # fmt: skip
    assert [job.id for job in await queue.failed_jobs(connection.key)] == ["2", "1", "0"]
    steps: list[int] = []
    assert await queue.retry_failures(connection.key, on_step=steps.append) == 3
    assert steps == [3]
    assert await queue.retry_failures(connection.key) == 0
    assert (await queue.counts())[State.QUEUED] == 3
    assert [group.open for group in await queue.failures()] == [1, 0]
    assert (await queue.stats()).totals.failed == 4
    assert value.type == "ValueError"


async def test_rates_are_those_of_the_last_minutes_before_a_gap(app: Penstock, clock: Clock) -> None:
    """Rates are per minute; there is none without samples, or right after a gap."""
    assert read_rates([]) == Rates()
    queue = app.queue("q")
    await look(app, clock, 0)
    await queue.enqueue("first")
    for minute in range(8):
        await queue.enqueue_many(range(minute))
        await look(app, clock)
    points = await read_history(app, "q")
    assert len(points) == 7
    assert read_rates(points) == Rates(arrived=5.0, finished=0.0, failed=0.0)
    await queue.enqueue(1)
    await look(app, clock, 30 * EVERY)
    assert read_rates(await read_history(app, "q")) == Rates()
    [info] = await read_stats(app, ["q"])
    assert info.counts[State.QUEUED] == 30
    assert await take_samples(app) == round(clock.time() * 1000)


async def test_one_of_two_error_groups_is_retried(app: Penstock) -> None:
    """`retry_group` revives the jobs of its group, and the other group stays open."""
    app.listen("q", len, max_retries=0)
    await fail_some(app.queue("q"), 1, ConnectionError("a"))
    await fail_some(app.queue("q"), 1, ValueError("b"), 1)
    _, second = await read_failures(app)
    assert await retry_group(app, "q", second.key) == 1
    assert [group.open for group in await read_failures(app, open_only=True)] == [1]
