"""The producer's calls without `await`, on every storage."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from penstock import (
    CallTimeout,
    DuplicateJob,
    Encrypted,
    Entry,
    InvalidPayload,
    JobFailed,
    JobNotFound,
    NotFinished,
    Reason,
    State,
    StorageError,
    Worker,
)
from penstock.storage import connect
from penstock.sync import Penstock
from penstock.testing import Clock
from tests.support import Backend
from tests.sync.conftest import drain, working


def portals() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-portal"]


def test_enqueue_and_look(app: Penstock) -> None:
    """Jobs are stored, counted, found and peeked at without an event loop."""
    queue = app.queue("q")
    first = queue.enqueue({"n": 1}, id="a", headers={"k": "v"})
    assert (first.id, first.status, first.state) == ("a", "queued", State.QUEUED)
    later = queue.enqueue("later", delay=60)
    assert later.status == "scheduled"
    assert not queue.enqueue({}, id="a")
    status = queue.status("a")
    assert status is not None
    assert (status.payload, status.headers) == ({"n": 1}, {"k": "v"})
    assert queue.status("nobody") is None
    assert queue.counts()[State.SCHEDULED] == 1
    assert [job.id for job in queue.find("queued")] == ["a"]
    next_one = queue.peek()
    assert next_one is not None
    assert next_one.id == "a"
    assert app.queues() == ["q"]
    assert app.workers() == []


def test_why(app: Penstock) -> None:
    """why() gives the reason why a job is not running, without an event loop."""
    queue = app.queue("q")
    queue.enqueue("now", id="a")
    queue.enqueue("later", id="b", delay=60)
    first, second = queue.why("a"), queue.why("b")
    assert first is not None
    assert second is not None
    assert (first.reason, second.reason) == (Reason.NO_WORKER, Reason.SCHEDULED)
    assert queue.why("nobody") is None
    queue.pause()
    assert str(queue.why("a")).startswith("Queue 'q' is paused since ")


def test_many_in_their_order(app: Penstock) -> None:
    """Lists and iterators of payloads and entries are stored in order, more than one round trip of them."""
    queue = app.queue("q")
    answers = queue.enqueue_many([*range(1200), Entry("named", id="x")])
    assert len(answers) == 1201
    assert answers[-1].id == "x"
    assert len(queue.enqueue_many(iter(range(700)))) == 700
    assert [job.payload for job in queue.find(limit=3)] == [0, 1, 2]
    assert queue.counts()[State.QUEUED] == 1901


def test_changes(app: Penstock) -> None:
    """Cancel, cancel by payload, retry, pause, resume, TTL and delete do what they do in the async app."""
    queue = app.queue("q")
    queue.enqueue_many([Entry(1, id="a"), Entry(2, id="b"), Entry(2, id="c")])
    assert queue.cancel("a")
    assert not queue.cancel("a")
    assert queue.cancel("nobody").status == "not_found"
    assert sorted(queue.cancel_matching(2)) == ["b", "c"]
    assert queue.retry(["a", "b"]) == 2
    queue.reserve()[0].complete("done")
    assert (queue.retry("a"), queue.retry("a", completed=True)) == (0, 1)
    assert queue.update_result_ttl("c", timedelta(minutes=5))
    assert queue.pause() is True
    assert queue.pause() is False
    assert queue.resume() is True
    assert queue.delete() == 3


def test_errors_are_the_async_ones(app: Penstock) -> None:
    """Bad arguments and bad luck raise what they raise in the async app, and store nothing."""
    queue = app.queue("q")
    queue.enqueue(1, id="a")
    with pytest.raises(DuplicateJob):
        queue.enqueue(1, id="a", on_conflict="raise")
    with pytest.raises(InvalidPayload, match="payload"):
        queue.enqueue(b"bytes")
    with pytest.raises(ValueError, match="delay"):
        queue.enqueue(1, delay=-1)
    with pytest.raises(NotFinished):
        queue.result("a")
    with pytest.raises(JobNotFound):
        queue.result("b")
    assert queue.result("b", default=None) is None
    with pytest.raises(ValueError, match="1 to 512"):
        app.queue("")


def test_async_iterators_are_refused(app: Penstock) -> None:
    """An async iterator of payloads is a `TypeError`, not a hanging call."""

    async def payloads():
        yield 1

    with pytest.raises(TypeError, match="async iterator"):
        app.queue("q").enqueue_many(payloads())  # type: ignore[arg-type]


def test_results_of_a_worker(app: Penstock) -> None:
    """Handlers declared on a sync app are run by a worker of its async app."""

    @app.handler("q", max_retries=0)
    def double(payload: int) -> int:
        return 2 * payload

    queue = app.queue("q")
    queue.enqueue(21, id="a")
    queue.enqueue("text", id="b")
    drain(app)
    assert queue.result("a") == 42
    with pytest.raises(JobFailed):
        queue.result("b")
    assert queue.enqueue(21, id="a").result == 42


def test_call_and_wait(app: Penstock) -> None:
    """`call` and `wait` give a worker's result, or raise what became of it."""

    @app.handler("q", max_retries=0)
    async def divide(payload: list[int]) -> float:
        return payload[0] / payload[1]

    queue = app.queue("q")
    with working(app):
        assert queue.call([6, 3]) == 2
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            queue.call([1, 0])
        queue.enqueue([8, 2], id="a")
        assert queue.wait("a", timeout=10) == 4
    with pytest.raises(CallTimeout):
        queue.call([1, 1], timeout=0.01)


def test_calls_of_many_threads(app: Penstock) -> None:
    """Threads that wait for results at once get each their own."""

    @app.handler("q", concurrency=8)
    async def double(payload: int) -> int:
        return 2 * payload

    answers: dict[int, int] = {}

    def ask(n: int) -> None:
        answers[n] = app.queue("q").call(n)

    with working(app):
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {n: 2 * n for n in range(12)}
    assert len(portals()) == 1


def test_short_calls_need_no_thread(app: Penstock, backend: Backend) -> None:
    """Only what waits for others starts the background thread; a database in memory is opened on it."""
    app.queue("q").enqueue(1)
    app.queue("q").counts()
    assert bool(portals()) is not backend.shared
    with pytest.raises(JobNotFound):
        app.queue("q").wait("nobody", timeout=1)
    assert len(portals()) == 1
    app.close()
    assert not portals()


def test_closed_and_opened_again(app: Penstock) -> None:
    """A closed app is opened by its next call, on a new background thread if it needs one."""
    for _ in range(2):
        with app:
            assert app.is_open
            app.queue("q").enqueue(1, id="a", on_conflict="update")
            [held] = app.queue("q").reserve()
            assert held.complete() is State.COMPLETED
        assert not app.is_open
    app.close()


def test_a_waiting_call_ends_when_the_app_closes(app: Penstock) -> None:
    """Closing the app in one thread ends the call that waits in another, with an error that gives the reason."""
    app.queue("q").enqueue(1, id="a")
    raised: list[BaseException] = []
    begun = threading.Event()

    def ask() -> None:
        begun.set()
        try:
            app.queue("q").wait("a", timeout=60)
        except StorageError as error:
            raised.append(error)

    with pytest.raises(CallTimeout):
        app.queue("q").wait("a", timeout=0)
    thread = threading.Thread(target=ask)
    thread.start()
    begun.wait()
    while not app.backends.portal._current._calls:  # type: ignore[union-attr]
        pass
    app.close()
    thread.join(10)
    assert "closed" in str(raised[0])


def test_in_a_running_loop(app: Penstock) -> None:
    """In a thread with a running loop short calls work, and those that wait for a worker raise."""

    async def inside() -> None:
        queue = app.queue("q")
        assert queue.enqueue(1, id="a")
        [held] = queue.reserve()
        held.release()
        for call in (
            lambda: queue.call(1),
            lambda: queue.wait("a"),
            lambda: queue.reserve(wait=1),
            lambda: next(app.events()),
        ):
            with pytest.raises(RuntimeError, match=r"async penstock\.Penstock"):
                call()
        assert queue.counts()[State.QUEUED] == 1

    asyncio.run(inside())


@pytest.mark.only("memory")
def test_arguments_are_passed_on(backend: Backend) -> None:
    """Clock, serde, preset and the limit of payloads hold in the sync app as in the async one."""
    clock = Clock()
    with Penstock("memory:", clock=clock, serde="msgpack", max_payload=100, preset="worqr") as app:
        queue = app.queue("q")
        queue.enqueue(b"bytes", id="a", run_at=datetime.fromtimestamp(clock.time() + 5, UTC))
        status = queue.status("a")
        assert status is not None
        assert (status.payload, status.state) == (b"bytes", State.SCHEDULED)
        clock.advance(5)
        assert queue.counts()[State.QUEUED] == 1
        with pytest.raises(InvalidPayload, match="max_payload"):
            queue.enqueue(b"x" * 200)
        with pytest.raises(DuplicateJob):
            queue.enqueue(b"again", id="a")
        assert (app.preset, app.lease) == ("worqr", 3.0)
        [held] = queue.reserve()
        assert queue.cancel("a", running="refuse").status == "running"
        assert queue.cancel("a").status == "cancel_requested"
        held.release()


def test_a_storage_given_as_an_object(backend: Backend, no_leaks: None) -> None:
    """Any storage will do: its verbs are awaited on the background thread."""
    with Penstock(storage=backend.build(), namespace=backend.namespace) as app:
        app.queue("q").enqueue(1, id="a")
        assert app.queue("q").counts()[State.QUEUED] == 1
        [held] = app.queue("q").reserve()
        assert held.complete(5) is State.COMPLETED
        assert app.queue("q").result("a") == 5
    with pytest.raises(ValueError, match="not both"):
        Penstock("memory:", storage=connect("memory:"))


def test_a_worker_of_the_same_database_in_memory(app: Penstock) -> None:
    """A worker that comes and goes leaves the app and its jobs as they are."""

    @app.handler("q")
    def nothing(payload: int) -> None: ...

    app.queue("q").enqueue_many(range(10))
    asyncio.run(Worker(app.async_app).drain())
    assert app.queue("q").counts()[State.COMPLETED] == 10


@pytest.mark.parametrize("bind", ["queue", "job"])
@pytest.mark.only("sqlite", "redis")
def test_bound_payloads_and_results(app: Penstock, bind: Literal["queue", "job"]) -> None:
    """Payloads and results that are bound to the queue or the job are opened by the calls without `await`."""
    app.listen("q", lambda payload: payload[::-1], serde=Encrypted("json", Encrypted.new_key(), bind=bind))
    queue = app.queue("q")
    queue.enqueue_many(["ab", Entry("cd", id="c")])
    assert queue.cancel_matching("ab") != []
    with working(app):
        assert queue.call("ef", timeout=20) == "fe"
        assert queue.wait("c", timeout=20) == "dc"
    status = queue.status("c")
    assert status is not None
    assert (status.payload, status.result) == ("cd", "dc")
