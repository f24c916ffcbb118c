"""Child processes: what they cost, and their end."""

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
    """For `preexec_fn`: should we be killed, our children go too (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _cpu(pid: int) -> float:
    """CPU seconds of one process, all its threads, to the nanosecond (Linux: the clock of another process)."""
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
    """A child and everything that it has started in its session."""

    def __init__(self, child: subprocess.Popen[bytes], *, session: bool = False) -> None:
        self.child = child
        self._session = session

    @property
    def pid(self) -> int:
        return self.child.pid

    def pids(self) -> list[int]:
        """The child and its descendants."""
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
        """CPU seconds used so far by those that live."""
        return sum(_cpu(pid) for pid in self.pids())

    def cpus(self) -> dict[int, float]:
        return {pid: _cpu(pid) for pid in self.pids()}

    def rss(self) -> dict[int, float]:
        """Resident megabytes of each."""
        return {pid: _status(pid, "VmRSS") / 1024 for pid in self.pids()}

    def ended(self) -> int | None:
        return self.child.poll()

    def stop(self) -> None:
        """Ask it to end; after a while, make it and what it started end."""
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
