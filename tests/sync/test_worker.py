"""The worker without `await`: on the calling thread, on one of its own, and stopped by signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

import pytest

import penstock
from penstock import State, StorageUnusable
from penstock.model.clock import Span
from penstock.sync import Penstock, Worker
from tests.support import Backend


def test_drain_runs_the_due_jobs_and_returns(app: Penstock) -> None:
    """`Worker(app).drain()` runs jobs on this thread until none is due, and can be called again."""

    @app.handler("double")
    def double(payload: int) -> int:
        return 2 * payload

    worker = Worker(app)
    for number in range(2):
        job = app.queue("double").enqueue(number)
        worker.drain()
        assert app.queue("double").result(job.id) == 2 * number


def test_a_with_block_works_beside_the_calling_thread(app: Penstock) -> None:
    """Inside `with Worker(app)` calls are answered; after it a worker with the same id can start again."""

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    worker = Worker(app, id="mine")
    for _ in range(2):
        with worker as entered:
            assert entered is worker
            assert add.options(timeout=20).call(1, b=2) == 3
            assert [each.id for each in app.workers()] == [worker.id]
    assert app.workers() == []


def test_several_workers_of_one_app_work_side_by_side(app: Penstock) -> None:
    """Each worker has an event loop and a storage object of its own; one may also drain beside another."""

    @app.task
    def one(number: int) -> int:
        return number

    @app.task
    async def two(number: int) -> int:
        return number

    with Worker(app, queues=["one"]), Worker(app, queues=["two"]):
        for number in range(10):
            assert one.options(timeout=20).call(number) == two.options(timeout=20).call(number) == number
        Worker(app).drain()


def test_an_app_on_a_storage_object_has_a_worker_too(backend: Backend, no_leaks: None) -> None:
    """A storage given as an object is bound to the app's event loop, so the worker works on that loop."""
    app = Penstock(storage=backend.build())

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with app:
        job = add.enqueue(1, 2)
        Worker(app).drain()
        assert add.result(job.id) == 3
        with Worker(app):
            assert add.options(timeout=20).call(3, 4) == 7
        add.queue.delete()


@pytest.mark.only("sqlite")
def test_the_end_of_a_with_block_lets_runs_end(app: Penstock) -> None:
    """A run that began in the block is completed; after an exception it is released at once."""
    began, go_on = threading.Event(), threading.Event()

    @app.handler("slow")
    def slow(payload: int) -> None:
        began.set()
        assert go_on.wait(20)

    class ObservedWorker(Worker):
        def stop(self, grace: Span = 30) -> None:
            go_on.set()
            super().stop(grace)

    app.queue("slow").enqueue(1, id="a")
    with ObservedWorker(app):
        assert began.wait(20)
    assert app.queue("slow").counts()[State.COMPLETED] == 1

    app.queue("slow").enqueue(1, id="b")
    began.clear()
    go_on.clear()
    with contextlib.suppress(ZeroDivisionError), Worker(app):
        assert began.wait(20)
        raise ZeroDivisionError
    status = app.queue("slow").status("b")
    go_on.set()
    assert status is not None
    assert (status.state, status.attempts) == (State.QUEUED, 0)


@pytest.mark.only("sqlite")
def test_stop_ends_a_run_of_another_thread(app: Penstock) -> None:
    """`run` returns when another thread stops the worker, however early."""
    app.listen("q", lambda payload: None)
    worker = Worker(app)
    ended = threading.Event()

    def work() -> None:
        worker.run()
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not ended.wait(0.01):  # the thread may not have called run() yet
        worker.stop()
    thread.join()
    worker.stop()


@pytest.mark.only("sqlite")
def test_a_handler_may_stop_its_worker(app: Penstock) -> None:
    """`stop` from an async handler, on the worker's own thread, requests the stop and returns."""
    worker = Worker(app)

    @app.handler("last")
    async def last(payload: int) -> None:
        worker.stop()

    app.queue("last").enqueue(1, id="a")
    worker.run()
    assert app.queue("last").counts()[State.COMPLETED] == 1


def test_running_jobs_can_be_released(app: Penstock) -> None:
    """`release_all` gives running jobs back, and returns their number."""
    began, go_on = threading.Event(), threading.Event()

    @app.handler("slow")
    def slow(payload: int) -> None:
        began.set()
        assert go_on.wait(20)

    worker = Worker(app)
    assert (worker.release_all(), worker.runs) == (0, [])
    app.queue("slow").enqueue(1, id="a")
    with worker:
        assert began.wait(20)
        assert worker.runs == [("slow", "a")]
        app.queue("slow").pause()
        assert worker.release_all() == 1
        go_on.set()
        assert app.queue("slow").counts()[State.QUEUED] == 1
    app.queue("slow").resume()


@pytest.mark.only("sqlite")
def test_run_raises_if_the_file_is_deleted_meanwhile(app: Penstock, tmp_path: Path) -> None:
    """A worker whose file is gone ends by itself, and `run` raises the reason; so does the end of a `with` block."""
    path = tmp_path / "own.db"

    with Penstock(f"sqlite:{path}") as own:

        @own.handler("q")
        def delete(payload: int) -> None:
            path.unlink()

        own.queue("q").enqueue(1)
        with pytest.raises(StorageUnusable, match="deleted"):
            Worker(own).run()
        assert not path.exists()


@pytest.mark.only("sqlite")
def test_a_worker_is_started_once(app: Penstock) -> None:
    """A started worker refuses to run or to drain, and wrong options are refused at once."""
    app.listen("q", lambda payload: None)
    with Worker(app) as worker:
        for start in (worker.run, worker.drain, worker.__enter__):
            with pytest.raises(RuntimeError, match="started already"):
                start()
    with pytest.raises(ValueError, match="has no handler"), Worker(app, queues=["other"]):
        pass
    with pytest.raises(ValueError, match="capacity"):
        Worker(app, capacity=0)
    name: Any = "jobs:app"
    with pytest.raises(TypeError, match="app must be a Penstock app, not the str"):
        Worker(name)


async def test_a_running_event_loop_is_not_blocked() -> None:
    """In a thread with an event loop every way to start is a RuntimeError that names the async API."""
    worker = Worker(Penstock("memory:"))
    for start in (worker.run, worker.drain, worker.__enter__):
        with pytest.raises(RuntimeError, match=r"penstock\.Penstock"):
            start()


async def test_the_wrong_kind_of_with_names_the_right_one() -> None:
    """`with` on async objects and `async with` on sync ones are a TypeError that names the other module."""
    ours: list[Any] = [Penstock("memory:"), Worker(Penstock("memory:"))]
    theirs: list[Any] = [penstock.Penstock("memory:"), penstock.Worker(penstock.Penstock("memory:"))]
    for thing in ours:
        name = type(thing).__name__
        with pytest.raises(TypeError, match=rf"write `with`, or import {name} from penstock for `async with`"):
            async with thing:
                pass
    for thing in theirs:
        name = type(thing).__name__
        message = rf"write `async with`, or import {name} from penstock\.sync for `with`"
        with pytest.raises(TypeError, match=message), thing:
            pass


def test_a_worker_that_is_not_awaited_explains_itself() -> None:
    """`asyncio.run(Worker(app))` fails, and the message has the two methods to call."""
    worker: Any = penstock.Worker(penstock.Penstock("memory:"))
    with pytest.raises(ValueError, match=r"not started: await its run\(\) or drain\(\)"):
        asyncio.run(worker)


PROGRAM = """
import sys
from penstock.sync import Penstock, Worker

app = Penstock("sqlite:jobs.db")


@app.handler("slow")
def slow(payload: int) -> int:
    with open("gate") as gate:
        gate.readline()
    return payload


if __name__ == "__main__":
    app.queue("slow").enqueue(1, id="a")
    Worker(app, processes=int(sys.argv[1])).run()
    print(app.queue("slow").status("a").state)
"""


@contextlib.contextmanager
def running_program(directory: Path, processes: int) -> Generator[tuple[subprocess.Popen[str], IO[str]]]:
    """Run the program until its handler runs; the handler ends when it reads a line from the yielded file."""
    (directory / "program.py").write_text(PROGRAM)
    os.mkfifo(directory / "gate")
    program = subprocess.Popen(
        [sys.executable, "program.py", str(processes)], cwd=directory, stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": str(Path(penstock.__file__).parents[1])},
    )  # fmt: skip
    try:
        with (directory / "gate").open("w") as gate:  # waits until the handler has opened it
            yield program, gate
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.communicate()


@pytest.mark.parametrize(("number", "processes"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGTERM, 1)])
def test_the_first_signal_lets_runs_end(tmp_path: Path, number: signal.Signals, processes: int) -> None:
    """SIGTERM and Ctrl-C end `run()` after the running job, and the program goes on behind it."""
    with running_program(tmp_path, processes) as (program, gate):
        program.send_signal(number)
        gate.write("go on\n")
        gate.flush()
        assert program.stdout is not None
        assert program.stdout.read() == "completed\n"


def test_the_second_signal_releases_the_runs(tmp_path: Path) -> None:
    """A second signal does not wait for the handler: its job is queued again."""
    with running_program(tmp_path, 0) as (program, gate):
        program.send_signal(signal.SIGTERM)
        program.send_signal(signal.SIGINT)
        assert program.stdout is not None
        assert program.stdout.readline() == "queued\n"
        gate.write("go on\n")
