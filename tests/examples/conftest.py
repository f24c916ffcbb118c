"""Examples as a reader runs them: the command of their page, real processes, a free port, nothing left behind."""

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

PATIENCE = 90.0


def page(name: str) -> str:
    """The page of an example."""
    return f"examples/{name}/README.md"


class Show:
    """One example that runs, and what it has printed so far."""

    def __init__(self, name: str, **settings: str) -> None:
        self.name = name
        self.port = free_port()
        self._place = Path(tempfile.mkdtemp(prefix="example-"))  # short, for there are sockets in it
        self._output = self._place / "output"
        self._marker = f"EXAMPLE_SHOW={self._place}"
        (self._place / "tmp").mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
        environment |= {
            "EXAMPLE_SHOW": str(self._place),
            "PORT": str(self.port),
            "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
            "TMPDIR": str(self._place / "tmp"),
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
        """Wait for a line like this."""
        until = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.printed, re.MULTILINE)) is None:
            assert self._process.poll() is None, f"it ended without {pattern!r}:\n{self.printed}"
            assert time.monotonic() < until, f"no {pattern!r} in:\n{self.printed}"
            time.sleep(0.05)
        return found

    def kill(self, part: str) -> None:
        """Kill -9 one of its processes, and see that it is started again."""
        pid = int(self.line(rf"^{part} +\| started, pid (\d+)")[1])
        os.kill(pid, signal.SIGKILL)
        self.line(rf"^{part} +\| killed by SIGKILL")

    def stop(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> str:
        """Wait for its end, which is a good one; gives what was printed. Its processes and files are gone."""
        code = self._process.wait(PATIENCE)
        assert code == 0, self.printed
        assert self._left() == []
        assert list((self._place / "tmp").iterdir()) == []
        return self.printed

    def as_its_page_says(self) -> bool:
        """Whether it printed every line that its page shows first; `…` stands for anything.

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
        shutil.rmtree(self._place)

    def _left(self) -> list[int]:
        """The processes of this example that are there, whoever started them."""
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self._marker.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


@pytest.fixture
def start() -> Iterator[Callable[..., Show]]:
    """Start an example, with settings of its environment."""
    shows: list[Show] = []

    def begin(name: str, **settings: str) -> Show:
        shows.append(Show(name, **settings))
        return shows[-1]

    yield begin
    for show in shows:
        show.remove()


@pytest.fixture(scope="session")
def example_servers() -> Iterator[Servers]:
    """Servers for the examples alone: they use the usual namespace."""
    servers = Servers()
    yield servers
    servers.remove()


@pytest.fixture
def redis_url(example_servers: Servers) -> Iterator[str]:
    """An empty Redis, and empty again afterwards."""
    server = example_servers.get("redis")
    assert isinstance(server, Server)
    yield f"redis://{server.address}"
    with server.client() as client:
        client.flushall()
