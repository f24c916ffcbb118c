"""The files of a history: every process appends lines to a file of its own and never changes one.

A line is one JSON object, written with one call, so that a process killed at any moment leaves whole lines and at
most one torn one at the end. Times (`t` of the record, `a` of the request that it answers) are microseconds of the
machine's monotonic clock, which all processes share even when their wall clocks differ.

Keys are short because a run writes many records: `k` kind, `q` queue, `n` number of the payload, `s` number of the
request within its process, `r` number of the run within its process, `u` units, `w` worker, `tok` token.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Log", "Record", "now", "read_all"]

Record = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def now() -> int:
    """Return the microseconds of the monotonic clock."""
    return time.monotonic_ns() // 1000


class Log:
    """Append-only file `<folder>/<role>-<pid>-<time>.log`, opened at the first write and again after a fork."""

    def __init__(self, folder: Path | str, role: str) -> None:
        self._folder = Path(folder)
        self._role = role
        self._pid = 0
        self._fd = -1
        self._lock = threading.Lock()

    def write(self, kind: str, /, **fields: Any) -> None:
        """Append one record; `t` is the current time unless it is given."""
        if self._pid != os.getpid():
            self._open()
        fields.setdefault("t", now())
        os.write(self._fd, _encode({"k": kind, **fields}) + b"\n")

    def _open(self) -> None:
        with self._lock:
            pid = os.getpid()
            if self._pid == pid:
                return
            path = self._folder / f"{self._role}-{pid}-{time.monotonic_ns()}.log"
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._pid = pid
        self.write("file", pid=pid, role=self._role, wall=time.time_ns() // 1000)

    def close(self) -> None:
        """Close the file; a later write opens another."""
        if self._pid == os.getpid():
            os.close(self._fd)
        self._pid = 0


def read_all(folder: Path | str) -> list[Record]:
    """Return all records of a run in the order of time, each with the `pid` and the `role` of its writer."""
    found: list[Record] = []
    for path in sorted(Path(folder).glob("*.log")):
        found += read_lines(path.read_bytes().split(b"\n"))
    found.sort(key=lambda record: record["t"])
    return found


def read_lines(lines: Iterable[bytes]) -> list[Record]:
    """Return the records of one file; a torn line is skipped."""
    found: list[Record] = []
    pid, role = 0, ""
    for line in lines:
        try:
            record = _decode(line)
        except msgspec.DecodeError:
            continue
        if record["k"] == "file":
            pid, role = record["pid"], record["role"]
        record.setdefault("pid", pid)
        record.setdefault("role", role)
        found.append(record)
    return found
