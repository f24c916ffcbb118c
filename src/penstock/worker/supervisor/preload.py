"""Module that the fork server imports once, so that every child starts with it; it also ignores SIGTERM.

A service manager may send SIGTERM to every process of the group. Children stop when their parent asks
them to; the server must not end before them, because they die with it.
"""

from __future__ import annotations

import contextlib
import signal
import sys

from penstock.worker.supervisor import child

__all__ = ["child"]

if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

with contextlib.suppress(ImportError):
    import uvloop  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport]
