"""Several verbs in one SQLite transaction: each sees the changes of those before it, though the queue was read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.model.job import NewJob
from penstock.storage.base import Claimed, Complete, Request, Retried, Settlement
from penstock.storage.sqlite import admin, claim, put, reads, settle, waiters
from penstock.storage.sqlite.engine import Engine
from penstock.storage.sqlite.purge import purge
from penstock.storage.sqlite.rows import JobRow
from penstock.storage.sqlite.rows import state_of as state_of_job
from penstock.storage.sqlite.transaction import Transaction

Verb = Callable[[Transaction], Any]


class Rig:
    """An engine in memory, and the waiters of this process that it has woken."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.engine = Engine(":memory:")
        self.engine.wake_local = self._wake

    def _wake(self, waiter: str) -> bool:
        self.woken.append(waiter)
        return True

    def run(self, *verbs: Verb) -> list[Any]:
        """Run verbs in one transaction."""
        answers = self.engine.run_group([(verb, True) for verb in verbs])
        assert answers is not None
        return answers

    @property
    def address(self) -> str:
        return self.engine.address


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.engine.open()
    yield rig
    rig.engine.close()


def accept(*ids: str, **options: Any) -> Verb:
    jobs = [NewJob(queue="q", id=id, payload=b"p", **options) for id in ids]
    return lambda tx: put.put(tx, jobs)


def take(limit: int = 10) -> Verb:
    return lambda tx: claim.claim(tx, [Request("q", limit)], "w", 10_000, "t")


def complete(*ids: str, token: str = "t", ttl: int = 1000) -> Verb:
    settlements = [Settlement("q", id, token, Complete(b"r", ttl)) for id in ids]
    return lambda tx: settle.settle(tx, settlements)


def read(tx: Transaction) -> list[tuple[int, bytes | None]]:
    return waiters.read_events(tx, 0, None, 100)


def test_a_listener_gets_events_of_later_verbs_in_its_transaction(rig: Rig) -> None:
    """A listener that is added between two puts of one transaction gets the event of the second."""
    rig.run(accept("a"), lambda tx: waiters.add_listener(tx, "listener", rig.address), accept("b"))
    events = [event for _, event in rig.run(read)[0]]
    assert [event.count(b"enqueued") for event in events] == [1]
    assert b"b" in events[0]
    assert rig.woken == ["listener"]


def test_an_idle_worker_is_woken_by_a_put_of_the_same_transaction(rig: Rig) -> None:
    """A worker that becomes idle is woken by a later put of the same transaction."""
    rig.run(accept("a"))
    rig.run(take(), lambda tx: waiters.add_idle(tx, ["q"], "idle", rig.address, 1000), accept("b"))
    assert rig.woken == ["idle"]


def test_a_caller_of_wait_done_is_woken_by_a_settle_of_the_same_transaction(rig: Rig) -> None:
    """A caller that starts to wait for the end of a job is woken by a later settle of the same transaction."""
    rig.run(accept("a", "b"), take())
    rig.run(complete("b"), lambda tx: waiters.add_done_waiter(tx, "q", "a", "waiter", rig.address, 1000), complete("a"))
    assert rig.woken == ["waiter"]


def test_a_settle_wakes_only_the_callers_that_wait_for_its_job(rig: Rig) -> None:
    """A settle wakes the callers that wait for its job, and not those that wait for another."""
    rig.run(accept("a", "b"), take())
    for id in ("a", "b"):
        rig.run(lambda tx, id=id: waiters.add_done_waiter(tx, "q", id, f"waits-for-{id}", rig.address, 1000))
    rig.run(complete("b"))
    assert rig.woken == ["waits-for-b"]


def test_a_claim_sees_a_scheduled_job_of_its_transaction(rig: Rig) -> None:
    """A claim after a put of a scheduled job, in one transaction, answers `look_at` with its due time."""
    claimed: Claimed = rig.run(accept("a"), accept("b", delay=5_000), take())[2]
    assert [each.id for each in claimed.claims] == ["a"]
    assert claimed.look_at is not None


def test_a_claim_sees_a_group_of_its_transaction(rig: Rig) -> None:
    """A claim after a put of the first job of a group, in one transaction, claims it."""
    claimed: Claimed = rig.run(accept("a"), accept("b", group="g"), take())[2]
    assert {each.id for each in claimed.claims} == {"a", "b"}


def state_of(rig: Rig, *ids: str) -> list[tuple[str, int]]:
    """Return each job's state and the number that it got when it ended."""
    found = rig.run(lambda tx: tx.run_with_list("get_many", (1,), ids))[0]
    jobs = {row[2]: JobRow(*row) for row in found}
    return [(state_of_job(jobs[id], 0).value, jobs[id].number or 0) for id in ids]


def test_completions_that_are_not_all_plain_are_undone_and_settled_one_by_one(rig: Rig) -> None:
    """If one of many completions is lost, had failed before, or comes twice, all are numbered as if settled alone."""
    rig.run(accept("a", "b", "c", "d"), take())
    rig.run(lambda tx: settle.settle(tx, [Settlement("q", "b", "t", Retried(error=b"e", delay=0, count="retries"))]))
    rig.run(take())
    [answers] = rig.run(complete("a", "b", "lost", "c", "c", "d"))
    assert [answer.lost for answer in answers] == [False, False, True, False, False, False]
    assert state_of(rig, "a", "b", "c", "d") == [("completed", 1), ("completed", 2), ("completed", 3), ("completed", 4)]


def test_completions_with_a_stale_token_leave_their_neighbours_alone(rig: Rig) -> None:
    """A completion with a stale token among valid ones is answered as lost; the others complete once."""
    rig.run(accept("a", "b"), take())
    stale = Settlement("q", "b", "stale", Complete(b"r", 1000))
    [answers] = rig.run(lambda tx: settle.settle(tx, [Settlement("q", "a", "t", Complete(b"r", 1000)), stale]))
    assert [answer.lost for answer in answers] == [False, True]
    assert state_of(rig, "a", "b") == [("completed", 1), ("running", 0)]


def test_completions_of_several_queues_are_answered_in_the_order_asked(rig: Rig) -> None:
    """Settlements of two queues in turn are answered in the order of the call."""
    for name in ("q", "p"):
        jobs = [NewJob(queue=name, id=id, payload=b"p") for id in ("a", "b")]
        rig.run(lambda tx, jobs=jobs: put.put(tx, jobs))
        rig.run(lambda tx, name=name: claim.claim(tx, [Request(name, 2)], "w", 10_000, "t"))
    tokens = [("q", "a", "t"), ("p", "a", "t"), ("q", "b", "no"), ("p", "b", "t")]
    settlements = [Settlement(queue, id, token, Complete(b"r", 1000)) for queue, id, token in tokens]
    [answers] = rig.run(lambda tx: settle.settle(tx, settlements))
    assert [answer.lost for answer in answers] == [False, False, True, False]


@pytest.mark.parametrize("count", [1, 2, 5, 6, 99, 100, 101, 250])
def test_any_number_of_jobs_is_put_claimed_and_settled_in_order(rig: Rig, count: int) -> None:
    """Puts, claims and settles of any size are complete and keep the order."""
    ids = [f"job-{at}" for at in range(count)]
    rig.run(accept(*ids))
    claimed: Claimed = rig.run(take(count))[0]
    assert [each.id for each in claimed.claims] == ids
    assert [each.batch for each in claimed.claims] == list(range(count))
    [answers] = rig.run(complete(*ids))
    assert not any(answer.lost for answer in answers)
    assert state_of(rig, *ids) == [("completed", at + 1) for at in range(count)]


def test_rows_that_do_not_follow_each_other_are_claimed(rig: Rig) -> None:
    """A claim takes the first jobs by priority, also if their rows are not neighbours."""
    for at in range(10):
        rig.run(accept(f"low-{at}"), accept(f"high-{at}", priority=5))
    claimed: Claimed = rig.run(take(8))[0]
    assert [each.id for each in claimed.claims] == [f"high-{at}" for at in range(8)]
    assert {each.priority for each in claimed.claims} == {5}
    claimed = rig.run(take(8))[0]
    assert [each.id for each in claimed.claims] == ["high-8", "high-9", *(f"low-{at}" for at in range(6))]


def test_groups_released_together_enter_the_rotation_in_the_order_of_their_last_settlements(rig: Rig) -> None:
    """Groups whose runs are settled in one call enter the rotation in the order of the last settlement of each."""
    for group in "abc":
        for at in range(2):
            rig.run(accept(f"{group}{at}", group=group))
    claimed: Claimed = rig.run(take())[0]
    assert [each.id for each in claimed.claims] == ["a0", "b0", "c0"]
    rig.run(complete("c0", "a0", "b0"))
    claimed = rig.run(take())[0]
    assert [each.id for each in claimed.claims] == ["c1", "a1", "b1"]
    rig.run(complete("a1", "b1", "c1"))
    assert rig.run(lambda tx: tx.run_with_list("lanes_look", (1,), list("abc")))[0] == []


def test_a_group_with_another_run_stays_held_when_its_neighbours_are_released(rig: Rig) -> None:
    """A settle of several groups releases those without other runs; one that still has a run stays held."""
    for group in "abc":
        rig.run(*(accept(f"{group}{at}", group=group) for at in range(3)))
    batches: Claimed = rig.run(lambda tx: claim.claim(tx, [Request("q", 10, 2)], "w", 10_000, "t"))[0]
    assert [each.id for each in batches.claims] == ["a0", "a1", "b0", "b1", "c0", "c1"]
    rig.run(complete("c0", "a0", "b0", "b1", "a1"))
    claimed: Claimed = rig.run(take())[0]
    assert [each.id for each in claimed.claims] == ["b2", "a2"]
    rig.run(complete("c1"))
    claimed = rig.run(take())[0]
    assert [each.id for each in claimed.claims] == ["c2"]


def test_a_queue_paused_in_the_transaction_of_a_purge_is_kept(tmp_path: Path) -> None:
    """A purge does not delete an empty queue that was paused earlier in the same transaction."""
    engine = Engine(str(tmp_path / "jobs.db"))
    engine.open()
    pausing = partial(admin.set_pause, name="q", paused=True)
    purging = partial(purge, queues=["q"], limit=100)
    assert engine.run_group([(pausing, True), (purging, True)]) == [True, 0]
    assert engine.run(lambda tx: reads.paused(tx, "q"), False) is not None
    engine.close()
