"""Child processes: their CPU time, their memory, and how they are stopped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STOP_SECONDS = 15.0
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill the calling process when its parent dies (for `preexec_fn`; Linux only)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process with all its threads, to the nanosecond (Linux: its CPU clock by pid)."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def _status(pid: int, field: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
    return 0


class Process:
    """Child process and all processes that it has started in its session."""

    def __init__(self, child: subprocess.Popen[bytes], *, session: bool = False) -> None:
        self.child = child
        self._session = session

    @property
    def pid(self) -> int:
        return self.child.pid

    def pids(self) -> list[int]:
        """Return the pids of the child and of its descendants."""
        if not self._session:
            return [self.pid]
        found: list[int] = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.getsid(int(name)) == self.pid:
                        found.append(int(name))
        return found

    def cpu(self) -> float:
        """Return the CPU seconds that the living processes have used."""
        return sum(_cpu(pid) for pid in self.pids())

    def cpus(self) -> dict[int, float]:
        return {pid: _cpu(pid) for pid in self.pids()}

    def rss(self) -> dict[int, float]:
        """Return the resident megabytes of each process, by its pid."""
        return {pid: _status(pid, "VmRSS") / 1024 for pid in self.pids()}

    def exit_code(self) -> int | None:
        return self.child.poll()

    def stop(self) -> None:
        """Send SIGTERM; after a timeout, kill it and the processes that it started."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(STOP_SECONDS)
        if self._session:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
