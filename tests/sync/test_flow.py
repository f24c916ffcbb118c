"""Flows of the sync app."""

from __future__ import annotations

from penstock.sync import Penstock, Worker


def test_a_flow_of_the_sync_app_hands_values_on_and_takes_signals() -> None:
    """A map and a join, stored and awaited without `await`."""
    app = Penstock("memory:")

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with app:
        flow = app.flow("flows", id="monday")
        run = flow.start(flow.add(total, flow.map(double, range(4)).results))
        assert app.queue("flows").signal("monday", "hello") == "kept"
        Worker(app).drain()
        assert run.wait(5) == 12
