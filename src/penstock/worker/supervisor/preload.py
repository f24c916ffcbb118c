"""Module that the fork server imports once, so that every child starts with it; it also guards the server.

A service manager may send SIGTERM to every process of the group. Children stop when their parent asks
them to; the server must not end before them, because they die with it. So it ignores SIGTERM, and has a
process group of its own: if its parent is killed, also with its whole group, the server is left to end
the children and the processes that their handlers started.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from pathlib import Path

from penstock.worker.supervisor import child

__all__ = ["child"]

#: How often (seconds) the server looks whether its parent is there: the end of a pipe may have been inherited.
PARENT_CHECK = 2.0


def guard_server() -> None:
    """Set up this process, the fork server, to end with its parent, and to end what its children leave."""
    server, parent = os.getpid(), os.getppid()

    def end_groups() -> None:
        if os.getpid() != server:
            return  # a child that exits
        for children in Path("/proc/self/task").glob("*/children"):
            for pid in children.read_text().split():
                with contextlib.suppress(OSError):
                    os.killpg(int(pid), signal.SIGKILL)

    def check_parent(number: int, frame: object) -> None:
        if os.getpid() == server and os.getppid() != parent:
            end_groups()
            os._exit(0)

    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, check_parent)
    signal.setitimer(signal.ITIMER_REAL, PARENT_CHECK, PARENT_CHECK)
    atexit.register(end_groups)


if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    guard_server()

with contextlib.suppress(ImportError):
    import uvloop  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport]
