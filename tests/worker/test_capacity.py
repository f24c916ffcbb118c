"""How a worker divides its capacity among queues, and in which order it serves them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from penstock import Penstock, State, Worker
from penstock.testing import FaultyStorage
from penstock.worker import claimer
from tests.support import eventually


class Crowd:
    """A handler that counts the runs that are in it at the same time."""

    def __init__(self, expected: int | None = None) -> None:
        self.inside = 0
        self.most = 0
        self.runs = 0
        self.order: list[object] = []
        self._full = asyncio.Event()
        self._expected = expected

    async def __call__(self, payload: object) -> None:
        self.inside += 1
        self.runs += 1
        self.most = max(self.most, self.inside)
        self.order.append(payload)
        if self.inside == self._expected:
            self._full.set()
        if self._expected is not None:
            await asyncio.wait_for(self._full.wait(), 10)
        await asyncio.sleep(0)
        self.inside -= 1


@pytest.mark.parametrize("n", [1, 3, 7, 100, 150])
async def test_concurrency_is_exact(app: Penstock, n: int) -> None:
    """concurrency=n means n at once, no more and no fewer, whatever the capacity and the other queues."""
    crowd = Crowd(expected=n)
    app.listen("q", crowd, concurrency=n)
    app.listen("other", asyncio.sleep, size=100)
    await app.queue("other").enqueue(0)
    await app.queue("q").enqueue_many(range(2 * n))
    await Worker(app).drain()
    assert (crowd.most, crowd.runs) == (n, 2 * n)


async def test_long_payloads_fill_a_worker_as_short_ones_do(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Jobs that are too long for one claim are claimed at once by the next, without a hint and before the slow poll."""
    monkeypatch.setattr(claimer, "SLOW_POLL", 60)
    crowd = Crowd(expected=9)
    app.listen("q", crowd, concurrency=9)
    await app.queue("q").enqueue_many(["x" * 1_000_000] * 9)
    async with Worker(app):
        await eventually(lambda: crowd.runs == 9)


async def test_size_divides_the_capacity(app: Penstock) -> None:
    """Ten runs of size 10 fit into 100 units; mixed sizes never use more than there is."""
    crowd = Crowd(expected=10)
    app.listen("q", crowd)
    await app.queue("q").enqueue_many(range(30))
    await Worker(app).drain()
    assert crowd.most == 10


async def test_mixed_sizes_stay_within_the_capacity(app: Penstock) -> None:
    """The units in use, counted from inside the handlers, never exceed the worker's."""
    in_use, most = Counter[str](), [0]
    for name, size in (("small", 7), ("middle", 30), ("large", 60)):

        async def handle(payload: int, name: str = name, size: int = size) -> None:
            in_use[name] += size
            most[0] = max(most[0], in_use.total())
            await asyncio.sleep(0)
            in_use[name] -= size

        app.listen(name, handle, size=size)
        await app.queue(name).enqueue_many(range(20))
    await Worker(app).drain()
    assert 60 <= most[0] <= 100
    for name in ("small", "middle", "large"):
        assert (await app.queue(name).counts())[State.COMPLETED] == 20


async def test_a_single_slot_is_refilled_until_every_job_has_run(app: Penstock) -> None:
    """Fifty jobs, then fifty more, through a single slot of a running worker."""
    crowd = Crowd()
    app.listen("q", crowd, concurrency=1)
    async with Worker(app):
        for total in (50, 100):
            await app.queue("q").enqueue_many(range(50))
            await eventually(lambda total=total: crowd.runs == total and not crowd.inside)
    assert crowd.most == 1
    assert crowd.order == [*range(50), *range(50)]


async def test_a_freed_slot_is_filled_without_a_hint(app: Penstock, trouble: FaultyStorage) -> None:
    """While a sibling queue is idle and no hint comes, slots are refilled as they free; one slow job delays none."""
    crowd, gate = Crowd(), asyncio.Event()

    async def never(queues: list[str], timeout: float) -> bool:
        await asyncio.Event().wait()
        return False

    async def slow(payload: int) -> None:
        await gate.wait()

    trouble.wait_work = never  # type: ignore[attr-defined]
    app.listen("slow", slow, size=90)
    app.listen("q", crowd, size=10)
    app.listen("idle", crowd, size=10, priority=200)
    await app.queue("slow").enqueue(1)
    await app.queue("q").enqueue_many(range(50))
    async with Worker(app):
        await eventually(lambda: crowd.runs == 50 and not crowd.inside, within=30)
        gate.set()


async def test_a_higher_priority_goes_first(app: Penstock) -> None:
    """With one slot, the jobs of the more important queue are all run before the others."""
    crowd = Crowd()
    app.listen("low", crowd, size=100, priority=1)
    app.listen("high", crowd, size=100, priority=2)
    await app.queue("low").enqueue_many(["low"] * 5)
    await app.queue("high").enqueue_many(["high"] * 5)
    await Worker(app).drain()
    assert crowd.order == ["high"] * 5 + ["low"] * 5


async def test_no_queue_starves(app: Penstock) -> None:
    """A queue with a lower priority gets a turn now and then, however much there is of the higher."""
    order: list[str] = []

    async def handle(payload: str) -> None:
        order.append(payload)
        await asyncio.sleep(0.015)  # longer than what is claimed ahead lasts

    app.listen("low", handle, size=100, priority=1)
    app.listen("high", handle, size=100, priority=2)
    await app.queue("low").enqueue("low")
    await app.queue("high").enqueue_many(["high"] * 60)
    await Worker(app).drain()
    assert 5 < order.index("low") < 40


async def test_a_big_job_is_not_starved_by_small_ones(app: Penstock) -> None:
    """A run that needs the whole worker gets it, though there is always a small one to fill a gap."""
    order: list[str] = []
    gate = asyncio.Event()

    async def small(payload: int) -> None:
        order.append("small")
        await asyncio.sleep(0.001 * (payload % 3))

    async def big(payload: int) -> None:
        order.append("big")

    app.listen("small", small, size=10)
    app.listen("big", big, size=100)
    await app.queue("small").enqueue_many(range(400))
    gate.set()
    async with Worker(app):
        await eventually(lambda: len(order) >= 10)
        await app.queue("big").enqueue(1)
        await eventually(lambda: len(order) == 401)
    assert order.index("big") < 350


async def test_equal_queues_take_turns(app: Penstock) -> None:
    """Queues of one priority are served in turn, not one after the other."""
    order: list[str] = []

    async def handle(payload: str) -> None:
        order.append(payload)
        await asyncio.sleep(0.02)  # longer than what is claimed ahead lasts

    app.listen("a", handle, size=100)
    app.listen("b", handle, size=100)
    await app.queue("a").enqueue_many(["a"] * 5)
    await app.queue("b").enqueue_many(["b"] * 5)
    await Worker(app).drain()
    assert [sorted(pair) for pair in zip(order[::2], order[1::2], strict=True)] == [["a", "b"]] * 5


async def test_a_worker_serves_only_the_queues_it_is_given(app: Penstock) -> None:
    """Named queues only, and an unknown one is refused with the known ones."""
    app.listen("a", lambda payload: None)
    app.listen("b", lambda payload: None)
    await app.queue("a").enqueue(1)
    await app.queue("b").enqueue(1)
    await Worker(app, queues=["a"]).drain()
    assert (await app.queue("a").counts())[State.COMPLETED] == 1
    assert (await app.queue("b").counts())[State.QUEUED] == 1
    with pytest.raises(ValueError, match=r"'c' has no handler; known: 'a', 'b'"):
        await Worker(app, queues=["c"]).drain()


async def test_free_slots_are_claimed_in_one_call_and_settled_together(app: Penstock, trouble: FaultyStorage) -> None:
    """As many jobs as there are free slots are asked for at once, and settled together."""
    app.listen("q", lambda payload: payload, size=1)
    await app.queue("q").enqueue_many(range(1000))
    await Worker(app).drain()
    assert (await app.queue("q").counts())[State.COMPLETED] == 1000
    assert trouble.calls["claim"] < 200
    assert trouble.calls["settle"] < 200


def test_bad_arguments_are_refused_by_name(app: Penstock) -> None:
    """The exception names the argument; child processes are refused until they are there."""
    for name, value, error in (
        ("processes", -1, ValueError),
        ("capacity", 0, ValueError),
        ("capacity", "1", TypeError),
        ("lease", 0, ValueError),
        ("id", "", ValueError),
        ("queues", "q", TypeError),
    ):
        with pytest.raises(error, match=name):
            Worker(app, **{name: value})  # type: ignore[arg-type]


async def test_a_handler_too_big_for_the_worker_is_refused(app: Penstock) -> None:
    """A worker whose capacity is below the size of a handler raises when it starts."""
    app.listen("q", lambda payload: None, size=20)
    with pytest.raises(ValueError, match="capacity"):
        await Worker(app, capacity=10).drain()
