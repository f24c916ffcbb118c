"""The processes of a run: workers with their children, producers, the event watcher. All are killed by their pids."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ROOT", "Process", "WorkerProcess", "die_with_parent", "is_alive"]

ROOT = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill the calling process when its parent dies (for `preexec_fn`)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return the pids of all processes below a process."""
    return [each for child in _children(pid) for each in (child, *descendants(child))]


class Process:
    """Python program in a session of its own, with its output in a file."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], output: Path) -> None:
        self.output = output
        #: Pids of this process and of all that were ever seen below it.
        self.known: set[int] = set()
        full_environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, *arguments], env=full_environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit code, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def signal(self, number: int) -> None:
        if self.code is None:
            self._process.send_signal(number)

    def all(self) -> list[int]:
        """Return the pids of this process and of those below it."""
        found = [self.pid, *descendants(self.pid)] if self.code is None else []
        self.known.update(found)
        return found

    def signal_all(self, number: int) -> list[int]:
        """Send a signal to this process and to all below it; return their pids."""
        found = self.all()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return found

    def remove(self, seconds: float = 10.0) -> None:
        """Kill this process and all that were ever seen below it."""
        self.signal_all(signal.SIGCONT)
        self.signal_all(signal.SIGKILL)
        self._process.wait()
        until = time.monotonic() + seconds
        while (left := [pid for pid in self.known if is_alive(pid)]) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


class WorkerProcess(Process):
    """`penstock worker` with child processes."""

    def __init__(
        self, name: str, environment: Mapping[str, str], output: Path, *, processes: int, lease: float
    ) -> None:
        arguments = [
            "-m", "penstock", "worker", "chaos.jobs:app", "--processes", str(processes), "--lease", str(lease),
            "--grace", "2", "--max-rss", "220", "--wait", "--id", name,
        ]  # fmt: skip
        super().__init__(arguments, {**environment, "CHAOS_ROLE": name}, output)
        self.name = name

    def children(self) -> list[int]:
        """Return the pids of the processes that run handlers: the fork server below this process starts them."""
        found: list[int] = []
        for server in _children(self.pid):
            found += _children(server)
        self.known.update(found)
        return [pid for pid in found if is_alive(pid)]
