"""Chunks: settlements of many queues go out in few calls, and those of one queue keep their order."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, Complete, Release, Settlement
from penstock.storage.redis.chunks import chunks


def end(queue: str, then: Sequence[str] = (), id: str = "a") -> Settlement:
    jobs = tuple(NewJob(queue=other, id="new", payload=b"") for other in then)
    return Settlement(queue, id, "token", Complete(b"", None, jobs) if jobs else Release())


def touches(settlement: Settlement) -> set[str]:
    return {settlement.queue, *(new.queue for new in getattr(settlement.resolution, "then", ()))}


ends = st.lists(st.builds(end, st.sampled_from("abcd"), st.lists(st.sampled_from("abcd"), max_size=2)), max_size=30)


@given(ends)
def test_every_queue_sees_its_ends_in_their_order(settlements: list[Settlement]) -> None:
    """Each settlement is in one chunk of its queue; two that touch one queue are not swapped."""
    parts = chunks(settlements)
    assert all(settlements[i].queue == queue for queue, indexes in parts for i in indexes)
    order = [i for _, indexes in parts for i in indexes]
    assert sorted(order) == list(range(len(settlements)))
    at = {i: position for position, i in enumerate(order)}
    for i, one in enumerate(settlements):
        for j in range(i + 1, len(settlements)):
            assert at[i] < at[j] or not touches(one) & touches(settlements[j])


def test_follow_ups_elsewhere_split_nothing() -> None:
    """Queues that take turns go out in one call each, though one of them puts jobs into a third."""
    parts = chunks([end("a", ["log"]) if i % 2 else end("b") for i in range(100)])
    assert sorted((queue, len(indexes)) for queue, indexes in parts) == [("a", 50), ("b", 50)]


def test_a_chunk_is_never_longer_than_a_batch() -> None:
    """Also where ends put jobs into another queue."""
    parts = chunks([end("a", ["b"])] * (MAX_BATCH + 1) + [end("b")])
    assert [(queue, len(indexes)) for queue, indexes in parts] == [("a", MAX_BATCH), ("a", 1), ("b", 1)]
