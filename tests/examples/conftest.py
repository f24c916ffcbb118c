"""Examples run as on their page: the same command, real processes, a free port."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from tests.docs.blocks import ROOT, blocks
from tests.servers import Server, Servers, free_port

TIMEOUT = 90.0


def page(name: str) -> str:
    """Return the page of an example."""
    return f"examples/{name}/README.md"


class RunningExample:
    """One running example, and its output so far."""

    def __init__(self, name: str, **settings: str) -> None:
        self.name = name
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="example-"))  # a short path, since sockets are made in it
        self._output = self._directory / "output"
        self._marker = f"EXAMPLE_MARKER={self._directory}"
        (self._directory / "tmp").mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
        environment |= {
            "EXAMPLE_MARKER": str(self._directory),
            "PORT": str(self.port),
            "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
            "TMPDIR": str(self._directory / "tmp"),
            **settings,
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "examples/run.py", name], cwd=ROOT, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    @property
    def printed(self) -> str:
        return self._output.read_text(errors="replace")

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches, and return the match."""
        until = time.monotonic() + TIMEOUT
        while (found := re.search(pattern, self.printed, re.MULTILINE)) is None:
            assert self._process.poll() is None, f"it ended without {pattern!r}:\n{self.printed}"
            assert time.monotonic() < until, f"no {pattern!r} in:\n{self.printed}"
            time.sleep(0.05)
        return found

    def kill(self, part: str) -> None:
        """Kill one of its processes with SIGKILL, and wait until it is started again."""
        pid = int(self.line(rf"^{part} +\| started, pid (\d+)")[1])
        os.kill(pid, signal.SIGKILL)
        self.line(rf"^{part} +\| killed by SIGKILL")

    def stop(self) -> None:
        """Interrupt the example, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def wait_for_exit(self) -> str:
        """Wait for its exit with code 0, without processes or files left; returns the output."""
        code = self._process.wait(TIMEOUT)
        assert code == 0, self.printed
        assert self._left() == []
        assert list((self._directory / "tmp").iterdir()) == []
        return self.printed

    def printed_as_on_its_page(self) -> bool:
        """Return whether it printed every line of the first output on its page; `…` matches anything.

        In no certain order: several processes print at once, and a test may have killed one.
        """
        shown = next(block.text for block in blocks("text") if block.page == page(self.name))
        for line in shown.splitlines():
            pattern = ".*".join(map(re.escape, line.strip().split("…")))
            assert re.search(f"^{pattern}$", self.printed, re.MULTILINE), f"no {line!r} in:\n{self.printed}"
        return True

    def remove(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(5)
        shutil.rmtree(self._directory)

    def _left(self) -> list[int]:
        """Return the processes of this example that still run, descendants included."""
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self._marker.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


@pytest.fixture
def start() -> Iterator[Callable[..., RunningExample]]:
    """A function that starts an example, with settings in its environment."""
    examples: list[RunningExample] = []

    def start_example(name: str, **settings: str) -> RunningExample:
        examples.append(RunningExample(name, **settings))
        return examples[-1]

    yield start_example
    for example in examples:
        example.remove()


@pytest.fixture(scope="session")
def example_servers() -> Iterator[Servers]:
    """Servers for the examples alone, which use the default namespace."""
    servers = Servers()
    yield servers
    servers.remove()


@pytest.fixture
def redis_url(example_servers: Servers) -> Iterator[str]:
    """An empty Redis server, cleared afterwards."""
    server = example_servers.get("redis")
    assert isinstance(server, Server)
    yield f"redis://{server.address}"
    with server.client() as client:
        client.flushall()
