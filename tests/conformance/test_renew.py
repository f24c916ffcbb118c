"""renew: running → running, for the named claims only."""

from __future__ import annotations

import pytest

from penstock.storage.base import CancelMode, ClaimRef, Renewal, Storage
from tests.support import HOUR, LEASE, T0, Clock, claim1, claim_all, complete, held, ids, new, put1, settle1, tally

KEPT = Renewal(True)


async def test_a_renewed_claim_outlives_its_first_lease(storage: Storage, clock: Clock) -> None:
    """A named claim is extended by a whole lease from now (PJ-D7)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    clock.advance(ms=LEASE - 1)
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(True)]
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []
    clock.advance(ms=1)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_a_claim_that_no_renewal_names_expires(storage: Storage, clock: Clock) -> None:
    """A worker that renews its other claims does not extend one whose answer it never got (QZ-D8)."""
    await storage.put([new("q", "known"), new("q", "undelivered")])
    known, _ = await claim_all(storage)
    clock.advance(ms=LEASE - 1)
    await storage.renew("w", [held(known)], LEASE)
    clock.advance(ms=1)
    assert ids(await storage.reap(["q"])) == ["undelivered"]
    assert await storage.counts("q") == tally(running=1, queued=1)


async def test_a_claim_does_not_renew_earlier_claims(storage: Storage, clock: Clock) -> None:
    """A worker's further claims do not extend its earlier ones (QZ-D7)."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE - 1)
    await put1(storage, "q", "b")
    await claim1(storage)
    clock.advance(ms=1)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_renew_of_a_reaped_claim_answers_lost(storage: Storage, clock: Clock) -> None:
    """A renewal of a claim that was reaped answers lost and does not extend the new run (QZ-D7, WQ-D8)."""
    await put1(storage, "q", "a")
    stale = await claim1(storage, worker="stale")
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    await claim1(storage, worker="fresh")
    assert await storage.renew("stale", [held(stale)], 100 * LEASE) == [Renewal(False)]
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_renew_of_a_settled_claim_answers_lost(storage: Storage) -> None:
    """A renewal of a settled claim answers lost."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, complete(claim))
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(False)]


async def test_a_forged_token_renews_nothing(storage: Storage, clock: Clock) -> None:
    """A renewal with a wrong token answers lost and extends nothing."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await storage.renew("w", [held(claim, "forged")], 100 * LEASE) == [Renewal(False)]
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_renew_of_an_unknown_claim_answers_lost(storage: Storage) -> None:
    """A renewal for an unknown job or queue answers lost and creates nothing."""
    assert await storage.renew("w", [ClaimRef("q", "a", "t")], LEASE) == [Renewal(False)]
    assert await storage.queues() == []


async def test_renew_in_a_deleted_queue_answers_lost(storage: Storage) -> None:
    """A renewal of a claim in a deleted queue answers lost (WQ-D10)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.delete_queue("q")
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(False)]


async def test_renew_of_an_expired_claim_before_the_reap_keeps_it(storage: Storage, clock: Clock) -> None:
    """A claim renewed after its deadline but before a reap is kept."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    clock.advance(ms=2 * LEASE)
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(True)]
    assert await storage.reap(["q"]) == []


async def test_renew_answers_in_the_order_of_the_claims(storage: Storage) -> None:
    """One renewal names claims of any queues, and each is answered at its index."""
    await storage.put([new("q", "a"), new("r", "b"), new("q/x", "c")])
    [a], [b], [c] = [await claim_all(storage, queue) for queue in ("q", "r", "q/x")]
    await storage.cancel("q/x", ["c"], running="kill")
    answers = await storage.renew("w", [held(b), held(a, "forged"), held(c), held(a)], LEASE)
    assert answers == [Renewal(True), Renewal(False), Renewal(True, "kill"), Renewal(True)]


@pytest.mark.parametrize("mode", ["forget", "signal", "kill"])
async def test_renew_answers_a_cancel_request(storage: Storage, mode: CancelMode) -> None:
    """Each renewal of a run with a cancel request answers its mode."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], running=mode)
    for _ in range(2):
        assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(True, mode)]


async def test_an_empty_renew_changes_nothing(storage: Storage) -> None:
    """A renewal that names no claim extends none."""
    assert await storage.renew("w", [], LEASE) == []


async def test_renew_with_a_shorter_lease_shortens_it(storage: Storage, clock: Clock) -> None:
    """The newest renewal decides, also when its lease is shorter."""
    await put1(storage, "q", "a")
    claim = await claim1(storage, lease=100 * LEASE)
    await storage.renew("w", [held(claim)], LEASE)
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_a_claim_that_was_left_out_once_is_kept_when_it_is_named(storage: Storage, clock: Clock) -> None:
    """A claim that one renewal left out and a later one names in time has the whole lease."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, c = await claim_all(storage)
    clock.advance(ms=LEASE // 2)
    assert await storage.renew("w", [held(a), held(b)], LEASE) == [KEPT] * 2
    assert await storage.renew("w", [held(a), held(b), held(c)], LEASE) == [KEPT] * 3
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []
    clock.advance(ms=1)
    assert sorted(each.id for each in await storage.reap(["q"])) == ["a", "b", "c"]


async def test_claims_of_one_token_have_their_own_deadlines(storage: Storage, clock: Clock) -> None:
    """Claims of one token, renewed together or apart, expire each at the deadline of its last renewal."""
    await storage.put([new("q", id) for id in "abcde"])
    claims = {claim.id: claim for claim in await claim_all(storage)}
    for step, names, lease in ((1, "ab", 20), (2, "a", 50), (3, "c", 30), (4, "bd", 40), (5, "c", 10), (6, "da", 33)):
        clock.ms = T0 + step
        assert await storage.renew("w", [held(claims[id]) for id in names], lease) == [KEPT] * len(names)
    deadlines = {"a": 6 + 33, "b": 4 + 40, "c": 5 + 10, "d": 6 + 33, "e": LEASE}
    for at in sorted(set(deadlines.values())):
        clock.ms = T0 + at - 1
        assert await storage.reap(["q"]) == []
        clock.ms = T0 + at
        assert sorted(each.id for each in await storage.reap(["q"])) == [id for id in deadlines if deadlines[id] == at]


async def test_the_rest_of_a_token_can_be_renewed_when_some_are_lost(storage: Storage, clock: Clock) -> None:
    """A claim that outlives others of its token is renewed as before, and expires as before."""
    await storage.put([new("q", id) for id in "ab"])
    a, b = await claim_all(storage)
    await storage.renew("w", [held(a)], LEASE // 2)
    clock.advance(ms=LEASE // 2)
    assert [each.id for each in await storage.reap(["q"])] == ["a"]
    assert await storage.renew("w", [held(a), held(b)], LEASE) == [Renewal(False), KEPT]
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []
    clock.advance(ms=1)
    assert [each.id for each in await storage.reap(["q"])] == ["b"]


async def test_settle_removes_the_deadlines_of_claims_renewed_apart(storage: Storage, clock: Clock) -> None:
    """Runs of one token that were renewed apart are settled as usual, and nothing of them is left."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, c = await claim_all(storage)
    clock.advance(ms=1)
    await storage.renew("w", [held(a)], LEASE)
    clock.advance(ms=1)
    await storage.renew("w", [held(b)], LEASE)
    await storage.settle([complete(b, ttl=0), complete(a, ttl=0)])
    assert await storage.renew("w", [held(c)], LEASE) == [KEPT]
    await storage.settle([complete(c, ttl=0)])
    assert await storage.counts("q") == tally()
    clock.advance(ms=HOUR)
    assert await storage.reap(["q"]) == []
    while await storage.purge(["q"]):
        pass
