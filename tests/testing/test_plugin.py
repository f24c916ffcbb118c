"""The pytest plugin, in a project of its own, as a user's tests see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.testing.conformance import StorageSuite
from tests.installed import install_plugin

SOURCE = Path(penstock.__file__).parents[1]

CONFTEST = """
import threading

def pytest_sessionfinish(session):
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]
    assert not left, left
"""

PLAIN = """
import asyncio
from penstock.testing import assert_enqueued, drain

def test_a_plain_test(penstock_sync_app, penstock_clock):
    penstock_sync_app.listen("q", lambda number: 2 * number)
    penstock_sync_app.queue("q").enqueue(1, delay=60)
    assert_enqueued(penstock_sync_app, "q", payload=1, state="scheduled")
    penstock_clock.advance(minutes=1)
    assert [event.result for event in drain(penstock_sync_app)] == [2]

def test_each_test_has_an_app_of_its_own(penstock_sync_app):
    assert penstock_sync_app.queues() == []
    assert penstock_sync_app.async_app.handlers == {}

def test_a_plain_test_of_async_code(penstock_app):
    async def scenario():
        penstock_app.listen("q", lambda number: 2 * number)
        await penstock_app.queue("q").enqueue(1)
        return [event.result for event in await drain(penstock_app)]
    assert asyncio.run(scenario()) == [2]

def test_both_faces_are_one_app(penstock_app, penstock_sync_app):
    penstock_sync_app.queue("q").enqueue(1)
    asyncio.run(assert_enqueued(penstock_app, "q", payload=1, count=1))
"""

ASYNC = """
import pytest
from penstock import Worker
from penstock.testing import assert_enqueued, crash, drain, inline

pytestmark = pytest.mark.MARK

async def test_an_async_test(penstock_app, penstock_clock):
    penstock_app.listen("q", lambda number: 2 * number)
    await penstock_app.queue("q").enqueue(1, id="one", delay=60)
    await assert_enqueued(penstock_app, "q", id="one")
    penstock_clock.advance(60)
    assert [event.result for event in await drain(penstock_app)] == [2]

async def test_a_worker_beside_the_test(penstock_app):
    penstock_app.listen("q", lambda number: 2 * number)
    async with Worker(penstock_app):
        assert await penstock_app.queue("q").call(2) == 4

async def test_left_open_and_reserved(penstock_app):
    await penstock_app.queue("q").enqueue(1)
    [taken] = await penstock_app.queue("q").reserve()
    assert taken.payload == 1

async def test_inline_and_crash(penstock_app, penstock_clock):
    penstock_app.listen("q", lambda number: 2 * number)
    with inline(penstock_app):
        assert (await penstock_app.queue("q").enqueue(1)).state == "completed"
    await penstock_app.queue("q").enqueue(2)
    await crash(penstock_app)
    penstock_clock.advance(penstock_app.lease)
    assert [event.attempt for event in await drain(penstock_app)] == [2]
"""

STORAGE = """
from penstock.storage import connect
from penstock.testing.conformance import StorageSuite

class TestMyStorage(StorageSuite):
    shared = False
    walks = 3

    def make(self, clock):
        return connect("memory:", clock=clock)
"""


def run(directory: Path, test: str, *options: str) -> str:
    """Run one test file as a user would, with the plugin installed; returns the output."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_it.py").write_text(test)
    path = os.pathsep.join([str(SOURCE), str(install_plugin(directory))])
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_"))}
    ran = subprocess.run(
        [*command, "--rootdir", str(directory), *options, "test_it.py"], cwd=directory,
        env={**kept, "PYTHONPATH": path}, text=True, timeout=100, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_plain_tests_have_an_app(tmp_path: Path) -> None:
    """Tests without an event loop use the sync app, or run coroutines themselves; no thread is left."""
    assert "4 passed" in run(tmp_path, PLAIN)


def test_async_tests_have_an_app(tmp_path: Path) -> None:
    """Async tests need no other fixture: the app opens itself in the test's event loop."""
    backend = "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    assert "4 passed" in run(tmp_path, backend + ASYNC.replace("MARK", "anyio"))


def test_the_suite_is_collected_from_a_subclass(tmp_path: Path) -> None:
    """pytest collects all conformance tests from a subclass with `make`."""
    tests = [name for name in dir(StorageSuite) if name.startswith("test_")]
    assert f"{len(tests)} passed" in run(tmp_path, STORAGE)


def test_fixtures_have_a_description(tmp_path: Path) -> None:
    """`pytest --fixtures` shows a description of each fixture."""
    text = run(tmp_path, PLAIN, "--fixtures")
    for name in ("penstock_app", "penstock_sync_app", "penstock_clock"):
        assert f"{name} -- " in text
    assert "no docstring" not in text[text.index("penstock_clock") :].partition("---")[0]


def test_the_plugin_imports_nothing() -> None:
    """The plugin is loaded wherever Penstock is installed, so it imports nothing that pytest has not."""
    script = (
        "import sys, pytest\nold = set(sys.modules)\nimport _penstock_pytest\nprint(sorted(set(sys.modules) - old))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(SOURCE)}, text=True, timeout=60,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == "['_penstock_pytest']"


def test_the_kit_needs_no_pytest() -> None:
    """`penstock.testing` imports neither pytest nor hypothesis."""
    script = "import sys, penstock.testing\nprint({'pytest', 'hypothesis'} & set(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(SOURCE)}, text=True, timeout=60,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["crash", "drain", "inline"])
def test_a_function_named_as_its_module_stays_a_function(name: str) -> None:
    """After an import of the module `penstock.testing.drain`, `penstock.testing.drain` is still the function."""
    script = f"import penstock.testing.{name}\nprint(type(penstock.testing.{name}).__name__)"
    ran = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(SOURCE)}, text=True, timeout=60,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == "function"
