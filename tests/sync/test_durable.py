"""Durable calls of plain handlers, and flows of the sync app."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Inputs, JobFailed, SignalTimeout
from penstock.sync import Job, Penstock, Worker
from penstock.testing import Clock


def test_a_plain_handler_makes_durable_calls() -> None:
    """Steps, sleeps, signals, cursors and children without `await`: recorded, and not repeated."""
    clock = Clock()
    app = Penstock("memory:", clock=clock)
    made: list[Any] = []

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.handler("orders", min_backoff=0)
    def order(number: int, job: Job) -> list[Any]:
        paid = job.step("pay", lambda: made.append("pay") or [1, 2])
        job.sleep("nap", 60)
        try:
            job.signal("never", timeout=60)
        except SignalTimeout:
            made.append("late")
        packed = job.signal("packed", int)
        done = job.cursor("rows", 0)
        for row in range(done.value, 3):
            done.set(row + 1)
            if row == 1 and job.retries == 0 and "broken" not in made:
                made.append("broken")
                raise RuntimeError("broken")
            made.append(row)
        one, two = job.gather("both", double.entry(1), double.entry(2))
        return [paid, packed, job.call("one", double, number), job.map("all", double, [3, 4]), one, two]

    with app:
        queue = app.queue("orders")
        queue.enqueue(5, id="a")
        assert queue.signal("a", "packed", 7)
        for _ in range(3):
            Worker(app).drain()
            clock.advance(60)
        assert queue.wait("a", 10) == [[1, 2], 7, 10, [6, 8], 2, 4]
        assert made.count("pay") == 1
        assert [row for row in made if isinstance(row, int)] == [0, 2]
        assert {each.kind for each in queue.journal("a")} == {"step", "sleep", "signal", "cursor", "call"}
        assert len(queue.children("a")) == 5


def test_a_plain_handler_cannot_await_a_step() -> None:
    """An async function as a step of a plain handler: the job fails for good, with the remedy."""
    app = Penstock("memory:")

    async def later() -> None: ...

    @app.handler("q")
    def handle(payload: None, job: Job) -> None:
        _ = job.step("one", later)

    with app:
        app.queue("q").enqueue(None, id="a")
        Worker(app).drain()
        with pytest.raises(JobFailed, match="async function"):
            app.queue("q").result("a")


def test_a_flow_of_an_iterator_with_an_included_plan() -> None:
    """Map over a generator, read page by page in a plain task; a plan in a plan; children and status."""
    app = Penstock("memory:")

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def total(numbers: Inputs[int], more: int) -> int:
        return sum(numbers) + more

    with app:
        flow, inner = app.flow("flows"), app.flow("flows")
        included = flow.include(inner, inner.add(double, 50))
        doubled = flow.map(double, (number for number in range(700)))
        run = flow.start(flow.add(total, doubled.inputs, more=included.result))
        Worker(app).drain()
        assert run.wait(10) == sum(range(700)) * 2 + 100
        status = run.status()
        assert status is not None
        assert status.children is not None
        assert status.children.total == 702
        assert len(run.children(limit=1000)) == 702
        with pytest.raises(TypeError, match="task of the app"):
            flow.add(print)  # type: ignore[arg-type]
