"""Fixtures: async tests on one event loop each, every storage under test, and a leak check after each test."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings

from penstock.storage.base import Storage
from tests.servers import Servers
from tests.support import STORAGES, Backend, Clock, forget_all, make_backend, new_namespace

# A machine with other work generates examples slowly, and that is no fault of the code under test.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

#: The browser scenarios need a browser and minutes: `make browser` asks for them.
collect_ignore = [] if os.environ.get("PENSTOCK_BROWSER") else ["browser"]

# async tests -------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test on the loop that its fixtures used."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    runner = cast(asyncio.Runner, pyfuncitem.funcargs["runner"])
    names = inspect.signature(pyfuncitem.obj).parameters
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every async test the `runner` fixture, and the tests of one server and folder to one xdist process."""
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if inspect.iscoroutinefunction(item.obj) and "runner" not in item.fixturenames:
            item.fixturenames.insert(0, "runner")
        params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("backend") in SERVERS:
            item.add_marker(pytest.mark.xdist_group(f"{params['backend']} {item.path.parent.name}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze all objects that exist now, so the collection after each test does not visit them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def private_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A temporary directory of this session, removed at its end, also for processes that were killed."""
    tmp_path_factory.getbasetemp()  # stays where it is
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    directory = tempfile.mkdtemp(prefix="p")  # a short name: there will be sockets in it
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    yield
    tempfile.tempdir = before[1]
    if before[0] is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before[0]
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop for one test; a task that is left over fails the test."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        yield runner
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert not left, f"tasks left over: {left}"


# storages ----------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--storages",
        default=os.environ.get("PENSTOCK_STORAGES", ",".join(STORAGES)),
        help=f"the storages to test, of {','.join(STORAGES)}",
    )


#: The storages that need a server: one per test process, started by the first test that needs it.
SERVERS = ("redis", "valkey", "cluster")

#: One storage per engine: `memory` is the SQLite engine without a file, Valkey runs the scripts of Redis.
ENGINES = ("sqlite", "redis", "cluster")

#: Folders whose tests go through the client, and the storages that can make a difference to them.
STORAGES_OF = {
    "client": ENGINES,
    "sync": ENGINES,
    "tour": ("memory", "redis"),
    "dashboard": ("memory", "sqlite", "redis"),
}


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and the programs under test would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "one_per_engine: run this test on one storage of each engine")
    config.addinivalue_line("markers", "xdist_group(name): these tests stay on one worker")
    config.addinivalue_line("markers", "only(*names): run this test on these storages only")
    config.addinivalue_line("markers", "leaves_records: the test damages its storage, so nothing is checked after it")
    config.addinivalue_line("markers", "beyond_model: what the test asks for is not part of the model")
    expected = os.environ.get("PENSTOCK_EXPECTED_AT")
    if expected:
        import penstock

        assert Path(penstock.__file__).is_relative_to(expected), f"testing {penstock.__file__}, not {expected}"


def chosen_storages(config: pytest.Config) -> list[str]:
    """Return the storages that `--storages` names."""
    names = [name for name in str(config.getoption("--storages")).split(",") if name]
    unknown = set(names) - {*STORAGES, "model"}
    if unknown:
        raise pytest.UsageError(f"--storages: unknown {sorted(unknown)}; known are {','.join(STORAGES)}")
    return names


def wanted_for(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """Return the storages on which a test can come out differently."""
    every = (*STORAGES, "model")
    if metafunc.definition.get_closest_marker("one_per_engine"):
        return (*ENGINES, "model")
    return STORAGES_OF.get(metafunc.definition.path.parent.name, every)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only")
    names = [name for name in chosen_storages(metafunc.config) if only is None or name in only.args]
    if only is None:
        names = [name for name in names if name in wanted_for(metafunc)] or names[:1]
    if metafunc.definition.get_closest_marker("beyond_model"):
        names = [name for name in names if name != "model"]
    if "peer" in metafunc.fixturenames:
        names = [name for name in names if name != "memory"]  # a private database has no second user
    metafunc.parametrize("backend", names, indirect=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The servers of this process; each is started at its first use."""
    servers = Servers()
    yield servers
    servers.remove()


@pytest.fixture
def backend(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Backend]:
    """A fresh namespace of the storage under test, empty again after the test."""
    # Only a file needs a directory; to make and to remove one for each of some thousand tests takes seconds.
    directory = request.getfixturevalue("tmp_path") if request.param == "sqlite" else Path()
    backend = make_backend(request.param, servers, directory, new_namespace())
    yield backend
    backend.clear()


@pytest.fixture
def clock() -> Clock:
    """The storage's clock, which only the test moves."""
    return Clock()


@pytest.fixture
def no_leaks(backend: Backend) -> Iterator[None]:
    """A check that the test leaves no thread, no child process and no open file."""
    threads, children, files = set(threading.enumerate()), _children(), _files()
    yield
    gc.collect()
    left = [thread for thread in threading.enumerate() if thread not in threads and thread.is_alive()]
    assert not left, f"threads left over: {left}"
    assert _children() <= children, "child processes left over"
    assert len(_files() - files) == 0, f"files left open: {_files() - files}"


@pytest.fixture
def storage(
    request: pytest.FixtureRequest, backend: Backend, clock: Clock, no_leaks: None, runner: asyncio.Runner
) -> Iterator[Storage]:
    """An open storage. After the test its queues are deleted, and no record may be left."""
    storage = backend.build(clock)
    runner.run(storage.open())
    yield storage
    damaged = request.node.get_closest_marker("leaves_records") is not None
    try:
        if not damaged:
            runner.run(forget_all(storage))
    finally:
        runner.run(storage.close())
    if not damaged:
        assert backend.leftovers() == []


@pytest.fixture
def peer(backend: Backend, clock: Clock, storage: Storage, runner: asyncio.Runner) -> Iterator[Storage]:
    """A second storage object at the same location, as another process would have."""
    peer = backend.build(clock)
    runner.run(peer.open())
    yield peer
    runner.run(peer.close())


def _children() -> set[int]:
    pids: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            pids.update(int(pid) for pid in (task / "children").read_text().split())
    return pids


def _files() -> set[str]:
    """Return the targets of all open files and sockets."""
    found: set[str] = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists this directory
            target = os.readlink(entry)
            if not target.startswith("/proc/"):
                found.add(target)
    return found
