"""Reports of children about ticks: with them a supervisor looks for due ticks as rarely as a worker that claims."""

from __future__ import annotations

import pytest

from penstock import Every, Penstock
from penstock.model.source import source
from penstock.testing import Clock
from penstock.worker import ticker
from penstock.worker.supervisor import tick_reports
from penstock.worker.supervisor.tick_reports import TickReporter, TickReports


def test_a_child_reports_now_and_then_and_an_earlier_tick_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that name the same tick are reported `REPORT` seconds apart; one that names an earlier tick at once."""
    sent: list[str] = []
    here = 100.0
    monkeypatch.setattr(source, "monotonic", lambda: here)
    reporter = TickReporter(lambda: {"b", "a"}, sent.append)
    for tick_at in (9_000, 9_000, 9_500, 8_000, 8_000):
        reporter.report(tick_at, 5_000)
    assert sent == ['ticks [9000, -95000.0, ["a", "b"]]', 'ticks [8000, -95000.0, ["a", "b"]]']
    here += tick_reports.REPORT
    reporter.report(9_500, None)
    assert sent[2:] == ['ticks [9500, null, ["a", "b"]]']


def test_a_supervisor_reads_the_time_of_the_storage_from_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that was read late names the time of the storage then, and its queues are given once."""
    sent: list[str] = []
    here = 100.0
    monkeypatch.setattr(source, "monotonic", lambda: here)
    TickReporter(lambda: {"q"}, sent.append).report(90_000, 50_000)
    here += 7
    reports = TickReports()
    assert reports.read(sent[0]) == (90_000, 57_000)
    assert reports.take_asked() == {"q"}
    assert reports.take_asked() == set()
    assert reports.read("ticks [90000, null, []]") == (90_000, None)


async def test_a_supervisor_asks_for_no_ticks_while_children_report_one_that_is_far_away(
    app: Penstock, clock: Clock
) -> None:
    """Reports of all queues replace looks until the tick is near; without reports the supervisor looks by itself."""
    await app.queue("q").schedules.put("q", Every(3600))
    now = await app.storage.time()
    reports = TickReports()
    fires = ticker.Ticker(app, "w", ["q"], reports.take_asked)

    def report(left: float) -> None:
        sent: list[str] = []
        TickReporter(lambda: {"q"}, sent.append).report(now + round(left * 1000), now)
        fires.notice(*reports.read(sent[0]))

    report(3600)
    for _ in range(3):
        assert await fires.step() == ticker.LONGEST_REST + ticker.MARGIN
        report(3600)
    assert fires.rounds == 0
    await fires.step()
    await fires.step()
    assert fires.rounds == 1
    report(5)
    await fires.step()
    assert fires.rounds == 2
