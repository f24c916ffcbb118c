"""Limits of queues and families: how many of their jobs run at once, and how many start in a time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.job import Update
from penstock.model.limit import EVERY, Limit
from penstock.model.why import GatePosition, Holder
from penstock.storage.base import Release, Request, Storage
from penstock.storage.limiting import Scope
from tests.support import (
    LEASE,
    LOST,
    MINUTE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    complete,
    fail,
    ids,
    new,
    put1,
    release,
    retried,
    set_limit,
    set_scope_limit,
    settle1,
    settlement,
)

pytestmark = pytest.mark.one_per_engine


async def put_many(storage: Storage, count: int, queue: str = "q", **options: Any) -> None:
    await storage.put([new(queue, f"j{i:03}", **options) for i in range(count)])


async def take(storage: Storage, limit: int = 100, queue: str = "q") -> list[str]:
    return ids(await claim_all(storage, queue, limit))


# concurrency -------------------------------------------------------------------------------------


async def test_a_claim_gives_as_many_jobs_as_the_limit_of_the_queue_allows(storage: Storage) -> None:
    """With a limit of 3, three of ten jobs are claimed; when one has completed, one more; `why` names the limit."""
    await set_limit(storage, Limit(concurrency=3))
    await put_many(storage, 10)
    claims = await claim_all(storage)
    assert ids(claims) == ["j000", "j001", "j002"]
    assert await take(storage) == []
    assert await storage.peek("q") is None
    await settle1(storage, complete(claims[0]))
    assert await take(storage) == ["j003"]
    position = await storage.why("q", "j004")
    assert position is not None
    gate = position.gate
    assert gate is not None
    assert (gate.kind, gate.name, gate.reason, gate.used, gate.rule.concurrency) == ("queue", "q", "limit", 3, 3)
    assert gate.holders == tuple(Holder(f"j00{i}", "w", T0, "q") for i in (1, 2, 3))


@pytest.mark.parametrize("end", ["complete", "fail", "retry", "release", "cancel"])
async def test_a_slot_is_free_when_its_run_has_ended_in_any_way(storage: Storage, end: str) -> None:
    """Each end of a run frees its slot, once: a repeated settlement does not free another."""
    await set_limit(storage, Limit(concurrency=2))
    await put_many(storage, 4)
    claims = await claim_all(storage)
    ends = {
        "complete": complete(claims[0]),
        "fail": fail(claims[0]),
        "retry": retried(claims[0], delay=MINUTE),
        "release": release(claims[0]),
        "cancel": retried(claims[0]),
    }
    if end == "cancel":
        await storage.cancel("q", ["j000"], "signal")
        assert await take(storage) == []
    first = await settle1(storage, ends[end])
    assert await settle1(storage, ends[end]) == first
    again = ["j000"] if end == "release" else ["j002"]
    assert await take(storage) == again
    assert await settle1(storage, settlement(claims[0], Release())) in (LOST, first)
    assert await take(storage) == []


async def test_the_slots_of_a_dead_worker_are_free_when_its_leases_are_reaped(storage: Storage, clock: Clock) -> None:
    """An expired lease alone frees no slot; the reap does, and the late settlement of the old run frees none."""
    await set_limit(storage, Limit(concurrency=2))
    await put_many(storage, 4)
    old = await claim_all(storage)
    clock.advance(ms=LEASE + 1)
    assert await take(storage) == []
    await storage.reap(["q"])
    assert await take(storage) == ["j000", "j001"]
    assert await settle1(storage, complete(old[0])) == LOST
    assert await take(storage) == []


async def test_a_limit_that_is_lowered_touches_no_run(storage: Storage) -> None:
    """Lowered from 10 to 2 with 10 running: all go on, and none starts until one is left."""
    await set_limit(storage, Limit(concurrency=10))
    await put_many(storage, 12)
    claims = await claim_all(storage)
    await set_limit(storage, Limit(concurrency=2))
    for claim in claims[:8]:
        assert not (await settle1(storage, complete(claim))).lost
        assert await take(storage) == []
    await settle1(storage, complete(claims[8]))
    assert await take(storage) == ["j010"]


async def test_a_limit_that_is_raised_or_removed_holds_from_the_next_claim_on(storage: Storage) -> None:
    """Waiting jobs start by the new limit at once."""
    await set_limit(storage, Limit(concurrency=1))
    await put_many(storage, 10)
    assert await take(storage) == ["j000"]
    await set_limit(storage, Limit(concurrency=3))
    assert await take(storage) == ["j001", "j002"]
    assert await set_limit(storage, None) == 0
    assert len(await take(storage)) == 7


async def test_a_batch_shrinks_to_the_room_of_the_queue(storage: Storage) -> None:
    """A limit counts jobs: a batch takes no more than there is room for."""
    await set_limit(storage, Limit(concurrency=5))
    await put_many(storage, 10)
    claims = await claim_all(storage, limit=4, batch=3)
    assert [claim.batch for claim in claims] == [0, 0, 0, 1, 1]
    await put_many(storage, 10, "r", group="g")
    await set_limit(storage, Limit(concurrency=3), "r")
    assert await take(storage, 1, "r") == ["j000"]
    [first] = (await storage.find("r", limit=1)).jobs
    assert first.id == "j000"


async def test_a_group_of_one_runs_a_batch_as_one_within_the_room_of_the_queue(storage: Storage) -> None:
    """A batch of an ordered group is cut by the limit of its queue, and by nothing else."""
    await set_limit(storage, Limit(concurrency=3))
    await put_many(storage, 10, group="g")
    assert ids(await claim_all(storage, limit=1, batch=5)) == ["j000", "j001", "j002"]


async def test_a_priority_goes_first_when_a_slot_is_free(storage: Storage) -> None:
    """A free slot goes to the highest priority that is due then."""
    await set_limit(storage, Limit(concurrency=1))
    await put1(storage, "q", "low")
    claim = await claim1(storage)
    await storage.put([new("q", "second"), new("q", "high", priority=5)])
    await settle1(storage, complete(claim))
    assert await take(storage) == ["high"]


async def test_a_blocked_successor_holds_no_slot(storage: Storage) -> None:
    """A successor waits for the run of its id, then takes its turn as any job."""
    await set_limit(storage, Limit(concurrency=1))
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.put([new("q", "b"), new("q", "a", update=Update())])
    await settle1(storage, complete(claim))
    assert await take(storage) == ["b"]


# rates -------------------------------------------------------------------------------------------


async def test_a_rate_spaces_starts_evenly(storage: Storage, clock: Clock) -> None:
    """10 per second: one now, one a tenth of a second later, and nothing is saved up in ten idle seconds."""
    await set_limit(storage, Limit(rate="10/s"))
    await put_many(storage, 30)
    taken = [len(await take(storage))]
    clock.advance(ms=100)
    taken.append(len(await take(storage)))
    clock.advance(seconds=10)
    taken.append(len(await take(storage)))
    assert taken == [1, 1, 1]


async def test_a_burst_saves_up_unused_starts(storage: Storage, clock: Clock) -> None:
    """10 per second with a burst of 5: five now, one a tenth of a second later, five after ten idle seconds."""
    await set_limit(storage, Limit(rate="10/s", burst=5))
    await put_many(storage, 30)
    taken = [len(await take(storage))]
    clock.advance(ms=100)
    taken.append(len(await take(storage)))
    clock.advance(seconds=10)
    taken.append(len(await take(storage)))
    assert taken == [5, 1, 5]


async def test_a_rate_is_charged_by_starts_and_not_by_puts(storage: Storage, clock: Clock) -> None:
    """Putting jobs, also for later, charges nothing; a retry and a released run are charged as any start."""
    await set_limit(storage, Limit(rate="1/s"))
    await put_many(storage, 3)
    await put1(storage, "q", "later", delay=SECOND)
    claim = await claim1(storage)
    await settle1(storage, release(claim))
    assert await take(storage) == []
    clock.advance(seconds=1)
    assert await take(storage) == ["j000"]


async def test_why_names_the_opening_of_a_rate(storage: Storage, clock: Clock) -> None:
    """A job that waits for the rate of its queue has the gate with the time of its opening; peek gives none."""
    await set_limit(storage, Limit(rate="2/s"))
    await put_many(storage, 2)
    assert await take(storage) == ["j000"]
    position = await storage.why("q", "j001")
    assert position is not None
    assert position.gate is not None
    rule = position.gate.rule
    assert rule.step_us == 500_000
    assert position.gate == GatePosition(kind="queue", name="q", rule=rule, reason="rate", until=T0 + 500)
    assert await storage.peek("q") is None
    clock.advance(ms=500)
    peeked = await storage.peek("q")
    assert peeked is not None
    assert peeked.id == "j001"


async def test_a_rate_by_cost_charges_the_cost_of_each_job(storage: Storage, clock: Clock) -> None:
    """A job dearer than the burst starts from a full bucket, and the debt is waited out; cheap ones do not overtake."""
    await set_limit(storage, Limit(rate="10/s", burst=10, by="cost"))
    await storage.put([new("q", "a", cost=4), new("q", "b", cost=25), new("q", "c", cost=1)])
    assert await take(storage) == ["a"]
    clock.advance(ms=399)
    assert await take(storage) == []
    clock.advance(ms=1)
    assert await take(storage) == ["b"]
    clock.advance(ms=1599)
    assert await take(storage) == []
    clock.advance(ms=1)
    assert await take(storage) == ["c"]


async def test_a_changed_rate_keeps_what_was_used_in_starts(storage: Storage, clock: Clock) -> None:
    """Raised from 1 per hour to 100 per second the gate opens at once; lowered, one start stays one start."""
    await set_limit(storage, Limit(rate="1/h"))
    await put_many(storage, 4)
    assert await take(storage) == ["j000"]
    await set_limit(storage, Limit(rate="100/s"))
    clock.advance(ms=10)
    assert await take(storage) == ["j001"]
    clock.advance(ms=5)
    await set_limit(storage, Limit(rate="1/s"))
    clock.advance(ms=499)
    assert await take(storage) == []
    clock.advance(ms=1)
    assert await take(storage) == ["j002"]


async def test_a_clock_that_is_set_back_does_not_close_a_rate_for_longer(storage: Storage, clock: Clock) -> None:
    """After a setback of an hour the rate goes on from there."""
    await set_limit(storage, Limit(rate="1/s"))
    await put_many(storage, 3)
    assert await take(storage) == ["j000"]
    clock.advance(ms=-60 * MINUTE)
    assert await take(storage) == []
    clock.advance(seconds=1)
    assert await take(storage) == ["j001"]


async def test_priorities_under_a_rate_go_first_at_each_opening(storage: Storage, clock: Clock) -> None:
    """Each opening goes to the highest priority that is due then."""
    await set_limit(storage, Limit(rate="1/s"))
    await storage.put([new("q", "a"), new("q", "b"), new("q", "high", priority=1)])
    assert await take(storage) == ["high"]
    await put1(storage, "q", "higher", priority=2)
    clock.advance(seconds=1)
    assert await take(storage) == ["higher"]


# families ----------------------------------------------------------------------------------------

LLM = Scope("family", "llm")


async def test_a_limit_of_a_family_is_shared_by_its_queues(storage: Storage) -> None:
    """All queues of the family count together, one made after the limit too; `why` names the holders of all."""
    await put_many(storage, 3, "llm/ask")
    await set_scope_limit(storage, Limit(concurrency=2), LLM)
    await put_many(storage, 3, "llm/tell")
    await put_many(storage, 3, "other")
    assert await take(storage, 1, "llm/ask") == ["j000"]
    [second] = await claim_all(storage, "llm/tell")
    assert await take(storage, 9, "llm/ask") == []
    assert len(await take(storage, 9, "other")) == 3
    position = await storage.why("llm/ask", "j001")
    assert position is not None
    assert position.gate is not None
    assert (position.gate.kind, position.gate.name, position.gate.used) == ("family", "llm", 2)
    assert [holder.queue for holder in position.gate.holders] == ["llm/ask", "llm/tell"]
    await settle1(storage, complete(second))
    answer = await storage.claim([Request("llm/ask", 9), Request("llm/tell", 9)], "w", LEASE, "token")
    assert [(claim.queue, claim.id) for claim in answer.claims] == [("llm/ask", "j001")]


async def test_a_rate_of_a_family_is_shared_by_its_queues(storage: Storage, clock: Clock) -> None:
    """A start in one queue charges the rate for the others."""
    await set_scope_limit(storage, Limit(rate="1/s"), LLM)
    await put_many(storage, 2, "llm/ask")
    await put_many(storage, 2, "llm/tell")
    assert await take(storage, 9, "llm/ask") == ["j000"]
    assert await take(storage, 9, "llm/tell") == []
    clock.advance(seconds=1)
    assert await take(storage, 9, "llm/tell") == ["j000"]
    assert await take(storage, 9, "llm/ask") == []


async def test_a_fail_queue_has_no_limit_of_its_family(storage: Storage) -> None:
    """The word of a failure is not held up: only limits set on a fail queue itself hold for it."""
    await set_scope_limit(storage, Limit(concurrency=1), LLM)
    await put_many(storage, 3, "llm/ask/failures")
    await put_many(storage, 2, "llm/ask")
    assert len(await take(storage, 9, "llm/ask/failures")) == 3
    assert await take(storage, 9, "llm/ask") == ["j000"]


async def test_the_gates_of_queue_and_family_hold_together(storage: Storage) -> None:
    """The smaller room counts, and the outer gate is named first."""
    await set_scope_limit(storage, Limit(concurrency=2), LLM)
    await set_limit(storage, Limit(concurrency=3), "llm/ask")
    await set_limit(storage, Limit(concurrency=1), "llm/ask", EVERY)
    await put_many(storage, 5, "llm/ask")
    claims = await claim_all(storage, "llm/ask")
    assert len(claims) == 2
    await set_scope_limit(storage, None, LLM)
    assert len(await take(storage, 9, "llm/ask")) == 1
    position = await storage.why("llm/ask", "j004")
    assert position is not None
    assert position.gate is not None
    assert position.gate.kind == "queue"
