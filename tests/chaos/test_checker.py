"""The checker on histories made by hand: a sound one passes, and each broken promise is found and shown small."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.checker import check, explain, smallest
from chaos.violation import KINDS
from tests.chaos.tale import Tale

Story = Callable[[Tale], None]


def test_a_sound_history_violates_nothing() -> None:
    """Jobs of every sort that go through retries, stalls and lost leases by the rules are found to be right."""
    tale = Tale()
    tale.others()
    tale.put("plain", "a", mood="raise", times=1)
    tale.claim("plain", "a", token="a1")
    tale.settle("plain", "a", "a1", "r", "retrying", delay=50)
    tale.wait(0.1)
    tale.run("plain", "a", "a2")
    tale.final("plain", "a", tok="a2")
    tale.put("lane", "g1", group="g")
    tale.put("lane", "g2", group="g")
    tale.claim("lane", "g1", token="l1", group="g")
    tale.wait(2.5)  # its worker is gone, and the lease over
    tale.run("lane", "g1", "l2", pid=2, group="g")
    tale.settle("lane", "g1", "l1", state="lost")
    tale.run("lane", "g2", "l3", pid=2, group="g")
    tale.final("lane", "g1", tok="l2")
    tale.final("lane", "g2", tok="l3")
    tale.put("plain", "bad", mood="permanent")
    tale.claim("plain", "bad", token="b1")
    tale.settle("plain", "bad", "b1", "f", "failed", then=[["plain/failures", "f1"]])
    tale.claim("plain/failures", "f1", token="b2")
    tale.end(tale.start("plain/failures", "f1", token="b2", of=["plain", "bad", "b1", "permanent"]))
    tale.settle("plain/failures", "f1", "b2")
    tale.final("plain", "bad", "failed", kind="permanent")
    tale.final("plain/failures", "f1", of=["plain", "bad", "b1", "permanent"])
    tale.put("plain", "unknown", status=None)  # nobody knows whether it is there, and it is not
    tale.put("plain", None, status=None)
    assert check(tale.over()) == []


# stories -----------------------------------------------------------------------------------------


def lost_job(tale: Tale) -> None:
    tale.put("plain", "a")


def lost_job_of_a_made_up_id(tale: Tale) -> None:
    tale.put("plain", None, made="a")


def lost_after_its_run(tale: Tale) -> None:
    tale.put("plain", "a")
    tale.run("plain", "a", "t1")


def lost_update(tale: Tale) -> None:
    first = tale.put("single", "a", update=True)
    tale.put("single", "a", update=True, status="updated")
    tale.run("single", "a", "t1", number=first)
    tale.final("single", "a", n=first, tok="t1")


def lost_follow_up(tale: Tale) -> None:
    tale.put("plain", "a")
    tale.claim("plain", "a", token="t1")
    tale.settle("plain", "a", "t1", then=[["plain/after", "b"]])
    tale.final("plain", "a", tok="t1")


def stuck_queued(tale: Tale) -> None:
    tale.put("plain", "a")
    tale.final("plain", "a", "queued")


def stuck_blocked(tale: Tale) -> None:
    first = tale.put("single", "a", update=True)
    tale.run("single", "a", "t1", number=first)
    second = tale.put("single", "a", update=True, status="blocked")
    tale.final("single", "a", "blocked", n=second)


def doubled_end(tale: Tale) -> None:
    tale.put("plain", "a")
    tale.claim("plain", "a", token="t1")
    tale.wait(2.5)
    tale.claim("plain", "a", token="t2", pid=2)
    tale.settle("plain", "a", "t2", pid=2)
    tale.settle("plain", "a", "t1")
    tale.final("plain", "a", tok="t1")


def doubled_event(tale: Tale) -> None:
    tale.put("plain", "a")
    tale.run("plain", "a", "t1")
    tale.event("plain", "a", "completed")
    tale.event("plain", "a", "completed")
    tale.final("plain", "a", tok="t1")


def doubled_result(tale: Tale) -> None:
    tale.called("call", "a", "completed", "t1")
    tale.run("call", "a", "t1")
    tale.final("call", "a", tok="t9")


def overlapped_id(tale: Tale) -> None:
    tale.put("plain", "a")
    tale.claim("plain", "a", token="t1")
    tale.wait(1.5)
    tale.renew("plain", "a", "t1")
    tale.wait(1.5)
    tale.claim("plain", "a", token="t2", pid=2)
    tale.settle("plain", "a", "t2", pid=2)
    tale.settle("plain", "a", "t1", state="lost")
    tale.final("plain", "a", tok="t2")


def overlapped_group(tale: Tale) -> None:
    tale.put("lane", "a", group="g")
    tale.put("lane", "b", group="g")
    tale.claim("lane", "a", token="t1", group="g")
    tale.claim("lane", "b", token="t2", group="g", pid=2)
    tale.settle("lane", "a", "t1")
    tale.settle("lane", "b", "t2", pid=2)
    tale.final("lane", "a", tok="t1")
    tale.final("lane", "b", tok="t2")


def overlapped_batches(tale: Tale) -> None:
    tale.put("lanes", "a", group="g")
    tale.put("lanes", "b", group="g")
    tale.claim("lanes", "a", token="t1", group="g", batch=0)
    tale.claim("lanes", "b", token="t1", group="g", batch=1)
    tale.settle("lanes", "a", "t1")
    tale.settle("lanes", "b", "t1")
    tale.final("lanes", "a", tok="t1")
    tale.final("lanes", "b", tok="t1")


def disordered_group(tale: Tale) -> None:
    tale.put("lane", "a", group="g")
    tale.put("lane", "b", group="g")
    tale.run("lane", "b", "t1", group="g")
    tale.run("lane", "a", "t2", group="g")
    tale.final("lane", "a", tok="t2")
    tale.final("lane", "b", tok="t1")


def disordered_behind_a_failing_head(tale: Tale) -> None:
    tale.put("lane", "a", group="g", mood="raise", times=1)
    tale.put("lane", "b", group="g")
    tale.claim("lane", "a", token="t1", group="g")
    tale.settle("lane", "a", "t1", "r", "retrying", delay=20)
    tale.run("lane", "b", "t2", group="g")
    tale.wait(0.1)
    tale.run("lane", "a", "t3", group="g")
    tale.final("lane", "a", tok="t3")
    tale.final("lane", "b", tok="t2")


def early_delay(tale: Tale) -> None:
    tale.put("later", "a", delay=2.0, status="scheduled")
    tale.wait(1.0)
    tale.run("later", "a", "t1")
    tale.final("later", "a", tok="t1")


def early_backoff(tale: Tale) -> None:
    tale.put("plain", "a", mood="raise", times=1)
    tale.claim("plain", "a", token="t1")
    tale.settle("plain", "a", "t1", "r", "retrying", delay=400)
    tale.run("plain", "a", "t2")
    tale.final("plain", "a", tok="t2")


def paused_queue(tale: Tale) -> None:
    tale.switch("gate", True)
    tale.put("gate", "a")
    tale.run("gate", "a", "t1")
    tale.switch("gate", False)
    tale.final("gate", "a", tok="t1")


def stale_write(tale: Tale) -> None:
    tale.put("plain", "a", mood="raise", times=1)
    tale.claim("plain", "a", token="t1")
    tale.wait(2.5)
    tale.claim("plain", "a", token="t2", pid=2)
    tale.settle("plain", "a", "t1", "r", "retrying")
    tale.settle("plain", "a", "t2", state="lost", pid=2)
    tale.run("plain", "a", "t3")
    tale.final("plain", "a", tok="t3")


def stale_result(tale: Tale) -> None:
    """Nobody was answered, but the stored result is of a run that had lost its job."""
    tale.put("plain", "a")
    tale.claim("plain", "a", token="t1")
    tale.wait(2.5)
    tale.claim("plain", "a", token="t2", pid=2)
    tale.settle("plain", "a", "t1", state=None)
    tale.final("plain", "a", tok="t1")


def stale_update(tale: Tale) -> None:
    first = tale.put("single", "a", update=True)
    second = tale.put("single", "a", update=True, status="updated")
    tale.claim("single", "a", token="t1", number=second)
    tale.settle("single", "a", "t1", "l", "queued")
    tale.run("single", "a", "t2", number=first)
    tale.final("single", "a", n=second, tok="t2")


def unheard_failure(tale: Tale) -> None:
    tale.put("plain", "a", mood="permanent")
    tale.claim("plain", "a", token="t1")
    tale.settle("plain", "a", "t1", "f", "failed")
    tale.final("plain", "a", "failed")


def unheard_since_told_twice(tale: Tale) -> None:
    tale.put("plain", "a", mood="permanent")
    tale.claim("plain", "a", token="t1")
    of = ["plain", "a", "t1", "permanent"]
    tale.settle("plain", "a", "t1", "f", "failed", then=[["plain/failures", "f1"], ["plain/failures", "f2"]])
    for id in ("f1", "f2"):
        tale.end(tale.start("plain/failures", id, token=id, of=of))
        tale.final("plain/failures", id, of=of, tok=id)
    tale.final("plain", "a", "failed")


def unheard_since_never_run(tale: Tale) -> None:
    tale.put("plain", "a", mood="permanent")
    tale.claim("plain", "a", token="t1")
    tale.settle("plain", "a", "t1", "f", "failed", then=[["plain/failures", "f1"]])
    tale.final("plain", "a", "failed")
    tale.final("plain/failures", "f1", of=["plain", "a", "t1", "permanent"])


def phantom_job(tale: Tale) -> None:
    tale.run("plain", "a", "t1")
    tale.final("plain", "a", tok="t1")


def phantom_follow_up(tale: Tale) -> None:
    tale.put("plain", "a")
    tale.claim("plain", "a", token="t1")
    tale.wait(2.5)
    tale.run("plain", "a", "t2", pid=2)
    tale.settle("plain", "a", "t1", state="lost", then=[["plain/after", "b"]])
    tale.final("plain", "a", tok="t2")
    tale.final("plain/after", "b")


def wrong_end(tale: Tale) -> None:
    tale.put("sync", "a", mood="permanent")
    tale.run("sync", "a", "t1")
    tale.final("sync", "a", tok="t1")


def defied_cancel(tale: Tale) -> None:
    tale.put("wanted", "a")
    tale.cancel("wanted", "a", "cancelled")
    tale.run("wanted", "a", "t1")
    tale.final("wanted", "a", tok="t1")


def defied_last_run(tale: Tale) -> None:
    tale.put("wanted", "a")
    tale.claim("wanted", "a", token="t1")
    tale.cancel("wanted", "a", "running", "forget", running=True)
    tale.settle("wanted", "a", "t1", "r", "retrying")
    tale.run("wanted", "a", "t2")
    tale.final("wanted", "a", tok="t2")


def crowded_process(tale: Tale) -> None:
    for i in range(5):
        tale.put("heavy", f"a{i}")
        tale.claim("heavy", f"a{i}", token=f"t{i}")
        tale.start("heavy", f"a{i}", token=f"t{i}", units=25)
    for i in range(5):
        tale.settle("heavy", f"a{i}", f"t{i}")
        tale.final("heavy", f"a{i}", tok=f"t{i}")


STORIES: dict[str, list[Story]] = {
    "lost": [lost_job, lost_job_of_a_made_up_id, lost_after_its_run, lost_update, lost_follow_up],
    "stuck": [stuck_queued, stuck_blocked],
    "doubled": [doubled_end, doubled_event, doubled_result],
    "overlapped": [overlapped_id, overlapped_group, overlapped_batches],
    "disordered": [disordered_group, disordered_behind_a_failing_head],
    "early": [early_delay, early_backoff],
    "paused": [paused_queue],
    "stale": [stale_write, stale_result, stale_update],
    "unheard": [unheard_failure, unheard_since_told_twice, unheard_since_never_run],
    "phantom": [phantom_job, phantom_follow_up],
    "wrong": [wrong_end],
    "defied": [defied_cancel, defied_last_run],
    "crowded": [crowded_process],
}
CASES = [pytest.param(kind, story, id=story.__name__) for kind, stories in STORIES.items() for story in stories]


@pytest.mark.parametrize(("kind", "story"), CASES)
def test_a_broken_promise_is_found(kind: str, story: Story) -> None:
    """A history that breaks one promise is found to break it, in the midst of sound ones."""
    tale = Tale()
    tale.others()
    story(tale)
    tale.others()
    found = check(tale.over())
    assert kind in {violation.kind for violation in found}, [str(each) for each in found]
    assert not any("other" in str(violation) for violation in found)


@pytest.mark.parametrize(("kind", "story"), CASES)
def test_a_violation_is_shown_by_its_own_records(kind: str, story: Story) -> None:
    """The smallest history has only the jobs concerned, shows the same violation, and no record too many."""
    tale = Tale()
    tale.others()
    story(tale)
    tale.others()
    records = tale.over()
    violation = next(each for each in check(records) if each.kind == kind)
    small = smallest(violation, records)
    assert len(small) <= 14
    assert "other" not in str(small)
    if kind != "crowded":
        assert (violation.kind, violation.text) in {(each.kind, each.text) for each in check(small)}
    assert KINDS[kind] in explain(violation, records)


def test_what_is_left_behind_is_found() -> None:
    """A key or row that nobody needs any more is told."""
    [violation] = check(Tale().over("chaos:{plain}:plain:jobs (hash, ttl -1)"))
    assert violation.kind == "leaked"


def test_a_worker_that_ends_otherwise_is_found() -> None:
    """A worker that is told to stop and ends with another code than 0 is told."""
    tale = Tale()
    tale.add("exits", "runner", 7, wrong=["w0.0 ended with 1 after SIGTERM"])
    [violation] = check(tale.over())
    assert violation.kind == "exit"


def test_every_kind_of_violation_has_a_story() -> None:
    """No kind of violation is without a history that shows it."""
    assert {*STORIES, "leaked", "exit"} == set(KINDS)


def test_an_unanswered_end_is_no_accusation() -> None:
    """A run whose end was sent and not answered may have been recorded, or not: neither is a violation."""
    for recorded in (True, False):
        tale = Tale()
        tale.put("plain", "a")
        tale.claim("plain", "a", token="t1")
        tale.settle("plain", "a", "t1", state=None)
        if not recorded:
            tale.wait(2.5)
            tale.run("plain", "a", "t2", pid=2)
        tale.final("plain", "a", tok="t1" if recorded else "t2")
        assert check(tale.over()) == []


def test_a_failure_that_was_shared_is_no_repetition_too_many() -> None:
    """Beyond its limit a job is repeated if others failed with it, and not if it failed alone."""
    for neighbours, kinds in ((("b",), list[str]()), ((), ["wrong"])):
        tale = Tale()
        tale.put("bunch", "a", mood="raise", times=5)
        for n in range(3):
            tale.claim("bunch", "a", token=f"t{n}")
            tale.end(tale.start("bunch", "a", *neighbours, token=f"t{n}"), how="RuntimeError")
            tale.settle("bunch", "a", f"t{n}", kind="r", state="retrying")
            tale.wait(1)
        tale.claim("bunch", "a", token="t3")
        tale.settle("bunch", "a", "t3", kind="f", state="failed")
        tale.final("bunch", "a", tok="t3", state="failed")
        assert [each.kind for each in check(tale.over()) if "repeated" in each.text] == kinds


def test_the_same_end_twice_is_one_end() -> None:
    """A repeated settlement with the same token, answered as before, is not a second end."""
    tale = Tale()
    tale.put("plain", "a")
    tale.claim("plain", "a", token="t1")
    tale.settle("plain", "a", "t1", state=None)
    tale.settle("plain", "a", "t1")
    tale.final("plain", "a", tok="t1")
    assert check(tale.over()) == []


def test_a_run_without_its_lease_may_overlap() -> None:
    """A run that goes on after its lease is over overlaps with the next one by design; only its end is refused."""
    tale = Tale()
    tale.put("plain", "a")
    tale.claim("plain", "a", token="t1")
    frozen = tale.start("plain", "a", token="t1")
    tale.wait(2.5)
    tale.run("plain", "a", "t2", pid=2)
    tale.end(frozen)
    tale.settle("plain", "a", "t1", state="lost")
    tale.final("plain", "a", tok="t2")
    assert check(tale.over()) == []


def test_what_the_server_may_forget_is_no_violation() -> None:
    """What was acknowledged within the window that the server itself does not promise is not held against anybody."""
    tale = Tale()
    tale.put("plain", "a")
    tale.add("shaky", "runner", 7, first=tale.now - 1_000_000, last=tale.now)
    assert check(tale.over()) == []
    tale.records = [record for record in tale.records if record["k"] != "shaky"]
    assert [each.kind for each in check(tale.records)] == ["lost"]


def test_a_durable_enqueue_is_never_forgotten() -> None:
    """Where enqueues wait until others have them, an accepted job that is lost in a failover is a violation."""
    tale = Tale()
    tale.add("run", "runner", 7, durability="replicas")
    tale.put("plain", "a")
    tale.add("shaky", "runner", 7, first=tale.now - 1_000_000, last=tale.now)
    assert [each.kind for each in check(tale.over())] == ["lost"]
