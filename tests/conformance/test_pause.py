"""set_pause: stop or resume handing out the jobs of a queue."""

from __future__ import annotations

import pytest

from penstock.model.job import State
from penstock.model.pause import Pause
from penstock.storage.base import Put, PutStatus, Request, Settled, Storage
from tests.support import (
    LEASE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    claim_answer,
    complete,
    held,
    ids,
    new,
    put1,
    settle1,
    tally,
)

pytestmark = pytest.mark.one_per_engine


async def test_a_paused_queue_hands_out_nothing(storage: Storage) -> None:
    """A claim of a paused queue returns no job (invariant 4)."""
    await put1(storage, "q", "a")
    assert await storage.set_pause("q", True) is True
    assert await claim_all(storage) == []
    assert await storage.peek("q") is None


async def test_a_resumed_queue_goes_on(storage: Storage) -> None:
    """After a resume the jobs are given in their order."""
    await storage.put([new("q", id) for id in "zma"])
    await storage.set_pause("q", True)
    assert await storage.set_pause("q", False) is True
    assert ids(await claim_all(storage)) == ["z", "m", "a"]


async def test_set_pause_answers_whether_it_changed_anything(storage: Storage) -> None:
    """A second pause and a second resume answer False and change nothing."""
    answers = [await storage.set_pause("q", paused) for paused in (False, True, True, False, False)]
    assert answers == [False, True, False, True, False]


async def test_paused_answers_the_time_of_the_first_pause(storage: Storage, clock: Clock) -> None:
    """The time of the first pause is kept until the resume."""
    assert await storage.paused("q") is None
    await storage.set_pause("q", True)
    clock.advance(seconds=1)
    await storage.set_pause("q", True)
    assert await storage.paused("q") == Pause(T0)
    await storage.set_pause("q", False)
    assert await storage.paused("q") is None


async def test_a_paused_queue_accepts_jobs(storage: Storage) -> None:
    """A paused queue accepts jobs."""
    await storage.set_pause("q", True)
    assert await put1(storage, "q", "a") == Put(PutStatus.QUEUED, State.QUEUED)
    assert await storage.counts("q") == tally(queued=1)


async def test_runs_of_a_paused_queue_go_on(storage: Storage) -> None:
    """Runs of a paused queue are renewed and settled as usual."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.set_pause("q", True)
    assert (await storage.renew("w", [held(claim)], LEASE))[0].kept
    assert await settle1(storage, complete(claim)) == Settled(State.COMPLETED)


async def test_a_pause_is_of_one_queue(storage: Storage) -> None:
    """A pause stops no other queue, of the family or not."""
    await storage.put([new("q", "a"), new("q/x", "b"), new("r", "c")])
    await storage.set_pause("q", True)
    answer = await storage.claim([Request("q", 1), Request("q/x", 1), Request("r", 1)], "w", LEASE, "t")
    assert ids(answer.claims) == ["b", "c"]


async def test_a_job_falls_due_in_a_paused_queue(storage: Storage, clock: Clock) -> None:
    """A scheduled job of a paused queue becomes queued at its time and runs after the resume."""
    await put1(storage, "q", "a", delay=SECOND)
    await storage.set_pause("q", True)
    clock.advance(seconds=1)
    assert await storage.counts("q") == tally(queued=1)
    assert await claim_all(storage) == []
    await storage.set_pause("q", False)
    assert ids(await claim_all(storage)) == ["a"]


async def test_a_claim_of_a_paused_queue_answers_no_time_to_look_again(storage: Storage) -> None:
    """A claim of a paused queue does not ask to look again for its scheduled jobs."""
    await put1(storage, "q", "a", delay=SECOND)
    await storage.set_pause("q", True)
    assert (await claim_answer(storage)).look_at is None


async def test_a_paused_empty_queue_is_listed(storage: Storage) -> None:
    """A queue that is paused exists, with or without jobs."""
    await storage.set_pause("q", True)
    assert await storage.queues() == ["q"]
    await storage.set_pause("q", False)
    assert await storage.queues() == []


async def test_groups_of_a_paused_queue_wait(storage: Storage) -> None:
    """Jobs in groups of a paused queue are not handed out until the resume."""
    await storage.put([new("q", "a", group="g"), new("q", "b", group="h")])
    await storage.set_pause("q", True)
    assert await claim_all(storage) == []
    await storage.set_pause("q", False)
    assert ids(await claim_all(storage)) == ["a", "b"]
