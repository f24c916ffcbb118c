"""The drills of simulated runs: what they expect, and how they leave the network and the storage."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import QueueFull, StorageUnavailable
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Simulation
from sim.drills import DRILLED
from sim.drills.drill import Drill
from sim.queues import QUEUES, make_app
from sim.run import run_seed
from sim.work.client import Shared


class DrillScene:
    """A drill on a node of a simulation without faults, and the promises that it found broken."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.broken: list[str] = []
        shared = Shared(1, 0, 1.0, self._fault, dict)
        shared.simulation, shared.network = simulation, simulation.network
        node = simulation.scheduler.node("drill")
        self.drill = Drill(shared, make_app(simulation, node), node)

    def _fault(self, text: str, *jobs: Any) -> None:
        self.broken.append(text)

    def run(self, part: Any) -> Any:
        """Run a coroutine on the node of the drill, and return its value."""
        task = self.drill.node.start(part)
        self.simulation.scheduler.run_for(30)
        return task.result()


@pytest.fixture
def scene() -> Any:
    with Simulation(Plan(1, frozenset(), 1.0, 1, 5.0, 30.0)) as simulation:
        yield DrillScene(simulation)


def test_an_expectation_that_does_not_hold_breaks_a_promise(scene: DrillScene) -> None:
    """One that holds does not."""
    scene.drill.expect(True, "the first")
    scene.drill.expect(False, "the second")
    assert scene.broken == ["drill: the second"]


def test_a_call_that_fails_breaks_a_promise(scene: DrillScene) -> None:
    """The drill ends, the run does not."""

    async def part() -> None:
        raise QueueFull("q", 1, 1)

    scene.run(scene.drill.checked(part()))
    assert scene.broken[0].startswith("drill: a call fails: queue 'q' is full")


def test_the_clock_stands_at_a_time_for_the_calls_of_a_drill(scene: DrillScene) -> None:
    """Afterwards it shows its own time again."""

    async def part() -> list[int]:
        await scene.drill.begin()
        now = await scene.drill.storage.time()
        scene.drill.stand_clock_at(now + 5000)
        found = [await scene.drill.storage.time() - now for _ in range(2)]
        scene.drill.stand_clock_at(None)
        return [*found, await scene.drill.storage.time() - now]

    first, second, last = scene.run(part())
    assert (first, second) == (5000, 5000)
    assert 0 < last < 1000


def test_a_drill_refuses_one_verb_of_one_node_for_a_while(scene: DrillScene) -> None:
    """Other verbs are answered, and the verb itself afterwards."""

    async def part() -> None:
        await scene.drill.begin()
        with scene.drill.refusing("drill", "queues"):
            await scene.drill.storage.time()
            with pytest.raises(StorageUnavailable):
                await scene.drill.storage.queues()
        await scene.drill.storage.queues()

    scene.run(part())


def test_a_wait_of_a_drill_ends_with_its_time(scene: DrillScene) -> None:
    """It returns whether what it waits for has happened."""
    asked: list[float] = []

    async def happened() -> bool:
        asked.append(scene.drill.node.scheduler.now)
        return len(asked) == 3

    assert scene.run(scene.drill.until(happened, 5.0))
    assert not scene.run(scene.drill.until(happened, 5.0))


def test_drills_are_part_of_a_run_and_have_queues_of_their_own() -> None:
    """Each of their queues is used."""
    assert not set(DRILLED) & set(QUEUES)
    report = run_seed(Plan.of_seed(5))
    assert not report.violations
    history = "\n".join(map(str, report.history))
    unused = [queue for queue in DRILLED if f"'{queue}'" not in history and f"{queue}/" not in history]
    assert not unused
