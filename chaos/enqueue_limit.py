"""The number of jobs that the producers may have enqueued by now, in a file that the runner raises."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

__all__ = ["EnqueueLimit"]

SIZE = 8


class EnqueueLimit:
    """Number in a memory-mapped file: the runner writes it, the producers read it."""

    def __init__(self, path: Path | str) -> None:
        file = Path(path)
        if not file.exists():
            file.write_bytes(bytes(SIZE))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), SIZE)

    @property
    def allowed(self) -> int:
        return struct.unpack_from("<q", self._map)[0]

    @allowed.setter
    def allowed(self, value: int) -> None:
        struct.pack_into("<q", self._map, 0, value)

    def close(self) -> None:
        self._map.close()
