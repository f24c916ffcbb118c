"""Reservations, tasks, listeners and events without `await`."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from penstock import Event, JobFailed, LeaseLost, State
from penstock.sync import Penstock
from tests.sync.conftest import drain, working


def test_reservations(app: Penstock) -> None:
    """A reserved job is completed, failed, retried, released or extended by plain calls."""
    queue = app.queue("q")
    queue.enqueue_many(range(4))
    first, second, third, fourth = queue.reserve(limit=4)
    assert (first.payload, first.queue, first.attempt, bool(first.cancelled)) == (0, "q", 1, False)
    first.extend(30)
    assert first.complete("done") is State.COMPLETED
    assert first.complete("done") is State.COMPLETED
    assert first.settled
    with pytest.raises(LeaseLost):
        first.release()
    assert second.fail("no luck") is State.RETRYING
    assert third.retry(delay=60) is State.RETRYING
    assert fourth.release() is State.QUEUED
    assert queue.result(first.id) == "done"


def test_a_reservation_as_a_block(app: Penstock) -> None:
    """The end of a `with` block completes a reservation, an exception fails it, an interrupt releases it."""
    queue = app.queue("q")
    queue.enqueue_many(["a", "b"])
    one, other = queue.reserve(limit=2, wait=5)
    with one:
        pass
    assert queue.counts()[State.COMPLETED] == 1
    with pytest.raises(KeyError), other:
        raise KeyError("k")
    assert queue.counts()[State.RETRYING] == 1
    queue.enqueue("c")
    [held] = queue.reserve()
    with pytest.raises(KeyboardInterrupt), held:
        raise KeyboardInterrupt
    assert queue.counts()[State.QUEUED] == 1


def test_closing_gives_reservations_back(app: Penstock, url: str) -> None:
    """A job that is still held when the app closes returns to its place."""
    other = Penstock(url, namespace=app.namespace)
    app.queue("q").enqueue(1, id="a")
    held = app.queue("q").reserve()
    app.close()
    assert held[0].settled
    if url != "memory:":
        with other:
            assert other.queue("q").counts()[State.QUEUED] == 1


def test_tasks(app: Penstock) -> None:
    """A task of a sync app is enqueued, called and waited for with ordinary arguments."""

    @app.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(queue="t", max_retries=0)
    async def fails(text: str) -> None:
        raise ValueError(text)

    assert add(1, b=2) == 3
    assert add.name == add.queue.name
    with working(app):
        assert add.call(1, b=2) == 3
        job = add.options(id="x").enqueue(5)
        assert add.wait(job.id, timeout=10) == 6
        assert add.result("x") == 6
        with pytest.raises(JobFailed, match="why"):
            fails.options(timeout=10).call("why")
    assert [each.status for each in add.enqueue_many([(1,), (2, 3), add.entry(4)])] == ["queued"] * 3
    with pytest.raises(TypeError, match="missing"):
        add.enqueue()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="async iterator"):
        add.enqueue_many(_nothing())  # type: ignore[arg-type]


async def _nothing():
    yield ()


def test_listeners(app: Penstock) -> None:
    """A plain listener is called on the thread that did it, an async one on the background thread; none may harm."""
    received: list[tuple[str, str]] = []
    background = threading.Event()

    @app.on("enqueued")
    def plain(event: Event) -> None:
        received.append((event.id, threading.current_thread().name))

    @app.on("enqueued")
    async def later(event: Event) -> None:
        if threading.current_thread().name == "penstock-portal":
            background.set()

    @app.on("*")
    def broken(event: Event) -> None:
        raise RuntimeError("a listener that raises")

    logging.getLogger("penstock").disabled = True
    try:
        app.queue("q").enqueue(1, id="a")
    finally:
        logging.getLogger("penstock").disabled = False
    assert received == [("a", threading.current_thread().name)]
    assert background.wait(10)


def test_listeners_get_the_events_of_workers(app: Penstock) -> None:
    """Listeners of the sync app get the events of jobs that a worker of its async app settles."""
    received: list[str] = []
    app.on("completed")(lambda event: received.append(event.id))
    app.listen("q", lambda payload: None)
    app.queue("q").enqueue(1, id="a")
    drain(app)
    assert received == ["a"]


def test_events(app: Penstock) -> None:
    """The event stream is a plain iterator, subscribed from the beginning of its block, and can be closed."""
    app.queue("q").enqueue(0)  # on a Cluster the events of a family arrive once it is known
    with app.events(["enqueued", "cancelled"], queue="q") as stream:
        app.queue("q").enqueue(1, id="a")
        app.queue("other").enqueue(1)
        app.queue("q").cancel("a")
        assert [(event.name, event.id) for event in (next(stream), next(stream))] == [
            ("enqueued", "a"),
            ("cancelled", "a"),
        ]
    assert list(stream) == []
    unknown: Any = "nonsense"
    with pytest.raises(ValueError, match="unknown event"):
        app.events(unknown)


def test_closing_the_app_ends_the_feed(app: Penstock) -> None:
    """A step that waits for an event when the app is closed ends the iteration."""
    ended = threading.Event()
    stream = app.events().__enter__()

    def read() -> None:
        for _ in stream:
            pass
        ended.set()

    thread = threading.Thread(target=read)
    thread.start()
    app.close()
    assert ended.wait(10)
    thread.join()


def test_log_events(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """Events are logged, a line each, and no more when the log is off."""
    caplog.set_level(logging.INFO)
    with app.log_events("here"):
        app.queue("q").enqueue(1, id="a")
    app.queue("q").enqueue(1, id="b")
    assert [record.getMessage().split()[0] for record in caplog.records if record.name == "here"] == ["enqueued"]
