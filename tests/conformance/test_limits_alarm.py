"""The answer of a claim about limits: when the worker must look again, and which queues are limited."""

from __future__ import annotations

import pytest

from penstock.model.limit import EVERY, Limit
from penstock.storage.base import Request, Storage
from penstock.storage.limiting import Scope
from tests.support import (
    LEASE,
    MINUTE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    claim_answer,
    ids,
    new,
    put1,
    retried,
    set_limit,
    set_scope_limit,
    settle1,
)

pytestmark = [pytest.mark.one_per_engine, pytest.mark.beyond_model]


async def test_a_claim_that_a_rate_ends_names_its_opening(storage: Storage) -> None:
    """One worker gets the time at which the rate of the queue opens; another one need not look."""
    await set_limit(storage, Limit(rate="2/s"))
    await storage.put([new(), new()])
    answer = await claim_answer(storage)
    assert (len(answer.claims), answer.look_at) == (1, T0 + 500)
    assert (await claim_answer(storage)).look_at is None


async def test_a_claim_names_the_first_opening_of_a_closed_group(storage: Storage, clock: Clock) -> None:
    """The earliest opening of a group counts, and a job that falls due before it."""
    await set_limit(storage, Limit(rate="1/min"), group="slow")
    await set_limit(storage, Limit(concurrency=2, rate="1/s"), group="fast")
    await storage.put([new("q", group=group) for _ in range(2) for group in ("slow", "fast")])
    answer = await claim_answer(storage)
    assert (len(answer.claims), answer.look_at) == (2, T0 + SECOND)
    await put1(storage, "q", "later", delay=500)
    assert (await claim_answer(storage)).look_at == T0 + 500


async def test_a_claim_of_a_paused_queue_names_the_end_of_the_pause(storage: Storage) -> None:
    """The worker looks again when the pause ends; not if it has no end."""
    await put1(storage, "q", "a")
    await settle1(storage, retried(await claim1(storage), delay=MINUTE, pause="queue"))
    assert (await claim_answer(storage)).look_at == T0 + MINUTE
    await storage.set_pause("q", True)
    assert (await claim_answer(storage)).look_at is None


async def test_a_claim_that_a_full_queue_ends_names_no_time(storage: Storage) -> None:
    """A limit that is reached opens by the end of a run."""
    await set_limit(storage, Limit(concurrency=1))
    await set_limit(storage, Limit(concurrency=1), group=EVERY)
    await storage.put([new("q", "a"), new("q", "b"), new("q", "c", group="g")])
    assert ((await claim_answer(storage)).look_at, (await claim_answer(storage)).look_at) == (None, None)


async def test_a_claim_names_limited_queues(storage: Storage) -> None:
    """Queues with limits of their own, of their groups or of their family are named, others not."""
    await set_limit(storage, Limit(concurrency=1))
    await set_limit(storage, Limit(concurrency=2), "r", EVERY)
    await set_scope_limit(storage, Limit(concurrency=1), Scope("family", "llm"))
    names = ["q", "r", "llm/ask", "llm/ask/failures", "other"]
    await storage.put([new(name, "a") for name in names])
    answer = await storage.claim([Request(name, 1) for name in names], "w", LEASE, "t")
    assert answer.limited == ["q", "r", "llm/ask"]
    assert len(answer.claims) == 5


async def test_more_closed_groups_than_one_claim_sets_aside_are_passed_over(storage: Storage) -> None:
    """A claim sets aside a bounded number of groups and asks for another; the job behind them all is found."""
    for end in "ab":
        await storage.put([new("q", f"{group:04}{end}", group=f"{group:04}") for group in range(1_500)])
    await set_limit(storage, Limit(rate="1/h", by="cost"), group=EVERY)
    assert len(await claim_all(storage, limit=1_000)) == 1_000
    assert len(await claim_all(storage, limit=1_000)) == 500
    await put1(storage, "q", "z", group="last")
    assert ids(await claim_all(storage)) == ["z"]


async def test_a_raised_limit_opens_many_groups_in_several_claims(storage: Storage) -> None:
    """After the limit of every group was raised each step opens a bounded number, until all are open."""
    await set_limit(storage, Limit(concurrency=1), group=EVERY)
    jobs = [new("q", group=f"{group:04}") for _ in range(2) for group in range(2_300)]
    for start in range(0, len(jobs), 500):
        await storage.put(jobs[start : start + 500])
    taken = 0
    while claims := await claim_all(storage, limit=1_000):
        taken += len(claims)
    assert taken == 2_300
    await set_limit(storage, Limit(concurrency=2), group=EVERY)
    answer = await claim_answer(storage, limit=100)
    assert len(answer.claims) == 100
    taken = len(answer.claims)
    while answer.claims or answer.more:
        answer = await claim_answer(storage, limit=1_000)
        taken += len(answer.claims)
    assert taken == 2_300
