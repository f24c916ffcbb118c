"""Imported once, by the server that forks the children: what they all need, and calm when a group is signalled.

A service manager may send SIGTERM to every process. The children end when their parent says so; the
server must not end before them, because they die with it.
"""

from __future__ import annotations

import contextlib
import signal
import sys

from penstock.worker.supervisor import child

__all__ = ["child"]

if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

with contextlib.suppress(ImportError):
    import uvloop  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport]
