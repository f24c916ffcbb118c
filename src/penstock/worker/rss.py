"""The memory of a process."""

from __future__ import annotations

import os

__all__ = ["resident"]


def resident(pid: int | None = None) -> int:
    """Return the resident bytes of a process, by default of this one; 0 where that is not known."""
    try:
        with open(f"/proc/{'self' if pid is None else pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
