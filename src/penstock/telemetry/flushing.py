"""Flushing of what is sent in the background, before a child process of a worker ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import process, util

__all__ = ["FlushAtExit"]


class FlushAtExit:
    """Calls a function when a child process ends: `multiprocessing` does not call those of `atexit` there."""

    def __init__(self, flush: Callable[[], object]) -> None:
        self._flush = flush
        self._pid = 0

    def watch(self) -> None:
        """Register the function in this process, if it is a child and was not registered here before."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            if process.parent_process() is not None:
                util.Finalize(self, self._flush, exitpriority=10)
