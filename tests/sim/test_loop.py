"""The scheduler and the nodes of a simulation: order, clocks, freeze, block and kill."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.source import replaced_source, source
from penstock.testing.simulation.loop import Node, Scheduler, StuckError


def order_of(seed: int) -> list[str]:
    """Return the order in which three nodes with four callbacks each run."""
    scheduler, ran = Scheduler(seed), list[str]()
    for name in "abc":
        node = scheduler.node(name)
        for number in range(4):
            node.call_soon(ran.append, f"{name}{number}")
    scheduler.run_for(1)
    return ran


def test_callbacks_of_one_node_run_in_their_order() -> None:
    """The seed picks the node, never the callback: within one node asyncio's order holds."""
    for seed in range(5):
        ran = order_of(seed)
        for name in "abc":
            assert [each for each in ran if each[0] == name] == [f"{name}{number}" for number in range(4)]


def test_the_seed_decides_which_node_runs() -> None:
    """The same seed gives the same order, other seeds give others."""
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(10)}) > 3


def test_virtual_time_moves_to_the_next_timer() -> None:
    """A sleep of a day takes no real time, and ends at its virtual time."""
    scheduler = Scheduler(0)
    node = scheduler.node("a")
    task = node.start(asyncio.sleep(86_400, "over"))
    assert scheduler.run_until(task.done, 100_000)
    assert task.result() == "over"
    assert scheduler.now == pytest.approx(86_400, abs=0.001)


def test_a_node_has_its_own_clocks() -> None:
    """Base, rate and skew of a node show in its clocks, and in the source while it runs."""
    scheduler = Scheduler(0)
    node = scheduler.node("fast", base=100.0, rate=2.0, skew=-3600.0)
    seen = list[float]()

    async def sleep() -> None:
        await asyncio.sleep(10)
        seen.extend([source.monotonic(), source.wall()])

    with replaced_source(scheduler.source()):
        task = node.start(sleep())
        scheduler.run_until(task.done, 100)
    assert scheduler.now == pytest.approx(5, abs=0.001)
    assert seen[0] == pytest.approx(110, abs=0.001)
    assert seen[1] == pytest.approx(1_700_000_000 - 3600 + 5, abs=0.001)


def tick(node: Node, times: list[float]) -> None:
    times.append(node.scheduler.now)
    node.call_later(1.0, tick, node, times)


def test_a_frozen_node_runs_its_callbacks_afterwards() -> None:
    """While a process is frozen nothing of it runs; a timer that fell due meanwhile runs when it goes on."""
    scheduler = Scheduler(0)
    node = scheduler.node("a")
    thread = scheduler.thread(node, "t")
    times, of_thread = list[float](), list[float]()
    tick(node, times)
    tick(thread, of_thread)
    scheduler.later(1.5, lambda: node.freeze(3))
    scheduler.run_for(6)
    for ticks in (times, of_thread):
        assert [round(at, 2) for at in ticks] == [0, 1, 4.5, 5.5]


def test_a_blocked_node_does_not_stop_its_threads() -> None:
    """A handler that never awaits stops the event loop of its process, and not the lease thread."""
    scheduler = Scheduler(0)
    node = scheduler.node("a")
    of_thread = list[float]()
    tick(scheduler.thread(node, "t"), of_thread)
    scheduler.later(1.5, lambda: node.freeze(3, blocked=True))
    scheduler.run_for(3.5)
    assert [round(at, 2) for at in of_thread] == [0, 1, 2, 3]


def test_a_killed_node_runs_nothing_more() -> None:
    """After a kill no callback runs, not even the `finally` of a coroutine, also not at the end of the run."""
    scheduler, ran = Scheduler(0), list[str]()
    node = scheduler.node("a")

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ran.append("finally")
            await asyncio.sleep(1)
            ran.append("after")

    node.start(work())
    scheduler.later(5, node.kill)
    scheduler.run_for(20)
    assert ran == []
    scheduler.discard()
    assert "after" not in ran


def test_an_exception_of_a_callback_is_recorded_at_its_node() -> None:
    """An exception that no code handles does not end the run."""
    scheduler = Scheduler(0)
    node = scheduler.node("a")
    node.call_soon(lambda: 1 / 0)
    scheduler.run_for(1)
    assert "ZeroDivisionError" in node.errors[0]


def test_a_loop_without_a_move_of_time_is_given_up() -> None:
    """A callback that calls itself for ever raises `StuckError`."""
    scheduler = Scheduler(0)
    node = scheduler.node("a")

    def again() -> None:
        node.call_soon(again)

    again()
    with pytest.raises(StuckError):
        scheduler.run_for(1)
