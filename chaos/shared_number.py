"""Numbers that the runner writes and other processes read, in files."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

__all__ = ["EnqueueLimit", "SharedNumber"]

SIZE = 8


class SharedNumber:
    """Number in a memory-mapped file, 0 at first."""

    def __init__(self, path: Path | str) -> None:
        file = Path(path)
        if not file.exists():
            file.write_bytes(bytes(SIZE))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), SIZE)

    @property
    def value(self) -> int:
        return struct.unpack_from("<q", self._map)[0]

    @value.setter
    def value(self, value: int) -> None:
        struct.pack_into("<q", self._map, 0, value)

    def close(self) -> None:
        self._map.close()


class EnqueueLimit(SharedNumber):
    """Number of jobs that the producers may have enqueued by now."""

    @property
    def allowed(self) -> int:
        return self.value

    @allowed.setter
    def allowed(self, value: int) -> None:
        self.value = value
