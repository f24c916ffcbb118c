"""Schedules

Jobs at certain times: by cron expressions and intervals, in code or at run time, without a scheduler process.
"""

from __future__ import annotations

from datetime import UTC, datetime

from penstock import Cron, Every, Job, Penstock, Worker
from penstock.testing import Clock


async def test_in_code(app: Penstock, clock: Clock) -> None:
    """A worker declares the schedules of its code when it starts; each tick is one job, with its nominal time."""
    nights: list[str] = []

    @app.schedule(Cron("0 2 * * *", tz="Europe/Paris"))
    @app.task
    async def nightly(job: Job | None = None) -> None:
        assert job is not None
        assert job.tick is not None
        nights.append(f"{job.tick.local:%H:%M %Z}")

    for _ in range(3):
        await Worker(app).drain()
        clock.advance(days=1)
    assert nights == ["02:00 CET", "02:00 CET"]


async def test_at_run_time(app: Penstock, clock: Clock) -> None:
    """`queue.schedules` makes, changes, pauses and removes them, and puts a job by hand."""
    sent: list[str] = []
    app.listen("reports", sent.append)
    schedules = app.queue("reports").schedules
    await schedules.put("acme", Every(hours=1), payload="acme")
    clock.advance(hours=1)
    await Worker(app).drain()
    await schedules.pause("acme")
    clock.advance(hours=5)
    assert await schedules.trigger("acme")
    await Worker(app).drain()
    assert sent == ["acme", "acme"]
    assert await schedules.remove("acme")


async def test_late_and_overlapping_ticks(app: Penstock, clock: Clock) -> None:
    """After a night without workers the last tick fires; while its job is unfinished, the next ones are skipped."""
    queue = app.queue("sync")
    await queue.schedules.put("hourly", Every(hours=1))
    clock.advance(hours=8)
    [job] = await queue.reserve(lease=36_000)
    clock.advance(hours=1)
    assert await queue.reserve() == []
    await job.complete(None)
    [found] = await queue.schedules.list()
    assert (found.fired, found.missed, found.skipped) == (1, 7, 1)


async def test_the_next_times(app: Penstock) -> None:
    """A `Cron` computes its times without a storage, also where clocks are set forward or back."""
    cron = Cron("30 2 * * *", tz="Europe/Paris")
    gap = cron.after(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert gap == datetime(2026, 3, 29, 1, tzinfo=UTC)
    fold = list(cron.between(datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC)))
    assert fold == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]
