"""How many jobs the producers may have asked for by now: a number in a file that the runner raises."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

__all__ = ["Pace"]

SIZE = 8


class Pace:
    """A number shared between processes. The runner writes it, the producers read it."""

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
