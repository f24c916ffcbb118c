"""How much memory a process has."""

from __future__ import annotations

import os

__all__ = ["resident"]


def resident(pid: int | None = None) -> int:
    """The bytes of memory that a process has, this one unless told; 0 where that is not known."""
    try:
        with open(f"/proc/{'self' if pid is None else pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
