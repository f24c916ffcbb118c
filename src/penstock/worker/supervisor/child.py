"""A child process: it claims, runs and settles by itself; its parent keeps its leases and its time."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from multiprocessing import forkserver
from typing import Any, TypeVar

from penstock.app_loader import load_all, one_line
from penstock.errors import StorageUnavailable
from penstock.host import AppHost
from penstock.log_config import configure
from penstock.model.handler import Handler
from penstock.worker.handlers import select_handlers, share_of
from penstock.worker.supervisor.channel import Channel
from penstock.worker.supervisor.child_runtime import ChildRuntime
from penstock.worker.supervisor.claim_table import ClaimTable
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.storage_match import location_of, why_parent_is_missing

__all__ = ["main", "run"]


T = TypeVar("T")

log = logging.getLogger("penstock.worker")

PR_SET_PDEATHSIG = 1


def main(settings: ChildConfig, board: ClaimTable, end: socket.socket) -> None:
    """What a child process does, from its start to its end."""
    settle_in()
    os.environ.clear()
    os.environ.update(settings.environment)
    if settings.log_level is not None:
        configure(settings.log_level)
    try:
        app = load_all(settings.source, settings.modules, settings.serves)
        handlers = select_handlers(app, settings.queues, settings.capacity)
    except Exception as error:
        log.debug("the app cannot be loaded", exc_info=True)
        end.sendall(f"failed {one_line(error)}\n".encode())
        return
    run(Child(settings, board, app, share_of(handlers, settings.slot, settings.slots)).work(end))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed."""
    gc.collect()
    gc.freeze()  # modules and what they made stay: a look at all of them would hold up runs for milliseconds
    try:
        factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        factory = None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)
    finally:
        gc.unfreeze()  # what wants to do something at the end is to be found


def settle_in() -> None:
    """Signals to the group are the parent's to act on; and no child outlives its parent."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, do_nothing)  # not SIG_IGN: programs that handlers start would inherit that
    server: Any = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if alive is None or not sys.platform.startswith("linux"):
        return
    # The server that forked us ends when nobody holds this pipe any more; we must not be the ones to hold it.
    with contextlib.suppress(OSError):
        os.close(alive)
    server._forkserver_alive_fd = None
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def do_nothing(number: int, frame: object) -> None:
    """A signal that somebody else acts on."""


class Child:
    """One child's life: open, say so, work until told to stop."""

    def __init__(self, settings: ChildConfig, board: ClaimTable, app: AppHost, handlers: dict[str, Handler]) -> None:
        self._settings = settings
        self._table = board
        self._app = app
        self._handlers = handlers
        self._stop = asyncio.Event()
        self._hurried = False
        self._channel: Channel | None = None
        self._runtime: ChildRuntime | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def work(self, end: socket.socket) -> None:
        line = self._channel = Channel(end, self._receive, lambda: os._exit(1))
        if await self._open(line):
            shift = self._runtime = ChildRuntime(self._app, self._settings, self._handlers, self._table, line.send)
            if self._settings.drain:
                await shift.drain(self._settings.scheduled)
            else:
                await shift.start()
            line.send("ready")
            await self._stop.wait()
            if self._hurried:
                shift.hurry.set()
            await shift.finish()
        await self._app.close()
        line.send("bye")
        line.close()

    async def _open(self, line: Channel) -> bool:
        """Open the storage, however long it takes, and see that the parent is there too."""
        now = asyncio.get_running_loop().time
        rest, unseen = 0.1, math.inf
        while not self._stop.is_set():
            try:
                await self._app.open()
                if self._settings.worker in [record.id for record in await self._app.storage.workers()]:
                    return True
                unseen = min(unseen, now())
                why = why_parent_is_missing(self._settings.storage, location_of(self._app.storage), now() - unseen)
                if why is not None:
                    line.send(f"failed {why}")
                    return False
                line.send("unseen")
            except StorageUnavailable as error:
                unseen = math.inf
                log.debug("the storage cannot be reached yet: %s", error)
            except Exception as error:
                line.send(f"failed {one_line(error)}")
                return False
            await asyncio.sleep(rest)
            rest = min(rest * 2, 5.0 if unseen == math.inf else 1.0)
        return False

    def _receive(self, words: str) -> None:
        if words in ("stop", "hurry"):
            if self._channel is not None:
                self._channel.send("stopping")
            self._stop.set()
        if words == "hurry":
            self._hurried = True
            if self._runtime is not None:
                self._runtime.hurry.set()
        elif words == "look" and self._runtime is not None:
            self._runtime.look()
        elif words == "again" and self._runtime is not None:
            self._runtime.again()
        elif words == "take over":
            self._settings = dataclasses.replace(self._settings, replacing=False)
            if self._runtime is not None:
                self._runtime.take_over()
        elif words == "release" and self._runtime is not None:
            task = asyncio.ensure_future(self._runtime.release())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
