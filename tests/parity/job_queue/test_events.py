"""Events of a queue, the same on every storage."""

from __future__ import annotations

import logging

import pytest

from penstock import Event, Job, Penstock, State, Worker
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import AppFactory, status_of, vanish

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


async def test_every_transition_emits_an_event(factory: AppFactory, app: Penstock, clock: Clock) -> None:
    """queued, processing, failing, completed, failed, cancelled and stalled have one event each (PJ-45, PJ-S8)."""
    received: list[tuple[str, str]] = []
    app.on("*")(lambda event: received.append((event.name, event.id)))

    @app.handler("q")
    async def handle(payload: str, job: Job) -> str:
        if payload == "bad":
            raise ValueError("no")
        return payload

    queue = app.queue("q")
    await queue.enqueue("good", id="a")
    await Worker(app).drain()
    await queue.enqueue("bad", id="b", max_attempts=2)
    await Worker(app).drain()
    await queue.enqueue("never", id="c")
    await queue.cancel("c")
    await queue.enqueue("good", id="d")
    await vanish(app)
    clock.advance(10)
    await Worker(app).drain()
    emitted = [each for each in received if each[1]]
    assert emitted == [
        ("enqueued", "a"), ("started", "a"), ("completed", "a"),
        ("enqueued", "b"), ("started", "b"), ("retrying", "b"), ("started", "b"), ("failed", "b"),
        ("enqueued", "c"), ("cancelled", "c"),
        ("enqueued", "d"), ("stalled", "d"), ("started", "d"), ("completed", "d"),
    ]  # fmt: skip


async def test_completed_and_failed_carry_result_and_error(app: Penstock) -> None:
    """completed carries the id and the result, failed the id and the error (PJ-39)."""
    received: list[Event] = []
    app.on("completed")(received.append)
    app.on("failed")(received.append)

    @app.handler("q", max_attempts=1)
    async def handle(payload: int) -> int:
        return 10 // payload

    await app.queue("q").enqueue(5, id="a")
    await app.queue("q").enqueue(0, id="b")
    await Worker(app).drain()
    completed, failed = received
    assert (completed.id, completed.result, completed.error) == ("a", 2, None)
    assert failed.error is not None
    assert (failed.id, failed.error.type) == ("b", "ZeroDivisionError")


async def test_a_listener_that_raises_is_logged(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """A listener that raises is logged, and the job and the worker go on (PJ-S8)."""

    @app.on("completed")
    async def broken(event: Event) -> None:
        raise RuntimeError("this listener is broken")

    app.listen("q", lambda payload: payload)
    await app.queue("q").enqueue(1, id="a")
    await app.queue("q").enqueue(2, id="b")
    with caplog.at_level(logging.ERROR, "penstock"):
        await Worker(app).drain()
        await app.listeners.wait_finished()
    assert [(await status_of(app, id)).state for id in "ab"] == [State.COMPLETED, State.COMPLETED]
    assert "a listener for 'completed' raised" in caplog.text
