"""Tests of the checker on histories made by hand: a sound one passes, each broken promise is found and explained."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.checker import check, explain, smallest
from chaos.violation import KINDS
from tests.chaos.history_builder import HistoryBuilder
from tests.chaos.settings_scenarios import OF_LIMITS, OF_SCHEDULES

Scenario = Callable[[HistoryBuilder], None]


def test_a_sound_history_violates_nothing() -> None:
    """A history with retries, a stall, a lost lease and a failure, all by the rules, has no violation."""
    history = HistoryBuilder()
    history.add_other_jobs()
    history.put("plain", "a", behaviour="raise", times=1)
    history.claim("plain", "a", token="a1")
    history.settle("plain", "a", "a1", "r", "retrying", delay=50)
    history.wait(0.1)
    history.run("plain", "a", "a2")
    history.final("plain", "a", tok="a2")
    history.put("lane", "g1", group="g")
    history.put("lane", "g2", group="g")
    history.claim("lane", "g1", token="l1", group="g")
    history.wait(2.5)  # its worker is dead, and its lease has expired
    history.run("lane", "g1", "l2", pid=2, group="g")
    history.settle("lane", "g1", "l1", state="lost")
    history.run("lane", "g2", "l3", pid=2, group="g")
    history.final("lane", "g1", tok="l2")
    history.final("lane", "g2", tok="l3")
    history.put("plain", "bad", behaviour="permanent")
    history.claim("plain", "bad", token="b1")
    history.settle("plain", "bad", "b1", "f", "failed", then=[["plain/failures", "f1"]])
    history.claim("plain/failures", "f1", token="b2")
    history.end(history.start("plain/failures", "f1", token="b2", of=["plain", "bad", "b1", "permanent"]))
    history.settle("plain/failures", "f1", "b2")
    history.final("plain", "bad", "failed", kind="permanent")
    history.final("plain/failures", "f1", of=["plain", "bad", "b1", "permanent"])
    history.put("plain", "unknown", status=None)  # not answered: the job may be missing
    history.put("plain", None, status=None)
    assert check(history.finish()) == []


# scenarios -----------------------------------------------------------------------------------------


def lost_job(history: HistoryBuilder) -> None:
    history.put("plain", "a")


def lost_job_with_a_generated_id(history: HistoryBuilder) -> None:
    history.put("plain", None, made="a")


def lost_after_its_run(history: HistoryBuilder) -> None:
    history.put("plain", "a")
    history.run("plain", "a", "t1")


def lost_update(history: HistoryBuilder) -> None:
    first = history.put("single", "a", update=True)
    history.put("single", "a", update=True, status="updated")
    history.run("single", "a", "t1", number=first)
    history.final("single", "a", n=first, tok="t1")


def lost_follow_up(history: HistoryBuilder) -> None:
    history.put("plain", "a")
    history.claim("plain", "a", token="t1")
    history.settle("plain", "a", "t1", then=[["plain/after", "b"]])
    history.final("plain", "a", tok="t1")


def stuck_queued(history: HistoryBuilder) -> None:
    history.put("plain", "a")
    history.final("plain", "a", "queued")


def stuck_blocked(history: HistoryBuilder) -> None:
    first = history.put("single", "a", update=True)
    history.run("single", "a", "t1", number=first)
    second = history.put("single", "a", update=True, status="blocked")
    history.final("single", "a", "blocked", n=second)


def duplicated_settle(history: HistoryBuilder) -> None:
    history.put("plain", "a")
    history.claim("plain", "a", token="t1")
    history.wait(2.5)
    history.claim("plain", "a", token="t2", pid=2)
    history.settle("plain", "a", "t2", pid=2)
    history.settle("plain", "a", "t1")
    history.final("plain", "a", tok="t1")


def duplicated_event(history: HistoryBuilder) -> None:
    history.put("plain", "a")
    history.run("plain", "a", "t1")
    history.event("plain", "a", "completed")
    history.event("plain", "a", "completed")
    history.final("plain", "a", tok="t1")


def duplicated_result(history: HistoryBuilder) -> None:
    history.call("call", "a", "completed", "t1")
    history.run("call", "a", "t1")
    history.final("call", "a", tok="t9")


def overlapped_id(history: HistoryBuilder) -> None:
    history.put("plain", "a")
    history.claim("plain", "a", token="t1")
    history.wait(1.5)
    history.renew("plain", "a", "t1")
    history.wait(1.5)
    history.claim("plain", "a", token="t2", pid=2)
    history.settle("plain", "a", "t2", pid=2)
    history.settle("plain", "a", "t1", state="lost")
    history.final("plain", "a", tok="t2")


def overlapped_group(history: HistoryBuilder) -> None:
    history.put("lane", "a", group="g")
    history.put("lane", "b", group="g")
    history.claim("lane", "a", token="t1", group="g")
    history.claim("lane", "b", token="t2", group="g", pid=2)
    history.settle("lane", "a", "t1")
    history.settle("lane", "b", "t2", pid=2)
    history.final("lane", "a", tok="t1")
    history.final("lane", "b", tok="t2")


def overlapped_batches(history: HistoryBuilder) -> None:
    history.put("lanes", "a", group="g")
    history.put("lanes", "b", group="g")
    history.claim("lanes", "a", token="t1", group="g", batch=0)
    history.claim("lanes", "b", token="t1", group="g", batch=1)
    history.settle("lanes", "a", "t1")
    history.settle("lanes", "b", "t1")
    history.final("lanes", "a", tok="t1")
    history.final("lanes", "b", tok="t1")


def out_of_order_group(history: HistoryBuilder) -> None:
    history.put("lane", "a", group="g")
    history.put("lane", "b", group="g")
    history.run("lane", "b", "t1", group="g")
    history.run("lane", "a", "t2", group="g")
    history.final("lane", "a", tok="t2")
    history.final("lane", "b", tok="t1")


def out_of_order_behind_a_failing_head(history: HistoryBuilder) -> None:
    history.put("lane", "a", group="g", behaviour="raise", times=1)
    history.put("lane", "b", group="g")
    history.claim("lane", "a", token="t1", group="g")
    history.settle("lane", "a", "t1", "r", "retrying", delay=20)
    history.run("lane", "b", "t2", group="g")
    history.wait(0.1)
    history.run("lane", "a", "t3", group="g")
    history.final("lane", "a", tok="t3")
    history.final("lane", "b", tok="t2")


def early_delay(history: HistoryBuilder) -> None:
    history.put("later", "a", delay=2.0, status="scheduled")
    history.wait(1.0)
    history.run("later", "a", "t1")
    history.final("later", "a", tok="t1")


def early_backoff(history: HistoryBuilder) -> None:
    history.put("plain", "a", behaviour="raise", times=1)
    history.claim("plain", "a", token="t1")
    history.settle("plain", "a", "t1", "r", "retrying", delay=400)
    history.run("plain", "a", "t2")
    history.final("plain", "a", tok="t2")


def ran_while_paused(history: HistoryBuilder) -> None:
    history.set_pause("gate", True)
    history.put("gate", "a")
    history.run("gate", "a", "t1")
    history.set_pause("gate", False)
    history.final("gate", "a", tok="t1")


def stale_write(history: HistoryBuilder) -> None:
    history.put("plain", "a", behaviour="raise", times=1)
    history.claim("plain", "a", token="t1")
    history.wait(2.5)
    history.claim("plain", "a", token="t2", pid=2)
    history.settle("plain", "a", "t1", "r", "retrying")
    history.settle("plain", "a", "t2", state="lost", pid=2)
    history.run("plain", "a", "t3")
    history.final("plain", "a", tok="t3")


def stale_result(history: HistoryBuilder) -> None:
    """Neither settle was answered, but the stored result is of a run that had lost its job."""
    history.put("plain", "a")
    history.claim("plain", "a", token="t1")
    history.wait(2.5)
    history.claim("plain", "a", token="t2", pid=2)
    history.settle("plain", "a", "t1", state=None)
    history.final("plain", "a", tok="t1")


def stale_update(history: HistoryBuilder) -> None:
    first = history.put("single", "a", update=True)
    second = history.put("single", "a", update=True, status="updated")
    history.claim("single", "a", token="t1", number=second)
    history.settle("single", "a", "t1", "l", "queued")
    history.run("single", "a", "t2", number=first)
    history.final("single", "a", n=second, tok="t2")


def failure_not_handled_without_fail_job(history: HistoryBuilder) -> None:
    history.put("plain", "a", behaviour="permanent")
    history.claim("plain", "a", token="t1")
    history.settle("plain", "a", "t1", "f", "failed")
    history.final("plain", "a", "failed")


def failure_not_handled_with_two_fail_jobs(history: HistoryBuilder) -> None:
    history.put("plain", "a", behaviour="permanent")
    history.claim("plain", "a", token="t1")
    of = ["plain", "a", "t1", "permanent"]
    history.settle("plain", "a", "t1", "f", "failed", then=[["plain/failures", "f1"], ["plain/failures", "f2"]])
    for id in ("f1", "f2"):
        history.end(history.start("plain/failures", id, token=id, of=of))
        history.final("plain/failures", id, of=of, tok=id)
    history.final("plain", "a", "failed")


def failure_not_handled_by_its_fail_job(history: HistoryBuilder) -> None:
    history.put("plain", "a", behaviour="permanent")
    history.claim("plain", "a", token="t1")
    history.settle("plain", "a", "t1", "f", "failed", then=[["plain/failures", "f1"]])
    history.final("plain", "a", "failed")
    history.final("plain/failures", "f1", of=["plain", "a", "t1", "permanent"])


def unrequested_job(history: HistoryBuilder) -> None:
    history.run("plain", "a", "t1")
    history.final("plain", "a", tok="t1")


def unrequested_follow_up(history: HistoryBuilder) -> None:
    history.put("plain", "a")
    history.claim("plain", "a", token="t1")
    history.wait(2.5)
    history.run("plain", "a", "t2", pid=2)
    history.settle("plain", "a", "t1", state="lost", then=[["plain/after", "b"]])
    history.final("plain", "a", tok="t2")
    history.final("plain/after", "b")


def wrong_outcome(history: HistoryBuilder) -> None:
    history.put("sync", "a", behaviour="permanent")
    history.run("sync", "a", "t1")
    history.final("sync", "a", tok="t1")


def ran_after_cancel(history: HistoryBuilder) -> None:
    history.put("wanted", "a")
    history.cancel("wanted", "a", "cancelled")
    history.run("wanted", "a", "t1")
    history.final("wanted", "a", tok="t1")


def ran_after_cancel_of_the_last_run(history: HistoryBuilder) -> None:
    history.put("wanted", "a")
    history.claim("wanted", "a", token="t1")
    history.cancel("wanted", "a", "running", "forget", running=True)
    history.settle("wanted", "a", "t1", "r", "retrying")
    history.run("wanted", "a", "t2")
    history.final("wanted", "a", tok="t2")


def over_capacity(history: HistoryBuilder) -> None:
    for i in range(5):
        history.put("heavy", f"a{i}")
        history.claim("heavy", f"a{i}", token=f"t{i}")
        history.start("heavy", f"a{i}", token=f"t{i}", units=25)
    for i in range(5):
        history.settle("heavy", f"a{i}", f"t{i}")
        history.final("heavy", f"a{i}", tok=f"t{i}")


SCENARIOS: dict[str, list[Scenario]] = {
    "lost": [lost_job, lost_job_with_a_generated_id, lost_after_its_run, lost_update, lost_follow_up],
    "stuck": [stuck_queued, stuck_blocked],
    "duplicated": [duplicated_settle, duplicated_event, duplicated_result],
    "overlapped": [overlapped_id, overlapped_group, overlapped_batches],
    "out_of_order": [out_of_order_group, out_of_order_behind_a_failing_head],
    "early": [early_delay, early_backoff],
    "ran_while_paused": [ran_while_paused],
    "stale": [stale_write, stale_result, stale_update],
    "failure_not_handled": [
        failure_not_handled_without_fail_job,
        failure_not_handled_with_two_fail_jobs,
        failure_not_handled_by_its_fail_job,
    ],
    "unrequested": [unrequested_job, unrequested_follow_up],
    "wrong_outcome": [wrong_outcome],
    "ran_after_cancel": [ran_after_cancel, ran_after_cancel_of_the_last_run],
    "over_capacity": [over_capacity],
}
CASES = [
    pytest.param(kind, scenario, id=scenario.__name__)
    for kind, scenarios in [*SCENARIOS.items(), *OF_LIMITS.items(), *OF_SCHEDULES.items()]
    for scenario in scenarios
]


@pytest.mark.parametrize(("kind", "scenario"), CASES)
def test_a_broken_promise_is_found(kind: str, scenario: Scenario) -> None:
    """A violation among sound jobs is found with its kind, and none of the sound jobs is reported."""
    history = HistoryBuilder()
    history.add_other_jobs()
    scenario(history)
    history.add_other_jobs()
    found = check(history.finish())
    assert kind in {violation.kind for violation in found}, [str(each) for each in found]
    assert not any("other" in str(violation) for violation in found)


@pytest.mark.parametrize(("kind", "scenario"), CASES)
def test_a_violation_is_shown_by_its_own_records(kind: str, scenario: Scenario) -> None:
    """The smallest history has only the jobs concerned and shows the same violation in at most 20 records."""
    history = HistoryBuilder()
    history.add_other_jobs()
    scenario(history)
    history.add_other_jobs()
    records = history.finish()
    violation = next(each for each in check(records) if each.kind == kind)
    small = smallest(violation, records)
    assert len(small) <= 20
    assert "other" not in str(small)
    if kind != "over_capacity":
        assert (violation.kind, violation.text) in {(each.kind, each.text) for each in check(small)}
    assert KINDS[kind] in explain(violation, records)


def test_a_leftover_key_is_found() -> None:
    """A key that is left after all TTLs have expired is reported as leaked."""
    [violation] = check(HistoryBuilder().finish("chaos:{plain}:plain:jobs (hash, ttl -1)"))
    assert violation.kind == "leaked"


def test_a_worker_exit_code_other_than_0_is_found() -> None:
    """A worker that exits with another code than 0 after SIGTERM is reported as wrong_exit."""
    history = HistoryBuilder()
    history.add("exits", "runner", 7, wrong=["w0.0 exited with 1 after SIGTERM"])
    [violation] = check(history.finish())
    assert violation.kind == "wrong_exit"


def test_a_request_that_a_full_server_refuses_is_found() -> None:
    """A request other than an enqueue that a full server refuses is reported as wrong_refusal."""
    history = HistoryBuilder()
    history.add("full", "runner", 7, wrong=["counts was refused by a full server"])
    [violation] = check(history.finish())
    assert violation.kind == "wrong_refusal"


def test_every_kind_of_violation_has_a_scenario() -> None:
    """Each kind of violation has a history that shows it."""
    assert {*SCENARIOS, *OF_LIMITS, *OF_SCHEDULES, "leaked", "wrong_exit", "wrong_refusal"} == set(KINDS)


def test_an_unanswered_settle_is_no_violation() -> None:
    """A settle without an answer may have been recorded or not: neither is a violation."""
    for recorded in (True, False):
        history = HistoryBuilder()
        history.put("plain", "a")
        history.claim("plain", "a", token="t1")
        history.settle("plain", "a", "t1", state=None)
        if not recorded:
            history.wait(2.5)
            history.run("plain", "a", "t2", pid=2)
        history.final("plain", "a", tok="t1" if recorded else "t2")
        assert check(history.finish()) == []


def test_retries_after_the_failure_of_a_batch_do_not_count() -> None:
    """More retries than max_retries are a violation if the job failed alone, and none if its whole batch failed."""
    for neighbours, kinds in ((("b",), list[str]()), ((), ["wrong_outcome"])):
        history = HistoryBuilder()
        history.put("bunch", "a", behaviour="raise", times=5)
        for n in range(3):
            history.claim("bunch", "a", token=f"t{n}")
            history.end(history.start("bunch", "a", *neighbours, token=f"t{n}"), how="RuntimeError")
            history.settle("bunch", "a", f"t{n}", kind="r", state="retrying")
            history.wait(1)
        history.claim("bunch", "a", token="t3")
        history.settle("bunch", "a", "t3", kind="f", state="failed")
        history.final("bunch", "a", tok="t3", state="failed")
        assert [each.kind for each in check(history.finish()) if "retried" in each.text] == kinds


def test_a_repeated_settle_with_the_same_token_is_no_violation() -> None:
    """A settle that is sent again with the same token after a lost answer is not a duplicate."""
    history = HistoryBuilder()
    history.put("plain", "a")
    history.claim("plain", "a", token="t1")
    history.settle("plain", "a", "t1", state=None)
    history.settle("plain", "a", "t1")
    history.final("plain", "a", tok="t1")
    assert check(history.finish()) == []


def test_a_run_without_its_lease_may_overlap() -> None:
    """A run that continues after its lease has expired may overlap with the next one; only its settle is refused."""
    history = HistoryBuilder()
    history.put("plain", "a")
    history.claim("plain", "a", token="t1")
    frozen = history.start("plain", "a", token="t1")
    history.wait(2.5)
    history.run("plain", "a", "t2", pid=2)
    history.end(frozen)
    history.settle("plain", "a", "t1", state="lost")
    history.final("plain", "a", tok="t2")
    assert check(history.finish()) == []


def test_a_job_lost_in_a_loss_window_is_no_violation() -> None:
    """A job whose enqueue was acknowledged in a loss window may be lost; outside of one that is a violation."""
    history = HistoryBuilder()
    history.put("plain", "a")
    history.add("loss_window", "runner", 7, first=history.now - 1_000_000, last=history.now)
    assert check(history.finish()) == []
    history.records = [record for record in history.records if record["k"] != "loss_window"]
    assert [each.kind for each in check(history.records)] == ["lost"]


def test_with_durability_a_job_lost_in_a_loss_window_is_a_violation() -> None:
    """With `durability`, an accepted job that is lost in a failover is a violation."""
    history = HistoryBuilder()
    history.add("settings", "runner", 7, durability="replicas")
    history.put("plain", "a")
    history.add("loss_window", "runner", 7, first=history.now - 1_000_000, last=history.now)
    assert [each.kind for each in check(history.finish())] == ["lost"]
