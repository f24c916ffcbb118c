"""The machine of a run: its description, and a lock that admits one benchmark at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def exclusive() -> Generator[None]:
    """Hold the lock of this machine's benchmarks, because two at once would slow each other down.

    SIGTERM ends the benchmark as Ctrl-C does, so that its processes are stopped.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with (Path(tempfile.gettempdir()) / "penstock-bench.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("bench: waiting for another benchmark to end", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def describe_machine() -> dict[str, Any]:
    """Return the hardware, the software and the current load of the machine."""
    about: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "memory_gb": round(int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]) / 2**20),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "persistence": "off",
    }
    return about


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
