"""The checks of schedules: ticks that are decided once and in time pass, others are violations."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock import Every, Schedule
from penstock.model.job import NewJob
from penstock.model.schedule_settings import ScheduleSettings, fields_of
from penstock.storage.scheduling import DueSchedules, Fired, Firing, ScheduleRecord, TickJob
from sim.schedule_checks import ScheduleChecks

#: The time of the creation of the schedule, which ticks every minute.
T = 1_800_000_000_000
MINUTE = 60_000


def record_of(cursor: int = T, paused: int | None = None, **options: Any) -> ScheduleRecord:
    """Return the record of a schedule."""
    fields = fields_of(Schedule(Every(60), overlap="allow", **options).spec(b"1"))
    settings = ScheduleSettings(changed=fields, paused=paused)
    return ScheduleRecord(queue="q", name="s", spec=settings.encode(), cursor=cursor, next=settings.next_after(cursor))


def firing_of(*minutes: int, version: int = 1, missed: int = 0, cursor: int | None = None) -> Firing:
    """Return a firing of the ticks of these minutes."""
    ticks = [T + minute * MINUTE for minute in minutes]
    last = max([*ticks, cursor or 0])
    jobs = [TickJob(at, NewJob(queue="q", id=f"s@{at}", payload=b"", run_at=at)) for at in ticks]
    return Firing(
        queue="q", name="s", version=version, ticks=tuple(jobs), missed=missed, cursor=last, next=last + MINUTE
    )


class Calls:
    """The checks, with a clock of the test and a schedule of version 1."""

    def __init__(self) -> None:
        self.now = T
        self.violations: list[str] = []
        self.checks = ScheduleChecks(lambda text, *jobs: self.violations.append(text), lambda: self.now)
        self.checks.on_set_schedule(1, record_of(), 0)

    def fire(self, firing: Firing, **answer: Any) -> None:
        self.checks.observe_clock()
        ids = tuple(tick.job.id for tick in firing.ticks)
        given: dict[str, Any] = {"fired": len(firing.ticks), "ids": ids, **answer}
        self.checks.on_fire([Fired(firing.version + 1, **given)], [firing])


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_ticks_that_are_decided_once_are_no_violation(calls: Calls) -> None:
    """Two ticks in time, then three late ones of which the last fires, and a read of the counts."""
    calls.now = T + 2 * MINUTE
    calls.fire(firing_of(1, version=1, missed=0))
    calls.fire(firing_of(2, version=2))
    calls.now = T + 5 * MINUTE
    calls.fire(firing_of(5, version=3, missed=2), fired=0, skipped=1, ids=())
    read = replace(record_of(T + 5 * MINUTE), version=4, fired=2, skipped=1, missed=2)
    calls.checks.on_due(DueSchedules([]))
    calls.checks.on_get_schedule(read)
    assert calls.violations == []
    calls.checks.on_get_schedule(replace(read, missed=1))
    assert calls.violations[0].startswith("a schedule counts")


@pytest.mark.parametrize(
    ("firing", "text"),
    [
        (firing_of(4), "a tick came"),
        (firing_of(1, version=7), "a tick fired at another version"),
        (firing_of(3), "3 ticks were due, 1 fired and 0 missed"),
        (firing_of(2, 1, 3), "ticks are not nominal times"),
        (firing_of(1, missed=2, cursor=T + 3 * MINUTE), "which no time decides"),
        (replace(firing_of(1), next=T + 5 * MINUTE), "the next tick of a schedule is"),
    ],
)
def test_a_wrong_firing_is_a_violation(calls: Calls, firing: Firing, text: str) -> None:
    """A firing at three minutes that is early, stale, incomplete, out of order or against `catch_up`."""
    calls.now = T + 3 * MINUTE
    calls.fire(firing)
    assert any(text in violation for violation in calls.violations)


def test_a_tick_that_becomes_a_job_twice_is_a_violation(calls: Calls) -> None:
    """A schedule that is removed and made again with an old cursor fires the same tick."""
    calls.now = T + MINUTE
    calls.fire(firing_of(1))
    calls.checks.on_drop_schedule(True, "q", "s", 2)
    calls.checks.on_set_schedule(1, record_of(), 0)
    calls.fire(firing_of(1))
    assert calls.violations == ["a tick has become a job twice"]


def test_a_paused_schedule_that_ticks_is_a_violation(calls: Calls) -> None:
    """No tick fires between a pause and its end."""
    calls.checks.on_set_schedule(2, record_of(paused=T), 1)
    calls.now = T + MINUTE
    calls.fire(firing_of(1, version=2))
    assert calls.violations == ["a schedule ticked while it was paused or retired: ('q', 's')"]


def test_a_change_that_leaves_due_ticks_undecided_is_a_violation(calls: Calls) -> None:
    """The ticks that were due before a change belong to the old times, unless the schedule was paused."""
    calls.now = T + 2 * MINUTE
    calls.checks.observe_clock()
    calls.checks.on_set_schedule(2, record_of(T + MINUTE, paused=T), 1, firing_of(1))
    calls.checks.on_set_schedule(3, record_of(T + 2 * MINUTE), 2)
    assert calls.violations == []
    calls.now = T + 3 * MINUTE
    calls.checks.on_set_schedule(4, record_of(calls.now), 3)
    assert calls.violations == ["1 ticks were not decided before the schedule was changed: ('q', 's')"]


def test_a_present_version_that_is_answered_stale_is_a_violation(calls: Calls) -> None:
    """A firing is stale if the schedule has changed since, and only then."""
    calls.now = T + MINUTE
    calls.fire(firing_of(1, version=9), stale=True)
    assert calls.violations == []
    calls.fire(firing_of(1), stale=True)
    assert calls.violations == ["a firing of the present version was stale: ('q', 's')"]
