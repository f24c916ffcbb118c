"""Threads, forks, interrupts, exits and broken connections."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable

import pytest

from penstock import State, StorageUnavailable
from penstock.sync import Penstock
from tests.support import Backend, RedisBackend
from tests.sync.conftest import working

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # 3.12 warns of forks with threads


def in_child(work: Callable[[], object]) -> None:
    """Do something in a forked process and fail if it failed there."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            work()
            os.write(writing, b"fine")
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        output = pipe.read()
    os.waitpid(pid, 0)
    assert output == "fine", output


def test_many_threads(app: Penstock) -> None:
    """Sixteen threads enqueue 500 jobs each through one app, each in its own order, none lost."""
    queue = app.queue("q")

    def produce(thread: int) -> None:
        for n in range(500):
            queue.enqueue([thread, n], id=f"{thread}-{n}")

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.counts()[State.QUEUED] == 8000
    order: dict[int, list[int]] = {}
    page = queue.find(limit=1000)
    while True:
        for job in page:
            order.setdefault(job.payload[0], []).append(job.payload[1])
        if page.cursor is None:
            break
        page = queue.find(after=page.cursor, limit=1000)
    assert order == {thread: list(range(500)) for thread in range(16)}


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
def test_a_fork_after_use(app: Penstock) -> None:
    """An app used before a fork works in parent and child, on connections and threads of their own."""

    @app.handler("q")
    def double(payload: int) -> int:
        return 2 * payload

    queue = app.queue("q")
    with working(app):
        assert queue.call(1) == 2  # the background thread and both connections are in use

        def child() -> None:
            queue.enqueue(10, id="from-child", on_conflict="update")
            assert queue.call(21, timeout=20) == 42
            app.queue("pulled").enqueue(1)
            [held] = app.queue("pulled").reserve()
            held.complete()
            app.close()
            queue.enqueue(1, id="after-close", on_conflict="update")
            app.close()

        in_child(child)
        in_child(child)
        assert queue.call(2) == 4
        assert queue.wait("from-child", timeout=10) == 20
        assert queue.wait("after-close", timeout=10) == 2


@pytest.mark.only("memory")
def test_a_fork_of_a_database_in_memory(app: Penstock) -> None:
    """A child has a private database of its own, an empty one, and the parent keeps its jobs."""
    queue = app.queue("q")
    queue.enqueue(1, id="a")
    with pytest.raises(TimeoutError):
        queue.call(1, timeout=0)

    def child() -> None:
        assert queue.status("a") is None
        queue.enqueue(2, id="b")
        [held] = queue.reserve()
        held.complete("c")
        assert queue.result("b") == "c"
        app.close()

    in_child(child)
    assert queue.counts()[State.QUEUED] == 2


@pytest.mark.only("sqlite", "redis")
def test_forks_while_threads_enqueue(app: Penstock) -> None:
    """A fork in the middle of other threads' calls leaves no lock behind in the child."""
    queue = app.queue("q")
    stop = threading.Event()
    made: list[int] = []

    def produce() -> None:
        count = 0
        while not stop.is_set():
            queue.enqueue(1)
            count += 1
        made.append(count)

    threads = [threading.Thread(target=produce) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(5):
            in_child(lambda n=n: [queue.enqueue(n) for _ in range(20)])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert queue.counts()[State.QUEUED] == sum(made) + 100


def test_an_interrupted_call(app: Penstock) -> None:
    """Ctrl-C ends a waiting call, and the app goes on as if nothing had been."""
    app.handler("q")(lambda payload: payload + 1)
    queue = app.queue("q")
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not (app.backends.portal._current and app.backends.portal._current._calls):
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        app.queue("nobody works here").call(1, timeout=60)
    thread.join()
    with working(app):
        assert queue.call(1) == 2


SCRIPT = """
import sys, threading
from penstock.errors import CallTimeout
from penstock.sync import Penstock
app = Penstock(sys.argv[1], namespace=sys.argv[2])
app.queue("q").enqueue(1)
before = threading.active_count()
try:
    app.queue("q").call(1, timeout=0.01)
except CallTimeout:
    print("output")
held = app.queue("q").reserve()
stream = app.events()
threading.Thread(target=lambda: next(stream), daemon=True).start()
"""


def test_an_exit_without_close(url: str, backend: Backend) -> None:
    """An interpreter that ends without closing its app neither hangs nor complains."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, url, backend.namespace],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": "src"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "output\n", "")


def test_importing_starts_nothing() -> None:
    """Importing the sync face starts no thread and opens nothing."""
    code = "import threading, penstock.sync; penstock.sync.Penstock('memory:'); print(threading.active_count())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": "src"},
    )  # fmt: skip
    assert done.stdout == "1\n", done.stderr


@pytest.mark.only("redis", "valkey", "cluster")
def test_scripts_are_loaded_again(app: Penstock, backend: Backend) -> None:
    """After the server lost its scripts they are loaded again, and the call succeeds."""
    assert isinstance(backend, RedisBackend)
    app.queue("q").enqueue(1)
    for client in backend.clients():
        with client:
            client.script_flush()
    app.queue("q").enqueue(2)
    assert app.queue("q").counts()[State.QUEUED] == 2


@pytest.mark.only("redis", "valkey")
def test_cut_connections(app: Penstock, backend: Backend) -> None:
    """A call that may be repeated survives a cut connection; what was made up here is not stored twice."""
    assert isinstance(backend, RedisBackend)
    queue = app.queue("q")
    queue.enqueue(1)
    with backend.server.client() as client:  # type: ignore[union-attr]
        for _ in range(3):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            queue.enqueue(2)
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert queue.counts()[State.QUEUED] >= 2
    assert queue.counts()[State.QUEUED] == 4


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+cluster://127.0.0.1:1", "unix:///nowhere.sock"])
def test_an_unreachable_server_raises_storage_unavailable(url: str) -> None:
    """A server that cannot be reached is `StorageUnavailable`, and the message has its address."""
    with pytest.raises(StorageUnavailable, match="cannot reach"):
        Penstock(url).open()
