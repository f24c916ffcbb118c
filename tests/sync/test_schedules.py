"""Schedules without `await`: declared in code, made and changed at run time, fired by a worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock import Cron, Every, Job, ScheduleNotFound, Tick
from penstock.sync import Penstock, Worker
from penstock.testing import Clock, drain

T = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_declared_schedule_is_fired() -> None:
    """The decorators are those of the async app; a function computes the payload."""
    clock = Clock(T)
    seen: list[str] = []

    def arguments(tick: Tick) -> dict[str, str]:
        return {"day": f"{tick.nominal:%F}"}

    with Penstock("memory:", clock=clock) as app:

        @app.schedule(Cron("@daily"), payload=arguments)
        @app.task
        def report(day: str, job: Job | None = None) -> None:
            assert job is not None
            assert job.tick is not None
            seen.append(f"{day} {job.tick.schedule}")

        drain(app)
        clock.advance(days=1)
        drain(app)
        assert seen == ["2030-01-02 report"]
        assert [each.source for each in app.schedules()] == ["code"]


def test_schedules_at_run_time(app: Penstock) -> None:
    """Every method of `queue.schedules`, finished when it returns."""
    schedules = app.queue("q").schedules
    made = schedules.put("s", Every(60), payload=1)
    assert schedules.get("s") == made
    assert [each.name for each in schedules.list()] == ["s"]
    assert len(schedules.next("s", 3)) == 3
    assert schedules.edit("s", payload=2).payload == 2
    assert schedules.pause("s", note="why not")
    assert schedules.trigger("s")
    assert schedules.resume("s", catch_up=True)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    assert schedules.backfill("s", past, past + timedelta(minutes=5)) == 5
    with pytest.raises(ValueError, match="not declared"):
        schedules.reset("s")
    assert schedules.remove("s")
    with pytest.raises(ScheduleNotFound):
        schedules.trigger("s")


def test_a_sync_worker_fires() -> None:
    """`penstock.sync.Worker` drains the ticks that are due."""
    clock = Clock(T)
    seen: list[object] = []
    with Penstock("memory:", clock=clock) as app:
        app.listen("q", seen.append)
        app.queue("q").schedules.put("s", Every(60), payload="tick")
        clock.advance(60)
        Worker(app).drain()
        assert seen == ["tick"]
