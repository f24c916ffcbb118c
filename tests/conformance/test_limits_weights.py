"""Weights: the share of each group of the starts of its queue."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.limit import EVERY, Limit
from penstock.storage.base import Storage
from tests.support import claim1, complete, new, set_limit, settle1, share_of

pytestmark = pytest.mark.one_per_engine


async def starts(storage: Storage, count: int) -> list[str]:
    """Claim and complete jobs one by one, and return the groups of them."""
    groups: list[str] = []
    for _ in range(count):
        claim = await claim1(storage)
        groups.append(claim.group or "")
        await settle1(storage, complete(claim, ttl=0))
    return groups


async def put_work(storage: Storage, weights: dict[str, int], count: int) -> None:
    await set_limit(storage, Limit(concurrency=1))
    for group, weight in weights.items():
        await set_limit(storage, Limit(weight=weight), group=group)
    await storage.put([new("q", group=group) for _ in range(count) for group in weights])


async def test_groups_share_starts_by_their_weights(storage: Storage) -> None:
    """Weights 3 and 1, one slot: 30 and 10 of 40 starts, in runs of at most 3."""
    await put_work(storage, {"a": 3, "b": 1}, 40)
    groups = await starts(storage, 40)
    assert Counter(groups) == {"a": 30, "b": 10}
    assert max(len(list(run)) for _, run in groupby(groups)) == 3


async def test_a_weight_of_every_group_gives_each_as_many_starts_in_turn(storage: Storage) -> None:
    """With a weight of 2 for every group each has two starts in turn."""
    await set_limit(storage, Limit(concurrency=1))
    await set_limit(storage, Limit(weight=2), group=EVERY)
    await storage.put([new("q", group=group) for _ in range(6) for group in "abc"])
    assert "".join(await starts(storage, 12)) == "aabbccaabbcc"


async def test_a_group_whose_jobs_are_over_loses_its_turn(storage: Storage) -> None:
    """A group that runs out of jobs and gets new ones begins a new turn at the end."""
    await put_work(storage, {"a": 3, "b": 1}, 2)
    assert "".join(await starts(storage, 2)) == "aa"
    await storage.put([new("q", group="a") for _ in range(3)])
    assert "".join(await starts(storage, 5)) == "baaab"


async def test_shares_are_the_weights_within_one_round(storage: Storage) -> None:
    """Whatever the weights, after any number of starts each group has had its share, within one round (P8)."""
    for weights, count in drawn(share_of(12)):
        await storage.delete_queue("q", True)
        shares = {f"g{number}": weight for number, weight in enumerate(weights)}
        await put_work(storage, shares, count)
        groups = await starts(storage, count)
        for group, weight in shares.items():
            assert abs(groups.count(group) * sum(weights) - count * weight) <= weight * sum(weights), (weights, groups)


def drawn(examples: int) -> list[tuple[list[int], int]]:
    """Return random weights and numbers of starts, always the same."""
    found: list[tuple[list[int], int]] = []

    @settings(max_examples=examples, derandomize=True, database=None)
    @given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(1, 25))
    def collect(weights: list[int], count: int) -> None:
        found.append((weights, count))

    collect()
    return found
