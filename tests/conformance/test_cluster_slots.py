"""On a Cluster: the keys of a family share a slot, families are spread, and every verb works across them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from redis.crc import key_slot

from penstock.storage.base import Request, Storage
from penstock.storage.redis import RedisStorage
from tests.support import (
    LEASE,
    MINUTE,
    Clock,
    RedisBackend,
    claim1,
    claim_all,
    complete,
    fail,
    held,
    ids,
    new,
    put1,
    retried,
    settle1,
    tally,
    update,
)

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("cluster")]

FAMILIES = [f"family {n}" for n in range(40)]


def slots(backend: RedisBackend, *, but: tuple[bytes, ...] = ()) -> set[int]:
    """Return the slots of the stored keys."""
    return {key_slot(key) for key in backend.keys() if not key.endswith(but)}  # noqa: SIM118


async def test_the_keys_of_a_family_share_a_slot(backend: RedisBackend, storage: Storage) -> None:
    """Whatever happens in a queue and its siblings, all its keys are in one slot (QF-D19, rule 20)."""
    await storage.put([new("q", id) for id in "abcdef"])
    await storage.put([new("q", "g", group="g"), new("q/x", "h", delay=MINUTE), new("q", "i", delay=MINUTE)])
    a, b, c, *_ = await claim_all(storage)
    await storage.put([update("q", "d")])
    await storage.settle([complete(a), fail(b, then=[new("q/failures", "f")]), retried(c, delay=MINUTE)])
    await storage.cancel("q", ["i"], ttl=MINUTE)
    await storage.set_pause("q/x", True)
    found = slots(backend, but=(b":schema", b":families", b":workers"))
    assert len(found) == 1


async def test_families_are_spread_over_the_slots(backend: RedisBackend, storage: Storage) -> None:
    """Queues of different families do not all lie on one node."""
    await storage.put([new(family, "a") for family in FAMILIES])
    nodes = {slot * 3 // 16384 for slot in slots(backend)}
    assert nodes == {0, 1, 2}
    for family in FAMILIES:
        await storage.delete_queue(family)


async def test_one_call_reaches_all_nodes(storage: Storage, clock: Clock) -> None:
    """A put, a claim, a renewal, a settle, a reap and a purge may each name queues of every node."""
    answers = await storage.put([new(family, family) for family in FAMILIES])
    assert [answer.status for answer in answers] == ["queued"] * 40
    assert await storage.queues() == sorted(FAMILIES)
    answer = await storage.claim([Request(family, 1) for family in FAMILIES], "w", LEASE, "t")
    assert ids(answer.claims) == FAMILIES
    renewals = await storage.renew("w", [held(claim) for claim in answer.claims], LEASE)
    assert all(renewal.kept for renewal in renewals)
    settled = await storage.settle([complete(claim, ttl=1000) for claim in answer.claims[:20]])
    assert [s.state for s in settled] == ["completed"] * 20
    clock.advance(ms=LEASE)
    assert len(await storage.reap(FAMILIES)) == 20
    assert await storage.purge(FAMILIES) == 20
    for family in FAMILIES:
        await storage.delete_queue(family)
    assert await storage.queues() == []


async def test_follow_ups_stay_in_the_family(storage: Storage) -> None:
    """A completion puts its follow-ups in a sibling queue in the same step."""
    await put1(storage, "q/one", "a")
    await settle1(storage, complete(await claim1(storage, "q/one"), ttl=0, then=[new("q/two", "b"), new("q", "c")]))
    assert [await storage.counts(queue) for queue in ("q/two", "q")] == [tally(queued=1)] * 2
    await storage.delete_queue("q/one")
    await storage.delete_queue("q/two")


async def test_a_follow_up_in_another_family_changes_nothing(storage: Storage) -> None:
    """A follow-up job in another family is refused on a Cluster before anything is written, naming the queue."""
    await put1(storage, "q", "a")
    claim = await claim1(storage)
    with pytest.raises(ValueError, match="elsewhere"):
        await settle1(storage, complete(claim, then=[new("elsewhere", "b")]))
    assert await storage.counts("q") == tally(running=1)
    assert await storage.queues() == ["q"]


async def test_hash_tags_in_names_forge_no_slot(backend: RedisBackend, storage: Storage) -> None:
    """Braces in a queue's name decide nothing about where its keys are."""
    await storage.put([new("{q}", "a"), new("x{q}", "b"), new("{}q", "c"), new("}{q}", "d")])
    for queue, id in (("{q}", "a"), ("x{q}", "b"), ("{}q", "c"), ("}{q}", "d")):
        assert ids(await claim_all(storage, queue)) == [id]


async def test_families_that_are_gone_are_forgotten(backend: RedisBackend, storage: Storage) -> None:
    """The list of families does not grow with the names that were ever used (rule 12)."""
    await storage.put([new(family, "a") for family in FAMILIES])
    for family in FAMILIES:
        await storage.delete_queue(family)
    while await storage.purge(FAMILIES):
        pass
    assert await storage.queues() == []
    with contextlib.closing(backend.client()) as client:
        assert int(client.scard(f"{backend.namespace}:families")) == 0  # type: ignore[arg-type]


async def test_a_queue_that_appears_while_its_family_is_dropped_is_listed(
    storage: RedisStorage, peer: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A purge that finds a family empty does not hide a queue that is created in that moment."""
    command = storage._connection.command

    async def slow(*args: Any) -> Any:
        if args[0] == "SREM":
            await peer.put([new("q", "a")])
        return await command(*args)

    monkeypatch.setattr(storage._connection, "command", slow)
    await storage.purge(["q"])
    assert await storage.queues() == ["q"]
