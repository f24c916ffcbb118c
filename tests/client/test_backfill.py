"""`backfill` puts its ticks in steps: each has a bounded number of bytes, and there may be any number of steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock import Every, Penstock, State
from penstock.client import schedules as client
from penstock.storage.scheduling import Firing, ScheduleRecord
from penstock.testing import Clock

T = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(T)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The bytes of the payloads in each step."""
    steps: list[list[int]] = []
    build = client.Schedules._backfilling

    def noted(self: client.Schedules, record: ScheduleRecord, times: list[int]) -> Firing:
        firing = build(self, record, times)
        steps.append([len(tick.job.payload) for tick in firing.ticks])
        return firing

    monkeypatch.setattr(client.Schedules, "_backfilling", noted)
    return steps


async def test_a_step_has_no_more_bytes_than_a_put(app: Penstock, steps: list[list[int]]) -> None:
    """Ten ticks of a megabyte: each step ends with the tick that brings it to `MAX_BYTES`, and none is left out."""
    schedules = app.queue("q").schedules
    await schedules.put("q", Every(60), payload="x" * 1_000_000, overlap="allow")
    assert await schedules.backfill("q", T - timedelta(minutes=10), T) == 10
    assert sum(map(len, steps)) == 10
    assert all(sum(sizes[:-1]) < client.MAX_BYTES for sizes in steps)
    assert (await app.queue("q").counts())[State.QUEUED] == 10


async def test_more_steps_than_tries(app: Penstock, steps: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step for each of 30 ticks, where a change is tried ten times: only steps that others disturb count as tries."""
    monkeypatch.setattr(client, "MAX_BYTES", 1)
    monkeypatch.setattr(client, "TRIES", 10)
    monkeypatch.setattr(client, "MAX_BACKFILL", 100)
    schedules = app.queue("q").schedules
    await schedules.put("q", Every(60), payload="x", overlap="allow")
    assert await schedules.backfill("q", T - timedelta(minutes=30), T) == 30
    assert [len(sizes) for sizes in steps] == [1] * 30
