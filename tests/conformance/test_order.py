"""Order of jobs without a group: priority, then time, then sequence."""

from __future__ import annotations

import pytest

from penstock.storage.base import Storage
from tests.support import (
    HOUR,
    SECOND,
    T0,
    Clock,
    claim1,
    claim_all,
    complete,
    ids,
    new,
    put1,
    release,
    retried,
    run_order,
    settle1,
    stall,
)

pytestmark = pytest.mark.one_per_engine


async def test_first_in_first_out(storage: Storage) -> None:
    """Jobs run in the order of acceptance, not of the alphabet (QZ-D11)."""
    await storage.put([new("q", "y")])
    await storage.put([new("q", id) for id in "zma"])
    await storage.put([new("q", "b")])
    assert await run_order(storage) == ["y", "z", "m", "a", "b"]


async def test_higher_priority_first(storage: Storage) -> None:
    """A higher priority runs first, negative ones last, equals in order (QZ-D12)."""
    priorities = [("a", 0), ("b", 5), ("c", -3), ("d", 5), ("e", 1000), ("f", 0), ("g", -1000)]
    await storage.put([new("q", id, priority=priority) for id, priority in priorities])
    assert await run_order(storage) == ["e", "b", "d", "a", "f", "c", "g"]


@pytest.mark.parametrize("extreme", [1000, 2**31 - 1])
async def test_extreme_priorities_are_kept_apart(storage: Storage, extreme: int) -> None:
    """Priorities far from zero are stored and ordered exactly."""
    await storage.put([new("q", "low", priority=-extreme), new("q", "less", priority=extreme - 1)])
    await storage.put([new("q", "most", priority=extreme), new("q", "zero")])
    assert await run_order(storage) == ["most", "less", "zero", "low"]


async def test_scheduled_jobs_run_by_due_time(storage: Storage, clock: Clock) -> None:
    """Scheduled jobs run in the order of their due times, not in that of the puts."""
    for id, delay in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
        await storage.put([new("q", id, delay=delay * SECOND)])
    clock.advance(seconds=5)
    assert await run_order(storage) == ["b", "d", "c", "a"]


async def test_a_scheduled_job_is_ordered_by_its_run_at(storage: Storage, clock: Clock) -> None:
    """A scheduled job stands among the others by its run-at, not by the moment of its promotion."""
    await put1(storage, "q", "scheduled", delay=SECOND)
    clock.advance(seconds=2)
    await put1(storage, "q", "late")
    assert await run_order(storage) == ["scheduled", "late"]


async def test_a_run_at_in_the_past_goes_first(storage: Storage) -> None:
    """A job with a run-at in the past runs before those accepted since (QZ-D1)."""
    await put1(storage, "q", "now")
    await put1(storage, "q", "past", run_at=T0 - HOUR)
    await put1(storage, "q", "zero", run_at=0)
    assert await run_order(storage) == ["zero", "past", "now"]


async def test_priority_counts_before_time(storage: Storage, clock: Clock) -> None:
    """Among due jobs, priority counts before age."""
    await put1(storage, "q", "old")
    clock.advance(seconds=10)
    await put1(storage, "q", "urgent", priority=1)
    assert await run_order(storage) == ["urgent", "old"]


async def test_a_scheduled_job_of_high_priority_waits_for_its_time(storage: Storage, clock: Clock) -> None:
    """A scheduled job of the highest priority does not run before its time."""
    await storage.put([new("q", "urgent", priority=1000, delay=SECOND), new("q", "plain")])
    assert await run_order(storage) == ["plain"]
    clock.advance(seconds=1)
    assert await run_order(storage) == ["urgent"]


async def test_a_retry_keeps_its_position(storage: Storage, clock: Clock) -> None:
    """A retried job that is due again keeps its position."""
    await storage.put([new("q", id) for id in "abc"])
    await settle1(storage, retried(await claim1(storage), delay=SECOND))
    clock.advance(seconds=1)
    assert await run_order(storage) == ["a", "b", "c"]


async def test_a_retry_with_position_due_stands_by_its_due_time(storage: Storage, clock: Clock) -> None:
    """With position=due a retried job stands behind those accepted before it is due."""
    await storage.put([new("q", id) for id in "abc"])
    await settle1(storage, retried(await claim1(storage), delay=SECOND, position="due"))
    clock.advance(seconds=1)
    await put1(storage, "q", "d")
    assert await run_order(storage) == ["b", "c", "a", "d"]


async def test_an_immediate_retry_with_position_due_goes_to_the_end(storage: Storage) -> None:
    """With position=due and no delay a retried job stands behind those accepted in the same millisecond."""
    await storage.put([new("q", id) for id in "abc"])
    await settle1(storage, retried(await claim1(storage), position="due"))
    assert await run_order(storage) == ["b", "c", "a"]


async def test_order_survives_release_and_stall(storage: Storage) -> None:
    """Released and stalled jobs keep their positions, whatever the order of the settlements (QF-D1)."""
    await storage.put([new("q", id) for id in "zmab"])
    claims = await claim_all(storage)
    await storage.settle([stall(claims[3]), release(claims[1]), release(claims[0]), stall(claims[2])])
    assert await run_order(storage) == ["z", "m", "a", "b"]


async def test_priority_survives_a_retry(storage: Storage) -> None:
    """A retried job keeps its priority."""
    await storage.put([new("q", "plain"), new("q", "urgent", priority=1)])
    await settle1(storage, retried(await claim1(storage)))
    assert await run_order(storage) == ["urgent", "plain"]


async def test_a_thousand_in_one_millisecond_keep_their_order(storage: Storage) -> None:
    """The sequence decides among jobs of one time, beyond any digit boundary (QZ-D11)."""
    names = [f"{n:05}"[::-1] + str(n) for n in range(1200)]
    for start in range(0, 1200, 100):
        await storage.put([new("q", name) for name in names[start : start + 100]])
    got: list[str] = []
    while claims := await claim_all(storage, limit=250):
        got += ids(claims)
        await storage.settle([complete(claim, ttl=0) for claim in claims])
    assert got == names


async def test_queues_are_ordered_apart(storage: Storage) -> None:
    """The order of one queue does not depend on another's."""
    await storage.put([new("q", "a"), new("r", "b"), new("q", "c"), new("r", "d", priority=1)])
    assert await run_order(storage, "r") == ["d", "b"]
    assert await run_order(storage, "q") == ["a", "c"]
