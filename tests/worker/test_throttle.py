"""A worker that cannot keep up claims less, and more again when it can."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Penstock, State, Worker
from penstock.worker import throttle
from penstock.worker.pool import Pool
from penstock.worker.queue_order import QueueTurn, plan
from penstock.worker.run import units_of
from penstock.worker.throttle import LEAST, Throttle
from tests.support import eventually
from tests.worker.support import new_pool

LAGS = st.floats(0, 10)
CORES = st.floats(0, 8)


def a_pool(capacity: int = 100, least: int = 1) -> Pool:
    async def build() -> Pool:
        return new_pool(capacity, least)

    return asyncio.run(build())


@given(st.lists(st.tuples(LAGS, CORES), max_size=100))
def test_the_share_stays_within_its_bounds_and_recovers(periods: list[tuple[float, float]]) -> None:
    """For any measurements the share stays between `LEAST` and 1; enough good periods bring it back to 1."""
    throttle = Throttle()
    for lag, cpu in periods:
        assert LEAST <= throttle.observe(lag, cpu) <= 1.0
    for _ in range(20):
        throttle.observe(0.0, 0.1)
    assert throttle.share == 1.0


@pytest.mark.parametrize(("lag", "cpu"), [(0.5, 0.0), (0.0, 1.0), (0.5, 1.0)])
def test_the_share_falls_fast_and_comes_back_slowly(lag: float, cpu: float) -> None:
    """A lagging loop and a saturated processor each lower the share by a factor; it rises by steps."""
    throttle = Throttle()
    assert throttle.observe(lag, cpu) == pytest.approx(0.7)
    assert throttle.observe(lag, cpu) == pytest.approx(0.49)
    assert throttle.observe(0.0, 0.0) == pytest.approx(0.59)


def test_in_between_everything_stays() -> None:
    """A process that is busy but keeps up is left alone, so that the share does not swing."""
    throttle = Throttle()
    throttle.observe(1.0, 1.0)
    assert throttle.observe(0.05, 0.8) == pytest.approx(0.7)


@given(
    st.integers(1, 1000).flatmap(lambda c: st.tuples(st.just(c), st.integers(1, c))),
    st.floats(LEAST, 1.0), st.integers(1, 500),
)  # fmt: skip
def test_there_is_always_room_for_one_run_of_every_queue(
    sizes: tuple[int, int], share: float, concurrency: int
) -> None:
    """An empty pool has room for the largest run and for one of each `concurrency=n`, and never more than all."""
    capacity, largest = sizes
    pool = a_pool(capacity, least=largest)
    pool.share = share
    assert largest <= pool.allowed <= capacity
    assert 1 <= pool.slots(concurrency) <= concurrency


def test_a_lower_share_lowers_what_is_asked_for() -> None:
    """Units and `concurrency=n` are both scaled; with all of the share nothing is different."""
    app = Penstock("memory:")
    app.listen("sized", lambda payload: payload, size=10)
    app.listen("counted", lambda payload: payload, concurrency=8)
    turns = [QueueTurn(app.handlers[queue]) for queue in ("sized", "counted")]
    pool = a_pool(100, least=max(units_of(turn.handler) for turn in turns))
    for share, asked in ((1.0, [10, 8]), (0.5, [5, 4]), (LEAST, [1, 1])):
        pool.share = share
        assert [plan([turn], pool, 0.0)[0].limit for turn in turns] == asked


async def test_a_lagging_loop_lowers_what_is_claimed_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """While handlers block the event loop fewer run at once; afterwards as many as before."""
    monkeypatch.setattr(throttle, "LOOK", 0.02)
    monkeypatch.setattr(throttle, "LOOKS", 1)
    # This process may have much else to do: only the lag that the test makes counts.
    monkeypatch.setattr(throttle, "LAGGING", 0.2)
    monkeypatch.setattr(throttle, "SMOOTH", 0.15)
    monkeypatch.setattr(throttle, "SATURATED", 100.0)
    monkeypatch.setattr(throttle, "EASY", 100.0)
    inside, seen, blocking = 0, list[int](), True
    app = Penstock("memory:")

    @app.handler("q", size=10)
    async def handle(payload: int) -> None:
        nonlocal inside
        inside += 1
        if blocking:
            time.sleep(0.25)  # noqa: ASYNC251
        await asyncio.sleep(0.05)
        seen.append(inside)
        inside -= 1

    async def feed() -> None:
        while True:
            if (await app.queue("q").counts())[State.QUEUED] < 20:
                await app.queue("q").enqueue_many(range(20))
            await asyncio.sleep(0.02)

    async with app, Worker(app, adaptive=True):
        feeding = asyncio.create_task(feed())
        await eventually(lambda: seen and seen[-1] <= 3, within=60)
        blocking = False
        await eventually(lambda: 10 in seen[-1:], within=60)
        feeding.cancel()


async def test_workers_show_what_they_allow_themselves() -> None:
    """`allowed` is all of the capacity for a worker that keeps up, adaptive or not."""
    for adaptive in (False, True):
        app = Penstock("memory:")
        app.listen("q", lambda payload: payload)
        async with app, Worker(app, capacity=50, adaptive=adaptive):
            await eventually(app.workers)
            (info,) = await app.workers()
            assert (info.capacity, info.allowed) == (50, 50)
