"""Flows: suspended jobs, their dependencies, journals and signals, and the outbox."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from penstock.errors import JobError
from penstock.model.flow import (
    ABANDONED_MS,
    JOURNAL_BYTES,
    MAX_SIGNALS,
    Checkpoint,
    DependencyEntry,
    End,
    FlowPart,
    GenerationRef,
    JobRef,
    NewCheckpoint,
    Notice,
    Plan,
    SignalWait,
    plain_generation,
    signal_value,
)
from penstock.model.job import Claim, NewJob, Snapshot, State, Update
from penstock.storage.base import (
    Complete,
    Fail,
    PutStatus,
    Report,
    Request,
    Resolution,
    Retried,
    Settled,
    Settlement,
    Storage,
    Suspend,
)
from penstock.storage.flowing import Flowing
from tests.support import HOUR, LEASE, SECOND, Clock

pytestmark = pytest.mark.only("model", "memory", "sqlite", "redis", "valkey", "cluster")

PARENT = GenerationRef("q", "flow", "g")
ERROR = JobError("Broken", "it broke").encode()


def flows(storage: Storage) -> Flowing:
    return cast(Flowing, storage)


def plan(*children: str, **options: object) -> NewJob:
    """Return a flow with these children."""
    refs = tuple(JobRef("q", child) for child in children)
    part = FlowPart(generation="g", dependencies=refs, plan=Plan(**options))  # type: ignore[arg-type]
    return NewJob(queue="q", id="flow", payload=b"", flow=part)


def child(number: int, id: str, *notices: Notice, after: tuple[str, ...] = (), handled: bool = False) -> NewJob:
    """Return a child of the flow; with `after` it waits for these."""
    sent = Notice("q", "flow", "g", number, "ended", wants=True, handled=handled)
    refs = tuple(JobRef("q", each) for each in after)
    part = FlowPart(generation="g", parent=PARENT, notices=(sent, *notices), dependencies=refs)
    return NewJob(queue="q", id=id, payload=b"", flow=part)


async def claim(storage: Storage, token: str = "t") -> Claim | None:
    claimed = await storage.claim([Request("q", 1)], "w", LEASE, token)
    return claimed.claims[0] if claimed.claims else None


async def must_claim(storage: Storage, token: str = "t") -> Claim:
    found = await claim(storage, token)
    assert found is not None
    return found


async def settle(storage: Storage, held: Claim, resolution: Resolution) -> Settled:
    return (await storage.settle([Settlement(held.queue, held.id, held.token, resolution)]))[0]


async def get(storage: Storage, id: str) -> Snapshot:
    found = (await storage.get("q", [id]))[0]
    assert found is not None
    return found


async def states(storage: Storage, *ids: str) -> list[State]:
    return [(await get(storage, id)).state for id in ids]


async def run(storage: Storage, id: str, resolution: Resolution, token: str = "t") -> Claim:
    """Claim the next job, which must be this one, and settle it."""
    held = await must_claim(storage, token)
    assert held.id == id
    await settle(storage, held, resolution)
    return held


DONE = Complete(b"v", HOUR)
BROKEN = Fail(ERROR, HOUR)


async def test_a_dependent_waits_gets_the_value_and_the_flow_ends_with_its_last_child(storage: Storage) -> None:
    """A chain of two: suspended until the first completes, then queued with its value; the flow has the last value."""
    to_second = Notice("q", "b", "g", 0, "completed", wants=True)
    await storage.put([plan("a", "b", result=1), child(1, "b", after=("a",)), child(0, "a", to_second)])
    assert await states(storage, "flow", "a", "b") == [State.SUSPENDED, State.QUEUED, State.SUSPENDED]
    await run(storage, "a", Complete(b"one", 0))
    held = await must_claim(storage)
    assert held.flow is not None
    assert held.flow.dependencies == (DependencyEntry(0, "q", "a", End.COMPLETED, b"one"),)
    assert held.flow.parent == PARENT
    await settle(storage, held, Complete(b"two", HOUR))
    found = await get(storage, "flow")
    assert (found.state, found.result) == (State.COMPLETED, b"two")


async def test_a_failed_dependency_cancels_the_dependent_and_names_the_culprit(storage: Storage) -> None:
    """Jobs that wait for a failed one are cancelled as UpstreamFailed, and the flow fails with the error of the job."""
    to_second = Notice("q", "b", "g", 0)
    to_third = Notice("q", "c", "g", 0)
    jobs = [
        plan("a", "b", "c"),
        child(2, "c", after=("b",)),
        child(1, "b", to_third, after=("a",)),
        child(0, "a", to_second),
    ]
    await storage.put(jobs)
    await run(storage, "a", BROKEN)
    assert await states(storage, "flow", "a", "b", "c") == [
        State.FAILED,
        State.FAILED,
        State.CANCELLED,
        State.CANCELLED,
    ]
    for id in ("b", "c"):
        error = JobError.decode((await get(storage, id)).error or b"")
        assert error.type == "UpstreamFailed"
        assert "'a' in 'q' failed: Broken: it broke" in error.message
    error = JobError.decode((await get(storage, "flow")).error or b"")
    assert (error.type, error.message) == ("Broken", "'a' in 'q': it broke")


async def test_an_error_node_is_skipped_if_there_is_no_failure(storage: Storage) -> None:
    """A dependent on a failure is cancelled as Skipped when the job completes, and the flow completes."""
    await storage.put([plan("a", "b"), child(1, "b", after=("a",)), child(0, "a", Notice("q", "b", "g", 0, "failed"))])
    await run(storage, "a", DONE)
    assert await states(storage, "flow", "b") == [State.COMPLETED, State.CANCELLED]
    assert JobError.decode((await get(storage, "b")).error or b"").type == "Skipped"


async def test_a_retry_of_the_flow_runs_only_what_failed(storage: Storage) -> None:
    """The failed child and what waited for it run after the retry; the completed one does not."""
    to_join = [Notice("q", "join", "g", number, wants=True) for number in (0, 1)]
    await storage.put(
        [
            plan("a", "b", "join"),
            child(2, "join", after=("a", "b")),
            child(1, "b", to_join[1]),
            child(0, "a", to_join[0]),
        ]
    )
    held = {id: await must_claim(storage, id) for id in ("1", "2")}
    for each in held.values():
        await settle(storage, each, DONE if each.id == "a" else BROKEN)
    assert await states(storage, "flow", "join") == [State.FAILED, State.CANCELLED]
    assert await storage.revive("q", ["flow"]) == [True]
    await flows(storage).relay(["q"])
    assert await states(storage, "flow", "a", "b", "join") == [
        State.SUSPENDED, State.COMPLETED, State.QUEUED, State.SUSPENDED,
    ]  # fmt: skip
    await run(storage, "b", DONE, "t3")
    await run(storage, "join", DONE, "t4")
    assert await states(storage, "flow") == [State.COMPLETED]


async def test_fail_fast_ends_the_flow_at_once_and_cancels_what_waits(storage: Storage) -> None:
    """With fail_fast the flow fails with the first failure; queued children are cancelled, a running one goes on."""
    await storage.put([plan("a", "b", "c", fail_fast=True), child(2, "c"), child(1, "b"), child(0, "a")])
    slow, broken = await must_claim(storage, "1"), await must_claim(storage, "2")
    await settle(storage, broken, BROKEN)
    assert await states(storage, "flow") == [State.FAILED]
    await flows(storage).relay(["q"])
    left = ({"a", "b", "c"} - {slow.id, broken.id}).pop()
    assert await states(storage, slow.id, left) == [State.RUNNING, State.CANCELLED]
    assert JobError.decode((await get(storage, left)).error or b"").type == "FlowEnded"


async def test_a_follow_up_of_a_child_is_a_child_of_the_flow(storage: Storage) -> None:
    """The flow ends after the follow-up job of its last child, and after the follow-up of that."""
    await storage.put([plan("a"), child(0, "a")])
    await run(storage, "a", Complete(b"", 0, (NewJob(queue="q", id="then", payload=b""),)))
    await run(storage, "then", Complete(b"", 0, (NewJob(queue="q", id="last", payload=b""),)))
    assert await states(storage, "flow") == [State.SUSPENDED]
    await run(storage, "last", DONE)
    assert await states(storage, "flow") == [State.COMPLETED]


async def test_a_put_of_a_kept_completed_job_counts_at_once(storage: Storage) -> None:
    """A node with the id of a job that has completed takes its result; nothing runs."""
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    await run(storage, "a", Complete(b"kept", HOUR))
    answers = await storage.put([plan("a", result=0), child(0, "a")])
    assert [answer.status for answer in answers] == [PutStatus.SUSPENDED, PutStatus.COMPLETED]
    assert (await get(storage, "flow")).result == b"kept"


async def test_a_child_that_has_ended_or_whose_flow_is_over_is_not_put_again(storage: Storage) -> None:
    """A second put of a flow stores nothing twice, even if a child was not kept."""
    await storage.put([plan("a", "b"), child(1, "b"), child(0, "a")])
    held = await must_claim(storage)
    await settle(storage, held, Complete(b"", 0))
    number = 0 if held.id == "a" else 1
    [again] = await storage.put([child(number, held.id)])
    assert (again.status, again.state) == (PutStatus.DUPLICATE, State.COMPLETED)
    assert (await storage.get("q", [held.id])) == [None]
    await storage.cancel("q", ["flow"])
    [late] = await storage.put([child(0, "late")])
    assert (late.status, late.state) == (PutStatus.DUPLICATE, State.CANCELLED)


async def test_a_job_with_dependencies_has_no_update(storage: Storage) -> None:
    with pytest.raises(ValueError, match="update"):
        await storage.put([replace(plan("a"), update=Update())])


async def test_a_flow_that_its_producer_leaves_open_is_abandoned(storage: Storage, clock: Clock) -> None:
    """60 s after its producer was last active an open flow fails, and its children are cancelled."""
    part = FlowPart(generation="g", plan=Plan(), open=True)
    await storage.put([NewJob(queue="q", id="flow", payload=b"", flow=part)])
    assert (await flows(storage).extend("q", "flow", "g", [JobRef("q", "a")], 0)).total == 1
    await storage.put([child(0, "a")])
    clock.ms += ABANDONED_MS - 1
    await flows(storage).relay(["q"])
    assert await states(storage, "flow") == [State.SUSPENDED]
    clock.ms += 1
    await flows(storage).relay(["q"])
    assert await states(storage, "flow", "a") == [State.FAILED, State.CANCELLED]
    assert JobError.decode((await get(storage, "flow")).error or b"").kind == "abandoned"


async def test_a_revived_flow_that_nobody_completes_is_abandoned_again(storage: Storage, clock: Clock) -> None:
    """A retry of an abandoned flow does not wait for ever: its producer is still silent."""
    part = FlowPart(generation="g", plan=Plan(), open=True)
    await storage.put([NewJob(queue="q", id="flow", payload=b"", flow=part)])
    clock.ms += ABANDONED_MS
    await flows(storage).relay(["q"])
    assert await flows(storage).revive("q", ["flow"]) == [True]
    assert await states(storage, "flow") == [State.SUSPENDED]
    await flows(storage).relay(["q"])
    await flows(storage).relay(["q"])
    assert await states(storage, "flow") == [State.FAILED]


async def test_a_deleted_queue_with_many_children_ends_their_flow(storage: Storage) -> None:
    """Of a queue with more jobs than one step deletes, each one counts as cancelled, and nothing is left."""
    count = 1_001
    refs = tuple(JobRef("q/side", f"{number}") for number in range(count))
    part = FlowPart(generation="g", dependencies=refs, plan=Plan(failed_ttl=HOUR))
    await storage.put([NewJob(queue="q", id="flow", payload=b"", flow=part)])
    children = [replace(child(number, f"{number}"), queue="q/side") for number in range(count)]
    for at in range(0, count, 500):
        await storage.put(children[at : at + 500])
    waits = FlowPart(generation="g", dependencies=(JobRef("q", "none"),))
    await storage.put([NewJob(queue="q/side", id="waits", payload=b"", flow=waits)])
    assert await storage.delete_queue("q/side") == count + 1
    while (await flows(storage).relay(["q"])).more:
        pass
    snapshot = await get(storage, "flow")
    assert (snapshot.state, snapshot.flow and snapshot.flow.ends) == (State.CANCELLED, {End.CANCELLED: count})


async def test_a_deleted_queue_ends_what_waits_for_its_jobs(storage: Storage) -> None:
    """The unfinished jobs of a deleted queue count as cancelled: dependents and the flow end."""
    to_second = Notice("q/side", "b", "g", 0)
    sent = Notice("q/side", "flow", "g", 0, "ended")
    part = FlowPart(generation="g", dependencies=(JobRef("q", "a"), JobRef("q/side", "b")), plan=Plan())
    await storage.put([NewJob(queue="q/side", id="flow", payload=b"", flow=part)])
    waits = FlowPart(generation="g", notices=(replace(sent, number=1),), dependencies=(JobRef("q", "a"),))
    await storage.put([NewJob(queue="q/side", id="b", payload=b"", flow=waits)])
    await storage.put([NewJob(queue="q", id="a", payload=b"", flow=FlowPart(notices=(sent, to_second)))])
    assert await storage.delete_queue("q") == 1
    await flows(storage).relay(["q"])
    assert [job.state for job in await storage.get("q/side", ["flow", "b"]) if job] == [State.CANCELLED] * 2


# journals ----------------------------------------------------------------------------------------


async def test_a_checkpoint_is_written_once_and_forgives(storage: Storage) -> None:
    """The first value of a name stays; a cursor changes; counts of failed runs are set back; a stale run is refused."""
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    await run(storage, "a", Retried(delay=0))
    assert (await get(storage, "a")).retries == 1
    held = await must_claim(storage, "t2")
    report = Report(queue="q", id="a", token="t2")
    new = (NewCheckpoint("s", value=b"1"), NewCheckpoint("s", value=b"2"), NewCheckpoint("c", "cursor", b"1"))
    [answer] = await storage.report([replace(report, checkpoints=new)])
    assert answer.checkpoints == (
        Checkpoint(1, "s", "step", b"1"), Checkpoint(1, "s", "step", b"1"), Checkpoint(2, "c", "cursor", b"1"),
    )  # fmt: skip
    [answer] = await storage.report([replace(report, checkpoints=(NewCheckpoint("c", "cursor", b"2"),))])
    assert answer.checkpoints == (Checkpoint(2, "c", "cursor", b"2"),)
    assert (await get(storage, "a")).retries == 0
    [lost] = await storage.report([Report(queue="q", id="a", token="t", checkpoints=new)])
    assert not lost.kept
    await settle(storage, held, Retried(delay=0))
    held = await must_claim(storage, "t3")
    assert held.flow is not None
    assert held.flow.generation == plain_generation(held.created)
    assert [each.name for each in held.flow.checkpoints] == ["s", "c"]


async def test_a_large_journal_is_read_in_pages(storage: Storage) -> None:
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    held = await must_claim(storage)
    new = tuple(NewCheckpoint(f"s{n}", value=b"x" * (JOURNAL_BYTES // 2)) for n in range(3))
    await storage.report([Report(queue="q", id="a", token=held.token, checkpoints=new)])
    await settle(storage, held, Retried(delay=0))
    held = await must_claim(storage, "t2")
    assert held.flow is not None
    assert (held.flow.whole, held.flow.checkpoints) == (False, ())
    page = await flows(storage).read_journal("q", "a", 1, 1)
    assert page is not None
    assert ([each.name for each in page.checkpoints], page.more) == (["s1"], True)


async def test_a_sleep_is_reckoned_by_the_storage_and_refunds_the_attempt(storage: Storage, clock: Clock) -> None:
    """running → suspended until the wake time, which is recorded; then queued, by the clock alone."""
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    await run(storage, "a", Suspend(delay=SECOND, sleep="nap"))
    found = await get(storage, "a")
    assert (found.state, found.attempts) == (State.SUSPENDED, 0)
    assert found.flow is not None
    assert found.flow.wakes_at == clock.ms + SECOND
    clock.ms += SECOND - 1
    assert await claim(storage) is None
    clock.ms += 1
    assert await states(storage, "a") == [State.QUEUED]
    held = await must_claim(storage, "t2")
    assert held.attempts == 1
    assert held.flow is not None
    assert held.flow.checkpoints == (Checkpoint(1, "nap", "sleep", str(clock.ms).encode()),)


async def test_the_same_suspension_twice_is_one(storage: Storage) -> None:
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    held = await must_claim(storage)
    wish = Suspend(signal=SignalWait("w", ("go",)))
    assert await settle(storage, held, wish) == Settled(State.SUSPENDED)
    assert await settle(storage, held, wish) == Settled(State.SUSPENDED)
    assert (await settle(storage, held, DONE)).lost


async def test_signals_are_kept_in_order_and_a_late_one_is_for_the_next_wait(storage: Storage, clock: Clock) -> None:
    """Early signals wait; a waiting job is resumed; a timeout is recorded before a signal that comes after it."""
    signal = flows(storage).signal
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    assert await signal("q", "a", "go", b"1") == "kept"
    held = await must_claim(storage)
    read = NewCheckpoint("w1", "signal", signals=("go",))
    [answer] = await storage.report([Report(queue="q", id="a", token=held.token, checkpoints=(read,))])
    assert answer.checkpoints == (Checkpoint(1, "w1", "signal", signal_value("go", b"1")),)
    [answer] = await storage.report(
        [Report(queue="q", id="a", token=held.token, checkpoints=(replace(read, name="w2"),))]
    )
    assert answer.checkpoints == (None,)
    await settle(storage, held, Suspend(signal=SignalWait("w2", ("go",)), delay=SECOND))
    clock.ms += SECOND
    assert await signal("q", "a", "go", b"2") == "kept"  # too late for the second wait
    held = await must_claim(storage, "t2")
    assert held.flow is not None
    assert held.flow.checkpoints[1] == Checkpoint(2, "w2", "signal", signal_value(None))
    await settle(storage, held, Suspend(signal=SignalWait("w3", ("go",))))
    held = await must_claim(storage, "t3")
    assert held.flow is not None
    assert held.flow.checkpoints[2].value == signal_value("go", b"2")
    await settle(storage, held, Suspend(signal=SignalWait("w4", ("go", "stop"))))
    assert await signal("q", "a", "stop", b"3") == "delivered"
    await run(storage, "a", DONE, "t4")
    assert await signal("q", "a", "go", b"") == "finished"
    assert await signal("q", "b", "go", b"") == "not_found"


async def test_too_many_unread_signals_are_refused(storage: Storage) -> None:
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    for _ in range(MAX_SIGNALS):
        await flows(storage).signal("q", "a", "go")
    assert await flows(storage).signal("q", "a", "go") == "full"


async def test_a_suspended_job_that_has_begun_gets_a_successor_and_holds_its_group(storage: Storage) -> None:
    """An update becomes a blocked successor, also while the job waits; the next job of the group does not start."""
    await storage.put([NewJob(queue="q", id=id, payload=b"1", group="g") for id in ("a", "b")])
    await run(storage, "a", Suspend(signal=SignalWait("w", ("go",))))
    assert await claim(storage) is None
    [answer] = await storage.put([NewJob(queue="q", id="a", payload=b"2", group="g", update=Update())])
    assert answer.status is PutStatus.BLOCKED
    await flows(storage).signal("q", "a", "go")
    held = await must_claim(storage, "t2")
    assert (held.id, held.payload) == ("a", b"1")
    await settle(storage, held, Retried(delay=0))
    held = await must_claim(storage, "t3")
    assert (held.id, held.payload) == ("a", b"1")
    await settle(storage, held, DONE)
    assert [(await must_claim(storage, f"t{n}")).id for n in (4,)] == ["b"]


async def test_a_run_waits_for_its_children_and_a_retry_revives_the_culprit(storage: Storage) -> None:
    """A job suspends for a child; the child fails; the job names it as culprit; its retry revives the child too."""
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    held = await must_claim(storage)
    mark = plain_generation(held.created)
    part = FlowPart(parent=GenerationRef("q", "a", mark), notices=(Notice("q", "a", mark, 0, "ended", wants=True),))
    await settle(storage, held, Suspend(puts=(NewJob(queue="q", id="kid", payload=b"", flow=part),), count=1))
    await run(storage, "kid", BROKEN, "t2")
    held = await must_claim(storage, "t3")
    assert held.flow is not None
    assert held.flow.dependencies == (DependencyEntry(0, "q", "kid", End.FAILED, ERROR),)
    await settle(storage, held, Fail(ERROR, HOUR, culprits=(0,)))
    assert await storage.revive("q", ["a"]) == [True]
    await flows(storage).relay(["q"])
    assert await states(storage, "a", "kid") == [State.QUEUED, State.QUEUED]
    held = await must_claim(storage, "t4")
    assert held.flow is not None
    assert held.flow.dependencies == (DependencyEntry(0, "q", "kid"),)
    await settle(storage, held, Suspend(count=1))
    await run(storage, "kid", DONE, "t5")
    await run(storage, "a", DONE, "t6")


async def test_a_cancel_by_signal_resumes_a_suspended_job(storage: Storage) -> None:
    """The next run knows that the job was cancelled, and ends it as cancelled unless it completes."""
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    await run(storage, "a", Suspend(signal=SignalWait("w", ("go",))))
    [answer] = await storage.cancel("q", ["a"], "signal", HOUR)
    assert answer.status == "cancel_requested"
    held = await must_claim(storage, "t2")
    assert held.flow is not None
    assert held.flow.cancel == "signal"
    assert (await settle(storage, held, Retried(delay=0))).state is State.CANCELLED


async def test_a_fresh_retry_forgets_the_journal(storage: Storage) -> None:
    await storage.put([NewJob(queue="q", id="a", payload=b"")])
    await run(storage, "a", Suspend(checkpoints=(NewCheckpoint("s", value=b"1"),)))
    await run(storage, "a", BROKEN, "t2")
    assert await storage.revive("q", ["a"], False, True) == [True]  # type: ignore[call-arg]
    held = await must_claim(storage, "t3")
    assert held.flow is not None
    assert (held.flow.checkpoints, held.flow.fresh) == ((), 1)


@pytest.mark.only("cluster")
async def test_a_flow_over_two_families_is_refused_on_a_cluster(storage: Storage) -> None:
    """A job that waits for one of another family, or notifies one, is refused before anything is stored."""
    across = FlowPart(generation="g", dependencies=(JobRef("other", "a"),))
    with pytest.raises(ValueError, match="a flow stays in its family: 'other' is not in 'q'"):
        await storage.put([NewJob(queue="q", id="b", payload=b"", flow=across)])
    notifies = FlowPart(notices=(Notice("other", "a", "g", 0),))
    with pytest.raises(ValueError, match="a flow stays in its family"):
        await storage.put([NewJob(queue="q", id="c", payload=b"", flow=notifies)])
    assert await storage.get("q", ["b", "c"]) == [None, None]
