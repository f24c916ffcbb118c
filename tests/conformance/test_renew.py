"""renew: running → running, for the claims that are named and for no others."""

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


async def test_a_claim_that_is_not_named_runs_out(storage: Storage, clock: Clock) -> None:
    """A worker that renews its other claims does not keep one it never heard of (QZ-D8)."""
    await storage.put([new("q", "known"), new("q", "undelivered")])
    known, _ = await claim_all(storage)
    clock.advance(ms=LEASE - 1)
    await storage.renew("w", [held(known)], LEASE)
    clock.advance(ms=1)
    assert ids(await storage.reap(["q"])) == ["undelivered"]
    assert await storage.counts("q") == tally(running=1, queued=1)


async def test_claiming_more_does_not_renew(storage: Storage, clock: Clock) -> None:
    """A worker's further claims do not extend what it holds already (QZ-D7)."""
    await put1(storage, "q", "a")
    await claim1(storage)
    clock.advance(ms=LEASE - 1)
    await put1(storage, "q", "b")
    await claim1(storage)
    clock.advance(ms=1)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_a_taken_claim_is_lost(storage: Storage, clock: Clock) -> None:
    """The worker whose job was taken away is told so, and the new run is not extended by it (QZ-D7, WQ-D8)."""
    await put1(storage, "q", "a")
    stale = await claim1(storage, worker="stale")
    clock.advance(ms=LEASE)
    await storage.reap(["q"])
    await claim1(storage, worker="fresh")
    assert await storage.renew("stale", [held(stale)], 100 * LEASE) == [Renewal(False)]
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_a_finished_claim_is_lost(storage: Storage) -> None:
    """A claim that was settled is held no more."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await settle1(storage, complete(claim))
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(False)]


async def test_a_forged_token_renews_nothing(storage: Storage, clock: Clock) -> None:
    """A wrong token is lost and extends nothing."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    assert await storage.renew("w", [held(claim, "forged")], 100 * LEASE) == [Renewal(False)]
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_an_unknown_claim_is_lost(storage: Storage) -> None:
    """A claim on a job or a queue that is not there is lost and creates nothing."""
    assert await storage.renew("w", [ClaimRef("q", "a", "t")], LEASE) == [Renewal(False)]
    assert await storage.queues() == []


async def test_a_claim_in_a_deleted_queue_is_lost(storage: Storage) -> None:
    """Deleting a queue takes the claims of its runs (WQ-D10)."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.delete_queue("q")
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(False)]


async def test_an_expired_claim_that_nobody_took_is_kept(storage: Storage, clock: Clock) -> None:
    """A claim renewed after its lease but before the sweep is held again."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    clock.advance(ms=2 * LEASE)
    assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(True)]
    assert await storage.reap(["q"]) == []


async def test_the_answers_come_in_the_order_of_the_claims(storage: Storage) -> None:
    """One renewal names claims of any queues, and each is answered at its place."""
    await storage.put([new("q", "a"), new("r", "b"), new("q/x", "c")])
    [a], [b], [c] = [await claim_all(storage, queue) for queue in ("q", "r", "q/x")]
    await storage.cancel("q/x", ["c"], running="kill")
    answers = await storage.renew("w", [held(b), held(a, "forged"), held(c), held(a)], LEASE)
    assert answers == [Renewal(True), Renewal(False), Renewal(True, "kill"), Renewal(True)]


@pytest.mark.parametrize("mode", ["forget", "signal", "kill"])
async def test_a_cancel_request_comes_with_the_renewal(storage: Storage, mode: CancelMode) -> None:
    """The holder of a run learns what was asked of it at its next renewal, and again at each."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    await storage.cancel("q", ["a"], running=mode)
    for _ in range(2):
        assert await storage.renew("w", [held(claim)], LEASE) == [Renewal(True, mode)]


async def test_renewing_nothing_is_answered_with_nothing(storage: Storage) -> None:
    """A renewal that names no claim extends none."""
    assert await storage.renew("w", [], LEASE) == []


async def test_a_shorter_lease_brings_the_end_nearer(storage: Storage, clock: Clock) -> None:
    """The newest renewal decides, also when it is shorter."""
    await put1(storage, "q", "a")
    claim = await claim1(storage, lease=100 * LEASE)
    await storage.renew("w", [held(claim)], LEASE)
    clock.advance(ms=LEASE)
    assert ids(await storage.reap(["q"])) == ["a"]


async def test_a_claim_that_was_left_out_once_is_kept_when_it_is_named(storage: Storage, clock: Clock) -> None:
    """Each renewal counts by itself: who names a claim again before its end holds it for the whole lease."""
    await storage.put([new("q", id) for id in "abc"])
    a, b, c = await claim_all(storage)
    clock.advance(ms=LEASE // 2)
    assert await storage.renew("w", [held(a), held(b)], LEASE) == [KEPT] * 2
    assert await storage.renew("w", [held(a), held(b), held(c)], LEASE) == [KEPT] * 3
    clock.advance(ms=LEASE - 1)
    assert await storage.reap(["q"]) == []
    clock.advance(ms=1)
    assert sorted(each.id for each in await storage.reap(["q"])) == ["a", "b", "c"]


async def test_claims_of_one_token_may_have_leases_of_their_own(storage: Storage, clock: Clock) -> None:
    """However they are named, together or apart and for how long, each runs out when its last renewal does."""
    await storage.put([new("q", id) for id in "abcde"])
    claims = {claim.id: claim for claim in await claim_all(storage)}
    for step, names, lease in ((1, "ab", 20), (2, "a", 50), (3, "c", 30), (4, "bd", 40), (5, "c", 10), (6, "da", 33)):
        clock.ms = T0 + step
        assert await storage.renew("w", [held(claims[id]) for id in names], lease) == [KEPT] * len(names)
    ends = {"a": 6 + 33, "b": 4 + 40, "c": 5 + 10, "d": 6 + 33, "e": LEASE}
    for at in sorted(set(ends.values())):
        clock.ms = T0 + at - 1
        assert await storage.reap(["q"]) == []
        clock.ms = T0 + at
        assert sorted(each.id for each in await storage.reap(["q"])) == [id for id in ends if ends[id] == at]


async def test_the_rest_of_a_token_can_be_renewed_when_some_are_lost(storage: Storage, clock: Clock) -> None:
    """A claim that outlives others of its token is renewed as before, and runs out as before."""
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


async def test_leases_of_their_own_go_with_their_runs(storage: Storage, clock: Clock) -> None:
    """Runs of one token that were renewed apart settle as any others, and nothing of them is left."""
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
