"""set_limit, get_limit and limits: the stored limits of queues, groups and families."""

from __future__ import annotations

from typing import cast

import pytest

from penstock.model.limit import EVERY, Limit, Rule
from penstock.model.pause import Pause
from penstock.storage.base import Request, Storage
from penstock.storage.limiting import Limiting, LimitRecord, Scope
from tests.support import (
    LEASE,
    MINUTE,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    complete,
    ids,
    new,
    put1,
    scope_of,
    set_limit,
    set_scope_limit,
    settle1,
)

pytestmark = pytest.mark.one_per_engine

QUEUE, GROUPS, GROUP, FAMILY = scope_of(), scope_of(group=EVERY), scope_of(group="a"), Scope("family", "q")
SCOPES = (FAMILY, QUEUE, GROUPS, GROUP)


@pytest.fixture
def limiting(storage: Storage) -> Limiting:
    return cast(Limiting, storage)


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.kind)
async def test_a_limit_is_set_if_its_version_is_the_given_one(limiting: Limiting, clock: Clock, scope: Scope) -> None:
    """Each change raises the version; another version changes nothing; the storage sets the time of the change."""
    rule = Rule(concurrency=3, changed_at=7)
    assert await limiting.set_limit(scope, rule, b"declared", 1) is None
    assert await limiting.set_limit(scope, rule, b"declared", 0) == 1
    assert await limiting.set_limit(scope, None, b"", 0) is None
    found = await limiting.get_limit(scope)
    stored = Rule(concurrency=3, changed_at=T0)
    assert found == LimitRecord(scope=scope, rule=stored, settings=b"declared", version=1)
    clock.advance(seconds=1)
    assert await limiting.set_limit(scope, None, b"\x00\xff", 1) == 2
    assert await limiting.get_limit(scope) == LimitRecord(scope=scope, settings=b"\x00\xff", version=2)
    assert await limiting.set_limit(scope, None, b"", 2) == 0
    assert await limiting.get_limit(scope) == LimitRecord(scope=scope)
    assert await limiting.set_limit(scope, None, b"", 0) == 0


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.kind)
async def test_every_field_of_a_rule_is_stored(limiting: Limiting, scope: Scope) -> None:
    """The largest numbers that a limit may have are read back as they were."""
    rule = Rule(1_000_000_000, 31 * 86_400_000_000, 1_000_000_000, True, 1_000_000, True)
    await limiting.set_limit(scope, rule, b"", 0)
    found = await limiting.get_limit(scope)
    assert found.rule == Rule(1_000_000_000, 31 * 86_400_000_000, 1_000_000_000, True, 1_000_000, True, T0)


async def test_a_limit_without_a_rule_does_not_hold(storage: Storage, limiting: Limiting) -> None:
    """Settings are kept for the declarer, and nothing is limited by them."""
    await limiting.set_limit(QUEUE, None, b"settings", 0)
    await storage.put([new() for _ in range(5)])
    assert len(await claim_all(storage)) == 5


async def test_get_limit_shows_the_state_of_the_gates(storage: Storage, limiting: Limiting, clock: Clock) -> None:
    """Running and waiting jobs of each scope, the opening of a rate, and how many groups are closed."""
    await set_limit(storage, Limit(concurrency=2, rate="1/s"), group=EVERY)
    await storage.put([new("q", f"{group}{i}", group=group) for i in range(3) for group in "abc"])
    await put1(storage, "q", "later", delay=MINUTE)
    claims = await claim_all(storage)
    assert ids(claims) == ["a0", "b0", "c0"]
    await settle1(storage, complete(claims[1]))
    await storage.set_pause("q", True, T0 + MINUTE, "ann", "c")
    queue, groups, family = [await limiting.get_limit(scope) for scope in (QUEUE, GROUPS, FAMILY)]
    assert (queue.running, queue.waiting, queue.opens, queue.pause) == (2, 6, None, None)
    assert (family.running, family.waiting) == (2, 6)
    assert (groups.running, groups.waiting, groups.closed) == (0, 0, 3)
    a, b, c = [await limiting.get_limit(scope_of(group=group)) for group in "abc"]
    assert (a.running, a.waiting, a.opens, a.version, a.rule) == (1, 2, T0 + SECOND, 0, None)
    assert (b.running, b.waiting, b.opens) == (0, 2, T0 + SECOND)
    assert (c.opens, c.pause) == (T0 + MINUTE, Pause(T0, T0 + MINUTE, "ann"))
    clock.advance(seconds=1)
    assert (await limiting.get_limit(scope_of(group="a"))).opens is None
    assert (await limiting.get_limit(GROUPS)).closed == 1


async def test_a_gate_that_is_closed_by_its_concurrency_has_no_opening(storage: Storage, limiting: Limiting) -> None:
    """A full queue and a full group open by the end of a run, at no time that is known."""
    await set_limit(storage, Limit(concurrency=1, rate="1/s"))
    await set_limit(storage, Limit(concurrency=1, rate="1/s"), group="a")
    await storage.put([new("q", f"a{i}", group="a") for i in range(2)])
    await claim1(storage)
    assert [(await limiting.get_limit(scope)).opens for scope in (QUEUE, GROUP)] == [None, None]


async def test_limits_lists_what_holds_for_a_queue(storage: Storage, limiting: Limiting) -> None:
    """The family's, the queue's, that of every group, then single groups by their bytes, with those that are paused."""
    for scope in SCOPES:
        await set_scope_limit(storage, Limit(concurrency=2), scope)
    await set_limit(storage, Limit(concurrency=2), "q/side")
    for group in ("é", "z", "Z"):
        await storage.set_pause("q", True, group=group)
    found: list[LimitRecord] = []
    cursor: str | None = None
    while True:
        page = await limiting.limits("q", cursor, 3)
        assert len(page.limits) <= 3
        found += page.limits
        cursor = page.cursor
        if cursor is None:
            break
    groups = ["Z", "a", "z", "é"]
    assert [record.scope for record in found] == [FAMILY, QUEUE, GROUPS, *(scope_of(group=g) for g in groups)]
    assert [record.pause is not None for record in found] == [False, False, False, True, False, True, True]
    assert [record.scope.kind for record in (await limiting.limits("q/failures")).limits] == []
    assert [record.scope for record in (await limiting.limits("q/other")).limits] == [FAMILY]


async def test_a_queue_with_a_limit_is_listed(storage: Storage) -> None:
    """A limit of a queue or its groups lists the queue, also without jobs, and purge keeps it."""
    await set_limit(storage, Limit(concurrency=2), "b", EVERY)
    await set_limit(storage, Limit(concurrency=2), "a", "g")
    await set_scope_limit(storage, Limit(concurrency=2), Scope("family", "f"))
    await storage.purge(["a", "b", "f"])
    assert await storage.queues() == ["a", "b"]


async def test_delete_queue_leaves_limits_without_settings(storage: Storage, limiting: Limiting) -> None:
    """The limits of a deleted queue hold for its new jobs; with `settings` they are gone, that of the family not."""
    await set_limit(storage, Limit(concurrency=1))
    await set_limit(storage, Limit(concurrency=2), group="a")
    await set_scope_limit(storage, Limit(concurrency=9), FAMILY)
    await storage.put([new("q", f"x{i}") for i in range(3)])
    await claim1(storage)
    assert await storage.delete_queue("q") == 3
    assert await storage.queues() == ["q"]
    await storage.put([new("q", f"y{i}") for i in range(3)])
    assert len(await claim_all(storage)) == 1
    assert (await limiting.get_limit(QUEUE)).version == 1
    assert await storage.delete_queue("q", True) == 3
    assert await storage.queues() == []
    assert [record.scope for record in (await limiting.limits("q")).limits] == [FAMILY]
    await storage.put([new("q", f"z{i}") for i in range(3)])
    assert len(await claim_all(storage)) == 3


async def test_delete_queue_forgets_what_was_used_of_a_rate(storage: Storage) -> None:
    """The limits stay, their gates are as new."""
    await set_limit(storage, Limit(rate="1/h"))
    await set_limit(storage, Limit(rate="1/h"), group=EVERY)
    for group in (None, "a"):
        await put1(storage, "q", "x", group=group)
        assert ids(await claim_all(storage)) == ["x"]
        await storage.delete_queue("q")


async def test_a_claim_names_a_limited_queue_that_has_no_jobs_yet(storage: Storage) -> None:
    """So a worker looks after the limit of a queue in which nothing was ever put: its declarer may be gone."""
    await set_limit(storage, Limit(concurrency=2))
    answer = await storage.claim([Request("q", 1), Request("other", 1)], "w", LEASE, "t" * 16)
    assert (answer.claims, answer.limited) == ([], ["q"])
