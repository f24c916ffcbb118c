"""Tests of the checks of limits and schedules: what the rules allow is no violation, also if answers are missing."""

from __future__ import annotations

from chaos.checker import check
from chaos.history import History
from chaos.limit_checks import slot_recoveries
from tests.chaos.history_builder import LEASE_MS, MS, HistoryBuilder
from tests.chaos.settings_scenarios import Ticks, complete, put_and_claim, set_limit


def test_a_limit_that_is_reached_and_changed_is_no_violation() -> None:
    """Two run with a limit of 2, a third starts when the limit is 3, and none when it is 1 again."""
    history = HistoryBuilder()
    set_limit(history, ("queue", "cap", None), 2)
    put_and_claim(history, "cap", "a", "b")
    set_limit(history, ("queue", "cap", None), 3)
    put_and_claim(history, "cap", "c")
    set_limit(history, ("queue", "cap", None), 1)
    complete(history, "cap", "a", "b", "c")
    put_and_claim(history, "cap", "d")
    complete(history, "cap", "d")
    assert check(history.finish()) == []


def test_a_change_of_a_limit_without_an_answer_may_hold_or_not() -> None:
    """A limit of 1 is raised to 2 by a process that gets no answer: one run or two at once are no violation."""
    for ids in (("a",), ("a", "b")):
        history = HistoryBuilder()
        set_limit(history, ("queue", "cap", None), 1)
        set_limit(history, ("queue", "cap", None), 2)
        del history.records[-1]
        put_and_claim(history, "cap", *ids)
        complete(history, "cap", *ids)
        assert check(history.finish()) == []


def test_a_run_without_its_lease_holds_no_slot() -> None:
    """A run whose lease has expired may go on beside as many runs as the limit allows."""
    history = HistoryBuilder()
    set_limit(history, ("queue", "cap", None), 1)
    put_and_claim(history, "cap", "a")
    history.wait(2.5)
    history.put("cap", "b")
    history.run("cap", "b", "t-b", pid=2)
    history.run("cap", "a", "t2", pid=2)
    history.settle("cap", "a", "t-a", state="lost")
    history.final("cap", "a", tok="t2")
    history.final("cap", "b", tok="t-b")
    assert check(history.finish()) == []


def test_a_claim_whose_answer_is_read_after_its_lease_holds_no_slot() -> None:
    """A process is stopped between a claim and its answer; its job is reaped and completed, and the next one runs."""
    history = HistoryBuilder()
    set_limit(history, ("groups", "caps", None), 1)
    history.put("caps", "a", group="g")
    history.put("caps", "b", group="g")
    asked = history.now + MS
    history.wait(2.5)
    history.add("reap", "w2", 2, a=history.now, jobs=[["caps", "a", "queued", "w1"]])
    history.run("caps", "a", "t2", pid=2)
    history.claim("caps", "b", token="t-b", pid=2, group="g")
    claims = [["caps", "a", 0, "g", 1, 0, 0, 0, None]]
    history.add("claim", "w1", 1, a=asked, w="w1", lease=LEASE_MS, tok="t-a", claims=claims)
    history.settle("caps", "b", "t-b", pid=2)
    history.final("caps", "a", tok="t2")
    history.final("caps", "b", tok="t-b")
    assert check(history.finish()) == []


def test_a_rate_with_a_burst_and_after_a_change_is_no_violation() -> None:
    """A burst of 3 starts 3 at once; after a change to another rate the next span begins."""
    history = HistoryBuilder()
    set_limit(history, ("queue", "cap", None), step=100_000, burst=3)
    put_and_claim(history, "cap", "a", "b", "c")
    set_limit(history, ("queue", "cap", None), step=10_000, burst=3)
    put_and_claim(history, "cap", "d", "e", "f")
    complete(history, "cap", "a", "b", "c", "d", "e", "f")
    assert check(history.finish()) == []


def test_a_later_attempt_may_follow_a_claim_that_was_not_recorded() -> None:
    """A job of an unordered group whose first recorded claim is its second attempt may have started before."""
    history = HistoryBuilder()
    set_limit(history, ("groups", "caps", None), 2)
    history.put("caps", "a", group="g")
    history.put("caps", "b", group="g")
    history.claim("caps", "b", token="t-b", group="g")
    history.claim("caps", "a", token="t-a", group="g")
    history.records[-1]["claims"][0][4] = 2
    complete(history, "caps", "a", "b")
    assert check(history.finish()) == []


def test_a_slot_that_is_reaped_in_time_is_no_violation() -> None:
    """The job of a killed worker is reaped after its lease, and claimed much later, when its rate allows it."""
    history = HistoryBuilder()
    set_limit(history, ("queue", "cap", None), 1)
    put_and_claim(history, "cap", "a")
    history.add("fault", "runner", 7, name="kill_worker", number=0)
    history.add("fault_over", "runner", 7, name="kill_worker", number=0, pids=[1])
    history.wait(4)
    history.add("reap", "w2", 2, a=history.now, jobs=[["cap", "a", "retrying", "w1"]])
    history.wait(8)
    history.run("cap", "a", "t2", pid=2)
    history.final("cap", "a", tok="t2")
    assert check(history.finish()) == []
    [recovery] = slot_recoveries(History(history.records))
    assert recovery.alone
    assert 4_000_000 < recovery.span < 4_100_000


def test_ticks_that_are_fired_skipped_and_missed_are_no_violation() -> None:
    """Ticks are fired, skipped and missed, in several steps and after a pause without ticks, and all are counted."""
    history = HistoryBuilder()
    ticks = Ticks(history)
    history.wait(1)
    ticks.fire(ticks.due())
    history.wait(2)
    ticks.fire(ticks.due(), skipped=1)
    history.wait(4)
    ticks.fire(ticks.due()[-2:], missed=2)
    ticks.change(fires=False)
    history.wait(2)
    paused_at, ticks.cursor = ticks.cursor, history.now // MS
    ticks.change(start=paused_at)
    history.wait(1)
    ticks.fire(ticks.due())
    ticks.final(fired=5, skipped=1, missed=2)
    assert check(history.finish()) == []


def test_a_firing_without_an_answer_may_have_taken_effect() -> None:
    """The jobs of a firing that was never answered may exist, and may be missing."""
    for exists in (True, False):
        history = HistoryBuilder()
        ticks = Ticks(history)
        history.wait(1)
        [at] = ticks.due()
        ticks.fire([at])
        answer = next(place for place, each in enumerate(history.records) if each["k"] == "fire_answer")
        history.records[answer:] = history.records[answer + 1 :] if exists else []
        assert check(history.finish()) == []
