"""The storage of a simulated node: its calls are those of the protocol."""

from __future__ import annotations

from penstock.storage.base import Pause
from penstock.testing.simulation.plan import Plan
from penstock.testing.simulation.simulation import Simulation


def test_arguments_by_name_arrive_at_their_places() -> None:
    """A call with some arguments by name means the same as one with all of them in order."""
    with Simulation(Plan(1, frozenset(), 1.0, 1, 5.0, 10.0)) as simulation:
        node = simulation.node("n")
        storage = simulation.storage(node)

        async def pause() -> list[Pause | None]:
            await storage.set_pause("q", True, group="g", by="me")
            return [await storage.paused("q"), await storage.paused("q", group="g")]

        task = node.start(pause())
        simulation.scheduler.run_until(task.done, 10.0)
        queue, group = task.result()
    assert queue is None
    assert group is not None
    assert (group.by, group.until) == ("me", None)
