"""The end of processes that a handler forked and that return from it.

`os.fork()` in a handler makes a copy of the worker's process. A copy that calls `exec` or `os._exit` is
the handler's own affair. A copy that returns from the handler, or awaits something, would go on as a
second worker with the same connections, claims and event loop; it is ended here instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import weakref
from typing import Any, NoReturn, Protocol

__all__ = ["PROCESS", "Process", "end_copy", "leave_loop", "watch_forks"]


class Process:
    """The id of this process, kept up to date after a fork: reading it is no system call."""

    def __init__(self) -> None:
        self.pid = os.getpid()


class Forkable(Protocol):
    """An object with an event loop that a forked copy must not run."""

    def forked(self) -> None:
        """End the copy as soon as it runs the loop."""
        ...


PROCESS = Process()

_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch_forks(owner: Forkable) -> int:
    """Call `forked` of this object in every copy of this process; returns the id of this process."""
    _watched.add(owner)
    return PROCESS.pid


def _forked() -> None:
    PROCESS.pid = os.getpid()
    for owner in list(_watched):
        owner.forked()


os.register_at_fork(after_in_child=_forked)


def end_copy() -> NoReturn:
    """End this process, a copy that a handler forked. It does not log: threads of log handlers are not copied."""
    text = f"penstock: process {os.getpid()} is ended: a handler forked it, and it returned; leave it with os._exit()\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    os._exit(1)


def leave_loop(loop: asyncio.AbstractEventLoop, thread: int) -> None:
    """End this copy when it runs the event loop that it shares with its parent, before it reads or writes anything.

    The callbacks that were ready are dropped where that is possible (asyncio), and the shared poll object
    is replaced by an empty one. `thread` runs the loop: in a copy of another thread nothing does.
    """
    if threading.get_ident() != thread:
        return
    ready: Any = getattr(loop, "_ready", None)
    if ready is not None:
        ready.clear()
    loop.call_soon(end_copy)
    selector: Any = getattr(loop, "_selector", None)
    poll_fd: Any = getattr(loop, "_get_backend_id", None) if selector is None else getattr(selector, "fileno", None)
    if poll_fd is not None and hasattr(select, "epoll"):
        with contextlib.suppress(OSError), select.epoll() as empty:
            os.dup2(empty.fileno(), poll_fd(), inheritable=False)
