"""Fixtures of the end-to-end tests: real worker processes on a real SQLite file and a real Redis server."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import JobStatus, Penstock
from tests.servers import Server, Servers
from tests.support import new_namespace

ROOT = Path(__file__).resolve().parent.parent.parent
APP = "tests.e2e.jobs:app"

#: How long (seconds) a test waits for a condition: long enough for a loaded machine, and shorter than the interval at
#: which LONG_LEASE is renewed, so that no renewal and no lease that ends brings about what a test waits for.
DEADLINE, LONG_LEASE = 40.0, 150


async def until(condition: Callable[[], Any] | Callable[[], Awaitable[Any]], seconds: float = DEADLINE) -> Any:
    """Wait for a condition, plain or async, and return its value."""
    end = time.monotonic() + seconds
    while True:
        value: Any = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        await asyncio.sleep(0.02)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Return whether a process runs and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below a process."""
    found: list[int] = []
    for task in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


class Program:
    """A command in a process group of its own, with its output in a file."""

    def __init__(self, command: list[str], environment: Mapping[str, str], output: Path, cwd: Path) -> None:
        self.output = output
        self.known: set[int] = set()
        with output.open("ab") as file:
            self.process = subprocess.Popen(
                command, env=dict(environment), cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output_text(self) -> str:
        return self.output.read_text(errors="replace")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_group(self, number: int) -> None:
        os.killpg(self.pid, number)

    def children(self) -> list[int]:
        found = descendants(self.pid)
        self.known.update(found)
        return found

    def workers(self) -> list[int]:
        """Return the child processes that have logged that they work."""
        lines = [line.split() for line in self.output_text.splitlines() if line.endswith(" works")]
        return [pid for pid in (int(words[-2]) for words in lines) if is_alive(pid)]

    async def working(self, count: int = 1) -> list[int]:
        """Wait until `count` children work; returns their ids."""

        def ready() -> list[int]:
            assert self.process.poll() is None, self.output_text
            self.children()
            found = self.workers()
            return found if len(found) >= count else []

        return await until(ready)

    async def ended(self, seconds: float = DEADLINE) -> int:
        """Wait for the process to exit; returns its exit code."""
        await until(lambda: self.process.poll() is not None, seconds)
        return self.process.returncode

    async def remove(self) -> None:
        """Kill the program, and wait until none of its processes is left."""
        self.children()
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.signal_group(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        await until(lambda: not any(map(is_alive, self.known)))


class Stage:
    """A storage, an app on it for the test's own use, a log, and the programs that were started."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.namespace = new_namespace()
        self.log = directory / "log"
        self.log.touch()
        self.app = Penstock(url, namespace=self.namespace)
        self.programs: list[Program] = []

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ, "PENSTOCK_URL": self.url, "PENSTOCK_NAMESPACE": self.namespace, "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PENSTOCK_TEST_LOG": str(self.log),
        }  # fmt: skip

    def run(self, *arguments: str, cwd: Path | None = None) -> Program:
        """Start a Python program."""
        output = self.directory / f"output-{len(self.programs)}"
        program = Program([sys.executable, *arguments], self.environment, output, cwd or self.directory)
        self.programs.append(program)
        return program

    def worker(self, *options: str, app: str = APP, processes: int = 1, lease: float = 2) -> Program:
        """Start `penstock worker`."""
        return self.run(
            "-m", "penstock", "worker", app, "--processes", str(processes), "--lease", str(lease), *options
        )  # fmt: skip

    async def enqueue(self, queue: str, id: str, payload: Mapping[str, Any] | None = None, **options: Any) -> None:
        await self.app.queue(queue).enqueue({"log": str(self.log), **(payload or {})}, id=id, **options)

    async def status(self, queue: str, id: str) -> JobStatus:
        status = await self.app.queue(queue).status(id)
        assert status is not None
        return status

    async def state(self, queue: str, id: str, *states: str, seconds: float = DEADLINE) -> JobStatus:
        """Wait until a job is in one of these states; returns its status."""
        await until(lambda: self._is(queue, id, states), seconds)
        return await self.status(queue, id)

    async def _is(self, queue: str, id: str, states: tuple[str, ...]) -> bool:
        return (await self.status(queue, id)).state.value in states

    def lines(self, *start: object) -> list[list[str]]:
        """Return the lines of the log that begin with these words, split; the last word is the process id."""
        words = [str(word) for word in start]
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [line for line in lines if line[: len(words)] == words]

    async def line(self, *start: object, seconds: float = DEADLINE) -> list[str]:
        """Wait for a line that begins with these words; returns the last one."""
        return (await until(lambda: self.lines(*start), seconds))[-1]


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """The URL of the storage: an SQLite file or a Redis server."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'jobs.db'}"
    server = servers.get("redis")
    assert isinstance(server, Server)
    return f"redis://{server.address}/0"


@pytest.fixture
def stage(url: str, tmp_path: Path, runner: asyncio.Runner) -> Iterator[Stage]:
    """A storage of its own for the test; all programs are ended after it."""
    stage = Stage(url, tmp_path)
    runner.run(stage.app.open())
    yield stage
    try:
        for program in stage.programs:
            runner.run(program.remove())
    finally:
        runner.run(stage.app.close())


__all__ = ["APP", "DEADLINE", "LONG_LEASE", "ROOT", "Program", "Stage", "is_alive", "until"]
