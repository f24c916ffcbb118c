"""Idle children of a worker wait for work in turn: their calls in virtual time, and jobs that come meanwhile."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.testing.simulation.history import History
from penstock.testing.simulation.simulation import Simulation
from tests.sim.test_children import PLAN, Family
from tests.sim.test_idle_calls import LOCAL

#: How long (virtual seconds) the worker is idle before something happens, and for how long calls are counted.
BEFORE, COUNTED = 30.0, 120.0


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_idle_children_claim_as_often_as_one(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look every five seconds, whatever the number of children; of each no more than a time every five minutes."""
    calls: Counter[str] = Counter()
    counting = False
    record = History.call

    def note(self: History, request: Any, answer: Any) -> None:
        if counting and request.node.name.startswith("w.0.") and request.verb not in LOCAL:
            calls[request.verb] += 1
        record(self, request, answer)

    monkeypatch.setattr(History, "call", note)
    with Simulation(PLAN) as simulation:
        Family(simulation, lease=10.0, processes=processes)
        simulation.scheduler.run_for(BEFORE)
        counting = True
        simulation.scheduler.run_for(COUNTED)
    assert COUNTED / 5 - 2 <= calls["claim"] <= COUNTED / 5 + 1
    assert calls.total() <= calls["claim"] + processes


@pytest.mark.parametrize("wait", [0.0, 1.1, 2.2, 3.3, 4.4])
def test_jobs_beyond_the_room_of_one_child_start_at_once_in_the_others(wait: float) -> None:
    """The child that gets the first job ends the rota: the others do not wait for their turns."""
    with Simulation(PLAN) as simulation:
        family = Family(simulation, lease=10.0, processes=3, capacity=10)
        simulation.scheduler.run_for(BEFORE + wait)
        client, queue = simulation.scheduler.nodes[1], family.client.queue("q")
        for id in "abc":
            client.start(queue.enqueue(20, id=id))
        simulation.scheduler.run_for(0.3)  # the supervisor looks at its children every half second
        assert len({name for name, _ in family.runs}) == 3


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_job_is_found_though_a_child_is_gone_or_hangs(victim: int, *, frozen: bool) -> None:
    """A job that comes after a child has died starts at once; if a child hangs in its turn, in the turn of the next."""
    with Simulation(PLAN) as simulation:
        family, scheduler = Family(simulation, lease=10.0), simulation.scheduler
        scheduler.run_for(BEFORE)
        child = family.alive()[victim]
        child.freeze(1000) if frozen else child.kill()
        scheduler.nodes[1].start(family.client.queue("q").enqueue(1, id="a"))
        assert scheduler.run_until(lambda: bool(family.runs), scheduler.now + (10.5 if frozen else 2.0))
