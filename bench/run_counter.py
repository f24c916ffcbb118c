"""Counters of handler runs, in files, at a negligible cost.

Every thread that runs handlers has a memory-mapped file of its own and adds one to the number in it: no lock, no system
call, no server. The bench adds up the numbers. Pickup times are appended to one more file. The module needs nothing but
the standard library, since peers run it in their environments.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Any

#: The environment variable with the folder of the files.
FOLDER = "BENCH_COUNTERS"

_own = threading.local()
_numbers = itertools.count()  # for the file names: the ident of a finished thread may be reused
_stamps: int | None = None


def _reset() -> None:
    global _own, _stamps
    _own, _stamps = threading.local(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)


def count() -> None:
    """Count one run in this thread."""
    try:
        _own.runs[0] += 1
    except AttributeError:
        path = Path(os.environ[FOLDER]) / f"runs-{os.getpid()}-{next(_numbers)}"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            _own.runs = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
        _own.runs[0] = 1


def record_run(payload: dict[str, Any]) -> None:
    """Count a run, and record the time since its enqueue if the payload has it: the body of every handler."""
    if "at" in payload:
        _stamp(time.monotonic_ns() - payload["at"])
    count()


def _stamp(elapsed: int) -> None:
    global _stamps
    if _stamps is None:
        path = Path(os.environ[FOLDER]) / "stamps"
        _stamps = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_stamps, b"%d\n" % elapsed)


class RunCounter:
    """Reader of the counters in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, int] = {}

    def runs(self) -> int:
        """Return how many handlers have run so far, in all processes and threads."""
        for name in os.listdir(self.folder):
            if name.startswith("runs-") and name not in self._files:
                self._files[name] = os.open(self.folder / name, os.O_RDONLY)
        return sum(int.from_bytes(os.pread(file, 8, 0), "little") for file in self._files.values())

    def stamps(self) -> list[int]:
        """Return the nanoseconds from the enqueue of each job to its handler, in the order of the handlers."""
        path = self.folder / "stamps"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()
